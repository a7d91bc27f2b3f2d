//! What the decoders look at: one blocked thread, and the capture around it by the keys that waits name.

use std::collections::{HashMap, HashSet};

use super::{MAX_OWNERS, futex::musl};
use crate::model::{
    Capture, Certainty, Fd, FdKind, FileLock, Frame, Owner, Process, Socket, Stability, Syscall, Thread, Tier,
};

/// A capture by the keys that waits name.
pub(super) struct Scene<'a> {
    pub capture: &'a Capture,
    sockets: HashMap<u64, &'a Socket>,
    holders: HashMap<Object, Vec<Holder>>,
    /// Datagram sockets by the inode of the one that they send to.
    senders: HashMap<u64, Vec<u64>>,
    /// By pid and descriptor.
    fds: HashMap<(u32, i32), &'a Fd>,
    /// By pid and the thread's id in its own PID namespace.
    by_ns_tid: HashMap<(u32, u32), &'a Thread>,
    /// By the thread's id in its own PID namespace, whatever that is.
    by_number: HashMap<u32, Vec<(&'a Process, &'a Thread)>>,
    /// By the host's thread id.
    by_tid: HashMap<u32, (&'a Process, &'a Thread)>,
    /// Processes whose C library is musl.
    musl: HashSet<u32>,
}

/// Identity of a kernel object that several processes can hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Object {
    /// A socket or pipe.
    Inode(u64),
    /// An eventfd.
    EventFd(u64),
    /// A file by its mount id and inode: a FIFO, a message queue.
    File(u32, u64),
}

/// A process that holds an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Holder {
    pub pid: u32,
    /// `O_ACCMODE` of its descriptor.
    pub access: u32,
}

impl<'a> Scene<'a> {
    pub(super) fn new(capture: &'a Capture) -> Self {
        let mut holders: HashMap<Object, Vec<Holder>> = HashMap::new();
        let processes = capture.processes.iter().map(|process| (process.pid, &process.fds));
        let bystanders = capture.bystanders.iter().map(|bystander| (bystander.pid, &bystander.fds));
        for (pid, fds) in processes.chain(bystanders) {
            for fd in fds {
                let Some(object) = object(fd) else { continue };
                let holder = Holder { pid, access: fd.flags & 3 };
                let known = holders.entry(object).or_default();
                if !known.contains(&holder) {
                    known.push(holder);
                }
            }
        }
        let sockets = capture.sockets.iter().map(|socket| (socket.inode, socket)).collect();
        let mut senders: HashMap<u64, Vec<u64>> = HashMap::new();
        for socket in capture.sockets.iter().filter(|socket| socket.is_datagram()) {
            if let Some(peer) = socket.peer_inode {
                senders.entry(peer).or_default().push(socket.inode);
            }
        }
        let (mut fds, mut by_ns_tid, mut by_tid) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut by_number: HashMap<u32, Vec<(&Process, &Thread)>> = HashMap::new();
        for process in &capture.processes {
            fds.extend(process.fds.iter().map(|fd| ((process.pid, fd.fd), fd)));
            by_ns_tid.extend(process.threads.iter().map(|thread| ((process.pid, thread.ns_tid), thread)));
            for thread in &process.threads {
                by_number.entry(thread.ns_tid).or_default().push((process, thread));
            }
            by_tid.extend(process.threads.iter().map(|thread| (thread.tid, (process, thread))));
        }
        let musl = capture.processes.iter().filter(|process| musl::is_linked_to(process));
        let musl = musl.map(|process| process.pid).collect();
        Self { capture, sockets, holders, senders, fds, by_ns_tid, by_number, by_tid, musl }
    }

    /// The C library of a captured process is musl.
    pub(super) fn uses_musl(&self, process: &Process) -> bool {
        self.musl.contains(&process.pid)
    }

