//! Which thread of a process has to act, where the kernel names only the process: a socket, a pipe and a file lock
//! belong to all of its threads.

use std::collections::{BTreeMap, HashMap};

use crate::{
    model::{Capture, Certainty, Fd, FdKind, Owner, TaskState, WaitKind, probes::TransferDirection},
    resolve::ResolvedThread,
};

/// The threads of the captured processes, by what tells who of them answers.
pub(super) struct Responders<'a> {
    /// Threads that have not ended, by process.
    alive: BTreeMap<u32, Vec<&'a ResolvedThread>>,
    /// By the inode of a socket, that of the other end.
    peers: HashMap<u64, u64>,
    /// Threads that wait on a socket or pipe other than for a connection, by their process and its inode.
    readers: HashMap<(u32, u64), Vec<u32>>,
    /// The last thread that was seen to write, by its process and the inode it wrote to.
    writers: HashMap<(u32, u64), u32>,
    /// Threads whose Python frames have the descriptor of a socket, or of a pipe's writing end, by process and inode.
    users: HashMap<(u32, u64), Vec<u32>>,
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
        let written = capture.probes.iter().flat_map(|probes| &probes.transfers);
        let written = written.filter(|transfer| transfer.direction == TransferDirection::Out);
        let writers = written.filter_map(|transfer| Some(((transfer.pid, transfer.inode?), transfer.tid)));
        let mut readers: HashMap<(u32, u64), Vec<u32>> = HashMap::new();
        for thread in alive.values().flatten().filter(|thread| thread.wait.kind != WaitKind::Accept) {
            if let Some(inode) = thread.wait.inode {
                readers.entry((thread.pid, inode)).or_default().push(thread.tid);
            }
        }
        Self { alive, peers: peers.collect(), readers, writers: writers.collect(), users: users(capture) }
    }

    /// The thread of `owner`'s process that is likely to answer, where only the process is known: one that waits on the
    /// other end, else the one that wrote there last while the probes watched, else the only one that works with it.
    pub(super) fn likely(&self, waiter: &ResolvedThread, owner: &Owner) -> Option<Owner> {
        if owner.tid.is_some() || owner.pid == waiter.pid {
            return None;
        }
        let (tid, why) = self
            .at_other_end(waiter, owner.pid)
            .map(|tid| (tid, "this thread waits on the other end"))
            .or_else(|| Some((self.last_writer(waiter, owner.pid)?, "this thread wrote there last")))
            .or_else(|| {
                Some((self.only_user(waiter, owner.pid)?, "only this thread's frames have it in variables"))
            })?;
        let evidence = format!("{}; {why}", owner.evidence);
        Some(Owner { pid: owner.pid, tid: Some(tid), certainty: Certainty::Likely, evidence })
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

    /// The one thread of a process that waits on the other end of the socket that `waiter` waits on: if an answer comes, it
    /// comes from there.
    fn at_other_end(&self, waiter: &ResolvedThread, pid: u32) -> Option<u32> {
        let other_end = *self.peers.get(&waiter.wait.inode?)?;
        match self.readers.get(&(pid, other_end))?.as_slice() {
            &[only] => Some(only),
            _ => None,
        }
    }

    /// The thread of a process that last wrote into the other end of the socket, or into the pipe, that `waiter` reads.
    fn last_writer(&self, waiter: &ResolvedThread, pid: u32) -> Option<u32> {
        if !matches!(
            waiter.wait.kind,
            WaitKind::SocketRecv | WaitKind::PipeRead | WaitKind::Poll | WaitKind::Epoll
        ) {
            return None;
        }
        let inode = waiter.wait.inode?;
        let written = self.peers.get(&inode).copied().unwrap_or(inode);
        let tid = *self.writers.get(&(pid, written))?;
        self.several(pid)?.iter().any(|thread| thread.tid == tid).then_some(tid)
    }

    /// The threads of a process that has more than one: of one alone nothing has to be guessed, and a guess beside what is
    /// proven would make its wait look open.
    fn several(&self, pid: u32) -> Option<&[&'a ResolvedThread]> {
        self.alive.get(&pid).map(Vec::as_slice).filter(|threads| threads.len() > 1)
    }

    /// The only thread of a process whose Python frames have the other end of what `waiter` reads in their variables.
    fn only_user(&self, waiter: &ResolvedThread, pid: u32) -> Option<u32> {
        if !matches!(waiter.wait.kind, WaitKind::SocketRecv | WaitKind::PipeRead) {
            return None;
        }
        let inode = waiter.wait.inode?;
        let other_end = self.peers.get(&inode).copied().unwrap_or(inode);
        let users = self.users.get(&(pid, other_end))?;
        // Who accepted it and gave it to another thread often has it in a variable still.
        let works =
            |thread: &&&ResolvedThread| users.contains(&thread.tid) && thread.wait.kind != WaitKind::Accept;
        let mut workers = self.several(pid)?.iter().filter(works);
        let (worker, None) = (workers.next()?, workers.next()) else { return None };
        Some(worker.tid)
    }
}

/// See [`Responders::users`].
fn users(capture: &Capture) -> HashMap<(u32, u64), Vec<u32>> {
    let mut users: HashMap<(u32, u64), Vec<u32>> = HashMap::new();
    for process in &capture.processes {
        let inode = |fd: &Fd| match fd.kind {
            FdKind::Socket { inode } => Some(inode),
            FdKind::Pipe { inode, .. } if fd.flags & 3 != 0 => Some(inode),
            _ => None,
        };
        let inodes: HashMap<i32, u64> =
            process.fds.iter().filter_map(|fd| Some((fd.fd, inode(fd)?))).collect();
        for thread in &process.threads {
            let fds = thread.python.iter().flat_map(|python| &python.descriptors);
            for inode in fds.filter_map(|fd| inodes.get(fd)) {
                users.entry((process.pid, *inode)).or_default().push(thread.tid);
            }
        }
    }
    users
}
