//! What a capture means: the document that `--json` prints. Names are promised to other tools: add more, rename none.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Certainty, Container, CpuQuota, Frame, Gap, Host, Probes, Stability, StackEnd, TaskState, Tier, Wait,
    WaitKind, Window,
};

/// Version of the JSON document; the minor part grows with every added name.
pub const SCHEMA_VERSION: &str = "1.7";

/// The full result of `ps` (without stacks and verdict), `dump` (without verdict) or `diagnose`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: String,
    /// The machine.
    pub host: Host,
    /// How deep the capture reached.
    pub tier: Tier,
    /// When and for how long it watched.
    pub window: Window,
    /// The verdict; only `diagnose` has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Every hypothesis that was weighed, the best first; those ruled out too.
    pub hypotheses: Vec<Hypothesis>,
    /// The processes.
    pub workers: Vec<WorkerReport>,
    /// Their threads, by pid and tid.
    pub threads: Vec<ThreadReport>,
    /// Who waits for whom.
    pub edges: Vec<Edge>,
    /// Wait cycles: each a list of edges' indices into `edges`, in order.
    pub cycles: Vec<Cycle>,
    /// Who is waited for and waits for nobody known, the one that most threads wait for first.
    #[serde(default)]
    pub roots: Vec<Root>,
    /// Threads of one name whose stacks differ between the ranks of one engine.
    #[serde(default)]
    pub divergences: Vec<Divergence>,
    /// Threads that should be there and are not.
    pub missing_threads: Vec<MissingThread>,
    /// Dated facts, in order.
    pub timeline: Vec<Event>,
    /// The user's suspicions and what became of them.
    pub claims: Vec<Claim>,
    /// What the probes saw while `diagnose` watched: wakers, bytes, waits, ends of threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<Probes>,
    /// What could not be seen, and why.
    pub gaps: Vec<Gap>,
}

/// How the fleet does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Work hangs.
    Wedged,
    /// Some work hangs while other work of the same kind goes through.
    Degraded,
    /// Nothing that should move stands still.
    Healthy,
    /// Cannot tell; the evidence says what is missing.
    Unknown,
}

/// Family of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// No wedge.
    Healthy,
    /// One side was restarted under a peer that still waits for the old one.
    RestartAsymmetry,
    /// A thread that serves others ended while its process lives on.
    ThreadDied,
    /// A thread spins in one place without progress.
    ThreadLivelocked,
    /// A send waits for a reader that does not read or is not there.
    BlockedSend,
    /// A connection whose other end is gone.
    HalfOpenConnection,
    /// Network or disk I/O on the scheduling thread.
    BlockingIoOnScheduler,
    /// A KV transfer never reaches a terminal state.
    TransferStalled,
    /// A completion was lost; everybody is idle.
    LostCompletion,
    /// Ranks are in different collectives.
    CollectiveDesync,
    /// Ranks wait for one that is late.
    CollectiveStraggler,
    /// GPU work never completes.
    GpuHang,
    /// The GIL is held by a thread that does not give it up.
    GilStarvation,
    /// A cycle of locks.
    DeadlockCycle,
    /// A process cannot finish its shutdown.
    ShutdownStuck,
    /// A lock was held by another thread when the process forked.
    ForkDeadlock,
    /// A peer is stopped by a signal, a tracer or the freezer.
    PeerStopped,
    /// The scheduler thread stands still for another reason.
    SchedulerStuck,
    /// No family fits.
    Unknown,
}

impl Family {
    /// The promised name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::RestartAsymmetry => "restart-asymmetry",
            Self::ThreadDied => "thread-died",
            Self::ThreadLivelocked => "thread-livelocked",
            Self::BlockedSend => "blocked-send",
            Self::HalfOpenConnection => "half-open-connection",
            Self::BlockingIoOnScheduler => "blocking-io-on-scheduler",
            Self::TransferStalled => "transfer-stalled",
            Self::LostCompletion => "lost-completion",
            Self::CollectiveDesync => "collective-desync",
            Self::CollectiveStraggler => "collective-straggler",
            Self::GpuHang => "gpu-hang",
            Self::GilStarvation => "gil-starvation",
            Self::DeadlockCycle => "deadlock-cycle",
            Self::ShutdownStuck => "shutdown-stuck",
            Self::ForkDeadlock => "fork-deadlock",
            Self::PeerStopped => "peer-stopped",
            Self::SchedulerStuck => "scheduler-stuck",
            Self::Unknown => "unknown",
        }
    }
}

