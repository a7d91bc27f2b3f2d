//! One thread, as the kernel-only walk writes it.

use bytemuck::{Pod, Zeroable};

use crate::stream::{self, DecodeError};

/// Most kernel frames of one thread.
pub const FRAMES: usize = 64;

/// In [`TaskHead::present`]: the user registers and the system call are valid.
pub const HAS_REGISTERS: u32 = 1;
/// In [`TaskHead::present`]: `ns_pid` is valid.
pub const HAS_NS_PID: u32 = 1 << 1;
/// In [`TaskHead::present`]: `mmap_lock_count` is valid.
pub const HAS_MM: u32 = 1 << 2;
/// In [`TaskHead::present`]: the kernel stack was read (it may be empty).
pub const HAS_KERNEL_STACK: u32 = 1 << 3;
/// In [`TaskHead::present`]: the thread is in a 32-bit system call, whose number is of another table.
pub const IS_COMPAT: u32 = 1 << 4;

/// In [`TaskHead::present`]: the thread has not run since a walk told all of it. What it cannot change without running is
/// left out: identity, registers, system call and kernel stack.
pub const UNCHANGED: u32 = 1 << 5;

/// What a walk told of a thread last, by its tid: what it cannot change without running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Told {
    /// Times switched in.
    pub pcount: u64,
    /// When it was last switched in.
    pub last_arrival: u64,
    /// CPU time so far.
    pub sum_exec: u64,
    /// What the reader's epoch was: a new one makes the walk tell everything again.
    pub epoch: u64,
}

/// The fixed part of a record; kernel frames follow it, innermost first, eight bytes each.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct TaskHead {
    /// [`crate::RECORD_VERSION`].
    pub version: u32,
    /// Bytes of the whole record, frames included.
    pub length: u32,
    /// Which of the optional parts are valid.
    pub present: u32,
    /// `tgid` in the initial PID namespace.
    pub tgid: u32,
    /// `pid` (the tid) in the initial PID namespace.
    pub pid: u32,
    /// The tid in the deepest PID namespace that the thread lives in.
    pub ns_pid: u32,
    /// `__state`.
    pub state: u32,
    /// `exit_state`.
    pub exit_state: u32,
    /// `flags` (`PF_*`).
    pub flags: u32,
    /// `on_cpu`.
    pub on_cpu: u32,
    /// Scheduling policy (`SCHED_*`).
    pub policy: u32,
    /// System call number, negative outside one.
    pub syscall: i32,
    /// `CLOCK_MONOTONIC` when the record was written, nanoseconds.
    pub at_ns: u64,
    /// `jobctl`.
    pub jobctl: u64,
    /// `comm`, NUL-terminated.
    pub comm: [u8; 16],
    /// The six system call arguments.
    pub arguments: [u64; 6],
    /// User instruction pointer.
    pub pc: u64,
    /// User stack pointer.
    pub sp: u64,
    /// User frame pointer.
    pub fp: u64,
    /// User link register, 0 on x86-64.
    pub lr: u64,
    /// Thread pointer, 0 where not known.
    pub thread_pointer: u64,
    /// Times switched in.
    pub pcount: u64,
    /// When it was last switched in, nanoseconds of the scheduler's clock; 0 where not known.
    pub last_arrival: u64,
    /// CPU time so far, nanoseconds.
    pub sum_exec: u64,
    /// CPU time when it was last switched in, nanoseconds.
    pub prev_sum_exec: u64,
    /// Voluntary switches.
    pub nvcsw: u64,
    /// Involuntary switches.
    pub nivcsw: u64,
    /// `restart_block.fn`.
    pub restart_fn: u64,
    /// `mm->mmap_lock.count`.
    pub mmap_lock_count: u64,
}

/// A record with room for every frame: the programs' scratch space.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct TaskRecord {
    /// The fixed part.
    pub head: TaskHead,
    /// Kernel frames, innermost first; only `head.length` bytes of the record are written.
    pub kernel: [u64; FRAMES],
}

/// One decoded record.
#[derive(Clone, Copy, Debug)]
pub struct TaskView<'a> {
    /// The fixed part.
    pub head: TaskHead,
    kernel: &'a [u8],
}

impl<'a> TaskView<'a> {
    /// Kernel frames, innermost first.
    pub fn kernel(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.kernel
            .chunks_exact(8)
            .map(|bytes| bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }
}

/// Takes the records of a stream apart.
pub fn decode(stream: &[u8]) -> impl Iterator<Item = Result<TaskView<'_>, DecodeError>> {
    let records = stream::records(stream, 8, FRAMES * 8);
    records.map(|record| record.map(|(head, kernel)| TaskView { head, kernel }))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;
    use crate::RECORD_VERSION;

    fn record(pid: u32, frames: usize) -> Vec<u8> {
        let mut record = TaskRecord::zeroed();
        record.head.version = RECORD_VERSION;
        record.head.pid = pid;
        for (index, frame) in record.kernel.iter_mut().enumerate() {
            *frame = 0xffff_ffff_8100_0000 + index as u64;
        }
        let length = size_of::<TaskHead>() + frames * 8;
        record.head.length = length as u32;
        bytemuck::bytes_of(&record)[..length].to_vec()
    }

    #[test]
    fn records_of_any_length_come_back() {
        let stream = [record(1, 0), record(2, 3), record(3, FRAMES)].concat();
        let views: Vec<_> = decode(&stream).map(Result::unwrap).collect();
        let seen: Vec<_> = views.iter().map(|view| (view.head.pid, view.kernel().count())).collect();
        assert_eq!(seen, [(1, 0), (2, 3), (3, FRAMES)]);
        assert_eq!(views[1].kernel().last(), Some(0xffff_ffff_8100_0002));
    }

    #[test]
    fn a_stream_may_begin_anywhere_in_memory() {
        let mut stream = std::vec![0];
        stream.extend(record(9, 2));
        let view = decode(&stream[1..]).next().unwrap().unwrap();
        assert_eq!((view.head.pid, view.kernel().count()), (9, 2));
    }

    #[test]
    fn damaged_streams_end_with_an_error() {
        let whole = record(1, 2);
        for cut in 1..whole.len() {
            assert!(decode(&whole[..cut]).any(|view| view.is_err()), "cut after {cut}");
        }
        let mut other = whole.clone();
        other[0] = 99;
        assert_eq!(decode(&other).next().unwrap().unwrap_err(), DecodeError::Version { found: 99 });
        for length in [0, 8, size_of::<TaskHead>() as u32 + 4, size_of::<TaskRecord>() as u32 + 8, u32::MAX] {
            let mut damaged = whole.clone();
            damaged[4..8].copy_from_slice(&length.to_le_bytes());
            assert_eq!(decode(&damaged).next().unwrap().unwrap_err(), DecodeError::Length { found: length });
            assert_eq!(decode(&damaged).count(), 1, "nothing is read behind an error");
        }
    }
}
