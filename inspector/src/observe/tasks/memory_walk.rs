//! The memory walk: what the helper reads of its one process through the inherited link.
//!
//! Each record is taken by one program run that looks at the thread's fingerprint before and after it reads, so that
//! registers, futex word and stack are known to belong together. A read can block for ever: only a process that can
//! be abandoned may call this.

use std::os::fd::BorrowedFd;

use inspector_ebpf::{AROUND, HAS_AFTER, HAS_BEFORE, STABLE, decode_memory};

use super::{TasksError, bpf, ebpf};
use crate::model::SavedMemory;

/// Most bytes of one walk: the stacks of about 60 000 threads.
const MAX_WALK: usize = 256 << 20;

/// User memory of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadMemory {
    /// The host's tid.
    pub tid: u32,
    /// The thread did not run from before the reads until after them.
    pub stable: bool,
    /// The futex word that it waits on and up to 64 bytes on each side, where it is in a futex call.
    pub futex: Option<SavedMemory>,
    /// Up to 4096 bytes from the stack pointer up; empty where nothing is mapped there.
    pub stack: SavedMemory,
}

/// Reads every thread of the process that [`super::TaskSource::grant`] gave to the calling process, by tid; empty where
/// nothing was granted.
///
/// # Minimum kernel version
/// 5.18.
pub fn read(link: BorrowedFd<'_>) -> Result<Vec<ThreadMemory>, TasksError> {
    let iterator = bpf::iterator(link).map_err(TasksError::Read)?;
    let mut stream = Vec::new();
    ebpf::read_all(&iterator, &mut stream, MAX_WALK).map_err(TasksError::Read)?;
    let mut threads = decode_memory(&stream)
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
            Ok(ThreadMemory { tid: head.pid, stable: head.flags & STABLE != 0, futex, stack })
        })
        .collect::<Result<Vec<_>, TasksError>>()?;
    threads.sort_unstable_by_key(|thread| thread.tid);
    Ok(threads)
}
