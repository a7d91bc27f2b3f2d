//! What the probes keep, as keys and values of their maps.
//!
//! Everything is added up in the kernel: userspace reads the maps once, when the observation is over. Times are
//! `CLOCK_MONOTONIC`, nanoseconds.

use bytemuck::{AnyBitPattern, Pod, Zeroable};

use crate::stream::DecodeError;

/// Version of the values; both sides are built from one source, so another one is damaged or foreign.
pub const PROBE_VERSION: u32 = 1;

/// Numbers of system calls that can be classified; above are none on x86-64 and arm64.
pub const CALLS: usize = 512;

/// What the probes do about a system call: the values of the table that userspace fills in by number. They are names for
/// bytes in a map, so no `enum`.
pub mod class {
    /// Nothing.
    pub const NONE: u8 = 0;
    /// `futex`: the operation tells a wait from a wake.
    pub const FUTEX: u8 = 1;
    /// `futex_wait`: the word is the first argument.
    pub const FUTEX_WAIT: u8 = 2;
    /// `futex_wake`: the same.
    pub const FUTEX_WAKE: u8 = 3;
    /// Brings in as many bytes as it returns, through the descriptor that is its first argument.
    pub const READ: u8 = 4;
    /// Sends out as many bytes as it returns, through the descriptor that is its first argument.
    pub const WRITE: u8 = 5;
    /// Waits for the descriptor that is its first argument.
    pub const DESCRIPTOR: u8 = 6;
    /// `poll`, `ppoll`: an array of descriptors, and their number.
    pub const POLL: u8 = 7;
    /// Waits for several things.
    pub const SEVERAL: u8 = 8;
    /// `restart_syscall`: goes on with what the thread waited for.
    pub const RESTART: u8 = 9;
    /// As [`READ`], from a socket.
    pub const RECEIVE: u8 = 10;
    /// As [`WRITE`], to a socket or from a file.
    pub const SEND: u8 = 11;
}

/// In the `kind` of a [`Flight`], [`WaitKey`] or [`WakerKey`]: what `object` is.
pub mod object {
    /// Address of a futex word.
    pub const FUTEX: u32 = 1;
    /// Number of a descriptor.
    pub const DESCRIPTOR: u32 = 2;
    /// Several things: 0.
    pub const SEVERAL: u32 = 3;
}

/// In [`TransferKey::direction`]: bytes that came in.
pub const IN: u32 = 0;
/// In [`TransferKey::direction`]: bytes that went out.
pub const OUT: u32 = 1;

/// Which map had no room: the index of its counter.
pub mod drops {
    /// Wakers.
    pub const WAKERS: u32 = 0;
    /// Transfers.
    pub const TRANSFERS: u32 = 1;
    /// Finished waits.
    pub const WAITS: u32 = 2;
    /// Threads: their waits are not timed.
    pub const FLIGHTS: u32 = 3;
    /// Exits.
    pub const EXITS: u32 = 4;
    /// Counters.
    pub const COUNT: u32 = 5;
}

/// What somebody was woken from.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct WakerKey {
    /// The process of whoever waited.
    pub tgid: u32,
    /// What `object` is.
    pub kind: u32,
    /// What was waited for.
    pub object: u64,
}

/// Who woke waiters of an object.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Waker {
    /// [`PROBE_VERSION`].
    pub version: u32,
    /// The last thread that woke somebody.
    pub tid: u32,
    /// Its process.
    pub tgid: u32,
    /// Not used; keeps the record free of padding.
    pub reserved: u32,
    /// When that was.
    pub last_ns: u64,
    /// Calls that woke somebody, by any thread.
    pub calls: u64,
    /// Waiters that were woken.
    pub woken: u64,
}

/// In [`TransferKey::fd`]: the descriptor is not known.
pub const NO_FD: u32 = u32::MAX;

/// One direction of a socket, or of what else a descriptor refers to.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct TransferKey {
    /// The process.
    pub tgid: u32,
    /// The descriptor, or [`NO_FD`].
    pub fd: u32,
    /// [`IN`] or [`OUT`].
    pub direction: u32,
    /// Not used; keeps the key free of padding.
    pub reserved: u32,
    /// Number of the inode; 0 where it could not be read.
    pub inode: u64,
}

