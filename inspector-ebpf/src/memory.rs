//! User memory of one thread, as the memory walk writes it.

use bytemuck::{Pod, Zeroable};

use crate::stream::{self, DecodeError};

/// Bytes kept on each side of a futex word.
pub const AROUND: usize = 64;
/// Most bytes of the top of the stack. The whole record must stay below the 32 KiB of the kernel's buffer.
pub const STACK: usize = 4096;

/// In [`Reader::wants`]: the bytes around the futex word.
pub const WANT_FUTEX: u32 = 1;

/// In [`MemoryHead::flags`]: the bytes before the futex word were read.
pub const HAS_BEFORE: u32 = 1;
/// In [`MemoryHead::flags`]: the futex word and the bytes behind it were read.
pub const HAS_AFTER: u32 = 1 << 1;
/// In [`MemoryHead::flags`]: the thread did not run from before the reads until after them.
pub const STABLE: u32 = 1 << 2;

/// The fixed part of a record; `length` tells how much of the stack follows it.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct MemoryHead {
    /// [`crate::RECORD_VERSION`].
    pub version: u32,
    /// Bytes of the whole record.
    pub length: u32,
    /// What was read.
    pub flags: u32,
    /// `tgid` in the initial PID namespace.
    pub tgid: u32,
    /// The tid in the initial PID namespace.
    pub pid: u32,
    /// Not used; keeps the record free of padding.
    pub reserved: u32,
    /// Address of the futex word, 0 outside a futex call.
    pub futex: u64,
    /// User stack pointer: where the stack's bytes begin.
    pub sp: u64,
    /// The bytes before the futex word.
    pub before: [u8; AROUND],
    /// The futex word and the bytes behind it.
    pub after: [u8; AROUND],
}

/// A record with room for the whole of the stack's top: a reader's scratch space.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct MemoryRecord {
    /// The fixed part.
    pub head: MemoryHead,
    /// Bytes from the stack pointer up.
    pub stack: [u8; STACK],
}

/// What a reading process may see, and its scratch space. The program can sleep in the middle of a record, so no two
/// readers share one.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Reader {
    /// The one process whose memory it is given.
    pub target: u32,
    /// What it wants of each thread beside its stack.
    pub wants: u32,
    /// How many bytes of the top of each stack it wants, [`STACK`] at most: a multiple of 8.
    pub stack: u32,
    /// Not used; keeps the record free of padding.
    pub reserved: u32,
    /// Its scratch space.
    pub record: MemoryRecord,
}

/// One decoded record.
#[derive(Clone, Copy, Debug)]
pub struct MemoryView<'a> {
    /// The fixed part.
    pub head: MemoryHead,
    /// Bytes from the stack pointer up.
    pub stack: &'a [u8],
}

/// Takes the records of a stream apart.
pub fn decode_memory(stream: &[u8]) -> impl Iterator<Item = Result<MemoryView<'_>, DecodeError>> {
    let records = stream::records(stream, 1, STACK);
    records.map(|record| record.map(|(head, stack)| MemoryView { head, stack }))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;
    use crate::RECORD_VERSION;

    fn record(pid: u32, stack: usize) -> Vec<u8> {
        let mut record = MemoryRecord::zeroed();
        record.head.version = RECORD_VERSION;
        record.head.pid = pid;
        record.stack = [7; STACK];
        let length = size_of::<MemoryHead>() + stack;
        record.head.length = length as u32;
        bytemuck::bytes_of(&record)[..length].to_vec()
    }

    #[test]
    fn records_of_any_length_come_back() {
        let stream = [record(1, 0), record(2, 1024), record(3, STACK)].concat();
        let views: Vec<_> = decode_memory(&stream).map(Result::unwrap).collect();
        let seen: Vec<_> = views.iter().map(|view| (view.head.pid, view.stack.len())).collect();
        assert_eq!(seen, [(1, 0), (2, 1024), (3, STACK)]);
        assert!(views.iter().all(|view| view.stack.iter().all(|&byte| byte == 7)));
    }

    #[test]
    fn damaged_streams_end_with_an_error() {
        let whole = record(1, 1024);
        for cut in 1..whole.len() {
            assert!(decode_memory(&whole[..cut]).any(|view| view.is_err()), "cut after {cut}");
        }
        for length in [0, 8, size_of::<MemoryRecord>() as u32 + 1, u32::MAX] {
            let mut damaged = whole.clone();
            damaged[4..8].copy_from_slice(&length.to_le_bytes());
            assert_eq!(decode_memory(&damaged).count(), 1, "nothing is read behind an error");
            assert!(decode_memory(&damaged).all(|view| view.is_err()));
        }
    }
}
