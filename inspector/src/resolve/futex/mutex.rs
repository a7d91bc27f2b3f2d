//! `pthread_mutex_t`: lock word at 0, count at 4, owner's tid at 8, number of users at 12, kind at 16.

use super::{Command, Futex, MAX_TID};
use crate::model::{Owner, Wait, WaitKind};

/// Bits of the kind (`nptl/pthreadP.h`).
const TYPE: u32 = 3;
const ROBUST: u32 = 16;
const PRIO_INHERIT: u32 = 32;
const SHARED: u32 = 128;
const ELISION: u32 = 256 | 512;
/// Bits of a robust or PI lock word (`include/uapi/linux/futex.h`).
const WAITERS: u32 = 0x8000_0000;
const OWNER_DIED: u32 = 0x4000_0000;
pub(super) const TID_MASK: u32 = 0x3fff_ffff;
/// A lock word that is taken and has waiters.
const CONTENDED: u32 = 2;
/// Most plausible number of users: the owner and those in `pthread_cond_wait` with it.
const MAX_USERS: u32 = 1 << 16;

pub(super) fn decode(futex: &Futex<'_>) -> Option<Wait> {
    if let Some(wait) = orphaned(futex) {
        return Some(wait);
    }
    let value = futex.value()?;
    if futex.command == Command::LockPi {
        // The kernel itself takes the owner from this word, whatever the object around it. One that ends hands it over.
        return Some(held(futex, value & TID_MASK, "pi", "futex word", false));
    }
    let kind = futex.at(16)?;
    let users = futex.at(12)?;
    let is_tid = |tid: u32| (1..=MAX_TID).contains(&tid);
    if value & WAITERS != 0
        && kind & ROBUST != 0
        && legal(kind, ROBUST | PRIO_INHERIT)
        && is_tid(value & TID_MASK)
    {
        return Some(held(futex, value & TID_MASK, "robust", "futex word", true));
    }
    if value != CONTENDED {
        return None;
    }
    let owner = futex.at(8)?;
    if legal(kind, 0) && (1..=MAX_USERS).contains(&users) && is_tid(owner) {
        let flavour = match kind & TYPE {
            0 => "normal",
            1 => "recursive",
            2 => "errorcheck",
            _ => "adaptive",
        };
        // The owner of a shared one may be a thread of any process.
        let own = kind & SHARED == 0 || futex.blocked.process.shared_memory.is_some();
        return Some(held(futex, owner, flavour, "owner word", own));
    }
    stdio(futex)
}

/// The owner of a robust mutex ended: the kernel has marked the word and woken one waiter to take it over
/// (`kernel/futex/core.c`, `handle_futex_death`). Who still sleeps waits for that one.
fn orphaned(futex: &Futex<'_>) -> Option<Wait> {
    let kind = futex.at(16)?;
    let marked = futex.at(0)? & OWNER_DIED != 0 && futex.expected & WAITERS != 0;
    (marked && kind & ROBUST != 0 && legal(kind, ROBUST) && futex.in_glibc()).then(|| Wait {
        kind: WaitKind::Mutex,
        text: format!(
            "mutex {:#x}, whose owner has ended; another waiter was woken to take it over and has not done so yet",
            futex.word
        ),
        address: Some(futex.word),
        flavour: Some("robust".to_owned()),
        ..Wait::default()
    })
}

/// Only bits that mean something, and of the protocols only `allowed`.
const fn legal(kind: u32, allowed: u32) -> bool {
    kind & !(TYPE | SHARED | ELISION | allowed) == 0
}

/// `leavable`: its owner can end without anybody getting it.
fn held(futex: &Futex<'_>, tid: u32, flavour: &str, source: &str, leavable: bool) -> Wait {
    let at = if source == "owner word" { futex.word.saturating_add(8) } else { futex.word };
    let holder = futex.holder(tid, &format!("{source} at {at:#x}"));
    let gone = leavable && holder.gone && futex.in_glibc() && futex.tids_are_known();
    Wait {
        kind: WaitKind::Mutex,
        text: format!("mutex {:#x} {}", futex.word, holder.by),
        address: Some(futex.word),
        flavour: Some(flavour.to_owned()),
        owner_gone: gone.then_some(tid),
        owners: holder.owners,
        ..Wait::default()
    }
}

/// The lock of a stdio stream (`sysdeps/nptl/stdio-lock.h`): lock at 0, count at 4, at 8 the owner's thread pointer.
fn stdio(futex: &Futex<'_>) -> Option<Wait> {
    let pointer = futex.at_u64(8).filter(|&pointer| pointer != 0)?;
    let process = futex.blocked.process;
    let thread = process.threads.iter().find(|thread| thread.thread_pointer == Some(pointer))?;
    let evidence = format!("owner pointer at {:#x} is its thread pointer", futex.word.saturating_add(8));
    Some(Wait {
        kind: WaitKind::Mutex,
        text: format!("stdio lock {:#x} held by {} (tid {})", futex.word, thread.name(), thread.tid),
        address: Some(futex.word),
        flavour: Some("stdio".to_owned()),
        owners: vec![Owner {
            pid: process.pid,
            tid: Some(thread.tid),
            certainty: futex.blocked.certainty(),
            evidence,
        }],
        ..Wait::default()
    })
}
