//! What inspector and its helper tell each other: one request, one reply, in postcard behind a length.

use serde::{Deserialize, Serialize};

use crate::model::{Frame, Gap, NativeStack, PythonRuntime, PythonThread, Registers, SavedMemory, Syscall};

/// Read this process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// The host's pid.
    pub pid: u32,
    /// What the kernel-only sweep saw of its threads.
    pub threads: Vec<ThreadRequest>,
    /// Read Python stacks.
    pub python: bool,
    /// Walk native stacks.
    pub native: bool,
    /// Read what system-call arguments point to.
    pub arguments: bool,
    /// The process's files must not be opened (a file system that hangs): symbols by what memory gives alone.
    pub memory_only: bool,
}

/// One thread to read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ThreadRequest {
    /// The host's tid.
    pub tid: u32,
    /// Its tid in its own PID namespace.
    pub ns_tid: u32,
    /// Its user registers; `None` while it runs.
    pub registers: Option<Registers>,
    /// Thread pointer (`pthread_self()` on x86-64).
    pub thread_pointer: Option<u64>,
    /// The system call it is in.
    pub syscall: Option<Syscall>,
}

/// What was read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Reply {
    /// The Python runtime, its `unmatched` threads included.
    pub python: Option<PythonRuntime>,
    /// Threads, in the order of the request.
    pub threads: Vec<ThreadReply>,
    /// The frames that they refer to.
    pub frames: Vec<Frame>,
    /// What could not be read.
    pub gaps: Vec<Gap>,
    /// Memory-read system calls made.
    pub memory_reads: u64,
}

/// What was read of one thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ThreadReply {
    /// The host's tid.
    pub tid: u32,
    /// Its Python thread state.
    pub python: Option<PythonThread>,
    /// Its native stack.
    pub native: NativeStack,
    /// What its system call's arguments point to.
    pub memory: Vec<SavedMemory>,
}
