//! The text of `/proc/PID/fdinfo/FD` (`fs/proc/fd.c` and each file's `show_fdinfo`).

use super::locks;
use crate::model::{FileLock, fd::EpollTarget};

/// Most epoll targets kept of one set.
const MAX_TARGETS: usize = 4096;
/// Most locks kept of one descriptor.
const MAX_LOCKS: usize = 256;

/// What the lines say. A line that is missing or malformed leaves its default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FdInfo {
    /// Open flags (octal in the text).
    pub flags: u32,
    /// Mount id.
    pub mount: Option<u32>,
    /// Inode (since Linux 5.14), 0 where not given.
    pub inode: u64,
    /// `eventfd-count` (hexadecimal).
    pub eventfd_count: u64,
    /// `eventfd-id` (since Linux 5.2).
    pub eventfd_id: Option<u64>,
    /// `tfd` lines.
    pub targets: Vec<EpollTarget>,
    /// `Pid` of a pidfd.
    pub pid: Option<i32>,
    /// `it_value` of a timerfd, nanoseconds.
    pub timer_ns: u64,
    /// `sigmask` of a signalfd (hexadecimal).
    pub signals: u64,
    /// `inotify` and `fanotify` lines, each a watch or mark.
    pub watches: u32,
    /// `lock` lines: the file locks that are held through it.
    pub locks: Vec<FileLock>,
}

impl FdInfo {
    pub(super) fn parse(text: &str) -> Self {
        let mut info = Self::default();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            match key.trim() {
                "flags" => info.flags = u32::from_str_radix(value, 8).unwrap_or_default(),
                "mnt_id" => info.mount = value.parse().ok(),
                "ino" => info.inode = value.parse().unwrap_or_default(),
                "eventfd-count" => info.eventfd_count = u64::from_str_radix(value, 16).unwrap_or_default(),
                "eventfd-id" => info.eventfd_id = value.parse().ok(),
                "Pid" => info.pid = value.parse().ok(),
                "sigmask" => info.signals = u64::from_str_radix(value, 16).unwrap_or_default(),
                "inotify wd" | "fanotify ino" | "fanotify mnt_id" | "fanotify sdev" => {
                    info.watches = info.watches.saturating_add(1);
                }
                "lock" if info.locks.len() < MAX_LOCKS => {
                    info.locks.extend(locks::parse(value).map(|(_, lock)| lock));
                }
                "it_value" => info.timer_ns = pair(value).unwrap_or_default(),
                "tfd" if info.targets.len() < MAX_TARGETS => info.targets.extend(target(value)),
                _ => {}
            }
        }
        info
    }
}

/// `(SECONDS, NANOSECONDS)` as nanoseconds.
fn pair(value: &str) -> Option<u64> {
    let (seconds, nanoseconds) = value.strip_prefix('(')?.strip_suffix(')')?.split_once(',')?;
    let seconds: u64 = seconds.trim().parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds.trim().parse().ok()?)
}

/// `FD events: HEX data: HEX pos:N ino:HEX sdev:HEX`; the inode since Linux 5.1.
fn target(value: &str) -> Option<EpollTarget> {
    let mut words = value.split_whitespace();
    let fd = words.next()?.parse().ok()?;
    let events = words.by_ref().skip_while(|&word| word != "events:").nth(1)?;
    let inode = words.find_map(|word| u64::from_str_radix(word.strip_prefix("ino:")?, 16).ok());
    Some(EpollTarget { fd, events: u32::from_str_radix(events, 16).ok()?, inode: inode.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_epoll_set() {
        let info = FdInfo::parse(
            "pos:\t0\nflags:\t02000002\nmnt_id:\t17\nino:\t1038\n\
             tfd:        6 events:       1d data:     7f7500000006  pos:0 ino:b9c2 sdev:9\n\
             tfd:        3 events: 80000019 data:                3  pos:0 ino:b9c1 sdev:f\n",
        );
        assert_eq!(info.flags, 0o2_000_002);
        assert_eq!(info.mount, Some(17));
        assert_eq!(info.inode, 1038);
        assert_eq!(
            info.targets,
            [
                EpollTarget { fd: 6, events: 0x1d, inode: 0xb9c2 },
                EpollTarget { fd: 3, events: 0x8000_0019, inode: 0xb9c1 }
            ]
        );
    }

    #[test]
    fn an_eventfd_counts_in_hexadecimal() {
        let info = FdInfo::parse(
            "flags:\t02\neventfd-count:               1f\neventfd-id: 12\neventfd-semaphore: 0\n",
        );
        assert_eq!((info.eventfd_count, info.eventfd_id), (0x1f, Some(12)));
    }

    #[test]
    fn a_pidfd_and_a_timer() {
        assert_eq!(FdInfo::parse("Pid:\t-1\nNSpid:\t0\n").pid, Some(-1));
        assert_eq!(FdInfo::parse("it_value: (3, 500)\n").timer_ns, 3_000_000_500);
        assert_eq!(FdInfo::parse("it_value: (99999999999999, 0)\n").timer_ns, 0);
    }

    #[test]
    fn signals_watches_and_locks() {
        assert_eq!(FdInfo::parse("sigmask:\t0000000000000200\n").signals, 1 << 9);
        let watches =
            "inotify wd:2 ino:9e sdev:8 mask:800afce ignored_mask:0\ninotify wd:1 ino:9f sdev:8 mask:2\n";
        assert_eq!(FdInfo::parse(watches).watches, 2);
        let marks =
            "fanotify flags:10 event-flags:0\nfanotify mnt_id:12 mflags:40 mask:38 ignored_mask:40000003\n";
        assert_eq!(FdInfo::parse(marks).watches, 1);
        let lock = FdInfo::parse("lock:\t1: FLOCK  ADVISORY  WRITE 359 00:13:11691 0 EOF\n").locks;
        assert_eq!((lock[0].pid, lock[0].inode, lock[0].device), (Some(359), 11691, (0, 0x13)));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(tfd|Pid|it_value|flags|eventfd-count|[a-z]{0,6})[: \t]{0,3}[-(),0-9a-fx:e\n\t ]{0,200}") {
            let info = FdInfo::parse(&text);
            prop_assert!(info.targets.len() <= MAX_TARGETS);
        }
    }
}
