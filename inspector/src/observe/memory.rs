//! Reading a target's memory without stopping it.

use std::{cell::Cell, fmt, io, ptr};

use super::gaps::Gaps;

/// One stretch of target memory to read, and what came of it.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Address of the first byte.
    pub address: u64,
    /// Room for the bytes; its length is the length wanted.
    pub bytes: Vec<u8>,
    /// How many of the bytes, from the start, were read.
    pub filled: usize,
}

impl Piece {
    /// A piece of `length` bytes at `address`, not yet read.
    pub fn new(address: u64, length: usize) -> Self {
        Self { address, bytes: vec![0; length], filled: 0 }
    }

    /// The bytes, if all were read.
    pub fn complete(&self) -> Option<&[u8]> {
        (self.filled == self.bytes.len()).then_some(self.bytes.as_slice())
    }
}

/// Memory of one target process. Reads are racy by nature: the target runs on.
///
/// This is the seam that tests use: a recorded image of memory stands in for a process.
pub trait TargetMemory {
    /// Fills `buffer` from `address`, all of it or an error.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryError>;

    /// Fills many pieces with as few system calls as possible. A piece that cannot be read costs no other one.
    fn read_many(&self, pieces: &mut [Piece]);

    /// A little-endian `u64`.
    fn read_u64(&self, address: u64) -> Result<u64, MemoryError> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// System calls made so far.
    fn calls(&self) -> u64;
}

/// A read of target memory that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryError {
    /// Where.
    pub address: u64,
    /// How many bytes were wanted.
    pub length: usize,
    /// The error number; 0: a short read.
    pub errno: i32,
}

impl fmt::Display for MemoryError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, length, errno } = *self;
        if errno == 0 {
            return write!(formatter, "{length} bytes at {address:#x} are not all mapped");
        }
        let why = io::Error::from_raw_os_error(errno);
        write!(formatter, "cannot read {length} bytes at {address:#x}: {why}")
    }
}

impl std::error::Error for MemoryError {}

/// Most stretches of one `process_vm_readv`, which would take 1024 (`UIO_MAXIOV`, include/uapi/linux/uio.h): gaps
/// can only be between calls.
const MAX_STRETCHES: usize = 256;

/// A live process's memory through `process_vm_readv` (Linux 3.2): no stop, no attach, no write.
///
/// Needs `CAP_SYS_PTRACE`, or the same user where Yama allows it. A call can block without end (the target's
/// `mmap_lock`, a page that never comes), so only the helper process makes one.
#[derive(Debug)]
pub struct ProcessReader {
    pid: libc::pid_t,
    calls: Cell<u64>,
    gaps: Gaps,
}

impl ProcessReader {
    /// A reader of the process `pid`; nothing is read yet.
    pub fn new(pid: u32) -> Self {
        Self { pid: pid.cast_signed(), calls: Cell::new(0), gaps: Gaps::new() }
    }

    /// One system call over `pieces`: the bytes read, in order, up to the first that cannot be.
    fn transfer(&self, pieces: &mut [&mut [u8]], addresses: &[u64]) -> Result<usize, i32> {
        debug_assert_eq!(pieces.len(), addresses.len());
        let local: Vec<libc::iovec> = pieces
            .iter_mut()
            .map(|bytes| libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() })
            .collect();
        let remote: Vec<libc::iovec> = addresses
            .iter()
            .zip(&local)
            .map(|(&address, local)| libc::iovec {
                iov_base: ptr::without_provenance_mut(address as usize),
                iov_len: local.iov_len,
            })
            .collect();
        self.calls.set(self.calls.get() + 1);
        self.gaps.keep();
        // SAFETY: each local vector is an exclusively borrowed buffer of that length, alive over the call; the remote
        // ones are addresses in the target that the kernel checks.
        let read = unsafe {
            libc::process_vm_readv(
                self.pid,
                local.as_ptr(),
                local.len() as libc::c_ulong,
                remote.as_ptr(),
                remote.len() as libc::c_ulong,
                0,
            )
        };
        usize::try_from(read).map_err(|_| io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }
}

impl TargetMemory for ProcessReader {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryError> {
        let length = buffer.len();
        match self.transfer(&mut [buffer], &[address]) {
            Ok(read) if read == length => Ok(()),
            Ok(_) => Err(MemoryError { address, length, errno: 0 }),
            Err(errno) => Err(MemoryError { address, length, errno }),
        }
    }

    fn read_many(&self, pieces: &mut [Piece]) {
        let mut next = 0;
        while next < pieces.len() {
            let end = pieces.len().min(next + MAX_STRETCHES);
            let Some(batch) = pieces.get_mut(next..end) else { return };
            let addresses: Vec<u64> = batch.iter().map(|piece| piece.address).collect();
            let mut buffers: Vec<&mut [u8]> =
                batch.iter_mut().map(|piece| piece.bytes.as_mut_slice()).collect();
            let mut read = match self.transfer(&mut buffers, &addresses) {
                Ok(read) => read,
                Err(libc::EFAULT) => 0,
                // The process is gone or not ours to read: no other piece can be read either.
                Err(_) => return,
            };
            // The kernel stops at the first byte that is not mapped: the piece there is cut short, and the next call
            // goes on behind it.
            for piece in batch {
                next += 1;
                piece.filled = read.min(piece.bytes.len());
                read -= piece.filled;
                if piece.filled < piece.bytes.len() {
                    break;
                }
            }
        }
    }

    fn calls(&self) -> u64 {
        self.calls.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> ProcessReader {
        ProcessReader::new(std::process::id())
    }

    #[test]
    fn reads_what_is_there() {
        let value = 0x1122_3344_5566_7788_u64;
        assert_eq!(own().read_u64(&raw const value as u64), Ok(value));
    }

    #[test]
    fn a_bad_address_is_an_error() {
        assert_eq!(own().read_u64(16).expect_err("page 0 is not mapped").errno, libc::EFAULT);
        assert!(own().read_u64(u64::MAX - 3).is_err());
    }

    #[test]
    fn a_bad_piece_costs_no_other_one() {
        let values: Vec<u64> = (0..3000).collect();
        let mut pieces: Vec<Piece> =
            values.iter().map(|value| Piece::new(&raw const *value as u64, 8)).collect();
        for bad in [0, 7, 1023, 1024, 2999] {
            pieces[bad].address = 8;
        }
        let memory = own();
        memory.read_many(&mut pieces);
        for (index, piece) in pieces.iter().enumerate() {
            let expected = (index as u64).to_le_bytes();
            let read = piece.complete();
            assert_eq!(read, (piece.address != 8).then_some(&expected[..]), "piece {index}");
        }
        assert!(memory.calls() <= 3000 / MAX_STRETCHES as u64 + 1 + 5, "{} calls", memory.calls());
    }

    #[test]
    fn a_piece_over_the_edge_is_cut_short() {
        let page = rustix::param::page_size();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let base = unsafe { libc::mmap(ptr::null_mut(), 3 * page, 3, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        // SAFETY: the last page of that mapping, which nothing refers to.
        assert_eq!(unsafe { libc::mprotect(base.byte_add(2 * page), page, 0) }, 0);
        let base = base as u64;
        let mut pieces = [Piece::new(base + page as u64, 2 * page), Piece::new(base, 64)];
        own().read_many(&mut pieces);
        assert_eq!(pieces.map(|piece| piece.filled), [page, 64]);
    }
}
