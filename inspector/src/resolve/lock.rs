//! Waits for file locks: `flock`, `fcntl` and open-file-description locks.

use super::{scene::Blocked, text};
use crate::model::{Certainty, FileLock, LockClass, LockWait, Owner, Wait, WaitKind};

/// `F_SETLKW` and `F_OFD_SETLKW` (`include/uapi/asm-generic/fcntl.h`, 64-bit).
const F_SETLKW: u32 = 7;
const F_OFD_SETLKW: u32 = 38;

/// `flock`, and `fcntl` with a command that waits.
pub(super) fn resolve(blocked: &Blocked<'_>) -> Option<Wait> {
    let (class, flavour) = match (blocked.name, blocked.argument(1) as u32) {
        ("flock", _) => (LockClass::Flock, "flock"),
        (_, F_SETLKW) => (LockClass::Posix, "posix"),
        (_, F_OFD_SETLKW) => (LockClass::Ofd, "ofd"),
        _ => return None,
    };
    let fd = blocked.fd(0);
    let what = text::descriptor(blocked.scene, blocked.open(fd));
    let wanted = wanted(blocked, class);
    let held: Vec<&FileLock> = obstacles(blocked, class, wanted.as_ref()).map(|wait| &wait.held).collect();
    let mut owners: Vec<Owner> = Vec::new();
    for lock in &held {
        for owner in holders(blocked, lock) {
            if !owners.iter().any(|known| known.pid == owner.pid) {
                owners.push(owner);
            }
        }
    }
    if owners.len() > 1 {
        for owner in &mut owners {
            owner.certainty = Certainty::Likely;
        }
    }
    let range = wanted.as_ref().map(range).unwrap_or_default();
    let by = match held.as_slice() {
        [] => String::new(),
        [lock] => format!("; in its way: {} lock{}", name(lock), range_of(lock)),
        several => format!("; in its way: {} locks", several.len()),
    };
    Some(Wait {
        kind: WaitKind::FileLock,
        text: format!("{flavour} lock on {what}{range}{by}"),
        flavour: Some(flavour.to_owned()),
        fd: Some(fd),
        owners,
        ..Wait::default()
    })
}

/// First byte and last one of what an `fcntl` asks for, where it counts from the file's start.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Range {
    start: u64,
    end: Option<u64>,
}

/// `struct flock`: type (i16) at 0, whence (i16) at 2, start (i64) at 8, length (i64) at 16; a length of 0 reaches to the
/// end, a negative one lies before the start.
fn wanted(blocked: &Blocked<'_>, class: LockClass) -> Option<Range> {
    if class == LockClass::Flock {
        return None;
    }
    let bytes = blocked.thread.saved(blocked.argument(2), 24)?;
    let whence = i16::from_le_bytes(bytes.get(2..4)?.try_into().ok()?);
    let start = i64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
    let length = i64::from_le_bytes(bytes.get(16..24)?.try_into().ok()?);
    let (first, last) = match length {
        0 => (start, None),
        1.. => (start, Some(start.checked_add(length)?.checked_sub(1)?)),
        _ => (start.checked_add(length)?, Some(start.checked_sub(1)?)),
    };
    let end = match last {
        // The kernel's `OFFSET_MAX` is the end of the file.
        Some(i64::MAX) | None => None,
        Some(last) => Some(u64::try_from(last).ok()?),
    };
    (i32::from(whence) == libc::SEEK_SET).then_some(Range { start: u64::try_from(first).ok()?, end })
}

/// The kernel's own pairs of this process's waits and the locks in their way. Where the range is known it tells the waits
/// of several threads apart; else the file does.
fn obstacles<'a>(
    blocked: &Blocked<'a>,
    class: LockClass,
    range: Option<&Range>,
) -> impl Iterator<Item = &'a LockWait> {
    let pid = blocked.process.pid;
    let details = blocked.open(blocked.fd(0)).and_then(|open| open.details.as_ref());
    let inode = details.and_then(|details| Some(details.file?.1));
    let range = range.copied();
    blocked.scene.capture.locks.iter().filter(move |wait| {
        let wanted = &wait.wanted;
        let own = wanted.pid == Some(pid) || (wanted.pid.is_none() && class == LockClass::Ofd);
        wanted.class == class
            && own
            && inode.is_none_or(|inode| wanted.inode == inode)
            && range.is_none_or(|range| (wanted.start, wanted.end) == (range.start, range.end))
    })
}

/// Who can give a lock up. A process's own (`fcntl`) is that process's. One of an open file description belongs to all
/// who have that description: `fdinfo` of each shows it.
fn holders(blocked: &Blocked<'_>, lock: &FileLock) -> Vec<Owner> {
    let owner = |pid: u32, certainty: Certainty, evidence: &str| Owner {
        pid,
        tid: None,
        certainty,
        evidence: evidence.to_owned(),
    };
    let named = |certainty, evidence| lock.pid.map(|pid| owner(pid, certainty, evidence));
    if matches!(lock.class, LockClass::Posix | LockClass::Lease) {
        return named(blocked.certainty(), "/proc/locks names it as the holder").into_iter().collect();
    }
    let evidence = "its descriptor shows the lock (fdinfo)";
    let pids = blocked.scene.lock_holders(lock);
    match pids.as_slice() {
        [] => {
            let evidence = "/proc/locks: it took the lock; who has the descriptor now was not seen";
            named(Certainty::Likely, evidence).into_iter().collect()
        }
        [pid] => vec![owner(*pid, blocked.certainty(), evidence)],
        several => several.iter().map(|&pid| owner(pid, Certainty::Likely, evidence)).collect(),
    }
}

