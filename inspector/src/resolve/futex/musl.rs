//! The locks of musl, whose words and layouts are others than glibc's: `src/internal/pthread_impl.h` and `src/thread/` of
//! 1.2.3 to 1.2.5, 64-bit.
//!
//! Its mutexes keep no owner unless they need one, and a private condition variable is waited for on a word of the waiter's
//! own stack. Most builds have no unwind tables, so that nothing but the memory tells what the word belongs to.

use super::{Command, Futex};
use crate::model::{FrameKind, Owner, Process, Thread, Wait, WaitKind};

/// Somebody waits: in the words of mutexes and read-write locks.
const WAITERS: u32 = 0x8000_0000;
/// Who holds a mutex that keeps its owner; the bit above says that one died with it.
const OWNER: u32 = 0x3fff_ffff;
/// `EBUSY`: what the word of a taken mutex holds that keeps no owner.
const TAKEN: u32 = 16;
/// Most plausible number of waiters or readers.
const MAX_WAITERS: u32 = 1 << 22;
/// Bits of a mutex's type.
const TYPE: u32 = 3;
const ROBUST: u32 = 4;
const PRIO_INHERIT: u32 = 8;
const SHARED: u32 = 128;
/// Read-write lock: held for writing.
const WRITE_HELD: u32 = 0x7fff_ffff;
/// Somebody waits: in the word of a stdio stream.
const STREAM_WAITERS: u32 = 0x4000_0000;
/// Bound on how far `detach_state` lies from the thread pointer (56 bytes after it on x86-64).
const REACH: u64 = 256;
/// Bound on how far the word of a condition variable's waiter lies from its stack pointer.
const FRAME: u64 = 4096;

/// Functions of musl's that no other C library has.
const OWN_FUNCTIONS: [&str; 5] =
    ["__syscall_cp_c", "__syscall_cp_asm", "__timedwait", "__timedwait_cp", "__lockfile"];

/// Whether the C library of a process is musl: by the file or by the functions that its threads are in.
pub(in crate::resolve) fn is_linked_to(process: &Process) -> bool {
    process.frames.iter().filter(|frame| frame.kind == FrameKind::Native).any(|frame| {
        let path = frame.module.as_deref().unwrap_or_default();
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_musl = name.starts_with("ld-musl-") || name.starts_with("libc.musl-");
        // Debian's `x86_64-linux-musl/libc.so`.
        is_musl
            || (name == "libc.so" && path.contains("musl"))
            || OWN_FUNCTIONS.contains(&frame.function.as_str())
    })
}

