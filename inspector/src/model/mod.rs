//! The data that flows between the rooms: what was seen ([`Capture`]), and what it means ([`Report`]).
//!
//! Types, their serialization, and how their units are written ([`format`]); nothing else: no I/O, no clock, no look at
//! the host. `observe` fills a capture, `resolve`, `graph` and `diagnose` are pure functions of it, `report` prints the
//! result. A saved capture is therefore a complete test fixture.

pub mod capture;
pub mod cgroup;
pub mod fd;
pub mod format;
pub mod frame;
pub mod gap;
pub mod ipc;
pub mod lock;
pub mod probes;
pub mod process;
pub mod python;
pub mod report;
pub mod sharing;
pub mod socket;
pub mod thread;
pub mod wait;
pub mod waitv;
pub mod worker;

pub use capture::{Capture, Host, Tier, Window};
pub use cgroup::{Container, CpuQuota};
pub use fd::{Fd, FdDetails, FdKind, Ring};
pub use frame::{Frame, FrameKind, StackEnd};
pub use gap::Gap;
pub use ipc::{IpcKind, IpcObject, Semaphore};
pub use lock::{FileLock, LockClass, LockWait};
pub use probes::{ProbeWay, Probes};
pub use process::{Bystander, MmapLock, Process};
pub use python::{
    Gil, GilSample, Interpreter, LockHolder, PythonEngine, PythonFrame, PythonLock, PythonObject,
    PythonRuntime, PythonThread, ThreadState,
};
pub use report::Report;
pub use sharing::{NamedTid, Namesake, SharedMapping, SharedObject};
pub use socket::{PeerKind, Socket, SocketFamily, SocketProtocol, SocketTimer, TimerKind};
pub use thread::{Activity, NativeStack, Registers, SavedMemory, Stability, Syscall, TaskState, Thread};
pub use wait::{Certainty, Owner, PythonWait, Wait, WaitKind};
pub use waitv::WaitvWord;
pub use worker::Worker;
