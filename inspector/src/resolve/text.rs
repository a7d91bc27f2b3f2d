//! One line for people about descriptors and sockets.

use super::scene::{Object, Scene};
use crate::model::{
    Fd, FdKind, Process, Socket, SocketFamily, SocketProtocol, format::humane, wait::WaitTarget,
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
        FdKind::Socket { inode } => scene.socket(*inode).map_or_else(|| format!("socket #{inode}"), socket),
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
        FdKind::SignalFd => "signalfd".to_owned(),
        FdKind::PidFd { pid } => format!("pidfd of {pid}"),
        FdKind::Inotify => "inotify".to_owned(),
        FdKind::IoUring => "io_uring".to_owned(),
        FdKind::Device { path } | FdKind::File { path } => path.clone(),
        FdKind::Other { link } => link.clone(),
    }
}

/// One descriptor of a poll or epoll wait.
pub(super) fn target(scene: &Scene<'_>, process: &Process, fd: i32, awaited: u32) -> WaitTarget {
    let open = scene.fd(process, fd);
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
