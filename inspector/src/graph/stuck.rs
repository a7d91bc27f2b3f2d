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
    resolve::{MAX_OWNERS, ResolvedThread},
};

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
            // Of so many there may be more, which are not listed.
            edges.len() < MAX_OWNERS
                && edges.iter().all(|edge| is_closed(edge))
                // A process of the same pid that is not the waiter's thread itself: a signal handler may act.
                && edges.iter().all(|edge| edge.to.tid.is_some() || edge.to.pid != thread.pid)
        });
        !bounded && !thread.wait.open_ended && known
    };
    let mut stuck: BTreeSet<End> =
        threads.iter().filter(closed).map(|thread| End { pid: thread.pid, tid: Some(thread.tid) }).collect();
    let shut = |all: &[End]| !all.is_empty() && all.iter().all(|end| stuck.contains(end));
    let shut: BTreeSet<u32> = members.iter().filter(|(_, all)| shut(all)).map(|(&pid, _)| pid).collect();
    let can_act = |to: End| if to.tid.is_some() { !stuck.contains(&to) } else { !shut.contains(&to.pid) };
    let to_any = |end: &End| alternatives.get(end).into_iter().flatten().map(|edge| edge.to);
    let mut freed: Vec<End> = stuck.iter().filter(|end| to_any(end).any(can_act)).copied().collect();
    let mut waiters: BTreeMap<End, Vec<End>> = BTreeMap::new();
    for &end in &stuck {
        for to in to_any(&end) {
            waiters.entry(to).or_default().push(end);
        }
    }
    // Each is freed once: a chain of thousands costs no more than its length.
    while let Some(end) = freed.pop() {
        if stuck.remove(&end) {
            let process = End { pid: end.pid, tid: None };
            freed.extend([end, process].iter().filter_map(|freed| waiters.get(freed)).flatten());
        }
    }
    stuck
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{Process, StackEnd, Thread, Wait, report::Through};

    const THREADS: u32 = 8;

    fn end(tid: u32) -> End {
        End { pid: 1, tid: Some(tid) }
    }

    /// Threads of one process; each waits for mutexes of those named.
    fn knot(owners: &[Vec<u32>]) -> BTreeSet<End> {
        let threads: Vec<Thread> = (0..THREADS).map(|tid| Thread { tid, ..Thread::default() }).collect();
        let capture = Capture {
            processes: vec![Process { pid: 1, threads, ..Process::default() }],
            ..Capture::default()
        };
        let resolved = |tid| ResolvedThread {
            pid: 1,
            tid,
            wait: Wait::default(),
            frames: Vec::new(),
            stack_end: StackEnd::Complete,
        };
        let resolved: Vec<ResolvedThread> = (0..THREADS).map(resolved).collect();
        let through = Through { kind: WaitKind::Mutex, text: String::new(), address: None, inode: None };
        let edge = |(from, &to): (u32, &u32)| Edge {
            from: end(from),
            to: end(to),
            through: through.clone(),
            certainty: Certainty::Proven,
            evidence: String::new(),
            by_waker: false,
        };
        let pairs = (0..THREADS).zip(owners).flat_map(|(from, all)| all.iter().map(move |to| (from, to)));
        stuck(&capture, &resolved, &pairs.map(edge).collect::<Vec<_>>())
    }

    proptest! {
        #[test]
        fn a_thread_is_stuck_unless_a_way_leads_to_one_that_waits_for_nobody(
            owners in proptest::collection::vec(
                proptest::collection::vec(0..THREADS, 0..3), THREADS as usize..=THREADS as usize,
            ),
        ) {
            let mut free: BTreeSet<u32> = (0..THREADS).filter(|&tid| owners[tid as usize].is_empty()).collect();
            for _ in 0..THREADS {
                free.extend((0..THREADS).filter(|&tid| owners[tid as usize].iter().any(|to| free.contains(to))).collect::<Vec<_>>());
            }
            let expected: BTreeSet<End> = (0..THREADS).filter(|tid| !free.contains(tid)).map(end).collect();
            prop_assert_eq!(knot(&owners), expected);
        }
    }
}
