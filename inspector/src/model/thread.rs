//! One thread as it was seen.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PythonThread, StackEnd};

/// Scheduler state, as the letter in `/proc/PID/stat` (`fs/proc/array.c`, `task_state_array`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TaskState {
    /// Not known.
    #[default]
    Unknown,
    /// R: running or runnable.
    Running,
    /// S: interruptible sleep.
    Sleeping,
    /// D: uninterruptible sleep.
    Disk,
    /// T: stopped by a signal.
    Stopped,
    /// t: stopped by a tracer.
    Traced,
    /// Z: ended, not yet reaped.
    Zombie,
    /// X: being removed.
    Dead,
    /// I: idle kernel thread.
    Idle,
    /// P: parked.
    Parked,
}

impl TaskState {
    /// From the letter in `/proc/PID/stat`.
    pub const fn from_letter(letter: char) -> Self {
        match letter {
            'R' => Self::Running,
            'S' => Self::Sleeping,
            'D' => Self::Disk,
            'T' => Self::Stopped,
            't' => Self::Traced,
            'Z' => Self::Zombie,
            'X' | 'x' => Self::Dead,
            'I' => Self::Idle,
            'P' => Self::Parked,
            _ => Self::Unknown,
        }
    }

    /// The letter in `/proc/PID/stat`.
    pub const fn letter(self) -> char {
        match self {
            Self::Unknown => '?',
            Self::Running => 'R',
            Self::Sleeping => 'S',
            Self::Disk => 'D',
            Self::Stopped => 'T',
            Self::Traced => 't',
            Self::Zombie => 'Z',
            Self::Dead => 'X',
            Self::Idle => 'I',
            Self::Parked => 'P',
        }
    }
}

/// The system call that a thread is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Syscall {
    /// Its number on the capture's architecture. Behind `restart_syscall` the original's, recovered from the kernel
    /// stack or `restart_block.fn`; see `restarted`.
    pub number: u32,
    /// Its six arguments.
    pub arguments: [u64; 6],
    /// The thread shows `restart_syscall` and `number` was recovered (or, if it could not be, is `restart_syscall`).
    pub restarted: bool,
}

impl Syscall {
    /// Its name on the architecture `arch` (as in [`super::Host::arch`]); `None` for a number or an architecture that
    /// is not known. Decoders go by name, so that one table of facts serves every architecture.
    pub fn name(&self, arch: &str) -> Option<&'static str> {
        let number = self.number as usize;
        match arch {
            "x86_64" => syscalls::x86_64::Sysno::new(number).map(|call| call.name()),
            "aarch64" => syscalls::aarch64::Sysno::new(number).map(|call| call.name()),
            _ => None,
        }
    }
}

/// The user registers that a stack walk starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registers {
    /// Instruction pointer.
    pub pc: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer (rbp, x29).
    pub fp: u64,
    /// Link register (arm64's x30; 0 on x86-64).
    pub lr: u64,
}

/// Whether what was read of a thread belongs to one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stability {
    /// Not checked (tier without the fingerprint).
    #[default]
    Unchecked,
    /// Off the CPU and unchanged around the reads: the stack is exact.
    Stable,
    /// It moved each time it was read: frames may be of different instants.
    Torn,
    /// On the CPU in both sweeps: saved registers are stale and no native stack is shown.
    Running,
}

/// What a thread did over the whole observation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// Sweeps that saw the thread.
    pub sweeps: u32,
    /// Of these, how many found it on a CPU or runnable.
    pub running: u32,
    /// CPU time over the window, nanoseconds, where known.
    pub cpu_ns: Option<u64>,
    /// Times it was switched in over the window (`sched_info.pcount`, else the two switch counts), where known.
    pub switches: Option<u64>,
    /// Neither switched in nor moved over the window: blocked in one wait all the time.
    pub unchanged: bool,
}

/// A native stack.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NativeStack {
    /// Indices into [`super::Process::frames`], innermost first.
    pub frames: Vec<u32>,
    /// Why it ends where it ends.
    pub end: StackEnd,
}

/// Bytes of the target's memory that a system call's arguments point to, kept for the decoders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedMemory {
    /// Address of the first byte.
    pub address: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl SavedMemory {
    /// All `length` bytes at `address` are here.
    pub fn holds(&self, address: u64, length: usize) -> bool {
        let before = address.checked_sub(self.address).and_then(|before| usize::try_from(before).ok());
        let end = before.and_then(|before| before.checked_add(length));
        end.is_some_and(|end| end <= self.bytes.len())
    }
}

/// One thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Thread {
    /// Its tid in the host's PID namespace.
    pub tid: u32,
    /// Its tid in its own PID namespace; 0: not known.
    pub ns_tid: u32,
    /// `comm`.
    pub comm: String,
    /// It wants a CPU and is in another CPU cgroup than its process's main thread, whose quotas do not bind it then.
    #[serde(default)]
    pub in_own_cgroup: bool,
    /// Scheduler state at the stack's instant.
    pub state: TaskState,
    /// It was on a CPU at the stack's instant.
    pub on_cpu: bool,
    /// The system call it is in; `None`: in user mode, or not known.
    pub syscall: Option<Syscall>,
    /// User registers, while off the CPU.
    pub registers: Option<Registers>,
    /// Thread pointer: on x86-64 `pthread_self()`.
    pub thread_pointer: Option<u64>,
    /// For how long it has been off the CPU, nanoseconds at the end of the window; `None`: running, or not known.
    pub off_cpu_ns: Option<u64>,
    /// Whether the reads belong to one instant.
    pub stability: Stability,
    /// What it did over the window.
    pub activity: Activity,
    /// Kernel frames, innermost first: indices into [`super::Process::frames`].
    pub kernel: Vec<u32>,
    /// Native frames.
    pub native: NativeStack,
    /// Its Python thread state, where it has one.
    pub python: Option<PythonThread>,
    /// User memory that its system call points to.
    pub memory: Vec<SavedMemory>,
}

impl Thread {
    /// What people call the thread: its Python name, else its `comm`.
    pub fn name(&self) -> &str {
        self.python.as_ref().and_then(|python| python.name.as_deref()).unwrap_or(&self.comm)
    }

    /// `length` saved bytes at `address`, if they were kept.
    pub fn saved(&self, address: u64, length: usize) -> Option<&[u8]> {
        self.memory.iter().find_map(|piece| {
            let start = usize::try_from(address.checked_sub(piece.address)?).ok()?;
            piece.bytes.get(start..start.checked_add(length)?)
        })
    }

    /// The saved little-endian `u32` at `address`.
    pub fn saved_u32(&self, address: u64) -> Option<u32> {
        Some(u32::from_le_bytes(self.saved(address, 4)?.try_into().ok()?))
    }

    /// The saved little-endian `u64` at `address`.
    pub fn saved_u64(&self, address: u64) -> Option<u64> {
        Some(u64::from_le_bytes(self.saved(address, 8)?.try_into().ok()?))
    }
}
