//! One process as it was seen.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{
    Container, CpuQuota, Fd, Frame, NamedTid, PythonRuntime, SharedMapping, SharedObject, TaskState, Thread,
    Worker, sharing,
};

/// A wanted process and all its threads.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Process {
    /// Its tgid in the host's PID namespace.
    pub pid: u32,
    /// Its ids from the host's PID namespace inwards (`NSpid` of `/proc/PID/status`); one entry outside containers.
    pub ns_pids: Vec<u32>,
    /// Inode of its PID namespace; `None`: not readable, or a capture that was made before it was kept.
    #[serde(default)]
    pub pid_ns: Option<u64>,
    /// Its parent's tgid.
    pub ppid: u32,
    /// Its process group, the host's number; 0: not known.
    #[serde(default)]
    pub pgid: u32,
    /// `comm`, at most 15 bytes.
    pub comm: String,
    /// Arguments; `setproctitle` overwrites them with one string.
    pub cmdline: Vec<String>,
    /// The executable as the target's mount namespace names it.
    pub exe: Option<String>,
    /// State of the thread-group leader.
    pub state: TaskState,
    /// When it was started, nanoseconds since the epoch; 0: not known.
    pub start_unix_ns: u64,
    /// Real user id.
    pub uid: u32,
    /// Pid of the tracer (`TracerPid`), 0 for none.
    pub tracer_pid: u32,
    /// Path of its cgroup: in the hierarchy that names its container, else in one where it is not in the root.
    pub cgroup: Option<String>,
    /// Its container; `None`: it is in none that the cgroup's path or a host name of its own tells of.
    #[serde(default)]
    pub container: Option<Container>,
    /// The cgroup is frozen; `None`: not known.
    pub frozen: Option<bool>,
    /// The cgroups that somebody froze, innermost first: its own or ancestors of it.
    #[serde(default)]
    pub frozen_cgroups: Vec<String>,
    /// The CPU quotas of its cgroup and of that one's ancestors, innermost first.
    #[serde(default)]
    pub cpu_quotas: Vec<CpuQuota>,
    /// What holds `mm->mmap_lock` at the time of the kernel-only sweep.
    pub mmap_lock: MmapLock,
    /// Inode of its network namespace.
    pub net_ns: Option<u64>,
    /// Environment variables of the allowlist that knowledge files name, nothing else.
    pub environment: BTreeMap<String, String>,
    /// What it does in a serving engine; `None`: no engine that is known.
    pub worker: Option<Worker>,
    /// TCP ports it listens on, ascending.
    pub listening: Vec<u16>,
    /// Its Python runtime; `None`: not a Python process, or not readable (then a gap says so).
    pub python: Option<PythonRuntime>,
    /// Every frame of its threads once; threads refer to it by index.
    pub frames: Vec<Arc<Frame>>,
    /// Its threads, by tid.
    pub threads: Vec<Thread>,
    /// Threads that the kernel counted (`Threads` of `/proc/PID/status`); more than `threads` holds means a gap.
    pub thread_count: u32,
    /// Its open descriptors, by number.
    pub fds: Vec<Fd>,
    /// Its shared mappings, by address; `None`: not read, or a capture that was made before they were kept.
    #[serde(default)]
    pub shared_memory: Option<Vec<SharedMapping>>,
    /// Whom words in shared memory name that its threads wait for.
    #[serde(default)]
    pub named_tids: Vec<NamedTid>,
}

impl Process {
    /// The thread `tid` (the host's).
    pub fn thread(&self, tid: u32) -> Option<&Thread> {
        self.threads.iter().find(|thread| thread.tid == tid)
    }

    /// Inodes of the sockets that it holds.
    pub fn socket_inodes(&self) -> BTreeSet<u64> {
        self.fds.iter().filter_map(Fd::socket_inode).collect()
    }

    /// What lies at `address`, where other processes can map it too.
    pub fn shared_object(&self, address: u64) -> Option<SharedObject> {
        sharing::object_at(self.shared_memory.as_deref()?, address)
    }

    /// Whether it maps `object` and can write to it.
    pub fn maps(&self, object: &SharedObject) -> bool {
        self.shared_memory.iter().flatten().any(|mapping| mapping.can_lock(object))
    }

    /// The frames of a list of indices; an index out of range (a damaged capture) is left out.
    pub fn frames_of<'a>(&'a self, indices: &'a [u32]) -> impl Iterator<Item = &'a Frame> {
        indices.iter().filter_map(|&index| Some(self.frames.get(index as usize)?.as_ref()))
    }
}

/// State of `mm->mmap_lock`. A process whose lock is contended is reported from the kernel-only sweep alone, since
/// every read of its memory would wait for the lock without end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MmapLock {
    /// Could not be read (tier `memory` or `proc`, or the member is missing from the kernel's BTF).
    #[default]
    Unknown,
    /// Nobody holds it for writing and nobody waits for it.
    Free,
    /// A writer holds it, or somebody waits for it.
    Contended,
}

/// A process that was not asked for but holds the other end of something.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Bystander {
    /// Its tgid in the host's PID namespace.
    pub pid: u32,
    /// Its ids from the host's PID namespace inwards.
    #[serde(default)]
    pub ns_pids: Vec<u32>,
    /// Inode of its PID namespace; `None`: not readable.
    #[serde(default)]
    pub pid_ns: Option<u64>,
    /// Its parent's tgid.
    pub ppid: u32,
    /// Its process group, the host's number; 0: not known.
    #[serde(default)]
    pub pgid: u32,
    /// `comm`.
    pub comm: String,
    /// State of the thread-group leader.
    pub state: TaskState,
    /// When it was started, nanoseconds since the epoch.
    pub start_unix_ns: u64,
    /// Its descriptors that share an object with a wanted process.
    pub fds: Vec<Fd>,
}
