//! Threads that go to sleep in a system call, and whoever wakes them.

use core::{ffi::c_void, ptr::read_volatile};

use aya_ebpf::helpers::{bpf_get_current_task_btf, bpf_ktime_get_ns};
use inspector_ebpf::probe::{class, object};

use super::{call::Call, files, flight, functions::current, waker, watched::is_watched};
use crate::programs::kernel::{member, offset};

/// Minimum kernel: 5.15 (`bpf_task_pt_regs`).
#[unsafe(no_mangle)]
#[unsafe(link_section = "tp_btf/sched_switch")]
extern "C" fn switched(context: *const u64) -> i32 {
    // SAFETY: the kernel passes whether it is a preemption, who leaves the CPU and who comes to it; the verifier knows the
    // tasks' type.
    unsafe {
        let _ = switch(
            read_volatile(context) & 1 != 0,
            read_volatile(context.add(1).cast()),
            read_volatile(context.add(2).cast()),
        );
    }
    0
}

#[inline(always)]
unsafe fn switch(preempted: bool, from: *const c_void, to: *const c_void) -> Option<()> {
    // SAFETY: the caller's.
    unsafe {
        let at = offset!(tgid)?;
        let (from_tgid, to_tgid): (u32, u32) = (member(from, at), member(to, at));
        let (leaves, comes) = (!preempted && is_watched(from_tgid), is_watched(to_tgid));
        if !leaves && !comes {
            return None;
        }
        let now = bpf_ktime_get_ns();
        if comes {
            flight::end(member(to, offset!(pid)?), now);
        }
        if leaves {
            falls_asleep(from, from_tgid, now)?;
        }
        Some(())
    }
}

#[inline(always)]
unsafe fn falls_asleep(task: *const c_void, tgid: u32, now: u64) -> Option<()> {
    // SAFETY: the caller's.
    unsafe {
        // 0: it gives the CPU up, but is ready to go on.
        if member::<u32>(task, offset!(state)?) == 0 {
            return None;
        }
        let tid: u32 = member(task, offset!(pid)?);
        let call = Call::of(task)?;
        // The one that leaves is still the current one: its memory can be read.
        let (kind, object) = call.own_object()?;
        flight::begin(tgid, tid, &call, kind, object, now);
        Some(())
    }
}

/// The current thread wakes another one. An interrupt does too, whoever it interrupts: only a call that is made to wake
/// the sleeper's very object counts.
///
/// Minimum kernel: 5.15 (`bpf_task_pt_regs`).
#[unsafe(no_mangle)]
#[unsafe(link_section = "tp_btf/sched_waking")]
extern "C" fn waking(context: *const u64) -> i32 {
    // SAFETY: the kernel passes the sleeper; the verifier knows its type.
    let _ = unsafe { wake(read_volatile(context.cast())) };
    0
}

#[inline(always)]
unsafe fn wake(sleeper: *const c_void) -> Option<()> {
    // SAFETY: the caller's; the current task's type is known too.
    unsafe {
        let tgid: u32 = member(sleeper, offset!(tgid)?);
        if !is_watched(tgid) {
            return None;
        }
        let asleep = Call::of(sleeper)?;
        let (kind, object) = asleep.object()?;
        // Who is answered over a socket is known from its other end.
        if kind != object::FUTEX && asleep.class != class::READ {
            return None;
        }
        let task = bpf_get_current_task_btf() as *const c_void;
        let call = Call::of(task)?;
        let by = current();
        let same = if kind == object::FUTEX {
            let wake = call.wakes()?;
            // Shared words have other addresses in other processes.
            if by.0 == tgid { wake.address == object } else { !wake.private }
        } else {
            call.class == class::WRITE
                && files::is_same(files::shared(sleeper, object as u32), files::shared(task, call.fd()?))
        };
        if same {
            waker::woke(tgid, kind, object, by, 1);
        }
        Some(())
    }
}
