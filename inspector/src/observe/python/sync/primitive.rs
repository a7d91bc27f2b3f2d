//! Locks that are written in C: the address that a futex wait for one shows, and who holds it where it keeps that.
//!
//! Members follow the object's head. Up to some release each begins with a pointer to its semaphore; later the lock itself
//! lies there. `tp_basicsize` tells the two apart. `lockobject`, `rlockobject` (Modules/_threadmodule.c),
//! `simplequeueobject` (Modules/_queuemodule.c), `SemLockObject` (Modules/_multiprocessing/semaphore.c), as of 3.8–3.15;
//! checked on living objects of each of these releases.

use super::object::{Kind, Objects};

/// `mutex`, `thread_is_exiting` and `once` of a `ThreadHandle`, one byte each (Modules/_threadmodule.c, 3.13–3.15).
const THREAD_HANDLE: (u64, u64) = (56, 3);

/// What waits for a lock show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// The address, or the first of them.
    pub(super) address: u64,
    /// How many addresses it can be.
    pub(super) span: u64,
}

impl Key {
    pub(super) fn matches(self, address: u64) -> bool {
        address.wrapping_sub(self.address) < self.span
    }
}

/// Who holds a lock, by what the lock itself says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// The thread's ident.
    pub(super) ident: u64,
    /// How often it took it.
    pub(super) count: u64,
    /// Nobody but this thread can release it.
    pub(super) exclusive: bool,
}

/// Whether the lock itself lies in the object (else a pointer to it does); `None`: not a layout that is known.
fn in_place(objects: &Objects<'_>, address: u64) -> Option<bool> {
    let type_ = objects.type_of(address)?;
    // (size with the lock in place, size with a pointer), without the object's head.
    let (lock, pointer) = match type_.kind {
        Kind::Lock => (8, 24),
        Kind::RLock => (24, 32),
        Kind::SimpleQueue => (56, 40),
        Kind::SemLock | Kind::ThreadHandle => return Some(false),
        _ => return None,
    };
    match type_.size.checked_sub(objects.layout.header as u64)? {
        size if size == lock => Some(true),
        size if size == pointer => Some(false),
        _ => None,
    }
}

/// What a wait for the lock at `address` shows; `None`: it is no lock, or of a layout that is not known.
pub(super) fn key(objects: &Objects<'_>, address: u64) -> Option<Key> {
    let first = if in_place(objects, address)? {
        address.checked_add(objects.layout.header as u64)?
    } else {
        objects.word(address, 0).filter(|&pointer| pointer >= 4096)?
    };
    if objects.kind(address) == Kind::ThreadHandle {
        let (offset, span) = THREAD_HANDLE;
        return Some(Key { address: first.checked_add(offset)?, span });
    }
    Some(Key { address: first, span: 1 })
}

/// Who holds the lock at `address`; `None`: nobody, or it does not keep that.
pub(super) fn held(objects: &Objects<'_>, address: u64) -> Option<Held> {
    match objects.kind(address) {
        Kind::RLock => {
            let (ident, count) = (objects.word(address, 8)?, objects.word(address, 16)?);
            // `_PyRecursiveMutex.level` counts from 0 (Python/lock.c), `rlock_count` from 1.
            let (taken, count) = if in_place(objects, address)? {
                (objects.word(address, 0)? & 1 != 0, count.saturating_add(1))
            } else {
                (count > 0, count)
            };
            (taken && ident != 0).then_some(Held { ident, count, exclusive: true })
        }
        Kind::SemLock => {
            let (ident, count) = (objects.word(address, 8)?, objects.half(address, 16)?.cast_signed());
            let count = u64::try_from(count).ok().filter(|&count| count > 0)?;
            // `kind` 0 is a recursive lock. A plain one any thread may release, a semaphore many may hold.
            let exclusive = objects.half(address, 24)? == 0;
            (ident != 0).then_some(Held { ident, count, exclusive })
        }
        _ => None,
    }
}

/// The most that a `SemLock` counts to: 1 for a lock.
pub(super) fn max_value(objects: &Objects<'_>, address: u64) -> Option<u32> {
    (objects.kind(address) == Kind::SemLock).then(|| objects.half(address, 20)).flatten()
}