/// What went that way.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Transfer {
    /// [`PROBE_VERSION`].
    pub version: u32,
    /// The last thread that moved bytes.
    pub tid: u32,
    /// When that was.
    pub last_ns: u64,
    /// Bytes.
    pub bytes: u64,
    /// Calls that moved them.
    pub calls: u64,
}

/// The call that a thread is in, by tid.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Flight {
    /// [`PROBE_VERSION`].
    pub version: u32,
    /// The process.
    pub tgid: u32,
    /// When the call began, or the thread went to sleep in it; 0: it does not wait.
    pub started_ns: u64,
    /// The call's number.
    pub call: u32,
    /// What `object` is.
    pub kind: u32,
    /// What it waits for.
    pub object: u64,
}

/// What a thread waited for.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct WaitKey {
    /// The thread.
    pub tid: u32,
    /// The call's number.
    pub call: u32,
    /// What `object` is.
    pub kind: u32,
    /// Not used; keeps the key free of padding.
    pub reserved: u32,
    /// What it waited for.
    pub object: u64,
}

/// Its waits that took at least the threshold and are over.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Waited {
    /// [`PROBE_VERSION`].
    pub version: u32,
    /// The process.
    pub tgid: u32,
    /// How many.
    pub count: u64,
    /// Their sum.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// When the last one ended.
    pub last_ns: u64,
}

/// The end of a thread, by tid.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Exit {
    /// [`PROBE_VERSION`].
    pub version: u32,
    /// The process.
    pub tgid: u32,
    /// When.
    pub at_ns: u64,
    /// `exit_code`: the signal in the low 7 bits, the status above the low 8.
    pub code: u32,
    /// Not used; keeps the record free of padding.
    pub reserved: u32,
    /// `comm`, NUL-terminated.
    pub comm: [u8; 16],
}

/// A key or value of the probes' maps.
pub trait ProbeRecord: Pod {}
impl ProbeRecord for Waker {}
impl ProbeRecord for Transfer {}
impl ProbeRecord for Flight {}
impl ProbeRecord for Waited {}
impl ProbeRecord for Exit {}

/// A value as the programs wrote it. Each begins with its version.
pub fn decode_value<Value: ProbeRecord + AnyBitPattern>(bytes: &[u8]) -> Result<Value, DecodeError> {
    let truncated = DecodeError::Truncated { left: bytes.len() };
    if bytes.len() != size_of::<Value>() {
        return Err(truncated);
    }
    let found: u32 = bytemuck::pod_read_unaligned(bytes.get(..4).ok_or(truncated)?);
    if found != PROBE_VERSION {
        return Err(DecodeError::Version { found });
    }
    Ok(bytemuck::pod_read_unaligned(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back() {
        let waker =
            Waker { version: PROBE_VERSION, tid: 7, tgid: 6, reserved: 0, last_ns: 8, calls: 9, woken: 10 };
        let back: Waker = decode_value(bytemuck::bytes_of(&waker)).unwrap();
        assert_eq!((back.tid, back.last_ns, back.calls, back.woken), (7, 8, 9, 10));
    }

    #[test]
    fn foreign_values_are_refused() {
        let exit = Exit { version: PROBE_VERSION + 1, ..Exit::zeroed() };
        let found = decode_value::<Exit>(bytemuck::bytes_of(&exit)).unwrap_err();
        assert_eq!(found, DecodeError::Version { found: PROBE_VERSION + 1 });
        let exit = Exit { version: PROBE_VERSION, ..Exit::zeroed() };
        let bytes = bytemuck::bytes_of(&exit);
        for cut in 0..bytes.len() {
            let found = decode_value::<Exit>(&bytes[..cut]).unwrap_err();
            assert_eq!(found, DecodeError::Truncated { left: cut });
        }
    }

    #[test]
    fn every_version_is_where_it_is_looked_for() {
        assert_eq!(core::mem::offset_of!(Waker, version), 0);
        assert_eq!(core::mem::offset_of!(Transfer, version), 0);
        assert_eq!(core::mem::offset_of!(Flight, version), 0);
        assert_eq!(core::mem::offset_of!(Waited, version), 0);
        assert_eq!(core::mem::offset_of!(Exit, version), 0);
    }
}
