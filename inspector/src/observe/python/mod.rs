//! Python stacks from interpreter memory, pause-free. Nothing outside this room knows a CPython offset.

use super::{frames::FrameTable, helper::protocol::ThreadRequest, memory::TargetMemory};
use crate::model::{Gap, PythonRuntime, PythonThread};

/// What was read of one Python process.
#[derive(Debug, Default)]
pub struct PythonRead {
    /// The runtime; threads without a match are in its `unmatched`.
    pub runtime: PythonRuntime,
    /// Thread states by the host's tid.
    pub threads: Vec<(u32, PythonThread)>,
    /// What could not be read.
    pub gaps: Vec<Gap>,
}
