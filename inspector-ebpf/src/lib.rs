//! The records that inspector's eBPF programs write and its userspace reads, and their decoding.
//!
//! Everything here is pure, runs on both sides, and is tested on the host. The programs themselves are the binary of
//! this crate (feature `programs`), built for `bpfel-unknown-none` by `cargo xtask build-ebpf`.
#![no_std]

mod memory;
mod offsets;
pub mod probe;
mod stream;
mod symbol;
mod task;

pub use memory::{
    AROUND, HAS_AFTER, HAS_BEFORE, MemoryHead, MemoryRecord, MemoryView, Reader, STABLE, STACK, WANT_FUTEX,
    decode_memory,
};
pub use offsets::{MISSING, Offsets};
pub use stream::{DecodeError, RECORD_VERSION};
pub use symbol::{SYMBOLS, Symbol};
pub use task::{
    FRAMES, HAS_KERNEL_STACK, HAS_MM, HAS_NS_PID, HAS_REGISTERS, IS_COMPAT, TaskHead, TaskRecord, TaskView,
    Told, UNCHANGED, decode,
};

/// Value in the map of wanted processes: every thread of the process.
pub const WANT_ALL: u32 = 1;
/// Value in the map of wanted processes: only the thread that reads the iterator (to calibrate the scheduler clock).
pub const WANT_READER: u32 = 2;
