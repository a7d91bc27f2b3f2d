//! Who holds a lock of Python's: the thread that the lock names; where it names none, those whose `with` block is on it.

use super::super::{Futex, likely_unless};
use crate::model::{Certainty, LockHolder, Owner, Process, PythonLock, SharedObject, Thread};

/// Most holders that are listed: a semaphore can have many.
const MAX_HOLDERS: usize = 16;

pub(super) fn owners(futex: &Futex<'_>, lock: &PythonLock) -> Vec<Owner> {
    let process = futex.blocked.process;
    if let Some(owner) = lock.holder.as_ref().and_then(|holder| by_word(futex, lock, holder)) {
        return vec![owner];
    }
    let here = process.threads.iter().map(|thread| (process, thread));
    let own = here.filter(|(_, thread)| holds(thread).any(|held| is_same(held, lock)));
    let others = futex.blocked.scene.capture.processes.iter().filter(|other| other.pid != process.pid);
    let others = others.flat_map(|other| other.threads.iter().map(move |thread| (other, thread)));
    let shared = process.shared_object(lock.address).filter(|object| !futex.private && object.is_unique());
    let others = others.filter(|(other, thread)| {
        shared.as_ref().is_some_and(|object| holds(thread).any(|held| is_shared(object, other, held)))
    });
    own.chain(others).take(MAX_HOLDERS).map(|(process, thread)| by_block(process, thread, lock)).collect()
}

/// The thread that the lock names. Where another can release it as well, it is only likely to do that.
fn by_word(futex: &Futex<'_>, lock: &PythonLock, holder: &LockHolder) -> Option<Owner> {
    let process = futex.blocked.process;
    let (_, thread) = futex.blocked.scene.thread(holder.tid?).filter(|(of, _)| of.pid == process.pid)?;
    Some(Owner {
        pid: process.pid,
        tid: Some(thread.tid),
        certainty: likely_unless(holder.exclusive, futex.blocked.certainty()),
        evidence: format!("{} at {:#x}", holder.word, lock.object.address),
    })
}

fn by_block(process: &Process, thread: &Thread, lock: &PythonLock) -> Owner {
    Owner {
        pid: process.pid,
        tid: Some(thread.tid),
        certainty: Certainty::Likely,
        evidence: format!("a with block of its frame is on the {}", lock.object.type_name),
    }
}

fn holds(thread: &Thread) -> impl Iterator<Item = &PythonLock> {
    thread.python.iter().flat_map(|python| &python.holds)
}

/// The lock, or the semaphore: one that has no lock of its own bears the object's address.
fn is_same(held: &PythonLock, waited: &PythonLock) -> bool {
    held.address == waited.address
        || held.address == held.object.address && held.object.address == waited.object.address
}

/// Both lie at the same place of the same file.
fn is_shared(object: &SharedObject, other: &Process, held: &PythonLock) -> bool {
    let held = other.shared_object(held.address).filter(SharedObject::is_unique);
    held.is_some_and(|held| {
        (&held.device, held.inode, held.offset) == (&object.device, object.inode, object.offset)
    })
}

/// `, held by Thread-4 (tid 4711), count 2`; empty where nobody is known.
pub(super) fn text(futex: &Futex<'_>, lock: &PythonLock, owners: &[Owner]) -> String {
    let named = |owner: &Owner| {
        let (process, thread) = futex.blocked.scene.thread(owner.tid?)?;
        let pid = process.pid;
        let pid = if pid == futex.blocked.process.pid { String::new() } else { format!(" of pid {pid}") };
        Some(format!("{} (tid {}){pid}", thread.name(), thread.tid))
    };
    let names: Vec<String> = owners.iter().filter_map(named).take(3).collect();
    let more = if owners.len() > names.len() { " and others" } else { "" };
    let names = names.join(", ");
    match &lock.holder {
        Some(holder) if holder.tid.is_none() || owners.is_empty() => {
            format!(", held by a thread that was not found (ident {:#x})", holder.ident)
        }
        Some(LockHolder { count: None, .. }) => format!(", end of {names}"),
        Some(LockHolder { count: Some(count), exclusive, .. }) => {
            let how = if *exclusive { "held by" } else { "last taken by" };
            let count = if *count > 1 { format!(", count {count}") } else { String::new() };
            format!(", {how} {names}{count}")
        }
        None if owners.is_empty() => String::new(),
        None => format!(", in a with block of {names}{more}"),
    }
}
