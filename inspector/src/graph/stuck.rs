//! Threads that nobody outside their own circle can set free.
//!
//! A wait on a message ends when any of those who hold the other end sends one. So one who waits for an idle server is
//! not stuck, and two who wait for each other's messages need not be: somebody else may hold the other end as well, a
//! third thread of the process may send, a deadline may pass. What is left when all of those are taken away, again and
//! again, is a *knot*: each of its threads waits, without a deadline, for nobody but others in it.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    model::{
        Capture, Certainty, TaskState, WaitKind,
        report::{Edge, End},
    },
    resolve::ResolvedThread,
};

/// As many ends as `resolve` lists of one object at most: there may be more, which are not known.
const MAX_LISTED: usize = 16;

/// The threads in knots.
pub(super) fn stuck(capture: &Capture, threads: &[ResolvedThread], edges: &[Edge]) -> BTreeSet<End> {
    let mut members: BTreeMap<u32, Vec<End>> = BTreeMap::new();
    for process in &capture.processes {
        let alive =
            process.threads.iter().filter(|t| !matches!(t.state, TaskState::Zombie | TaskState::Dead));
        let ends = alive.map(|thread| End { pid: process.pid, tid: Some(thread.tid) }).collect();
        // Threads that were counted and not seen may be the ones who act.
        if process.threads.len() >= process.thread_count as usize {
            members.insert(process.pid, ends);
        }
    }
    let mut alternatives: BTreeMap<End, Vec<&Edge>> = BTreeMap::new();
    for edge in edges {
        alternatives.entry(edge.from).or_default().push(edge);
    }
    let closed = |thread: &&ResolvedThread| {
        let end = End { pid: thread.pid, tid: Some(thread.tid) };
        let bounded = thread.wait.has_deadline && thread.wait.kind != WaitKind::Gil;
        let known = alternatives.get(&end).is_some_and(|edges| {
            edges.len() < MAX_LISTED
                && edges.iter().all(|edge| is_closed(edge))
                // A process of the same pid that is not the waiter's thread itself: a signal handler may act.
                && edges.iter().all(|edge| edge.to.tid.is_some() || edge.to.pid != thread.pid)
        });
        !bounded && !thread.wait.open_ended && known
    };
    let mut stuck: BTreeSet<End> =
        threads.iter().filter(closed).map(|thread| End { pid: thread.pid, tid: Some(thread.tid) }).collect();
    loop {
        let free = |end: &End| {
            let is_stuck = |to: End| match to.tid {
                Some(_) => stuck.contains(&to),
                None => members.get(&to.pid).is_some_and(|all| all.iter().all(|end| stuck.contains(end))),
            };
            !alternatives.get(end).is_some_and(|edges| edges.iter().all(|edge| is_stuck(edge.to)))
        };
        let freed: Vec<End> = stuck.iter().filter(|end| free(end)).copied().collect();
        if freed.is_empty() {
            return stuck;
        }
        for end in freed {
            stuck.remove(&end);
        }
    }
}

/// Whether nobody but those named can end a wait of this kind: the holder of a lock, who holds the other end of a
/// connection or a pipe. A condition can be signalled by any thread that can reach it.
fn is_closed(edge: &Edge) -> bool {
    match edge.through.kind {
        WaitKind::Mutex
        | WaitKind::Rwlock
        | WaitKind::PythonLock
        | WaitKind::Join
        | WaitKind::Gil
        | WaitKind::FileLock
        | WaitKind::Child
        | WaitKind::SocketRecv
        | WaitKind::SocketSend
        | WaitKind::PipeRead
        | WaitKind::PipeWrite
        | WaitKind::Poll => edge.certainty == Certainty::Proven || edge.to.tid.is_none(),
        _ => false,
    }
}
