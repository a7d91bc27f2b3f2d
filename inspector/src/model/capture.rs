//! A capture: everything that was seen of a set of processes during one observation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Bystander, Gap, IpcObject, LockWait, Probes, Process, Socket};

/// Version of the capture's layout; a reader accepts this one and every older one.
pub const CAPTURE_VERSION: u32 = 1;

/// Everything that the analysis needs, and nothing that it would have to ask the host for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Capture {
    /// [`CAPTURE_VERSION`] of the writer.
    pub version: u32,
    /// The machine.
    pub host: Host,
    /// How deep the capture reached (README.md, "What it needs").
    pub tier: Tier,
    /// When it was taken, and for how long it watched.
    pub window: Window,
    /// The wanted processes, by pid.
    pub processes: Vec<Process>,
    /// Processes that were not asked for but hold the other end of something that a wanted one waits on.
    pub bystanders: Vec<Bystander>,
    /// Sockets of the wanted processes and their peers, of every network namespace involved.
    pub sockets: Vec<Socket>,
    /// Waits for file locks of the wanted processes.
    #[serde(default)]
    pub locks: Vec<LockWait>,
    /// What the probes saw; `None`: there were none.
    #[serde(default)]
    pub probes: Option<Probes>,
    /// System V objects that threads of the wanted processes wait on.
    #[serde(default)]
    pub ipc: Vec<IpcObject>,
    /// What could not be read, and why.
    pub gaps: Vec<Gap>,
}

impl Capture {
    /// The wanted process `pid`.
    pub fn process(&self, pid: u32) -> Option<&Process> {
        self.processes.iter().find(|process| process.pid == pid)
    }
}

/// The machine that a capture was taken on.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// Its node name.
    pub hostname: String,
    /// `uname -r`.
    pub kernel: String,
    /// `x86_64` or `aarch64`: decides how syscall numbers read.
    pub arch: String,
    /// Processors online.
    pub cpus: u32,
    /// Version of the inspector that looked.
    pub inspector: String,
}

/// How deep a capture reached. Ordered: a later tier gives more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// `/proc` alone: states, switch counts, descriptors, sockets.
    #[default]
    Proc,
    /// `/proc` and `process_vm_readv`: stacks and waits, kernel stacks only with `CAP_SYS_ADMIN`, no off-CPU times.
    Memory,
    /// The eBPF task iterator: everything.
    Ebpf,
}

impl Tier {
    /// The tier's name as `--json` and `doctor` print it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Proc => "proc",
            Self::Memory => "memory",
            Self::Ebpf => "ebpf",
        }
    }
}

/// When a capture was taken.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    /// Wall clock of the first sweep, nanoseconds since the epoch.
    pub started_unix_ns: u64,
    /// From the first sweep to the last, nanoseconds; 0 for a single sweep.
    pub duration_ns: u64,
    /// Kernel-only sweeps taken.
    pub sweeps: u32,
    /// `CLOCK_MONOTONIC` at the last sweep, nanoseconds: what absolute time-outs are counted to; `None`: not noted.
    #[serde(default)]
    pub ended_monotonic_ns: Option<u64>,
}

impl Window {
    /// Wall clock of the last sweep, nanoseconds since the epoch: the instant that ages are counted to.
    pub fn ended_unix_ns(&self) -> u64 {
        self.started_unix_ns.saturating_add(self.duration_ns)
    }
}
