//! ZeroMQ: a blocking send or receive polls the eventfd of the socket's mailbox (libzmq `signaler.cpp`,
//! `mailbox.cpp`); the bytes themselves go through an I/O thread's epoll set.

use super::{
    scene::{Blocked, Scene},
    socket, text,
};
use crate::model::{Certainty, Fd, FdKind, Owner, Process, Socket, SocketFamily, Thread, Wait, WaitKind};

/// Most I/O threads looked at (`ZMQ_IO_THREADS` is 1 unless set).
const MAX_IO_THREADS: usize = 16;
/// Most endpoints listed.
const MAX_ENDPOINTS: usize = 64;
/// Most of them named in the text.
const MOST_NAMED: usize = 3;

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
    let mut sockets: Vec<&Socket> = Vec::new();
    for open in endpoints.into_iter().take(MAX_ENDPOINTS) {
        let FdKind::Socket { inode } = open.kind else { continue };
        let Some(found) = blocked.scene.socket(inode) else { continue };
        targets.push(text::target(blocked.scene, Some(open), open.fd, 0));
        sockets.push(found);
    }
    let (what, ends) = match operation {
        Operation::Send => to_whom(&sockets),
        _ => (list(&sockets), sockets),
    };
    let mut owners: Vec<Owner> = Vec::new();
    // Which of the process's endpoints belongs to this ZeroMQ socket is not known: likely at most.
    for peer in ends.iter().flat_map(|socket| socket::peers(blocked, Some(socket))) {
        if !owners.iter().any(|owner| owner.pid == peer.pid) {
            let evidence = format!("{}; which ZeroMQ socket it serves is not known", peer.evidence);
            owners.push(Owner { certainty: Certainty::Likely, evidence, ..peer });
        }
    }
    Wait { kind, text: format!("{verb}: {what}"), targets, owners, open_ended: true, ..wait }
}

/// Why a send cannot go on, and the connections that keep it. `zmq_send` waits while it has no peer, or while every
/// peer's pipe is full (zmq_setsockopt(3), `ZMQ_SNDHWM`). A pipe fills only behind a connection that takes no more
/// bytes, so where no connection has bytes that wait there is no peer.
fn to_whom<'a>(sockets: &[&'a Socket]) -> (String, Vec<&'a Socket>) {
    let unanswered: Vec<String> = sockets
        .iter()
        .filter(|socket| socket.state == "SYN_SENT")
        .map(|socket| format!("tcp://{}", socket.remote))
        .take(MOST_NAMED)
        .collect();
    if !unanswered.is_empty() {
        let to = unanswered.join(", ");
        return (format!("no connection to {to}: nobody answers there (SYN_SENT)"), Vec::new());
    }
    let full: Vec<&Socket> =
        sockets.iter().copied().filter(|socket| socket.state != "LISTEN" && socket.send_queue > 0).collect();
    let open = sockets.iter().filter(|socket| socket.state == "ESTABLISHED").count();
    match (full.is_empty(), open) {
        (false, _) => (format!("bytes wait on {}", list(&full)), full),
        (true, 0) => ("no peer is connected".to_owned(), full),
        (true, 1) => {
            ("no peer is connected (the process's one connection has nothing to send)".to_owned(), full)
        }
        (true, _) => (
            format!("no peer is connected (none of the process's {open} connections has bytes to send)"),
            full,
        ),
    }
}

/// The first few, those of the network before those of the host.
fn list(sockets: &[&Socket]) -> String {
    let mut sorted = sockets.to_vec();
    sorted.sort_by_key(|socket| socket.family == SocketFamily::Unix);
    let named: Vec<String> = sorted.iter().take(MOST_NAMED).map(|socket| text::socket(socket)).collect();
    let more = match sorted.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        number => format!(" and {number} more"),
    };
    match named.as_slice() {
        [] => "no endpoint of the process is known".to_owned(),
        [one] => format!("endpoint {one}"),
        several => format!("endpoints {}{more}", several.join(", ")),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(state: &str, remote: &str, send_queue: u32) -> Socket {
        Socket {
            local: "127.0.0.1:5000".into(),
            remote: remote.into(),
            state: state.into(),
            send_queue,
            ..Socket::default()
        }
    }

    #[test]
    fn a_send_names_the_endpoint_that_does_not_answer() {
        let sockets = [socket("ESTABLISHED", "10.0.0.1:1", 9), socket("SYN_SENT", "10.0.0.2:41872", 1)];
        let (text, ends) = to_whom(&sockets.iter().collect::<Vec<_>>());
        assert_eq!(text, "no connection to tcp://10.0.0.2:41872: nobody answers there (SYN_SENT)");
        assert!(ends.is_empty(), "nobody at the other end of another connection has to act");
    }

    #[test]
    fn a_send_names_the_connection_that_takes_no_more() {
        let sockets = [socket("ESTABLISHED", "10.0.0.1:1", 0), socket("ESTABLISHED", "10.0.0.2:2", 4096)];
        let (text, ends) = to_whom(&sockets.iter().collect::<Vec<_>>());
        assert!(text.contains("10.0.0.2:2") && !text.contains("10.0.0.1:1"), "{text}");
        assert_eq!(ends.len(), 1);
    }

    #[test]
    fn a_send_beside_connections_with_nothing_to_send_has_no_peer() {
        // A listener's send queue is its backlog.
        let sockets = [socket("LISTEN", "", 128), socket("ESTABLISHED", "10.0.0.1:1", 0)];
        let (text, ends) = to_whom(&sockets.iter().collect::<Vec<_>>());
        assert!(text.starts_with("no peer is connected"), "{text}");
        assert!(ends.is_empty());
        assert_eq!(to_whom(&[]).0, "no peer is connected");
    }

    #[test]
    fn a_long_list_is_cut() {
        let sockets = vec![socket("ESTABLISHED", "10.0.0.1:1", 0); 9];
        assert!(list(&sockets.iter().collect::<Vec<_>>()).ends_with("and 6 more"));
    }
}
