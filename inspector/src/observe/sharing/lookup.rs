//! Whom a thread id names in another process's PID namespace.
//!
//! The files read here may belong to any process of the host, and one whose memory map is locked would hold the reader up:
//! this is work for [`crate::patience`].

use std::{
    fs,
    time::{Duration, Instant},
};

use super::super::maps::Maps;
use crate::model::{NamedTid, Namesake, SharedObject};

/// How long it is looked for; then nothing is said to be missing.
const PATIENCE: Duration = Duration::from_millis(400);
/// Most processes and threads looked at.
const MAX_PROCESSES: usize = 1 << 16;
const MAX_THREADS: usize = 1 << 16;

/// A thread id that a word of `object` holds, which a thread of `pid` waits for.
pub(super) struct Asked {
    pub(super) pid: u32,
    pub(super) ns_tid: u32,
    pub(super) object: SharedObject,
}

pub(super) fn look_up(asked: Asked) -> NamedTid {
    let Asked { pid, ns_tid, object } = asked;
    let namespace = namespace(&pid.to_string());
    let end = Instant::now() + PATIENCE;
    let here = namespace.is_some() && namespace == self::namespace("self");
    let thread = if here { in_ours(ns_tid, &object) } else { in_another(namespace, ns_tid, &object, end) };
    let (thread, searched) = match thread {
        Search::Found(thread) => (Some(thread), true),
        Search::None => (None, namespace.is_some()),
        Search::Cut => (None, false),
    };
    let complete = thread.is_none() && searched && alone(namespace, here, &object, end);
    NamedTid { ns_tid, object, thread, complete }
}

enum Search {
    Found(Namesake),
    None,
    Cut,
}

/// In inspector's own PID namespace a thread has a folder under its number, listed or not.
fn in_ours(tid: u32, object: &SharedObject) -> Search {
    let Ok(status) = fs::read(format!("/proc/{tid}/status")) else { return Search::None };
    let Some(pid) = number(&status, b"Tgid:") else { return Search::Cut };
    Search::Found(namesake(pid, tid, object))
}

/// In another one: among the threads of the processes that live there.
fn in_another(namespace: Option<u64>, ns_tid: u32, object: &SharedObject, end: Instant) -> Search {
    if namespace.is_none() {
        return Search::Cut;
    }
    let mut looked = 0;
    for pid in processes() {
        if self::namespace(&pid.to_string()) != namespace {
            continue;
        }
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for task in tasks.flatten() {
            looked += 1;
            if looked > MAX_THREADS || Instant::now() > end {
                return Search::Cut;
            }
            let Some(tid) = task.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let status = fs::read(task.path().join("status")).unwrap_or_default();
            if number(&status, b"NSpid:") == Some(ns_tid) {
                return Search::Found(namesake(pid, tid, object));
            }
        }
    }
    Search::None
}

fn namesake(pid: u32, tid: u32, object: &SharedObject) -> Namesake {
    let comm = fs::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    let comm = String::from_utf8_lossy(&comm).trim_end_matches('\n').to_owned();
    Namesake { pid, tid, comm, maps_object: can_lock(pid, object) }
}

/// Nobody outside of the namespace maps the object: there the number could mean another thread. `here`: it is inspector's
/// own, in which a process has one number, which needs no right to read.
fn alone(own: Option<u64>, here: bool, object: &SharedObject, end: Instant) -> bool {
    processes().into_iter().all(|pid| {
        if Instant::now() > end {
            return false;
        }
        if here && numbers(pid) == Some(1) {
            return true;
        }
        match namespace(&pid.to_string()) {
            None => has_ended(pid) || maps(pid, object) == Some(false),
            other if other == own => true,
            _ => maps(pid, object) == Some(false),
        }
    })
}

/// How many numbers a process has, from inspector's PID namespace inwards.
fn numbers(pid: u32) -> Option<usize> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"NSpid:"))?;
    Some(std::str::from_utf8(line).ok()?.split_whitespace().count())
}

/// It is gone, or a zombie, which maps nothing; unless it is only the first thread of several that ended.
fn has_ended(pid: u32) -> bool {
    let Ok(status) = fs::read(format!("/proc/{pid}/status")) else { return true };
    let zombie = status.split(|&byte| byte == b'\n').any(|line| line.starts_with(b"State:\tZ"));
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    zombie && tasks <= 1
}

fn can_lock(pid: u32, object: &SharedObject) -> bool {
    let mappings = Maps::read(pid).map(|maps| super::shared(&maps).0);
    mappings.is_ok_and(|mappings| mappings.iter().any(|mapping| mapping.can_lock(object)))
}

/// Whether it maps the object, if only to read: it may have been able to write when the lock was taken. `None`: could not
/// be read.
fn maps(pid: u32, object: &SharedObject) -> Option<bool> {
    let (mappings, cut) = super::shared(&Maps::read(pid).ok()?);
    let found = mappings.iter().any(|mapping| mapping.holds(object));
    (found || !cut).then_some(found)
}

/// Inode of the PID namespace of `/proc/ENTRY`.
fn namespace(entry: &str) -> Option<u64> {
    let link = fs::read_link(format!("/proc/{entry}/ns/pid")).ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).take(MAX_PROCESSES).collect()
}

/// The last number of a line of `status`. The line `Name` before it need not be UTF-8.
fn number(status: &[u8], key: &[u8]) -> Option<u32> {
    let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(key))?;
    std::str::from_utf8(line).ok()?.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(ns_tid: u32) -> Asked {
        let object = SharedObject { device: "ff:ff".into(), inode: 1, ..SharedObject::default() };
        Asked { pid: std::process::id(), ns_tid, object }
    }

    #[test]
    fn its_own_threads_are_found_under_their_numbers() {
        let own = std::process::id();
        let found = look_up(asked(own)).thread.expect("found");
        assert_eq!((found.pid, found.tid, found.maps_object), (own, own, false));
        // Above what a kernel gives out.
        let missing = look_up(asked(1 << 22));
        assert_eq!(missing.thread, None);
    }

    #[test]
    fn the_last_number_of_a_line() {
        assert_eq!(number(b"Name:\t\xff\nTgid:\t71\nNSpid:\t72\t9\t2\n", b"NSpid:"), Some(2));
        assert_eq!(number(b"Name:\tTgid:\n", b"Tgid:"), None);
    }
}
