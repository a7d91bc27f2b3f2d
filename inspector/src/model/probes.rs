//! What the probes saw over the window: what a snapshot cannot tell.
//!
//! Times are nanoseconds since the first sweep, as those of a [`super::GilSample`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Everything that was seen; each list ordered by its first fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Probes {
    /// How they were attached.
    pub way: ProbeWay,
    /// When they were attached.
    pub from_ns: u64,
    /// Until when they counted.
    pub to_ns: u64,
    /// Shorter waits are not in `waits`, nanoseconds.
    pub threshold_ns: u64,
    /// Who woke waiters of what.
    pub wakers: Vec<Waker>,
    /// Bytes through sockets; by `fentry` also through whatever else a descriptor refers to.
    pub transfers: Vec<Transfer>,
    /// Waits that were over in the window, or still went on at its end after they began in it: by `tracepoint` the times
    /// that a thread slept in a call, by `fentry` those that it was in the call.
    pub waits: Vec<TimedWait>,
    /// Threads that ended.
    pub exits: Vec<ThreadExit>,
    /// What there was no room for.
    pub dropped: Dropped,
}

/// How the probes were attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProbeWay {
    /// To the system calls' own functions.
    Fentry,
    /// To the tracepoints of the scheduler and of sockets.
    #[default]
    Tracepoint,
}

impl ProbeWay {
    /// The promised name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fentry => "fentry",
            Self::Tracepoint => "tracepoint",
        }
    }
}

/// An object that somebody was woken from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Waker {
    /// The process of whoever waited, the host's id.
    pub pid: u32,
    /// Address of the futex word in it, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
    /// The descriptor of the eventfd or pipe in it, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fd: Option<i32>,
    /// The process of the last thread that woke somebody, the host's id.
    pub waker_pid: u32,
    /// That thread, the host's id.
    pub tid: u32,
    /// When that was.
    pub last_ns: u64,
    /// Calls that woke somebody, by any thread.
    pub calls: u64,
    /// Waiters that were woken.
    pub woken: u64,
}

/// Which way bytes went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TransferDirection {
    /// Into the process.
    #[default]
    In,
    /// Out of it.
    Out,
}

/// Bytes that went one way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Transfer {
    /// The process, the host's id.
    pub pid: u32,
    /// The descriptor; absent where it is not known (it was closed since), or where several refer to the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fd: Option<i32>,
    /// Which way.
    pub direction: TransferDirection,
    /// Inode of what it referred to; absent where it could not be read. Descriptors without an inode of their own
    /// (eventfds) share one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// How many bytes.
    pub bytes: u64,
    /// Calls that moved them.
    pub calls: u64,
    /// The last thread that moved some, the host's id.
    pub tid: u32,
    /// When that was.
    pub last_ns: u64,
}

/// What a thread waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimedWait {
    /// The process, the host's id.
    pub pid: u32,
    /// The thread, the host's id.
    pub tid: u32,
    /// The system call's name.
    pub syscall: String,
    /// Address of the futex word, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
    /// The descriptor, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fd: Option<i32>,
    /// Waits of at least the threshold that began and ended in the window.
    pub count: u64,
    /// Their sum, nanoseconds.
    pub total_ns: u64,
    /// The longest, nanoseconds.
    pub longest_ns: u64,
    /// When the last one ended; absent where none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_ns: Option<u64>,
    /// When the one began that went on at the end; absent where none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
}

/// The end of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadExit {
    /// The process, the host's id.
    pub pid: u32,
    /// The thread, the host's id.
    pub tid: u32,
    /// When.
    pub at_ns: u64,
    /// `comm`.
    pub comm: String,
    /// The exit status; of a thread that ends alone, 0 as a rule.
    pub status: u32,
    /// The signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<u32>,
}

/// How often there was no room. What is counted here is missing from the lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Dropped {
    /// Wakes at further objects.
    pub wakers: u64,
    /// Transfers through further sockets or descriptors.
    pub transfers: u64,
    /// Waits for further objects.
    pub waits: u64,
    /// Calls of further threads, which were not timed.
    pub threads: u64,
    /// Ends of further threads.
    pub exits: u64,
    /// Events that the kernel did not show the probes.
    pub missed: u64,
}

impl Dropped {
    /// Nothing is missing.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}
