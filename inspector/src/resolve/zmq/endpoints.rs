//! The connections and listeners behind a process's ZeroMQ sockets, by way of its I/O threads.

use crate::{
    model::{Fd, FdKind, Process, Socket, SocketFamily, TaskState, Thread},
    resolve::{scene::Scene, text},
};

/// Most I/O threads looked at (`ZMQ_IO_THREADS` is 1 unless set).
const MAX_IO_THREADS: usize = 16;
/// Most endpoints listed.
const MAX_ENDPOINTS: usize = 64;
/// Most of them named in the text.
const MOST_NAMED: usize = 3;

/// The I/O threads of a process.
pub(super) struct IoThreads<'a> {
    threads: Vec<&'a Thread>,
    /// Another thread of libzmq's is there, which is started together with them.
    has_reaper: bool,
    /// Every thread of the process was seen.
    complete: bool,
}

impl<'a> IoThreads<'a> {
    /// By the names that libzmq gives its threads (`thread.cpp`, `ctx.cpp`).
    pub(super) fn of(process: &'a Process) -> Self {
        let lives = |thread: &&Thread| !matches!(thread.state, TaskState::Zombie | TaskState::Dead);
        let named = |prefix: &'static str| {
            process.threads.iter().filter(lives).filter(move |thread| thread.comm.starts_with(prefix))
        };
        Self {
            threads: named("ZMQbg/IO").take(MAX_IO_THREADS).collect(),
            has_reaper: named("ZMQbg/Reaper").next().is_some(),
            complete: process.threads.len() >= process.thread_count as usize,
        }
    }

    /// The way through them, and what is wrong with it.
    pub(super) fn words(&self, has_endpoints: bool) -> String {
        let stopped = |thread: &Thread| matches!(thread.state, TaskState::Stopped | TaskState::Traced);
        match self.threads.as_slice() {
            [] if !self.complete => String::new(),
            [] if self.has_reaper => {
                "; the ZeroMQ I/O thread is gone: only inproc messages can arrive or leave".to_owned()
            }
            [] => {
                "; the process has no ZeroMQ thread (none is left in a process that was forked): no message can arrive or leave but inproc"
                    .to_owned()
            }
            [one] if stopped(one) => format!(", through I/O thread {}, which is stopped", one.tid),
            [one] if has_endpoints => format!(", through I/O thread {}", one.tid),
            several if several.iter().all(|thread| stopped(thread)) => {
                format!("; all {} I/O threads are stopped", several.len())
            }
            _ => String::new(),
        }
    }
}

/// A connection or listener of the process's.
#[derive(Clone, Copy)]
pub(super) struct Endpoint<'a> {
    pub open: &'a Fd,
    pub socket: &'a Socket,
}

