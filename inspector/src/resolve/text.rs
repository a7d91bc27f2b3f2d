//! One line for people about descriptors and sockets.

use super::scene::{Object, Scene};
use crate::model::{
    Fd, FdDetails, FdKind, Socket, SocketFamily, SocketProtocol, format::humane, wait::WaitTarget,
};

/// `tcp 127.0.0.1:1 → 127.0.0.1:2 ESTABLISHED`.
pub(super) fn socket(socket: &Socket) -> String {
    let protocol = match (socket.family, socket.protocol) {
        (SocketFamily::Unix, _) => "unix",
        (_, SocketProtocol::Tcp) => "tcp",
        (_, SocketProtocol::Udp) => "udp",
        _ => "socket",
    };
    let end = |name: &str, inode: Option<u64>| match (name.is_empty(), inode) {
        (false, _) => name.to_owned(),
        (true, Some(inode)) => format!("#{inode}"),
        (true, None) => "unbound".to_owned(),
    };
    let unix = socket.family == SocketFamily::Unix;
    let local = end(&socket.local, unix.then_some(socket.inode));
    if socket.remote.is_empty() && socket.peer_inode.is_none() {
        return format!("{protocol} {local} {}", socket.state);
    }
    let remote = end(&socket.remote, socket.peer_inode);
    format!("{protocol} {local} → {remote} {}", socket.state)
}

/// What a descriptor of a process is.
pub(super) fn descriptor(scene: &Scene<'_>, open: Option<&Fd>) -> String {
    let Some(open) = open else { return "descriptor that could not be read".to_owned() };
    match &open.kind {
        FdKind::Socket { inode } => scene.socket(*inode).map_or_else(|| foreign(open, *inode), socket),
        FdKind::Pipe { path: Some(path), .. } => format!("fifo {path}"),
        FdKind::Pipe { inode, path: None } => format!("pipe #{inode}"),
        FdKind::EventFd { id: Some(id), count } => {
            let shared = scene.holders(Object::EventFd(*id)).len() > 1;
            format!("eventfd {id} (count {count}{})", if shared { ", shared" } else { "" })
        }
        FdKind::EventFd { id: None, count } => format!("eventfd (count {count})"),
        FdKind::Epoll { targets } => format!("epoll set of {}", targets.len()),
        FdKind::TimerFd { remaining_ns: 0 } => "timerfd (not armed)".to_owned(),
        FdKind::TimerFd { remaining_ns } => format!("timerfd (in {})", humane(*remaining_ns)),
        FdKind::SignalFd => format!("signalfd{}", signals(details(open).signals)),
        FdKind::PidFd { pid } if *pid <= 0 => "pidfd of a process that has ended".to_owned(),
        FdKind::PidFd { pid } => format!("pidfd of {pid}"),
        FdKind::Inotify => match details(open).watches {
            0 => "inotify".to_owned(),
            1 => "inotify (1 watch)".to_owned(),
            number => format!("inotify ({number} watches)"),
        },
        FdKind::IoUring => "io_uring".to_owned(),
        FdKind::Device { path } | FdKind::File { path } => path.clone(),
        FdKind::Other { link } => link.clone(),
    }
}

fn details(open: &Fd) -> FdDetails {
    open.details.as_deref().cloned().unwrap_or_default()
}

/// A socket that `sock_diag` was not asked about, in the kernel's words for its protocol.
fn foreign(open: &Fd, inode: u64) -> String {
    match open.details.as_ref().and_then(|details| details.protocol.as_deref()) {
        Some(protocol) => format!("{} socket #{inode}", protocol.trim_start_matches("AF_").to_lowercase()),
        None => format!("socket #{inode}"),
    }
}

/// ` 10,12` for a mask whose bit n-1 stands for signal n.
pub(super) fn signals(mask: u64) -> String {
    let set: Vec<String> =
        (1..=64_u32).filter(|signal| mask >> (signal - 1) & 1 == 1).map(|n| n.to_string()).collect();
    if set.is_empty() { String::new() } else { format!(" {}", set.join(",")) }
}

/// One descriptor of a poll or epoll wait.
pub(super) fn target(scene: &Scene<'_>, open: Option<&Fd>, fd: i32, awaited: u32) -> WaitTarget {
    let socket = open.and_then(|open| match open.kind {
        FdKind::Socket { inode } => scene.socket(inode),
        _ => None,
    });
    let some = |text: &String| (!text.is_empty()).then(|| text.clone());
    WaitTarget {
        fd,
        text: descriptor(scene, open),
        events: events(awaited),
        local: socket.and_then(|socket| some(&socket.local)),
        remote: socket.and_then(|socket| some(&socket.remote)),
        socket_state: socket.map(|socket| socket.state.clone()),
        inode: open.and_then(|open| match open.kind {
            FdKind::Socket { inode } | FdKind::Pipe { inode, .. } => Some(inode),
            _ => None,
        }),
        through: None,
    }
}

/// `POLL*` and `EPOLL*` share their values (`include/uapi/asm-generic/poll.h`, `include/uapi/linux/eventpoll.h`).
/// Errors and hang-ups are always awaited and left out.
pub(super) fn events(bits: u32) -> String {
    let names = [(0x1 | 0x40, "in"), (0x4 | 0x100, "out"), (0x2, "pri"), (0x2000, "rdhup")];
    let awaited: Vec<&str> =
        names.into_iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| name).collect();
    if awaited.is_empty() { "err".to_owned() } else { awaited.join("|") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_bits() {
        assert_eq!(events(0x1), "in");
        assert_eq!(events(0x8000_0005), "in|out");
        assert_eq!(events(0x18), "err");
    }
}
