//! The memory walk: user memory of one process, read by a helper through the program that it inherited.
//!
//! Each record is taken by one program run that looks at the thread's fingerprint before and after it reads, so that
//! registers, futex word and stack are known to belong together. A read can block for ever: only a process that can
//! be abandoned may call [`read`].

use std::{
    collections::HashMap,
    fmt, io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
    sync::Mutex,
};

use aya::maps::{self, MapData};
use bytemuck::Zeroable;
use inspector_ebpf::{AROUND, HAS_AFTER, HAS_BEFORE, Reader, STABLE, STACK, WANT_FUTEX, decode_memory};

use super::{TasksError, bpf};
use crate::{model::SavedMemory, observe::gaps::Gaps};

/// Most bytes of one walk: the stacks of about 60 000 threads.
const MAX_WALK: usize = 256 << 20;

/// A [`Reader`] as the map's value: aya takes arrays of bytes, not types of other crates.
pub(super) type ReaderBytes = [u8; size_of::<Reader>()];

/// What to read of each thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The bytes around the futex word.
    Futex,
    /// So many bytes from the stack pointer up, a multiple of 8; 4096 at most.
    Stack(u32),
}

impl Wanted {
    /// As much of the stack as there is room for.
    pub const WHOLE_STACK: Self = Self::Stack(STACK as u32);
}

/// Says which process may read which other one's memory by the walk. There is room for 64 readers.
pub struct Grants {
    program: OwnedFd,
    readers: Mutex<maps::HashMap<MapData, u32, ReaderBytes>>,
}

impl Grants {
    pub(super) fn new(program: OwnedFd, readers: maps::HashMap<MapData, u32, ReaderBytes>) -> Self {
        Self { program, readers: Mutex::new(readers) }
    }

    /// The walk's program, for a helper to inherit.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Lets the process `reader` (a helper) read the memory of `target`, in place of what it was granted before; it must
    /// not be reading at the moment.
    pub fn give(&self, reader: u32, target: u32, wanted: &[Wanted]) -> Result<(), TasksError> {
        let mut value = Reader { target, ..Reader::zeroed() };
        for wanted in wanted {
            match *wanted {
                Wanted::Futex => value.wants |= WANT_FUTEX,
                Wanted::Stack(bytes) => value.stack = bytes.min(STACK as u32) & !7,
            }
        }
        let value: ReaderBytes = bytemuck::must_cast(value);
        let mut readers = self.readers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        readers.insert(reader, value, 0).map_err(|why| TasksError::Filter(why.to_string()))
    }

    /// Takes that back, once `reader` is gone: its scratch space is used again.
    pub fn take(&self, reader: u32) {
        let mut readers = self.readers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // It may never have been entered.
        readers.remove(&reader).ok();
    }
}

impl fmt::Debug for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grants").field("program", &self.program).finish_non_exhaustive()
    }
}

/// A program that was inherited under the number `fd`, for the caller to own; `None` if that descriptor is none, or is
/// anything else. To be called once for a number.
pub fn inherited(fd: i32) -> Option<OwnedFd> {
    // The number comes from a command line, which anybody can write: only a BPF program is taken.
    let kind = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    // SAFETY: the descriptor is open, and a BPF program: a helper loads none itself, so it is the one that inspector passed
    // for this process to own, and nothing else here uses it.
    (kind.as_os_str() == "anon_inode:bpf-prog").then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The program as a helper can inherit it: a descriptor that stays open over `execve`. It is closed here by dropping it.
pub fn inheritable(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let copy = rustix::io::dup(program)?;
    debug_assert!(copy.as_raw_fd() > 2, "the standard ones are in use");
    Ok(copy)
}

/// User memory of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadMemory {
    /// The thread did not run from before the reads until after them.
    pub stable: bool,
    /// The futex word that it waits on and up to 64 bytes on each side, where it is in a futex call.
    pub futex: Option<SavedMemory>,
    /// Up to 4096 bytes from the stack pointer up; empty where nothing is mapped there.
    pub stack: SavedMemory,
}

/// Reads every thread of the process `target`, which the calling process was granted, by tid; empty where nothing was. A
/// thread can be missing: the walk of one process ends early where the thread that it is at exits.
///
/// # Minimum kernel version
/// 5.18; before 6.1 the threads of all processes are walked to find these.
pub fn read(program: BorrowedFd<'_>, target: u32) -> Result<HashMap<u32, ThreadMemory>, TasksError> {
    let link = bpf::link(program, Some(target)).or_else(|_| bpf::link(program, None));
    let link = link.map_err(TasksError::Attach)?;
    let iterator = bpf::iterator(link.as_fd()).map_err(TasksError::Read)?;
    let mut stream = Vec::new();
    let gaps = Gaps::new();
    bpf::read_all(&iterator, &mut stream, MAX_WALK, || gaps.keep()).map_err(TasksError::Read)?;
    decode_memory(&stream)
        .map(|view| {
            let view = view.map_err(TasksError::Decode)?;
            let head = view.head;
            let before = (head.flags & HAS_BEFORE != 0).then_some(head.before.as_slice());
            let after = (head.flags & HAS_AFTER != 0).then_some(head.after.as_slice());
            let start = if before.is_some() { head.futex.wrapping_sub(AROUND as u64) } else { head.futex };
            let futex = after.map(|after| SavedMemory {
                address: start,
                bytes: [before.unwrap_or_default(), after].concat(),
            });
            let stack = SavedMemory { address: head.sp, bytes: view.stack.to_vec() };
            Ok((head.pid, ThreadMemory { stable: head.flags & STABLE != 0, futex, stack }))
        })
        .collect()
}
