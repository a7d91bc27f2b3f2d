//! The way in and out of the system calls' functions (`__x64_sys_futex`). The kernel's own calls of them do not pass here,
//! 32-bit ones have functions of their own.

use core::{ffi::c_void, ptr::read_volatile};

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
use inspector_ebpf::probe::{class, object};

use super::{call::Call, files, flight, transfer, waker, watched::is_watched};

/// Results that mean "again" (`include/linux/errno.h`): the thread goes on waiting once it was continued.
const RESTARTS: core::ops::RangeInclusive<i64> = -516..=-512;

/// Minimum kernel: 5.15 (`bpf_get_current_task_btf`); on arm64 6.4.
#[unsafe(no_mangle)]
#[unsafe(link_section = "fentry/system_call")]
extern "C" fn enter_function(context: *const u64) -> i32 {
    // SAFETY: the kernel passes the function's argument, the registers, whose type the verifier knows.
    let _ = unsafe { enter(context) };
    0
}

/// Minimum kernel: as `enter_function`.
#[unsafe(no_mangle)]
#[unsafe(link_section = "fexit/system_call")]
extern "C" fn exit_function(context: *const u64) -> i32 {
    // SAFETY: the same, and the result behind the argument.
    let _ = unsafe { exit(context) };
    0
}

#[inline(always)]
unsafe fn enter(context: *const u64) -> Option<()> {
    let (tgid, tid) = current();
    if !is_watched(tgid) {
        return None;
    }
    // SAFETY: the caller's.
    let call = unsafe { Call::by(read_volatile(context.cast::<*const c_void>()))? };
    let (kind, object) = call.own_object()?;
    flight::begin(tgid, tid, &call, kind, object, now());
    Some(())
}

#[inline(always)]
unsafe fn exit(context: *const u64) -> Option<()> {
    let (tgid, tid) = current();
    if !is_watched(tgid) {
        return None;
    }
    // SAFETY: the caller's.
    let (call, result) = unsafe {
        (Call::by(read_volatile(context.cast::<*const c_void>()))?, read_volatile(context.add(1)) as i64)
    };
    if RESTARTS.contains(&result) {
        return None;
    }
    if let Some(wake) = call.wakes() {
        // Who wakes nobody is nobody's waker.
        let woken = if wake.hands_over { i64::from(result == 0) } else { result };
        if woken > 0 {
            waker::woke(tgid, object::FUTEX, wake.address, (tgid, tid), woken as u64);
        }
        return Some(());
    }
    flight::end(tid, now());
    let into = match call.class {
        class::READ | class::RECEIVE => true,
        class::WRITE | class::SEND => false,
        _ => return None,
    };
    if result > 0 {
        let fd = call.fd()?;
        let inode = files::current_inode(fd).unwrap_or(0);
        transfer::moved((tgid, tid), fd, inode, into, result as u64);
    }
    Some(())
}

/// `CLOCK_MONOTONIC`.
#[inline(always)]
fn now() -> u64 {
    // SAFETY: a helper without arguments.
    unsafe { bpf_ktime_get_ns() }
}

/// The current thread's tgid and tid.
#[inline(always)]
pub(super) fn current() -> (u32, u32) {
    let ids = bpf_get_current_pid_tgid();
    ((ids >> 32) as u32, ids as u32)
}