    /// The open descriptor `fd` of a captured process.
    pub(super) fn fd(&self, process: &Process, fd: i32) -> Option<&'a Fd> {
        self.fds.get(&(process.pid, fd)).copied()
    }

    /// The thread that calls itself `tid` inside the process's own PID namespace.
    pub(super) fn thread_by_ns_tid(&self, process: &Process, tid: u32) -> Option<&'a Thread> {
        self.by_ns_tid.get(&(process.pid, tid)).copied()
    }

    /// Every thread that calls itself `tid` in its own PID namespace.
    pub(super) fn threads_by_number(&self, tid: u32) -> &[(&'a Process, &'a Thread)] {
        self.by_number.get(&tid).map_or(&[], Vec::as_slice)
    }

    /// The thread with the host's id `tid`, and its process.
    pub(super) fn thread(&self, tid: u32) -> Option<(&'a Process, &'a Thread)> {
        self.by_tid.get(&tid).copied()
    }

    pub(super) fn socket(&self, inode: u64) -> Option<&'a Socket> {
        self.sockets.get(&inode).copied()
    }

    /// The datagram sockets that send to the socket `inode`.
    pub(super) fn senders(&self, inode: u64) -> &[u64] {
        self.senders.get(&inode).map_or(&[], Vec::as_slice)
    }

    /// Whether every process of the host was asked for what it holds, so that what nobody was seen to hold nobody holds:
    /// with privilege, and without running out of time.
    pub(super) fn saw_all_holders(&self) -> bool {
        self.capture.tier == Tier::Ebpf
            && !self.capture.gaps.iter().any(|gap| matches!(gap.source.as_str(), "fds" | "helper"))
    }

    pub(super) fn holders(&self, object: Object) -> &[Holder] {
        self.holders.get(&object).map_or(&[], Vec::as_slice)
    }

    /// The processes whose descriptors show this lock as held.
    pub(super) fn lock_holders(&self, lock: &FileLock) -> Vec<u32> {
        let captured = self.capture.processes.iter().map(|process| (process.pid, &process.fds));
        let beside = self.capture.bystanders.iter().map(|bystander| (bystander.pid, &bystander.fds));
        let holds = |fds: &[Fd]| fds.iter().any(|fd| fd.locks().iter().any(|held| held.is(lock)));
        captured.chain(beside).filter(|(_, fds)| holds(fds)).map(|(pid, _)| pid).take(MAX_OWNERS).collect()
    }

    /// The host's pid of the process that calls itself `ns_pid` where `asker` lives. Outside PID namespaces the two are
    /// the same; inside, it is that of a process of the very same namespace or of a child (which may be the first of a
    /// namespace of its own), or not known.
    pub(super) fn host_pid(&self, asker: &Process, ns_pid: u32) -> Option<u32> {
        let level = asker.ns_pids.len().saturating_sub(1);
        if level == 0 {
            return Some(ns_pid);
        }
        let captured = self.capture.processes.iter();
        let captured = captured.map(|other| (other.pid, other.ppid, other.pid_ns, &other.ns_pids));
        let beside = self.capture.bystanders.iter();
        let beside = beside.map(|other| (other.pid, other.ppid, other.pid_ns, &other.ns_pids));
        let mut all = captured.chain(beside);
        let found = all.find(|(_, ppid, namespace, numbers)| {
            let same = asker.pid_ns.is_some() && *namespace == asker.pid_ns && numbers.len() == level + 1;
            (same || *ppid == asker.pid) && numbers.get(level) == Some(&ns_pid)
        });
        found.map(|(pid, ..)| pid)
    }
}

/// What a descriptor shares with those of other processes.
pub(super) fn object(fd: &Fd) -> Option<Object> {
    match &fd.kind {
        FdKind::Socket { inode } | FdKind::Pipe { inode, path: None } => Some(Object::Inode(*inode)),
        // Not by its inode alone: that is its file system's own.
        FdKind::Pipe { path: Some(_), .. } | FdKind::File { .. } => {
            let (mount, inode) = fd.details.as_ref()?.file?;
            Some(Object::File(mount, inode))
        }
        FdKind::EventFd { id, .. } => id.map(Object::EventFd),
        _ => None,
    }
}