/// Why the fleet hangs, who has to move, what to do.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// How the fleet does.
    pub status: Status,
    /// Its family.
    pub family: Family,
    /// 0..1: the evidence's weight for the family, not a probability.
    pub confidence: f64,
    /// One sentence.
    pub summary: String,
    /// What to put right.
    pub culprits: Vec<Party>,
    /// Who waits because of that.
    pub victims: Vec<Party>,
    /// What to do now.
    pub action: String,
    /// What the verdict rests on, and what speaks against it.
    pub evidence: Vec<Evidence>,
}

/// Kind of culprit or victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PartyKind {
    /// A thread.
    Thread,
    /// A whole process.
    Process,
    /// The network between processes.
    Network,
    /// A process or thread that should be there and is not.
    MissingPeer,
}

/// A culprit or a victim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Party {
    /// What it is.
    pub kind: PartyKind,
    /// Its process (the host's id); absent where there is none.
    pub pid: Option<u32>,
    /// Its thread (the host's id); absent for a whole process or a thread that is gone.
    pub tid: Option<u32>,
    /// The thread's name.
    pub thread: Option<String>,
    /// `decode scheduler TP0`.
    pub role: Option<String>,
    /// What it does or waits on, for how long, innermost frame: one line for people.
    pub detail: String,
}

/// One fact of a verdict or hypothesis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// Where it comes from: `threads`, `waits`, `sockets`, `gil`, `knowledge`, `processes`…
    pub source: String,
    /// The fact, with its numbers.
    pub fact: String,
    /// True: it supports the family; false: it contradicts it.
    pub supports: bool,
}

/// A family that was weighed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Hypothesis {
    /// The family.
    pub family: Family,
    /// 0..1.
    pub confidence: f64,
    /// It was ruled out.
    pub refuted: bool,
    /// One sentence: what it would mean here, or why it is ruled out.
    pub summary: String,
    /// For and against.
    pub evidence: Vec<Evidence>,
    /// What would settle it, where it is open.
    pub would_settle: Option<String>,
}

/// One process in the report.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WorkerReport {
    /// The host's pid.
    pub pid: u32,
    /// Its pid in its own PID namespace, where that differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_pid: Option<u32>,
    /// Its parent.
    pub ppid: u32,
    /// `comm`.
    pub comm: String,
    /// Engine, `python` for a plain Python process, absent for anything else.
    pub engine: Option<String>,
    /// Kind of process inside the engine.
    pub kind: Option<String>,
    /// `prefill`, `decode`…
    pub role: Option<String>,
    /// Rank as the title gives it.
    pub rank: Option<String>,
    /// Indices of its GPUs.
    pub gpus: Vec<u32>,
    /// When it was started, nanoseconds since the epoch, where it is known.
    pub start_unix_ns: Option<u64>,
    /// Nanoseconds from its start to the end of the window, where it is known.
    pub up_ns: Option<u64>,
    /// TCP ports it listens on.
    pub ports: Vec<u16>,
    /// Its state in a word: `running`, `sleeping`, `stopped`, `traced`, `frozen`, `disk`,
    /// `zombie`, `dead`, `idle` (a kernel thread), `unknown`.
    pub state: String,
    /// Python version, where it is a Python process.
    pub python: Option<String>,
    /// Threads that the kernel counts.
    pub thread_count: u32,
    /// Its real user, the host's number (a user namespace has others).
    #[serde(default)]
    pub uid: u32,
    /// Its container, where it is in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<Container>,
    /// Path of its cgroup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// The cgroups that were frozen, its own or ancestors of it, innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frozen_cgroups: Vec<String>,
    /// The CPU quotas of its cgroup and of that one's ancestors, innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_quotas: Vec<CpuQuota>,
    /// The command line, first 200 characters.
    pub command: String,
}

