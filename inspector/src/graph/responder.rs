//! Which thread of a process has to act, where the kernel names only the process: a socket, a pipe and a file lock
//! belong to all of its threads.

use std::collections::{BTreeMap, HashMap};

use crate::{
    model::{Capture, Certainty, Owner, TaskState, WaitKind},
    resolve::ResolvedThread,
};

/// The threads of the captured processes, by what tells who of them answers.
pub(super) struct Responders<'a> {
    /// Threads that have not ended, by process.
    alive: BTreeMap<u32, Vec<&'a ResolvedThread>>,
    /// By the inode of a socket, that of the other end.
    peers: HashMap<u64, u64>,
}

impl<'a> Responders<'a> {
    pub(super) fn of(capture: &Capture, threads: &'a [ResolvedThread]) -> Self {
        let ended: std::collections::BTreeSet<(u32, u32)> = capture
            .processes
            .iter()
            .flat_map(|process| process.threads.iter().map(move |thread| (process.pid, thread)))
            .filter(|(_, thread)| matches!(thread.state, TaskState::Zombie | TaskState::Dead))
            .map(|(pid, thread)| (pid, thread.tid))
            .collect();
        let mut alive: BTreeMap<u32, Vec<&ResolvedThread>> = BTreeMap::new();
        for thread in threads.iter().filter(|thread| !ended.contains(&(thread.pid, thread.tid))) {
            alive.entry(thread.pid).or_default().push(thread);
        }
        let peers = capture.sockets.iter().filter_map(|socket| Some((socket.inode, socket.peer_inode?)));
        // A count that the kernel gives and the sweep did not reach: whether a thread is the only one is not known then.
        let complete = |pid: &u32| {
            capture
                .process(*pid)
                .is_some_and(|process| process.thread_count as usize <= process.threads.len())
        };
        alive.retain(|pid, _| complete(pid));
        Self { alive, peers: peers.collect() }
    }

    /// The owner with its thread, where the process has only one; it is as sure as that the process is the owner.
    ///
    /// Not of the waiter's own process: what it waits for there comes from a signal handler as often as from a thread.
    pub(super) fn only_thread(&self, waiter: &ResolvedThread, owner: Owner) -> Owner {
        if owner.tid.is_some() || owner.pid == waiter.pid {
            return owner;
        }
        match self.alive.get(&owner.pid).map(Vec::as_slice) {
            Some([only]) => Owner {
                tid: Some(only.tid),
                evidence: format!("{}; the process has this thread only", owner.evidence),
                ..owner
            },
            _ => owner,
        }
    }

    /// The one thread of `owner`'s process that waits on the other end of the socket that `waiter` waits on: if an answer
    /// comes, it comes from there.
    pub(super) fn at_other_end(&self, waiter: &ResolvedThread, owner: &Owner) -> Option<Owner> {
        if owner.tid.is_some() || owner.pid == waiter.pid {
            return None;
        }
        let other_end = *self.peers.get(&waiter.wait.inode?)?;
        let reads = |thread: &&&ResolvedThread| {
            thread.wait.inode == Some(other_end) && thread.wait.kind != WaitKind::Accept
        };
        let mut readers = self.alive.get(&owner.pid)?.iter().filter(reads);
        let (reader, None) = (readers.next()?, readers.next()) else { return None };
        Some(Owner {
            pid: owner.pid,
            tid: Some(reader.tid),
            certainty: Certainty::Likely,
            evidence: format!("{}; this thread waits on the other end", owner.evidence),
        })
    }
}
