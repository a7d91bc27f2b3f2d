//! Waits on sockets: recv, send, accept.
//!
//! A socket's own time-out (`SO_RCVTIMEO`) is visible nowhere outside the kernel: such a wait shows no deadline.

use super::{
    Direction,
    scene::{Blocked, Object},
    text,
};
use crate::model::{
    Certainty, Owner, PeerKind, Socket, SocketProtocol, SocketTimer, TimerKind, Wait, WaitKind,
    format::humane,
};

/// A connection without a byte for less than this is not called quiet.
const QUIET_NS: u64 = 1_000_000_000;
/// Most processes named that may send to one datagram socket.
const MAX_SENDERS: usize = 16;

/// A blocked read or write of the socket `inode`.
pub(super) fn transfer(blocked: &Blocked<'_>, inode: u64, direction: Direction) -> Wait {
    let (kind, verb) = match direction {
        Direction::In => (WaitKind::SocketRecv, "recv on"),
        Direction::Out => (WaitKind::SocketSend, "send on"),
    };
    let socket = blocked.scene.socket(inode);
    let wait =
        describe(socket, Wait { kind, fd: Some(blocked.fd(0)), inode: Some(inode), ..Wait::default() });
    let what = text::descriptor(blocked.scene, blocked.open(blocked.fd(0)));
    let more = socket.map(|socket| story(blocked, socket, direction)).unwrap_or_default();
    Wait { text: format!("{verb} {what}{more}"), owners: peers(blocked, socket), ..wait }
}

/// What the kernel tells of a connection that says why it stands.
fn story(blocked: &Blocked<'_>, socket: &Socket, direction: Direction) -> String {
    let mut facts = Vec::new();
    if direction == Direction::Out && socket.send_queue > 0 {
        facts.push(format!("{} bytes not acknowledged", socket.send_queue));
    }
    facts.extend(other_end(blocked, socket));
    match (direction, socket.last_received_ns) {
        (Direction::In, Some(ns)) if ns >= QUIET_NS => {
            let ago = humane(ns);
            facts.push(match socket.bytes_received {
                Some(0) => format!("nothing received since it was connected {ago} ago"),
                _ => format!("nothing received for {ago}"),
            });
        }
        _ => {}
    }
    let probes = matches!(socket.timer, Some(SocketTimer { kind: TimerKind::ZeroWindowProbe, .. }));
    if probes {
        facts.push("the peer's receive window is closed: it reads nothing".to_owned());
    }
    match socket.retransmits {
        0 => {}
        1 if probes => facts.push("1 probe not answered".to_owned()),
        number if probes => facts.push(format!("{number} probes not answered")),
        1 => facts.push("1 retransmission".to_owned()),
        number => facts.push(format!("{number} retransmissions")),
    }
    facts.iter().flat_map(|fact| [", ", fact]).collect()
}

/// What is particular about the other end.
pub(super) fn other_end(blocked: &Blocked<'_>, socket: &Socket) -> Option<String> {
    match socket.peer_kind {
        PeerKind::Closed => {
            Some(format!("its other end was closed and is held by nobody ({})", socket.peer_state))
        }
        PeerKind::Absent => Some("no socket at its other end was found in its network namespace".to_owned()),
        PeerKind::NotAccepted => Some("the listener has not accepted it".to_owned()),
        PeerKind::Connected | PeerKind::Bound => {
            let peer = socket.peer_inode?;
            let nobody = blocked.scene.holders(Object::Inode(peer)).is_empty();
            (nobody && blocked.scene.saw_all_holders())
                .then(|| format!("its other end (socket #{peer}) is in no process's descriptors"))
        }
    }
}

/// A blocked `accept`.
pub(super) fn accept(blocked: &Blocked<'_>) -> Wait {
    let fd = blocked.fd(0);
    let inode = blocked.socket_inode(fd);
    let socket = inode.and_then(|inode| blocked.scene.socket(inode));
    let what = text::descriptor(blocked.scene, blocked.open(fd));
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
        retransmits: (socket.retransmits > 0).then_some(socket.retransmits),
        timer: socket.timer,
        // Whoever knows the address may send.
        open_ended: socket.is_datagram()
            && (socket.peer_inode.is_none() || socket.peer_kind == PeerKind::Bound),
        last_sent_ns: socket.last_sent_ns,
        last_received_ns: socket.last_received_ns,
        ..wait
    }
}

/// The processes at the other end. A datagram socket that is connected to nobody has those at its own end who are
/// connected to it: any of them may send.
pub(super) fn peers(blocked: &Blocked<'_>, socket: Option<&Socket>) -> Vec<Owner> {
    let Some(socket) = socket else { return Vec::new() };
    let own = socket.inode;
    let Some(peer) = socket.peer_inode else {
        let senders = blocked.scene.senders(own);
        let mut owners: Vec<Owner> = Vec::new();
        for sender in senders {
            let evidence = format!("sock_diag: its socket #{sender} sends to #{own}");
            owners.extend(blocked.owners(Object::Inode(*sender), Certainty::Likely, &evidence, |_| true));
        }
        owners.sort_by_key(|owner| owner.pid);
        owners.dedup_by_key(|owner| owner.pid);
        owners.truncate(MAX_SENDERS);
        return owners;
    };
    let (certainty, source) = match (socket.peer_kind, socket.protocol) {
        (PeerKind::Bound, _) => (Certainty::Likely, "bound to the address that it sends to"),
        (PeerKind::NotAccepted, _) => (blocked.certainty(), "listener that has not accepted it"),
        (_, SocketProtocol::Tcp | SocketProtocol::Udp) => (blocked.certainty(), "addresses swapped"),
        _ => (blocked.certainty(), "unix peer"),
    };
    let evidence = format!("sock_diag: socket #{peer} is the other end of #{own} ({source})");
    blocked.owners(Object::Inode(peer), certainty, &evidence, |_| true)
}
