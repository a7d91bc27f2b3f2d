//! What a capture lacks, said in the open.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something that could not be read, and why. A capability that is missing is a gap too, never a wrong number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// The collector that missed it: `tasks`, `python`, `native`, `sockets`, `fds`, `helper`, `discover`.
    pub source: String,
    /// The process, where it concerns one.
    pub pid: Option<u32>,
    /// The thread, where it concerns one.
    pub tid: Option<u32>,
    /// One sentence: what failed, on what, why, what it costs, and what to do where something can be done.
    pub reason: String,
}

impl Gap {
    /// A gap that concerns the whole host.
    pub fn host(source: &str, reason: impl Into<String>) -> Self {
        Self { source: source.into(), pid: None, tid: None, reason: reason.into() }
    }

    /// A gap that concerns one process.
    pub fn process(source: &str, pid: u32, reason: impl Into<String>) -> Self {
        Self { source: source.into(), pid: Some(pid), tid: None, reason: reason.into() }
    }

    /// A gap that concerns one thread.
    pub fn thread(source: &str, pid: u32, tid: u32, reason: impl Into<String>) -> Self {
        Self { source: source.into(), pid: Some(pid), tid: Some(tid), reason: reason.into() }
    }
}
