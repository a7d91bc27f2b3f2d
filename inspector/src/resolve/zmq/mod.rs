//! ZeroMQ: a blocking send or receive polls the eventfd of the socket's mailbox (libzmq `signaler.cpp`,
//! `mailbox.cpp`); the bytes themselves go through an I/O thread's epoll set ([`endpoints`]), and so they do in the
//! process at the other end ([`hops`]).
//!
//! What the kernel does not record: which of a process's connections belongs to which of its ZeroMQ sockets. A socket may
//! have further endpoints that are not connected just now, and whoever connects to a bound one can end a receive. So no
//! owner of such a wait is ever proven.

mod endpoints;
mod hops;

use self::endpoints::{Endpoint, IoThreads};
use super::{scene::Blocked, socket, text};
use crate::model::{Certainty, Owner, Wait, WaitKind};

/// What the thread does with a ZeroMQ socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Send,
    Receive,
    Poll,
}

impl Operation {
    const fn verb(self) -> &'static str {
        match self {
            Self::Send => "zmq send",
            Self::Receive => "zmq recv",
            Self::Poll => "zmq poll",
        }
    }
}

/// Gives a poll inside ZeroMQ its meaning: `zmq_send` waits for room or a peer, `zmq_recv` for a message, `zmq_poll` for
/// either.
pub(super) fn refine(blocked: &Blocked<'_>, wait: Wait) -> Wait {
    let Some(operation) = operation(blocked) else { return wait };
    let io = IoThreads::of(blocked.process);
    let endpoints = endpoints::of(blocked.scene, blocked.process, &io);
    let (kind, what, ends): (WaitKind, String, Vec<&Endpoint<'_>>) = match operation {
        Operation::Send => {
            let (what, ends) = endpoints::to_whom(&endpoints);
            (WaitKind::SocketSend, what, ends)
        }
        Operation::Receive => (WaitKind::SocketRecv, endpoints::list(&endpoints), endpoints.iter().collect()),
        Operation::Poll => {
            let what = format!("{}; {}", wait.text, endpoints::list(&endpoints));
            (WaitKind::Poll, what, endpoints.iter().collect())
        }
    };
    let mut owners: Vec<Owner> = Vec::new();
    for peer in ends.iter().flat_map(|end| socket::peers(blocked, Some(end.socket))) {
        if peer.pid != blocked.process.pid && !owners.iter().any(|owner| owner.pid == peer.pid) {
            let evidence = format!("{}; which ZeroMQ socket it serves is not known", peer.evidence);
            owners.push(Owner { certainty: Certainty::Likely, evidence, ..peer });
        }
    }
    // A poll looks at several sockets: of several processes none in particular has to act.
    if operation == Operation::Poll && owners.len() > 1 {
        owners.clear();
    }
    let through = io.words(!endpoints.is_empty());
    let beyond = hops::words(blocked.scene, &owners);
    let mut targets = wait.targets;
    targets.extend(endpoints.iter().map(|end| text::target(blocked.scene, Some(end.open), end.open.fd, 0)));
    Wait {
        kind,
        text: format!("{}: {what}{through}{beyond}", operation.verb()),
        targets,
        owners,
        open_ended: true,
        ..wait
    }
}

/// By the exported functions of libzmq, or the methods of pyzmq's `Socket` where no native stack was walked.
fn operation(blocked: &Blocked<'_>) -> Option<Operation> {
    let native = blocked.native_above_python().find_map(|frame| match frame.function.as_str() {
        "zmq_poll" | "zmq_poller_wait" | "zmq_poller_wait_all" | "zmq_ppoll" => Some(Operation::Poll),
        "zmq_send" | "zmq_send_const" | "zmq_msg_send" | "zmq_sendmsg" | "zmq_sendiov" => {
            Some(Operation::Send)
        }
        "zmq_recv" | "zmq_msg_recv" | "zmq_recvmsg" | "zmq_recviov" => Some(Operation::Receive),
        name if name.starts_with("zmq::socket_base_t::send") => Some(Operation::Send),
        name if name.starts_with("zmq::socket_base_t::recv") => Some(Operation::Receive),
        _ => None,
    });
    native.or_else(|| {
        let frame = blocked.python().next()?;
        let file = frame.file.as_deref()?;
        if !file.contains("/zmq/") {
            return None;
        }
        let function = frame.function.rsplit('.').next()?;
        match function {
            name if name.starts_with("send") => Some(Operation::Send),
            name if name.starts_with("recv") => Some(Operation::Receive),
            "poll" => Some(Operation::Poll),
            _ => None,
        }
    })
}
