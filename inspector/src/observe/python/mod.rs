//! Python stacks from interpreter memory, pause-free. Nothing outside this room knows a CPython offset.
//!
//! [`locate`] finds `_PyRuntime` and the version, [`layout`] says where each member lies (from tables for 3.8–3.12, from
//! the runtime's own `_Py_DebugOffsets` from 3.13 on), [`state`] walks interpreters and thread states, [`stack`] their
//! frames, [`code`] and [`lines`] turn frames into functions and lines, [`names`] asks `threading` for names, [`gil`]
//! reads the GILs, [`sync`] finds the objects that threads wait on and hold, and [`identity`] matches thread states with
//! threads. All reads are batched: one round of `process_vm_readv` serves every thread.

use thiserror::Error;

use super::{frames::FrameTable, helper::protocol::ThreadRequest, memory::TargetMemory};
use crate::model::{Gap, GilSample, PythonRuntime, PythonThread};

mod attributes;
mod bytes;
mod code;
mod debug_offsets;
mod dicts;
mod elf_file;
mod elf_image;
mod gil;
#[cfg(test)]
mod hostile;
mod identity;
mod layout;
mod lines;
mod locate;
mod names;
mod pyspy;
mod reader;
mod snapshot;
mod stack;
mod state;
mod strings;
mod sync;
mod tables;

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

/// Why a process's Python stacks could not be read at all.
#[derive(Debug, Error)]
pub enum PythonError {
    /// No Python runtime in the process.
    #[error("process {0} runs no CPython")]
    NotPython(u32),
    /// There is a runtime, but not one that can be read.
    #[error("process {pid} runs a Python that is not recognised ({why}): its Python stacks are missing")]
    NotRecognised {
        /// The process.
        pid: u32,
        /// What was tried and failed, as one clause.
        why: String,
    },
    /// The process is gone, or its maps may not be read.
    #[error(
        "cannot read the memory map of process {pid}: {source}; reading another user's process needs CAP_SYS_PTRACE"
    )]
    Unreadable {
        /// The process.
        pid: u32,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Reads the Python runtime of process `pid`: every interpreter, every thread state with its frames (interned into
/// `frames`), names, GILs. `threads` are the threads that the kernel-only sweep saw; thread states are matched with them.
/// `only_these`: other thread states are left out, and names are not read.
///
/// Never pauses the target. One broken thread costs only itself: its `partial` or a gap says so. Blocks where the
/// target's memory blocks, so only the helper calls it.
pub fn read(
    memory: &dyn TargetMemory,
    pid: u32,
    threads: &[ThreadRequest],
    only_these: bool,
    frames: &mut FrameTable,
) -> Result<PythonRead, PythonError> {
    let why = match snapshot::read(memory, pid, threads, only_these, frames) {
        Err(PythonError::NotRecognised { why, .. }) => why,
        read => return read,
    };
    match pyspy::read(pid, threads, frames) {
        Ok(mut read) => {
            let reason =
                format!("read by py-spy, since inspector's own reader does not know this Python: {why}");
            read.gaps.push(Gap::process("python", pid, reason));
            Ok(read)
        }
        Err(second) => Err(PythonError::NotRecognised { pid, why: format!("{why}; py-spy: {second}") }),
    }
}

/// Reads each GIL of `runtime` again, in the order of [`PythonRuntime::gils`]; `None` where it never settled or could not
/// be read. At most a few system calls a GIL. `at_ns` is left 0: the caller knows the time.
pub fn sample_gils(memory: &dyn TargetMemory, runtime: &PythonRuntime) -> Vec<Option<GilSample>> {
    gil::sample_all(memory, runtime)
}