fn name(lock: &FileLock) -> &'static str {
    match (lock.class, lock.write) {
        (LockClass::Flock, true) => "flock write",
        (LockClass::Flock, false) => "flock read",
        (LockClass::Posix, true) => "posix write",
        (LockClass::Posix, false) => "posix read",
        (LockClass::Ofd, true) => "ofd write",
        (LockClass::Ofd, false) => "ofd read",
        (LockClass::Lease, _) => "lease",
    }
}

fn range_of(lock: &FileLock) -> String {
    range(&Range { start: lock.start, end: lock.end })
}

fn range(range: &Range) -> String {
    match (range.start, range.end) {
        (0, None) => String::new(),
        (start, None) => format!(" (from byte {start})"),
        (start, Some(end)) => format!(" (bytes {start} to {end})"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::resolve as resolve_all;
    use crate::model::{
        Bystander, Capture, Certainty, Fd, FdDetails, FdKind, FileLock, Host, LockClass, LockWait, Process,
        SavedMemory, Stability, Syscall, TaskState, Thread, Wait,
    };

    const FCNTL: u32 = 72;
    const FLOCK: u32 = 73;

    fn lock(class: LockClass, pid: Option<u32>, start: u64, end: Option<u64>) -> FileLock {
        FileLock { class, write: true, pid, device: (8, 1), inode: 77, start, end }
    }

    fn request(start: i64, length: i64) -> SavedMemory {
        let mut bytes = vec![1, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend(start.to_le_bytes());
        bytes.extend(length.to_le_bytes());
        bytes.extend([0; 8]);
        SavedMemory { address: 0x1000, bytes }
    }

    fn capture(number: u32, command: u64, memory: SavedMemory, locks: Vec<LockWait>) -> Capture {
        let thread = Thread {
            tid: 50,
            state: TaskState::Sleeping,
            stability: Stability::Stable,
            syscall: Some(Syscall { number, arguments: [3, command, 0x1000, 0, 0, 0], restarted: false }),
            memory: vec![memory],
            ..Thread::default()
        };
        let details = FdDetails { file: Some((20, 77)), ..FdDetails::default() };
        let file = Fd {
            fd: 3,
            kind: FdKind::File { path: "/x".into() },
            details: Some(Box::new(details)),
            ..Fd::default()
        };
        let process = Process { pid: 50, threads: vec![thread], fds: vec![file], ..Process::default() };
        Capture {
            host: Host { arch: "x86_64".into(), ..Host::default() },
            processes: vec![process],
            locks,
            ..Capture::default()
        }
    }

    fn first(capture: &Capture) -> Wait {
        resolve_all(capture).remove(0).wait
    }

    #[test]
    fn the_range_tells_two_waits_of_one_process_apart() {
        let wait = |start, end, holder| LockWait {
            wanted: lock(LockClass::Posix, Some(50), start, end),
            held: lock(LockClass::Posix, Some(holder), 0, Some(500)),
        };
        let locks = vec![wait(0, Some(9), 60), wait(100, Some(109), 61), wait(400, None, 62)];
        let wait = first(&capture(FCNTL, 7, request(100, 10), locks.clone()));
        assert_eq!(wait.owners.iter().map(|owner| owner.pid).collect::<Vec<_>>(), [61]);
        assert_eq!(wait.owners[0].certainty, Certainty::Proven);
        assert!(wait.text.contains("(bytes 100 to 109)"), "{}", wait.text);
        // A length before the start; a length of 0.
        assert_eq!(first(&capture(FCNTL, 7, request(10, -10), locks.clone())).owners[0].pid, 60);
        assert_eq!(first(&capture(FCNTL, 7, request(400, 0), locks)).owners[0].pid, 62);
    }

    #[test]
    fn a_flock_belongs_to_who_has_its_descriptor_now() {
        let held = lock(LockClass::Flock, Some(60), 0, None);
        let wait = LockWait { wanted: lock(LockClass::Flock, Some(50), 0, None), held: held.clone() };
        let mut capture = capture(FLOCK, 2, SavedMemory { address: 0, bytes: Vec::new() }, vec![wait]);
        let alone = first(&capture);
        assert_eq!((alone.owners[0].pid, alone.owners[0].certainty), (60, Certainty::Likely));
        let holder = |pid| {
            let details = FdDetails { locks: vec![held.clone()], ..FdDetails::default() };
            let fd = Fd { fd: 9, details: Some(Box::new(details)), ..Fd::default() };
            Bystander { pid, fds: vec![fd], ..Bystander::default() }
        };
        capture.bystanders = vec![holder(61)];
        let one = first(&capture);
        assert_eq!((one.owners[0].pid, one.owners[0].certainty), (61, Certainty::Proven));
        capture.bystanders = vec![holder(61), holder(62)];
        let two = first(&capture).owners;
        assert!(two.len() == 2 && two.iter().all(|owner| owner.certainty == Certainty::Likely), "{two:?}");
    }

    proptest! {
        #[test]
        fn any_request_is_survived(start: i64, length: i64, whence: i16, command in 5u64..40) {
            let mut request = request(start, length);
            request.bytes[2..4].copy_from_slice(&whence.to_le_bytes());
            let held = lock(LockClass::Ofd, None, 0, None);
            let wanted = lock(LockClass::Ofd, None, start as u64, None);
            drop(first(&capture(FCNTL, command, request, vec![LockWait { wanted, held }])));
        }
    }
}
