//! Bytes through sockets, whichever system call moves them.

use core::{ffi::c_void, ptr::read_volatile};

use inspector_ebpf::probe::NO_FD;

use super::{functions::current, transfer, watched::is_watched};
use crate::programs::kernel::{member, offset};

/// `MSG_PEEK` (`include/linux/socket.h`): the bytes stay.
const PEEK: u64 = 2;

/// Minimum kernel: 6.3 (the tracepoint).
#[unsafe(no_mangle)]
#[unsafe(link_section = "tp_btf/sock_send_length")]
extern "C" fn sent(context: *const u64) -> i32 {
    // SAFETY: the kernel passes the socket, whose type the verifier knows, the result and the flags.
    let _ = unsafe { moved(context, false) };
    0
}

/// Minimum kernel: 6.3 (the tracepoint).
#[unsafe(no_mangle)]
#[unsafe(link_section = "tp_btf/sock_recv_length")]
extern "C" fn received(context: *const u64) -> i32 {
    // SAFETY: the same.
    let _ = unsafe { moved(context, true) };
    0
}

#[inline(always)]
unsafe fn moved(context: *const u64, into: bool) -> Option<()> {
    // SAFETY: the caller's.
    unsafe {
        let by = current();
        if !is_watched(by.0) {
            return None;
        }
        // An `int`: the upper half is not part of it.
        let result = read_volatile(context.add(1)) as i32;
        if result <= 0 || (into && read_volatile(context.add(2)) & PEEK != 0) {
            return None;
        }
        let sock: *const c_void = read_volatile(context.cast());
        let inode = inode(sock).unwrap_or(0);
        transfer::moved(by, NO_FD, inode, into, result as u64);
        Some(())
    }
}

/// Number of the socket's inode.
#[inline(always)]
unsafe fn inode(sock: *const c_void) -> Option<u64> {
    // SAFETY: the verifier knows the types all the way; a load that faults gives 0.
    unsafe {
        let socket: *const c_void = member(sock, offset!(sock_socket)?);
        if socket.is_null() {
            return None;
        }
        let file: *const c_void = member(socket, offset!(socket_file)?);
        if file.is_null() {
            return None;
        }
        let inode: *const c_void = member(file, offset!(file_inode)?);
        if inode.is_null() {
            return None;
        }
        Some(member(inode, offset!(inode_number)?))
    }
}
