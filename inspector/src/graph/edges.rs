//! From the owners of waits to edges.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::responder::Responders;
use crate::{
    model::{
        Capture, Certainty, FdKind, GilSample, Owner, Process, PythonRuntime, Stability, WaitKind,
        format::humane,
        report::{Edge, End, Through},
        wait::LastWaker,
    },
    resolve::ResolvedThread,
};

/// Most edges that are kept: a bound on what a hostile capture (a pipe that thousands share) can make us hold.
const MAX_EDGES: usize = 1 << 16;

/// Most processes named at the other end of one object.
const MAX_ENDS: usize = 16;

/// The edges of a capture, ordered.
pub(super) fn edges(capture: &Capture, threads: &[ResolvedThread]) -> Vec<Edge> {
    let ends = OtherEnds::of(capture);
    let responders = Responders::of(capture, threads);
    // Looked up for each edge: of a process of many thousand threads, one by one would take longer than all the rest.
    let stable = stable(capture);
    let mut edges = Vec::new();
    for thread in threads {
        if edges.len() >= MAX_EDGES {
            break;
        }
        let Some(process) = capture.process(thread.pid) else { continue };
        let mut owners = thread.wait.owners.clone();
        if owners.is_empty() {
            owners = ends.owners(thread);
        }
        if let Some(waker) = thread.wait.last_waker.as_ref().filter(|waker| owners.is_empty() && !waker.ended)
        {
            edges.push(by_waker(thread, waker));
        }
        let alone = owners.len() == 1;
        for owner in owners {
            if edges.len() >= MAX_EDGES {
                break;
            }
            let certainty = certainty(&stable, process, thread, &owner, alone);
            let answers = responders.likely(thread, &owner);
            edges.push(edge(thread, responders.only_thread(thread, owner), certainty));
            edges.extend(answers.map(|owner| edge(thread, owner, Certainty::Likely)));
        }
    }
    edges.sort_by_key(|edge| (edge.from, edge.to, edge.through.kind));
    edges.dedup();
    edges
}

fn edge(from: &ResolvedThread, to: Owner, certainty: Certainty) -> Edge {
    Edge {
        from: End { pid: from.pid, tid: Some(from.tid) },
        to: End { pid: to.pid, tid: to.tid },
        through: Through {
            kind: from.wait.kind,
            text: from.wait.text.clone(),
            address: from.wait.address,
            inode: from.wait.inode,
        },
        certainty,
        evidence: to.evidence,
        by_waker: false,
    }
}

/// To the thread that last woke a waiter of the object.
fn by_waker(thread: &ResolvedThread, waker: &LastWaker) -> Edge {
    Edge {
        from: End { pid: thread.pid, tid: Some(thread.tid) },
        to: End { pid: waker.pid, tid: Some(waker.tid) },
        through: Through {
            kind: thread.wait.kind,
            text: thread.wait.text.clone(),
            address: thread.wait.address,
            inode: thread.wait.inode,
        },
        certainty: Certainty::Likely,
        evidence: format!(
            "last woke a waiter of it {} before the end of the window, the last of {} wakes",
            humane(waker.before_end_ns),
            waker.times
        ),
        by_waker: true,
    }
}

/// Proven: what `resolve` calls proven, read while both ends stood still. Where several can end the wait (the writers
/// of a pipe), no single edge is.
///
/// The GIL is the exception. Its waiters wake every 5 ms, and its holder may run, so that neither stands still; but a
/// holder that stays the same in every reading while the switch counter does not move held it all the time.
fn certainty(
    stable: &HashSet<(u32, u32)>,
    process: &Process,
    waiter: &ResolvedThread,
    owner: &Owner,
    alone: bool,
) -> Certainty {
    if owner.certainty == Certainty::Likely || !alone {
        return Certainty::Likely;
    }
    if waiter.wait.kind == WaitKind::Gil {
        let frozen = process
            .python
            .iter()
            .flat_map(PythonRuntime::gils)
            .any(|gil| frozen_holder(&gil.samples).is_some_and(|holder| Some(holder) == owner.tid));
        return if frozen { Certainty::Proven } else { Certainty::Likely };
    }
    let is_stable = |pid: u32, tid: u32| stable.contains(&(pid, tid));
    let both = is_stable(waiter.pid, waiter.tid) && owner.tid.is_none_or(|tid| is_stable(owner.pid, tid));
    if both { Certainty::Proven } else { Certainty::Likely }
}

/// The threads that stood still while they were read, by pid and tid.
fn stable(capture: &Capture) -> HashSet<(u32, u32)> {
    let threads = capture
        .processes
        .iter()
        .flat_map(|process| process.threads.iter().map(|thread| (process.pid, thread)));
    threads
        .filter(|(_, thread)| thread.stability == Stability::Stable)
        .map(|(pid, thread)| (pid, thread.tid))
        .collect()
}

/// The holder of a GIL that did not change hands over at least two readings; `None` if it moved, was free once, or was
/// read less than twice.
pub(crate) fn frozen_holder(samples: &[GilSample]) -> Option<u32> {
    let first = samples.first().filter(|_| samples.len() > 1)?;
    let same = |sample: &GilSample| {
        sample.locked && sample.holder == first.holder && sample.switch_number == first.switch_number
    };
    first.holder.filter(|_| samples.iter().all(same))
}

/// Who holds the other end of a socket, for waits whose owners `resolve` left open. Not of a pipe: `resolve` looks at both
/// ends, and where it finds nobody, whoever has the pipe open as well is on the waiter's own side of it.
struct OtherEnds {
    sockets: HashMap<u64, BTreeSet<u32>>,
    peers: BTreeMap<u64, u64>,
}

impl OtherEnds {
    fn of(capture: &Capture) -> Self {
        let captured = capture.processes.iter().map(|process| (process.pid, &process.fds));
        let beside = capture.bystanders.iter().map(|process| (process.pid, &process.fds));
        let mut sockets = HashMap::<u64, BTreeSet<u32>>::new();
        for (pid, fds) in captured.chain(beside) {
            for fd in fds {
                if let FdKind::Socket { inode } = fd.kind {
                    sockets.entry(inode).or_default().insert(pid);
                }
            }
        }
        let peers =
            capture.sockets.iter().filter_map(|socket| Some((socket.inode, socket.peer_inode?))).collect();
        Self { sockets, peers }
    }

    fn owners(&self, thread: &ResolvedThread) -> Vec<Owner> {
        let Some(inode) = thread.wait.inode else { return Vec::new() };
        if !matches!(thread.wait.kind, WaitKind::SocketRecv | WaitKind::SocketSend) {
            return Vec::new();
        }
        let holders = self.peers.get(&inode).and_then(|peer| self.sockets.get(peer));
        let others: Vec<u32> =
            holders.into_iter().flatten().copied().filter(|&pid| pid != thread.pid).take(MAX_ENDS).collect();
        let certainty = if others.len() == 1 { Certainty::Proven } else { Certainty::Likely };
        let owner = |pid| Owner { pid, tid: None, certainty, evidence: "socket peer by sock_diag".into() };
        others.into_iter().map(owner).collect()
    }
}
