//! Waits on sockets: recv, send, accept.
//!
//! A socket's own time-out (`SO_RCVTIMEO`) is visible nowhere outside the kernel: such a wait shows no deadline.

use super::{
    Direction,
    scene::{Blocked, Object},
    text,
};
use crate::model::{Owner, Socket, SocketProtocol, Wait, WaitKind};

/// A blocked read or write of the socket `inode`.
pub(super) fn transfer(blocked: &Blocked<'_>, inode: u64, direction: Direction) -> Wait {
    let (kind, verb) = match direction {
        Direction::In => (WaitKind::SocketRecv, "recv on"),
        Direction::Out => (WaitKind::SocketSend, "send on"),
    };
    let socket = blocked.scene.socket(inode);
    // Reading from a listener is not possible; the kernel's queue numbers of one mean something else.
    let wait =
        describe(socket, Wait { kind, fd: Some(blocked.fd(0)), inode: Some(inode), ..Wait::default() });
    let what = socket.map_or_else(|| format!("socket #{inode}"), text::socket);
    let full = match (direction, socket) {
        (Direction::Out, Some(socket)) if socket.send_queue > 0 => {
            format!(", {} bytes not acknowledged", socket.send_queue)
        }
        _ => String::new(),
    };
    Wait { text: format!("{verb} {what}{full}"), owners: peers(blocked, socket), ..wait }
}

/// A blocked `accept`.
pub(super) fn accept(blocked: &Blocked<'_>) -> Wait {
    let fd = blocked.fd(0);
    let inode = blocked.socket_inode(fd);
    let socket = inode.and_then(|inode| blocked.scene.socket(inode));
    let what = socket.map_or_else(|| format!("descriptor {fd}"), text::socket);
    let wait = Wait { kind: WaitKind::Accept, fd: Some(fd), inode, ..Wait::default() };
    Wait { text: format!("accept on {what}"), ..describe(socket, wait) }
}

/// Adds what the kernel tells of a socket.
pub(super) fn describe(socket: Option<&Socket>, wait: Wait) -> Wait {
    let Some(socket) = socket else { return wait };
    let some = |text: &String| (!text.is_empty()).then(|| text.clone());
    Wait {
        inode: Some(socket.inode),
        local: some(&socket.local),
        remote: some(&socket.remote),
        socket_state: Some(socket.state.clone()),
        recv_queue: Some(socket.recv_queue),
        send_queue: Some(socket.send_queue),
        ..wait
    }
}

/// The processes at the other end. A datagram socket that is not connected has none.
pub(super) fn peers(blocked: &Blocked<'_>, socket: Option<&Socket>) -> Vec<Owner> {
    let Some((socket, peer)) = socket.and_then(|socket| Some((socket, socket.peer_inode?))) else {
        return Vec::new();
    };
    let source = match socket.protocol {
        SocketProtocol::Tcp | SocketProtocol::Udp => "addresses swapped",
        _ => "unix peer",
    };
    let evidence = format!("sock_diag: socket #{peer} is the other end of #{} ({source})", socket.inode);
    blocked.owners(Object::Inode(peer), blocked.certainty(), &evidence, |_| true)
}
