//! ZeroMQ: a blocking send or receive polls the eventfd of the socket's mailbox (libzmq `signaler.cpp`,
//! `mailbox.cpp`); the bytes themselves go through an I/O thread's epoll set.

use super::{
    scene::{Blocked, Scene},
    socket, text,
};
use crate::model::{Certainty, Fd, FdKind, Owner, Process, Thread, Wait, WaitKind};

/// Most I/O threads looked at (`ZMQ_IO_THREADS` is 1 unless set).
const MAX_IO_THREADS: usize = 16;
/// Most endpoints listed.
const MAX_ENDPOINTS: usize = 64;

/// What the thread does with a ZeroMQ socket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Send,
    Receive,
    Poll,
}

/// Gives a poll inside ZeroMQ its meaning: `zmq_send` waits for room or a peer, `zmq_recv` for a message.
pub(super) fn refine(blocked: &Blocked<'_>, wait: Wait) -> Wait {
    let Some(operation) = operation(blocked) else { return wait };
    let (kind, verb) = match operation {
        Operation::Send => (WaitKind::SocketSend, "zmq send"),
        Operation::Receive => (WaitKind::SocketRecv, "zmq recv"),
        Operation::Poll => return Wait { text: format!("zmq poll: {}", wait.text), ..wait },
    };
    let endpoints = endpoints(blocked.scene, blocked.process);
    let mut targets = wait.targets;
    let mut owners: Vec<Owner> = Vec::new();
    let mut named = Vec::new();
    for open in endpoints.into_iter().take(MAX_ENDPOINTS) {
        let FdKind::Socket { inode } = open.kind else { continue };
        let Some(found) = blocked.scene.socket(inode) else { continue };
        targets.push(text::target(blocked.scene, blocked.process, open.fd, 0));
        named.push(text::socket(found));
        // Which of the process's endpoints belongs to this ZeroMQ socket is not known: likely at most.
        for peer in socket::peers(blocked, Some(found)) {
            if !owners.iter().any(|owner| owner.pid == peer.pid) {
                let evidence = format!("{}; which ZeroMQ socket it serves is not known", peer.evidence);
                owners.push(Owner { certainty: Certainty::Likely, evidence, ..peer });
            }
        }
    }
    let list = match named.as_slice() {
        [] => "no endpoint of the process is known".to_owned(),
        [one] => format!("endpoint {one}"),
        several => format!("endpoints {}", several.join(", ")),
    };
    Wait { kind, text: format!("{verb}: {list}"), targets, owners, ..wait }
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

/// The sockets that the process's ZeroMQ I/O threads watch.
fn endpoints<'a>(scene: &Scene<'a>, process: &Process) -> Vec<&'a Fd> {
    let sets = process
        .threads
        .iter()
        .filter(|thread| thread.comm.starts_with("ZMQbg/IO"))
        .take(MAX_IO_THREADS)
        .filter_map(|thread| watched(scene, process, thread));
    let mut fds: Vec<i32> = sets.flatten().collect();
    fds.sort_unstable();
    fds.dedup();
    fds.into_iter()
        .filter_map(|fd| scene.fd(process, fd))
        .filter(|open| matches!(open.kind, FdKind::Socket { .. }))
        .collect()
}

/// The descriptors in the epoll set that a thread waits on. Any call whose first argument is an epoll set will do: the
/// thread may just be in `epoll_ctl`.
fn watched(scene: &Scene<'_>, process: &Process, thread: &Thread) -> Option<Vec<i32>> {
    let set = scene.fd(process, thread.syscall?.arguments[0] as i32)?;
    match &set.kind {
        FdKind::Epoll { targets } => Some(targets.iter().map(|target| target.fd).collect()),
        _ => None,
    }
}
