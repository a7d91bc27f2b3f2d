//! The memory walk: the surroundings of a futex word and the top of the stack, for one process.
//!
//! It reads user memory, so it can sleep, and where a page never comes it sleeps for ever: only a helper process that
//! can be abandoned reads this iterator.

use core::{ffi::c_void, mem::offset_of};

use aya_ebpf::{
    bindings::seq_file,
    helpers::{bpf_copy_from_user_task, bpf_get_current_pid_tgid, bpf_seq_write, bpf_task_pt_regs},
    macros::map,
    maps::HashMap,
};
use aya_log_ebpf::warn;
use bytemuck::Zeroable;
use inspector_ebpf::{
    AROUND, HAS_AFTER, HAS_BEFORE, MemoryHead, MemoryRecord, RECORD_VERSION, Reader, STABLE, STACK,
    WANT_FUTEX,
};

use super::kernel::{IteratorContext, member, offset};

/// `PF_KTHREAD` (`include/linux/sched.h`): no user memory.
const PF_KTHREAD: u32 = 0x0020_0000;
/// Never more than a page of the hardware: a boundary that is none costs a second read.
const PAGE: u64 = 4096;
/// The stack is read in pieces where it cannot be read whole: the helper gives all or nothing.
const PIECE: usize = 1024;

// What lies before a futex word and what follows it are read as one.
const _: () = assert!(offset_of!(MemoryHead, after) == offset_of!(MemoryHead, before) + AROUND);

/// Readers, by their tgid. inspector enters each helper with the process that it is to read, and takes it out when
/// it is gone. Preallocated, as programs that sleep need it.
#[map]
static READERS: HashMap<u32, Reader> = HashMap::with_max_entries(64, 0);

/// Minimum kernel: 5.18 (`bpf_copy_from_user_task`).
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter.s/task")]
extern "C" fn memory(context: *const IteratorContext) -> i32 {
    // SAFETY: the kernel passes a context of this layout, and the verifier checks every access through it.
    unsafe {
        let task = (*context).task;
        let seq = (*(*context).meta).seq;
        // The walk ends with one call without a task.
        if !task.is_null() {
            let _ = record(context, seq, task);
        }
    }
    // Anything else would end the walk.
    0
}

/// What changes whenever the thread runs.
#[derive(PartialEq, Eq)]
struct Fingerprint {
    pcount: u64,
    last_arrival: u64,
}

#[inline(always)]
unsafe fn fingerprint(task: *const c_void) -> Option<Fingerprint> {
    // SAFETY: `task` is the iterator's task.
    unsafe {
        let running: u32 = member(task, offset!(on_cpu)?);
        if running != 0 {
            return None;
        }
        let pcount = member(task, offset!(pcount)?);
        let last_arrival = member(task, offset!(last_arrival)?);
        Some(Fingerprint { pcount, last_arrival })
    }
}

#[inline(always)]
unsafe fn record(context: *const IteratorContext, seq: *mut seq_file, task: *const c_void) -> Option<()> {
    // SAFETY: `task` is the iterator's task; the record is this reader's own, and stays in the map while it reads.
    unsafe {
        let reader = (bpf_get_current_pid_tgid() >> 32) as u32;
        let reader = READERS.get_ptr_mut(&reader)?;
        let tgid: u32 = member(task, offset!(tgid)?);
        if tgid != (*reader).target {
            return None;
        }
        let exited: u32 = member(task, offset!(exit_state)?);
        let flags: u32 = member(task, offset!(flags)?);
        if exited != 0 || flags & PF_KTHREAD != 0 {
            return None;
        }
        let wants = (*reader).wants;
        let record = &raw mut (*reader).record;
        let head = &mut (*record).head;
        *head = MemoryHead::zeroed();
        head.version = RECORD_VERSION;
        head.tgid = tgid;
        head.pid = member(task, offset!(pid)?);
        let before = fingerprint(task);
        let regs = bpf_task_pt_regs(task.cast_mut().cast()) as *const c_void;
        if regs.is_null() {
            return None;
        }
        head.sp = member(regs, offset!(regs_sp)?);
        let syscall: u32 = member(regs, offset!(regs_syscall)?);
        let in_futex = Some(syscall) == offset!(futex_syscall) || Some(syscall) == offset!(restart_syscall);
        if in_futex && wants & WANT_FUTEX != 0 {
            head.futex = member(regs, offset!(regs_arguments[0])?);
        }
        if head.futex != 0 {
            let address = head.futex;
            let start = address.wrapping_sub(AROUND as u64);
            // One read where no page boundary can come between.
            let around = record.cast::<u8>().add(offset_of!(MemoryHead, before));
            if start % PAGE <= PAGE - 2 * AROUND as u64 && copy(task, around, 2 * AROUND, start) {
                head.flags |= HAS_BEFORE | HAS_AFTER;
            } else {
                if copy(task, (&raw mut head.before).cast(), AROUND, start) {
                    head.flags |= HAS_BEFORE;
                }
                if copy(task, (&raw mut head.after).cast(), AROUND, address) {
                    head.flags |= HAS_AFTER;
                }
            }
        }
        let sp = head.sp;
        let stack = (&raw mut (*record).stack).cast::<u8>();
        let mut filled = 0;
        let wanted = (*reader).stack as usize;
        if wanted > STACK {
            return None;
        }
        if wanted != 0 && copy(task, stack, wanted, sp) {
            filled = wanted;
        } else if wanted != 0 {
            // Less than that is left above the stack pointer, or part of it is not mapped.
            for piece in 0..STACK / PIECE {
                if (piece + 1) * PIECE > wanted
                    || !copy(task, stack.add(piece * PIECE), PIECE, sp.wrapping_add((piece * PIECE) as u64))
                {
                    break;
                }
                filled = (piece + 1) * PIECE;
            }
        }
        if filled == 0 && wanted != 0 {
            warn!(context, "no stack of thread {} at {:x}", head.pid, sp);
        }
        if before.is_some() && before == fingerprint(task) {
            head.flags |= STABLE;
        }
        let length = size_of::<MemoryHead>() + filled;
        if length > size_of::<MemoryRecord>() {
            return None;
        }
        head.length = length as u32;
        // On overflow the kernel grows its buffer and calls the program again for this task: nothing to undo.
        let _ = bpf_seq_write(seq, record.cast_const().cast(), length as u32);
        Some(())
    }
}

/// Copies user memory of another thread's process; may sleep.
#[inline(always)]
unsafe fn copy(task: *const c_void, to: *mut u8, length: usize, from: u64) -> bool {
    // SAFETY: `to` has room for `length` bytes; the verifier checks it. The helper checks the user's address.
    unsafe {
        bpf_copy_from_user_task(to.cast(), length as u32, from as *const c_void, task.cast_mut().cast(), 0)
            == 0
    }
}