/// A thread in a system call.
#[derive(Clone, Copy)]
pub(super) struct Blocked<'a> {
    pub scene: &'a Scene<'a>,
    pub process: &'a Process,
    pub thread: &'a Thread,
    pub syscall: &'a Syscall,
    /// The call's name.
    pub name: &'static str,
}

impl<'a> Blocked<'a> {
    /// `None`: in user mode, or the call is not known.
    pub(super) fn new(scene: &'a Scene<'a>, process: &'a Process, thread: &'a Thread) -> Option<Self> {
        let syscall = thread.syscall.as_ref()?;
        let name = syscall.name(&scene.capture.host.arch)?;
        Some(Self { scene, process, thread, syscall, name })
    }

    /// Argument `index` of the call (0 to 5).
    pub(super) fn argument(&self, index: usize) -> u64 {
        self.syscall.arguments.get(index).copied().unwrap_or_default()
    }

    /// An argument that the kernel takes as `int`.
    pub(super) fn fd(&self, index: usize) -> i32 {
        self.argument(index) as i32
    }

    /// The process's descriptor `fd`.
    pub(super) fn open(&self, fd: i32) -> Option<&'a Fd> {
        self.scene.fd(self.process, fd)
    }

    /// Inode of the socket behind a descriptor.
    pub(super) fn socket_inode(&self, fd: i32) -> Option<u64> {
        self.open(fd)?.socket_inode()
    }

    /// How sure a fact is that was read of this thread's wait.
    pub(super) fn certainty(&self) -> Certainty {
        if self.thread.stability == Stability::Stable { Certainty::Proven } else { Certainty::Likely }
    }

    /// Time since the call blocked, nanoseconds, where the thread has not run since: a call that was restarted began
    /// earlier than its last sleep.
    pub(super) fn elapsed_ns(&self) -> Option<u64> {
        if self.syscall.restarted { None } else { self.thread.off_cpu_ns }
    }

    /// Native functions, innermost first, down to the first frame of CPython's eval loop.
    pub(super) fn native_above_python(&self) -> impl Iterator<Item = &'a Frame> {
        self.process.frames_of(&self.thread.native.frames).take_while(|frame| {
            !frame.function.starts_with("_PyEval_") && !frame.function.starts_with("PyEval_")
        })
    }

    /// The thread's native stack was walked.
    pub(super) fn has_native(&self) -> bool {
        !self.thread.native.frames.is_empty()
    }

    /// Python frames, innermost first.
    pub(super) fn python(&self) -> impl Iterator<Item = &'a Frame> {
        let frames = self.thread.python.as_ref().map_or(&[][..], |python| python.frames.as_slice());
        let process = self.process;
        frames.iter().filter_map(move |frame| Some(process.frames.get(frame.frame as usize)?.as_ref()))
    }

    /// Kernel functions, innermost first.
    pub(super) fn kernel(&self) -> impl Iterator<Item = &'a str> {
        self.process.frames_of(&self.thread.kernel).map(|frame| frame.function.as_str())
    }

    /// The processes that hold `object` with an access mode that `fits`, as owners.
    pub(super) fn owners(
        &self,
        object: Object,
        certainty: Certainty,
        evidence: &str,
        fits: impl Fn(&Holder) -> bool,
    ) -> Vec<Owner> {
        let mut owners: Vec<Owner> = Vec::new();
        for holder in self.scene.holders(object).iter().filter(|holder| fits(holder)) {
            if owners.len() >= MAX_OWNERS {
                break;
            }
            if !owners.iter().any(|owner| owner.pid == holder.pid) {
                owners.push(Owner { pid: holder.pid, tid: None, certainty, evidence: evidence.to_owned() });
            }
        }
        owners
    }
}