/// One thread in the report.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ThreadReport {
    /// The host's pid.
    pub pid: u32,
    /// The host's tid.
    pub tid: u32,
    /// Its tid in its own PID namespace, where that differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_tid: Option<u32>,
    /// `comm`.
    pub comm: String,
    /// Python name, else `comm`.
    pub name: String,
    /// What knowledge calls it: `scheduler-loop`, `transfer-worker`; absent where it is not known.
    pub role: Option<String>,
    /// Native libraries that it is in, of those that knowledge names, innermost first: `["ucx", "nixl"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<String>,
    /// Scheduler state.
    pub state: TaskState,
    /// For how long it has been off the CPU, nanoseconds; absent: running, or not known.
    pub blocked_for_ns: Option<u64>,
    /// Neither switched in nor moved while inspector watched.
    pub unchanged: bool,
    /// A deadline ends the wait.
    pub has_deadline: bool,
    /// It is in a state that is known to be healthy and idle.
    pub idle: bool,
    /// Whether the stack belongs to one instant.
    pub stability: Stability,
    /// It holds its interpreter's GIL.
    pub holds_gil: bool,
    /// What it waits on.
    pub wait: Wait,
    /// Kernel, native and Python frames in one stack, innermost first.
    pub frames: Vec<Arc<Frame>>,
    /// Why the native part ends where it ends.
    pub stack_end: StackEnd,
}

/// One end of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct End {
    /// The host's pid.
    pub pid: u32,
    /// The host's tid; absent where only the process is known.
    pub tid: Option<u32>,
}

/// `from` cannot go on before `to` acts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Edge {
    /// Who waits.
    pub from: End,
    /// Who has to act.
    pub to: End,
    /// Through what.
    pub through: Through,
    /// How sure.
    pub certainty: Certainty,
    /// Where it comes from.
    pub evidence: String,
    /// The object names no owner, and `to` was the last that was seen to wake a waiter of it. It need not hold anything,
    /// so such edges make no cycle.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_waker: bool,
}

/// The object of an edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Through {
    /// Kind, as in `wait.kind`.
    pub kind: WaitKind,
    /// The object, for people.
    pub text: String,
    /// Its address in user memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
    /// Inode of the socket or pipe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
}

/// Where the waiting ends: a thread or process that waits for nobody known, or a cycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Root {
    /// Who has to move; of a cycle, its first thread.
    #[serde(flatten)]
    pub end: End,
    /// The cycle, as an index into `cycles`, where it is one.
    pub cycle: Option<u32>,
    /// Threads that wait for it, directly or through others; those in the cycle count.
    pub waiters: u32,
    /// For how long these have been off the CPU, summed, nanoseconds.
    pub waited_ns: u64,
    /// The longest way that leads here, as indices into `edges` from the farthest waiter on.
    pub chain: Vec<u32>,
}

/// Ranks that run the same code and stand in different places of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Divergence {
    /// Engine, role and kind of the processes that were compared: `sglang decode scheduler`.
    pub group: String,
    /// Name of the thread.
    pub thread: String,
    /// The innermost frame that all have in common; absent: not even the outermost.
    pub after: Option<Frame>,
    /// Ranks with the same stack, the largest class first.
    pub classes: Vec<StackClass>,
}

/// Ranks with the same stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StackClass {
    /// Their ranks.
    pub ranks: Vec<String>,
    /// Their processes, in the same order.
    pub pids: Vec<u32>,
    /// The first frame that the others have not; absent where the stack ends.
    pub next: Option<Frame>,
    /// The innermost frame.
    pub innermost: Option<Frame>,
}

/// A wait cycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cycle {
    /// Indices into `edges`, in order; each one's `to` is the next one's `from`, or the process of it.
    pub edges: Vec<u32>,
    /// Proven only if every edge is.
    pub certainty: Certainty,
}

/// A thread that should be there and is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingThread {
    /// The process that lacks it.
    pub pid: u32,
    /// Its name or the pattern of it.
    pub thread: String,
    /// Why it is expected: siblings have it, the catalog, a gap in `Thread-N` numbering.
    pub because: Vec<String>,
    /// What users see when it is gone.
    pub effect: Option<String>,
}

/// A dated fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Nanoseconds since the epoch.
    pub at_unix_ns: u64,
    /// The process.
    pub pid: Option<u32>,
    /// The thread.
    pub tid: Option<u32>,
    /// What happened.
    pub text: String,
}

/// A suspicion of the user's and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Claim {
    /// What was claimed.
    pub claim: String,
    /// `confirmed`, `refuted` or `undecidable`.
    pub outcome: String,
    /// Why.
    pub evidence: String,
}
