//! The text of `/proc/PID/fdinfo/FD` (`fs/proc/fd.c` and each file's `show_fdinfo`).

use crate::model::fd::EpollTarget;

/// Most epoll targets kept of one set.
const MAX_TARGETS: usize = 4096;

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

/// `FD events: HEX data: …`.
fn target(value: &str) -> Option<EpollTarget> {
    let mut words = value.split_whitespace();
    let fd = words.next()?.parse().ok()?;
    let events = words.skip_while(|&word| word != "events:").nth(1)?;
    Some(EpollTarget { fd, events: u32::from_str_radix(events, 16).ok()? })
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
            [EpollTarget { fd: 6, events: 0x1d }, EpollTarget { fd: 3, events: 0x8000_0019 }]
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

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(tfd|Pid|it_value|flags|eventfd-count|[a-z]{0,6})[: \t]{0,3}[-(),0-9a-fx:e\n\t ]{0,200}") {
            let info = FdInfo::parse(&text);
            prop_assert!(info.targets.len() <= MAX_TARGETS);
        }
    }
}
