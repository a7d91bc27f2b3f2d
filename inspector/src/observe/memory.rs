//! Reading a target's memory without stopping it.

use std::fmt;

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

    /// A little-endian `u32`.
    fn read_u32(&self, address: u64) -> Result<u32, MemoryError> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
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
        let why = std::io::Error::from_raw_os_error(errno);
        write!(formatter, "cannot read {length} bytes at {address:#x}: {why}")
    }
}

impl std::error::Error for MemoryError {}
