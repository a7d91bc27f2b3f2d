//! File locks as `/proc/locks` and the `lock:` lines of `fdinfo` print them (`fs/locks.c`, `lock_get_status`).
//!
//! Both come from the kernel's lists of locks: neither asks a file system for anything. The pids are of the namespace
//! of the `/proc` that is read.

use super::read_bounded;
use crate::model::{FileLock, Gap, LockClass, LockWait};

/// Most bytes read of `/proc/locks`: some fifty thousand locks.
const MAX_BYTES: u64 = 4 << 20;
/// Most waits kept.
const MAX_WAITS: usize = 4096;

/// The host's waits for file locks of which one process is in `pids`, or whose pid the kernel does not tell.
pub fn lock_waits(pids: &dyn Fn(u32) -> bool) -> (Vec<LockWait>, Vec<Gap>) {
    match read_bounded("/proc/locks", MAX_BYTES) {
        Ok(text) => (waits(&text, pids), Vec::new()),
        Err(error) => {
            let reason = format!("cannot read /proc/locks: {error}; who holds a file lock is not known");
            (Vec::new(), vec![Gap::host("fds", reason)])
        }
    }
}

/// Below a lock that is held come those that wait for it, marked `->`; one that waits behind another waiter waits for
/// the lock as well (`__locks_insert_block`).
fn waits(text: &str, pids: &dyn Fn(u32) -> bool) -> Vec<LockWait> {
    let mut held = None;
    let mut waits = Vec::new();
    for line in text.lines() {
        if waits.len() >= MAX_WAITS {
            break;
        }
        match parse(line) {
            Some((false, lock)) => held = Some(lock),
            Some((true, wanted)) if wanted.pid.is_none_or(pids) => {
                waits.extend(held.clone().map(|held| LockWait { wanted, held }));
            }
            Some(_) => {}
            // A kind of lock that is not known: nothing that waits below it may be laid to the one above.
            None => held = None,
        }
    }
    waits
}

/// `ID: [->] CLASS STATE MODE PID MAJOR:MINOR:INODE START END`; true: it waits.
pub(super) fn parse(line: &str) -> Option<(bool, FileLock)> {
    let mut words = line.split_whitespace().skip(1).peekable();
    let waits = words.next_if_eq(&"->").is_some();
    let class = match words.next()? {
        "FLOCK" => LockClass::Flock,
        "POSIX" => LockClass::Posix,
        "OFDLCK" => LockClass::Ofd,
        "LEASE" | "DELEG" => LockClass::Lease,
        _ => return None,
    };
    let write = match words.nth(1)? {
        "WRITE" => true,
        "READ" => false,
        _ => return None,
    };
    let pid: i32 = words.next()?.parse().ok()?;
    let mut file = words.next()?.split(':');
    let major = u32::from_str_radix(file.next()?, 16).ok()?;
    let minor = u32::from_str_radix(file.next()?, 16).ok()?;
    let inode = file.next()?.parse().ok()?;
    let start = words.next()?.parse().ok()?;
    let end = match words.next()? {
        "EOF" => None,
        end => Some(end.parse().ok()?),
    };
    let pid = u32::try_from(pid).ok().filter(|&pid| pid > 0);
    Some((waits, FileLock { class, write, pid, device: (major, minor), inode, start, end }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn those_who_wait_are_paired_with_the_lock_above_them() {
        let text = "1: POSIX  ADVISORY  WRITE 100 fe:00:77 0 99\n\
                    1: -> POSIX  ADVISORY  READ 200 fe:00:77 10 19\n\
                    1:  -> POSIX  ADVISORY  WRITE 300 fe:00:77 10 EOF\n\
                    2: FLOCK  ADVISORY  WRITE 101 fe:00:78 0 EOF\n\
                    2: -> FLOCK  ADVISORY  READ 999 fe:00:78 0 EOF\n\
                    3: OFDLCK ADVISORY  READ -1 fe:00:79 0 EOF\n\
                    3: -> OFDLCK ADVISORY  WRITE -1 fe:00:79 5 5\n";
        let waits = waits(text, &|pid| pid < 900);
        let pids: Vec<_> = waits.iter().map(|wait| (wait.wanted.pid, wait.held.pid)).collect();
        assert_eq!(pids, [(Some(200), Some(100)), (Some(300), Some(100)), (None, None)]);
        assert_eq!((waits[0].held.start, waits[0].held.end), (0, Some(99)));
        assert_eq!(waits[1].wanted.end, None);
        assert_eq!(waits[2].held.class, LockClass::Ofd);
        assert_eq!(waits[2].held.device, (0xfe, 0));
    }

    #[test]
    fn a_waiter_below_a_line_that_is_not_understood_has_no_holder() {
        let text = "1: FLOCK  ADVISORY  WRITE 100 fe:00:77 0 EOF\n\
                    2: NEWKIND ADVISORY WRITE 100 fe:00:77 0 EOF\n\
                    2: -> FLOCK  ADVISORY  WRITE 200 fe:00:77 0 EOF\n";
        assert_eq!(waits(text, &|_| true), []);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "([0-9]: (-> )?(POSIX|FLOCK|[A-Z ]{0,5})[ A-Z0-9a-f:-]{0,60}\n?){0,8}") {
            drop(waits(&text, &|_| true));
        }
    }
}
