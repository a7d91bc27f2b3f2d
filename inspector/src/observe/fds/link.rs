//! What the text of a `/proc/PID/fd/FD` link says.

use super::fdinfo::FdInfo;
use crate::model::FdKind;

/// The kind of a descriptor by its link, with the details that its `fdinfo` adds.
pub(super) fn parse(link: &str, info: &FdInfo) -> FdKind {
    if let Some(inode) = numbered(link, "socket:[") {
        return FdKind::Socket { inode };
    }
    if let Some(inode) = numbered(link, "pipe:[") {
        return FdKind::Pipe { inode, path: None };
    }
    if let Some(name) = link.strip_prefix("anon_inode:") {
        return anonymous(name.trim_start_matches('[').trim_end_matches(']'), link, info);
    }
    // Since Linux 6.9 a pidfd lies on a file system of its own; before 6.13 its link says `pidfd:[INODE]`.
    if link.starts_with("pidfd:") {
        return FdKind::PidFd { pid: info.pid.unwrap_or(-1) };
    }
    // Shared memory and message queues are files, whatever folder they live in.
    let shared = ["/dev/shm/", "/dev/hugepages/", "/dev/mqueue/"];
    if link.starts_with("/dev/") && !shared.iter().any(|folder| link.starts_with(folder)) {
        return FdKind::Device { path: link.to_owned() };
    }
    if link.starts_with('/') {
        return FdKind::File { path: link.to_owned() };
    }
    FdKind::Other { link: link.to_owned() }
}

fn anonymous(name: &str, link: &str, info: &FdInfo) -> FdKind {
    match name {
        "eventfd" => FdKind::EventFd { id: info.eventfd_id, count: info.eventfd_count },
        "eventpoll" => FdKind::Epoll { targets: info.targets.clone() },
        "timerfd" => FdKind::TimerFd { remaining_ns: info.timer_ns },
        "signalfd" => FdKind::SignalFd,
        "pidfd" => FdKind::PidFd { pid: info.pid.unwrap_or(-1) },
        "inotify" | "fanotify" => FdKind::Inotify,
        "io_uring" => FdKind::IoUring,
        _ => FdKind::Other { link: link.to_owned() },
    }
}

/// `PREFIX123]` → 123.
pub(super) fn numbered(link: &str, prefix: &str) -> Option<u64> {
    link.strip_prefix(prefix)?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_link_of_a_real_machine() {
        let info = FdInfo { eventfd_id: Some(3), eventfd_count: 1, pid: Some(42), ..FdInfo::default() };
        let cases = [
            ("socket:[47554]", FdKind::Socket { inode: 47554 }),
            ("pipe:[9]", FdKind::Pipe { inode: 9, path: None }),
            ("anon_inode:[eventfd]", FdKind::EventFd { id: Some(3), count: 1 }),
            ("anon_inode:[eventpoll]", FdKind::Epoll { targets: Vec::new() }),
            ("anon_inode:[pidfd]", FdKind::PidFd { pid: 42 }),
            ("pidfd:[1234]", FdKind::PidFd { pid: 42 }),
            ("anon_inode:inotify", FdKind::Inotify),
            ("anon_inode:[io_uring]", FdKind::IoUring),
            ("/dev/nvidia0", FdKind::Device { path: "/dev/nvidia0".into() }),
            ("/dev/shm/psm_1", FdKind::File { path: "/dev/shm/psm_1".into() }),
            ("/tmp/x (deleted)", FdKind::File { path: "/tmp/x (deleted)".into() }),
            ("socket:[x]", FdKind::Other { link: "socket:[x]".into() }),
        ];
        for (link, kind) in cases {
            assert_eq!(parse(link, &info), kind, "{link}");
        }
    }

    proptest! {
        #[test]
        fn any_link_is_survived(link in "(socket:\\[|pipe:\\[|anon_inode:|/dev/|.{0,4}).{0,30}") {
            drop(parse(&link, &FdInfo::default()));
        }
    }
}