/// The sockets that the process's ZeroMQ I/O threads watch.
pub(super) fn of<'a>(scene: &Scene<'a>, process: &Process, io: &IoThreads<'_>) -> Vec<Endpoint<'a>> {
    let sets = io.threads.iter().filter_map(|thread| watched(scene, process, thread));
    let mut fds: Vec<i32> = sets.flatten().collect();
    fds.sort_unstable();
    fds.dedup();
    let endpoint = |fd: i32| {
        let open = scene.fd(process, fd)?;
        Some(Endpoint { open, socket: scene.socket(open.socket_inode()?)? })
    };
    fds.into_iter().filter_map(endpoint).take(MAX_ENDPOINTS).collect()
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

/// Why a send cannot go on, and the connections that keep it. `zmq_send` waits while it has no peer, or while every
/// peer's pipe is full (zmq_setsockopt(3), `ZMQ_SNDHWM`). A pipe fills only behind a connection that takes no more
/// bytes, so where no connection has bytes that wait there is no peer.
pub(super) fn to_whom<'s, 'a>(endpoints: &'s [Endpoint<'a>]) -> (String, Vec<&'s Endpoint<'a>>) {
    let unanswered: Vec<String> = endpoints
        .iter()
        .filter(|end| end.socket.state == "SYN_SENT")
        .map(|end| format!("tcp://{}", end.socket.remote))
        .take(MOST_NAMED)
        .collect();
    if !unanswered.is_empty() {
        let to = unanswered.join(", ");
        return (format!("no connection to {to}: nobody answers there (SYN_SENT)"), Vec::new());
    }
    let is_full = |end: &&Endpoint<'_>| end.socket.state != "LISTEN" && end.socket.send_queue > 0;
    let full: Vec<&Endpoint<'_>> = endpoints.iter().filter(is_full).collect();
    let open = endpoints.iter().filter(|end| end.socket.state == "ESTABLISHED").count();
    match (full.is_empty(), open) {
        (false, _) => (format!("bytes wait on {}", named(full.iter().copied())), full),
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
pub(super) fn list(endpoints: &[Endpoint<'_>]) -> String {
    named(endpoints.iter())
}

fn named<'s, 'a: 's>(endpoints: impl Iterator<Item = &'s Endpoint<'a>>) -> String {
    let mut sorted: Vec<&Socket> = endpoints.map(|end| end.socket).collect();
    sorted.sort_by_key(|socket| socket.family == SocketFamily::Unix);
    let named: Vec<String> = sorted.iter().take(MOST_NAMED).map(|socket| text::socket(socket)).collect();
    let more = match sorted.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        number => format!(" and {number} more"),
    };
    match named.as_slice() {
        [] => "no endpoint of the process is known (inproc, or none is connected)".to_owned(),
        [one] => format!("endpoint {one}"),
        several => format!("endpoints {}{more}", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<T>(sockets: &[Socket], then: impl FnOnce(&[Endpoint<'_>]) -> T) -> T {
        let open = Fd::default();
        let endpoints: Vec<Endpoint<'_>> =
            sockets.iter().map(|socket| Endpoint { open: &open, socket }).collect();
        then(&endpoints)
    }

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
        let (text, ends) = with(&sockets, |ends| {
            let (text, ends) = to_whom(ends);
            (text, ends.len())
        });
        assert_eq!(text, "no connection to tcp://10.0.0.2:41872: nobody answers there (SYN_SENT)");
        assert_eq!(ends, 0, "nobody at the other end of another connection has to act");
    }

    #[test]
    fn a_send_names_the_connection_that_takes_no_more() {
        let sockets = [socket("ESTABLISHED", "10.0.0.1:1", 0), socket("ESTABLISHED", "10.0.0.2:2", 4096)];
        let (text, ends) = with(&sockets, |ends| {
            let (text, ends) = to_whom(ends);
            (text, ends.len())
        });
        assert!(text.contains("10.0.0.2:2") && !text.contains("10.0.0.1:1"), "{text}");
        assert_eq!(ends, 1);
    }

    #[test]
    fn a_send_beside_connections_with_nothing_to_send_has_no_peer() {
        // A listener's send queue is its backlog.
        let sockets = [socket("LISTEN", "", 128), socket("ESTABLISHED", "10.0.0.1:1", 0)];
        let (text, ends) = with(&sockets, |ends| {
            let (text, ends) = to_whom(ends);
            (text, ends.len())
        });
        assert!(text.starts_with("no peer is connected"), "{text}");
        assert_eq!(ends, 0);
        assert_eq!(with(&[], |ends| to_whom(ends).0), "no peer is connected");
    }

    #[test]
    fn a_long_list_is_cut() {
        let sockets = vec![socket("ESTABLISHED", "10.0.0.1:1", 0); 9];
        assert!(with(&sockets, list).ends_with("and 6 more"));
    }

    fn process(threads: &[(u32, &str, TaskState)]) -> Process {
        let thread = |&(tid, comm, state): &(u32, &str, TaskState)| Thread {
            tid,
            comm: comm.into(),
            state,
            ..Thread::default()
        };
        let threads: Vec<Thread> = threads.iter().map(thread).collect();
        Process { thread_count: threads.len() as u32, threads, ..Process::default() }
    }

    #[test]
    fn an_io_thread_that_is_gone_or_stopped_is_said() {
        let main = (1, "python", TaskState::Sleeping);
        let reaper = (2, "ZMQbg/Reaper", TaskState::Sleeping);
        let words = |threads: &[_]| IoThreads::of(&process(threads)).words(true);
        assert_eq!(words(&[main, reaper, (3, "ZMQbg/IO/0", TaskState::Sleeping)]), ", through I/O thread 3");
        let stopped = words(&[main, reaper, (3, "ZMQbg/IO/0", TaskState::Traced)]);
        assert_eq!(stopped, ", through I/O thread 3, which is stopped");
        assert!(words(&[main, reaper]).contains("is gone"));
        assert!(words(&[main]).contains("forked"));
        // Not all of its threads were seen.
        let mut some = process(&[main]);
        some.thread_count = 9;
        assert_eq!(IoThreads::of(&some).words(true), "");
    }
}
