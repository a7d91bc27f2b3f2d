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
const TID_MASK: u32 = 0x3fff_ffff;
/// A lock word that is taken and has waiters.
const CONTENDED: u32 = 2;
/// Most plausible number of users: the owner and those in `pthread_cond_wait` with it.
const MAX_USERS: u32 = 1 << 16;

pub(super) fn decode(futex: &Futex<'_>) -> Option<Wait> {
    let value = futex.value()?;
    let kind = futex.at(16);
    if futex.command == Command::LockPi {
        // The kernel itself takes the owner from this word, whatever the object around it.
        return Some(held(futex, value & TID_MASK, "pi", "futex word"));
    }
    let kind = kind?;
    let users = futex.at(12)?;
    if value & WAITERS != 0 && kind & ROBUST != 0 && legal(kind, ROBUST | PRIO_INHERIT) {
        return Some(held(futex, value & TID_MASK, "robust", "futex word"));
    }
    if value != CONTENDED {
        return None;
    }
    let owner = futex.at(8)?;
    if legal(kind, 0) && (1..=MAX_USERS).contains(&users) && (1..=MAX_TID).contains(&owner) {
        let flavour = match kind & TYPE {
            0 => "normal",
            1 => "recursive",
            2 => "errorcheck",
            _ => "adaptive",
        };
        let mut wait = held(futex, owner, flavour, "owner word");
        // The owner of a shared one may be a thread of any process.
        let private = kind & SHARED == 0;
        wait.owner_gone = Some(owner)
            .filter(|_| wait.owners.is_empty() && private && in_glibc(futex) && tids_are_known(futex));
        return Some(wait);
    }
    stdio(futex)
}

/// glibc's functions are on the stack. A lock of another library (Rust's, Go's) may bear the same numbers by chance.
fn in_glibc(futex: &Futex<'_>) -> bool {
    let takes = |name: &str| name.contains("pthread_mutex_") || name.contains("pthread_cond_");
    futex.blocked.native_above_python().any(|frame| takes(&frame.function))
}

/// The process's own numbers of its threads are known: a thread whose number in an inner PID namespace could not be read
/// has none, in older captures the host's.
fn tids_are_known(futex: &Futex<'_>) -> bool {
    let process = futex.blocked.process;
    process.ns_pids.len() <= 1
        || process.threads.iter().all(|thread| thread.ns_tid != 0 && thread.ns_tid != thread.tid)
}

/// Only bits that mean something, and of the protocols only `allowed`.
const fn legal(kind: u32, allowed: u32) -> bool {
    kind & !(TYPE | SHARED | ELISION | allowed) == 0
}

fn held(futex: &Futex<'_>, tid: u32, flavour: &str, source: &str) -> Wait {
    let at = if source == "owner word" { futex.word.saturating_add(8) } else { futex.word };
    let evidence = format!("{source} at {at:#x} holds {tid}");
    let live = futex.live(tid);
    let owners: Vec<Owner> =
        live.map(|(pid, thread)| futex.owner(pid, thread, evidence)).into_iter().collect();
    let own = owners.first().is_some_and(|owner| owner.tid == Some(futex.blocked.thread.tid));
    let by = match live {
        Some(_) if own => "held by this very thread".to_owned(),
        Some((_, thread)) => format!("held by {} (tid {})", thread.name(), thread.tid),
        None => {
            format!("held by tid {tid}, which is no thread of the process: it ended, or the process forked")
        }
    };
    Wait {
        kind: WaitKind::Mutex,
        text: format!("mutex {:#x} {by}", futex.word),
        address: Some(futex.word),
        flavour: Some(flavour.to_owned()),
        owners,
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
        owners: vec![futex.owner(process.pid, thread, evidence)],
        ..Wait::default()
    })
}
