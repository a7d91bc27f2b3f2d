//! The task snapshot: what the kernel knows of each thread, in one walk, touching no user memory. Beside it the
//! [`memory_walk`], which reads some, and which only a helper runs.

mod bpf;
mod btf;
mod calls;
mod clock;
mod ebpf;
mod error;
mod fentry;
mod loader;
pub mod memory_walk;
mod names;
mod offsets;
mod probe;
pub mod probes;
mod proc;
mod proc_text;
mod record;
mod restart;
mod source;
mod told;
mod warnings;

pub use error::TasksError;
pub use probe::{Capability, probe};
pub use source::{Opened, Opening, TaskSource, open};

use std::sync::Arc;

use crate::model::{Gap, MmapLock, Registers, Syscall, TaskState};

/// One walk over the wanted processes' threads.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// `CLOCK_MONOTONIC` at the start of the walk, nanoseconds.
    pub at_ns: u64,
    /// `CLOCK_MONOTONIC` at its end, nanoseconds.
    pub ended_ns: u64,
    /// The threads, by pid and tid.
    pub tasks: Vec<Task>,
    /// What could not be seen; each is told by one sweep only.
    pub gaps: Vec<Gap>,
}

/// One thread in one sweep.
#[derive(Clone, Debug, Default)]
pub struct Task {
    /// The host's tgid.
    pub pid: u32,
    /// The host's tid.
    pub tid: u32,
    /// Its tid in the innermost PID namespace that it lives in, where the tier tells.
    pub ns_tid: Option<u32>,
    /// `comm`.
    pub comm: Arc<str>,
    /// Scheduler state.
    pub state: TaskState,
    /// It was on a CPU.
    pub on_cpu: bool,
    /// The system call it is in, recovered behind `restart_syscall`; `None`: in user mode, or not known.
    pub syscall: Option<Syscall>,
    /// User registers; stale while `on_cpu`.
    pub registers: Option<Registers>,
    /// Thread pointer.
    pub thread_pointer: Option<u64>,
    /// Off the CPU for how long at the end of the sweep, nanoseconds; `None`: on it, or not known.
    pub off_cpu_ns: Option<u64>,
    /// What must be equal in two sweeps for the thread to be stable between them.
    pub fingerprint: Fingerprint,
    /// Kernel stack, innermost first, as code addresses (empty where the tier has none).
    pub kernel_stack: Arc<[u64]>,
    /// Kernel stack as names, where the tier gives names instead of addresses (`/proc/PID/task/TID/stack`).
    pub kernel_names: Vec<String>,
    /// Its cgroup is frozen; `None`: not known.
    pub frozen: Option<bool>,
    /// Its process's `mmap_lock`.
    pub mmap_lock: MmapLock,
}

/// What a thread cannot change without running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint {
    /// Times it was switched in (`sched_info.pcount`); else the sum of both switch counts.
    pub switched_in: u64,
    /// When it was last switched in (`sched_info.last_arrival`), 0 where not known.
    pub last_arrival: u64,
    /// CPU time so far, nanoseconds.
    pub cpu_ns: u64,
    /// User instruction pointer, 0 where not known.
    pub pc: u64,
    /// User stack pointer, 0 where not known.
    pub sp: u64,
}