pub(super) fn decode(futex: &Futex<'_>) -> Option<Wait> {
    let decoders: [fn(&Futex<'_>, u32) -> Option<Wait>; 6] =
        [join, owned_mutex, stdio, mutex_or_rwlock, semaphore, condvar];
    let value = futex.value()?;
    if futex.command == Command::LockPi {
        // The kernel itself takes the owner from this word.
        return Some(held(futex, value & OWNER, "pi", futex.base(4)?));
    }
    decoders.into_iter().find_map(|decode| decode(futex, value))
}

/// `pthread_mutex_t`: type at 0, the word at 4, number of waiters at 8, count at 20. One that keeps its owner is in a list of
/// its owner's, with links at 24 and 32.
fn owned_mutex(futex: &Futex<'_>, value: u32) -> Option<Wait> {
    let kind = mutex_type(futex, value)?;
    let linked = [20, 28].into_iter().all(|link| futex.at_u64(link).is_some_and(|pointer| pointer != 0));
    let flavour = match kind & TYPE {
        _ if kind & ROBUST != 0 => "robust",
        1 => "recursive",
        2 => "errorcheck",
        _ => return None,
    };
    if !linked {
        return None;
    }
    Some(held(futex, value & OWNER, flavour, futex.base(4)?))
}

/// Whoever waits for a mutex is counted, and the type has bits that mean something.
fn mutex_type(futex: &Futex<'_>, value: u32) -> Option<u32> {
    let kind = futex.at(-4)?;
    let legal = kind & !(TYPE | ROBUST | PRIO_INHERIT | SHARED) == 0 && kind & TYPE != TYPE;
    (value & WAITERS != 0 && legal && waited_for(futex)).then_some(kind)
}

fn waited_for(futex: &Futex<'_>) -> bool {
    futex.at(4).is_some_and(|waiters| (1..=MAX_WAITERS).contains(&waiters))
}

/// A mutex without an owner, or `pthread_rwlock_t`: the word at 0 (number of readers, or all bits for a writer), number of
/// waiters at 4, at 8 whether it is shared. A read-write lock with sixteen readers looks like a mutex.
fn mutex_or_rwlock(futex: &Futex<'_>, value: u32) -> Option<Wait> {
    let is_shared = if futex.private { 0 } else { SHARED };
    if value == WAITERS | TAKEN && mutex_type(futex, value)? & !SHARED == 0 {
        let base = futex.base(4)?;
        return Some(Wait {
            kind: WaitKind::Mutex,
            text: format!("mutex {base:#x}, which records no owner"),
            address: Some(base),
            flavour: Some("normal".to_owned()),
            ..Wait::default()
        });
    }
    if value & WAITERS == 0 || !waited_for(futex) || futex.at(8)? != is_shared {
        return None;
    }
    let (held, flavour) = match value & !WAITERS {
        WRITE_HELD => ("for writing".to_owned(), None),
        // Readers do not wait for readers.
        readers @ 1..=MAX_WAITERS => (format!("by {readers} readers"), Some("writer".to_owned())),
        _ => return None,
    };
    Some(Wait {
        kind: WaitKind::Rwlock,
        text: format!("rwlock {:#x} held {held}, which records no owner", futex.word),
        address: Some(futex.word),
        flavour,
        ..Wait::default()
    })
}

/// `sem_t`: the word at 0, number of waiters at 4, at 8 the futex flag (128 for a private one).
fn semaphore(futex: &Futex<'_>, value: u32) -> Option<Wait> {
    let flag = if futex.private { 128 } else { 0 };
    // Up to 1.2.3 it counts down to -1, later on a bit says that somebody waits.
    let empty = value == u32::MAX || value == WAITERS;
    (empty && waited_for(futex) && futex.at(8)? == flag).then(|| Wait {
        kind: WaitKind::Semaphore,
        text: format!("semaphore {:#x}, which records no owner", futex.word),
        address: Some(futex.word),
        ..Wait::default()
    })
}

/// `pthread_cond_t`. A private one links waiters on their own stacks: there a state at -4 and the word, 2 while it waits. A
/// shared one has all bits at 0, the word at 8 and the number of waiters at 12.
fn condvar(futex: &Futex<'_>, value: u32) -> Option<Wait> {
    let sp = futex.blocked.thread.registers?.sp;
    let on_own_stack = futex.word.checked_sub(sp).is_some_and(|distance| distance < FRAME);
    let private = futex.private && value == 2 && on_own_stack && futex.at(-4)? == 0;
    let shared = !futex.private && futex.at_u64(-8) == Some(u64::MAX) && waited_for(futex);
    let address = if shared { Some(futex.base(8)?) } else { None };
    let name = address.map(|address| format!(" {address:#x}")).unwrap_or_default();
    (private || shared).then(|| Wait {
        kind: WaitKind::Condvar,
        text: format!("condition variable{name}, which records no owner"),
        address,
        ..Wait::default()
    })
}

/// `pthread_join`: the word is `detach_state` of the joined thread's own structure, which lies at its thread pointer (below it
/// on aarch64).
fn join(futex: &Futex<'_>, value: u32) -> Option<Wait> {
    // Joinable, or about to end.
    if !futex.private || !matches!(value, 1 | 2) {
        return None;
    }
    let process = futex.blocked.process;
    let near = |thread: &&Thread| {
        let distance = thread.thread_pointer.map(|pointer| pointer.abs_diff(futex.word));
        thread.tid != futex.blocked.thread.tid && distance.is_some_and(|distance| distance < REACH)
    };
    let thread = process.threads.iter().find(near)?;
    let evidence = format!("the futex word at {:#x} is in the joined thread's own structure", futex.word);
    Some(Wait {
        kind: WaitKind::Join,
        text: format!("end of {} (tid {})", thread.name(), thread.tid),
        address: Some(futex.word),
        owners: vec![Owner {
            pid: process.pid,
            tid: Some(thread.tid),
            certainty: futex.blocked.certainty(),
            evidence,
        }],
        ..Wait::default()
    })
}

/// The lock of a stdio stream, which is the owner's tid; in `FILE` the descriptor lies 20 bytes before it, the count of its
/// owner's locks 12, and the character that ends a line, or -1, behind it.
fn stdio(futex: &Futex<'_>, value: u32) -> Option<Wait> {
    let line_end = futex.at(4)?.cast_signed();
    let descriptor = futex.at(-20)?.cast_signed();
    let shaped = (-1..=255).contains(&line_end)
        && (-1..1 << 24).contains(&descriptor)
        && futex.at_u64(-12)? < u64::from(MAX_WAITERS);
    (shaped && value & (STREAM_WAITERS | WAITERS) == STREAM_WAITERS && futex.names_somebody(value & OWNER))
        .then(|| held(futex, value & OWNER, "stdio", futex.word))
}

fn held(futex: &Futex<'_>, tid: u32, flavour: &str, address: u64) -> Wait {
    let what = if flavour == "stdio" { "stdio lock" } else { "mutex" };
    let holder = futex.holder(tid, &format!("futex word at {:#x}", futex.word));
    Wait {
        kind: WaitKind::Mutex,
        text: format!("{what} {address:#x} {}", holder.by),
        address: Some(address),
        flavour: Some(flavour.to_owned()),
        owners: holder.owners,
        ..Wait::default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::tests::{HOLDER, OBJECT, WAIT, WAITER, capture},
        *,
    };
    use crate::{
        model::{Capture, Certainty, Frame, Registers},
        resolve::resolve,
    };

    /// `FUTEX_WAIT` on a word that processes share.
    const WAIT_SHARED: u64 = 0;

    /// As `capture`, in a process that has musl.
    fn with_musl(words: &[u32], at: u64, operation: u64, expected: u32) -> Capture {
        let mut capture = capture(words, at, operation, expected);
        let process = &mut capture.processes[0];
        process.frames.push(std::sync::Arc::new(Frame {
            kind: FrameKind::Native,
            function: "0x1234".into(),
            file: None,
            line: None,
            module: Some("/lib/ld-musl-x86_64.so.1".into()),
            address: None,
        }));
        process.threads[0].registers = Some(Registers { sp: OBJECT, ..Registers::default() });
        process.threads[1].thread_pointer = Some(OBJECT + 0x10_0000);
        capture
    }

    fn waits(words: &[u32], at: u64, operation: u64, expected: u32) -> Wait {
        resolve(&with_musl(words, at, operation, expected)).remove(0).wait
    }

    #[test]
    fn mutexes_that_keep_their_owner() {
        let word = WAITERS | 8;
        for (kind, flavour) in [(1, "recursive"), (2, "errorcheck"), (4, "robust"), (5, "robust")] {
            let wait = waits(&[kind, word, 1, 0, 0, 0, 9, 9, 9, 9], 4, WAIT, word);
            assert_eq!((wait.kind, wait.flavour.as_deref()), (WaitKind::Mutex, Some(flavour)), "{wait:?}");
            assert_eq!((wait.address, wait.owners.len()), (Some(OBJECT), 1), "{wait:?}");
            assert_eq!((wait.owners[0].tid, wait.owners[0].certainty), (Some(HOLDER), Certainty::Proven));
        }
        let inheriting = waits(&[8, word, 1, 0, 0, 0, 9, 9, 9, 9], 4, 6 | 128, 0);
        assert_eq!((inheriting.flavour.as_deref(), inheriting.address), (Some("pi"), Some(OBJECT)));
        assert_eq!(inheriting.owners[0].tid, Some(HOLDER));
        let ended = WAITERS | 0x1267;
        let wait = waits(&[1, ended, 1, 0, 0, 0, 9, 9, 9, 9], 4, WAIT, ended);
        assert_eq!((wait.kind, wait.owners.len()), (WaitKind::Mutex, 0), "{wait:?}");
    }

    #[test]
    fn objects_without_an_owner() {
        let taken = WAITERS | TAKEN;
        for (words, at, operation, expected, kind, address) in [
            (vec![0, taken, 1, 0, 0, 0, 0, 0, 0, 0], 4, WAIT, taken, WaitKind::Mutex, 0),
            (vec![u32::MAX, 1, 0, 0], 0, WAIT, u32::MAX, WaitKind::Rwlock, 0),
            // Eight readers, and before it something that looks like the type of a mutex; thread 8 is no owner.
            (vec![1, WAITERS | 8, 1, 0, 0, 0, 0, 0, 0, 0], 4, WAIT, WAITERS | 8, WaitKind::Rwlock, 4),
            (vec![u32::MAX, 1, 128, 0], 0, WAIT, u32::MAX, WaitKind::Semaphore, 0),
            (vec![u32::MAX, 1, 0, 0], 0, WAIT_SHARED, u32::MAX, WaitKind::Semaphore, 0),
            (vec![WAITERS, 1, 128, 0], 0, WAIT, WAITERS, WaitKind::Semaphore, 0),
            (vec![u32::MAX, u32::MAX, 7, 1, 0], 8, WAIT_SHARED, 7, WaitKind::Condvar, 0),
        ] {
            let wait = waits(&words, at, operation, expected);
            assert_eq!((wait.kind, wait.address), (kind, Some(OBJECT + address)), "{words:x?} {wait:?}");
            assert!(wait.owners.is_empty(), "{wait:?}");
        }
        let private = waits(&[0, 0, 0, 0, 0, 2, 0, 0], 20, WAIT, 2);
        assert_eq!((private.kind, private.address), (WaitKind::Condvar, None), "{private:?}");
        assert_eq!(waits(&[0, 3, 0, 0], 4, WAIT, 3).kind, WaitKind::Futex);
    }

    #[test]
    fn a_join_and_a_stream_lead_to_their_threads() {
        let mut capture = with_musl(&[0, 2, 0, 0], 4, WAIT, 2);
        capture.processes[0].threads[1].thread_pointer = Some(OBJECT + 4 - 56);
        let join = resolve(&capture).remove(0).wait;
        assert_eq!((join.kind, join.owners[0].tid), (WaitKind::Join, Some(HOLDER)), "{join:?}");
        let word = STREAM_WAITERS | 8;
        let stream = waits(&[3, 0, 1, 0, u32::MAX, word, 10, 0], 20, WAIT, word);
        assert_eq!((stream.kind, stream.flavour.as_deref()), (WaitKind::Mutex, Some("stdio")), "{stream:?}");
        assert_eq!(stream.owners[0].tid, Some(HOLDER));
    }

    proptest! {
        #[test]
        fn random_bytes_never_name_a_thread_that_is_not_there(
            words in proptest::collection::vec(prop_oneof![0u32..10, any::<u32>()], 0..40),
            at in 0u64..160,
            operation in 0u64..512,
            expected in prop_oneof![0u32..10, any::<u32>()],
        ) {
            for resolved in resolve(&with_musl(&words, at, operation, expected)) {
                for owner in resolved.wait.owners {
                    prop_assert_eq!(owner.pid, WAITER);
                    prop_assert!(matches!(owner.tid, Some(HOLDER | WAITER)));
                }
            }
        }
    }
}
