//! The way in and out of a system call.

use core::{ffi::c_void, ptr::read_volatile};

use aya_ebpf::{
    helpers::{bpf_get_current_pid_tgid, bpf_get_current_task_btf, bpf_probe_read_user},
    macros::map,
    maps::Array,
};
use inspector_ebpf::probe::{self, class, object};

use super::{flight, transfer, waker};
use crate::programs::kernel::{member, offset};

/// What to do about each call, by its number. Filled in by the loader.
#[unsafe(no_mangle)]
static CALLS: [u8; probe::CALLS] = [class::NONE; probe::CALLS];

/// The watched processes: bit `tgid % 64` of word `tgid / 64` (tgids are below `PID_MAX_LIMIT`, 2^22). An array is looked
/// into without a call, a hash is not.
#[map]
static WATCHED: Array<u64> = Array::with_max_entries((1 << 22) / 64, 0);

/// Results that mean "again" (`include/linux/errno.h`): the thread goes on waiting once it was continued.
const RESTARTS: core::ops::RangeInclusive<i64> = -516..=-512;

/// `FUTEX_CMD_MASK` (`include/uapi/linux/futex.h`), and the operations.
const FUTEX_COMMAND: u64 = 0x7f;
const WAIT: u64 = 0;
const WAKE: u64 = 1;
const REQUEUE: u64 = 3;
const CMP_REQUEUE: u64 = 4;
const WAKE_OP: u64 = 5;
const LOCK_PI: u64 = 6;
const UNLOCK_PI: u64 = 7;
const WAIT_BITSET: u64 = 9;
const WAKE_BITSET: u64 = 10;
const WAIT_REQUEUE_PI: u64 = 11;
const CMP_REQUEUE_PI: u64 = 12;
const LOCK_PI2: u64 = 13;

/// A call of a watched thread.
pub(super) struct Call {
    pub(super) tgid: u32,
    pub(super) tid: u32,
    pub(super) number: u32,
    pub(super) class: u8,
    /// The user's registers.
    registers: *const c_void,
}

/// Minimum kernel: 5.11 (`bpf_get_current_task_btf`); on arm64 6.4 for `fentry`.
macro_rules! program {
    ($name:ident, $section:literal, $body:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(link_section = $section)]
        extern "C" fn $name(context: *const u64) -> i32 {
            // SAFETY: the kernel passes a context that begins with the registers (and, on the way out, the result); the
            // verifier checks every access through it.
            let _ = unsafe { $body(context) };
            0
        }
    };
}

program!(enter_point, "tp_btf/sys_enter", enter);
program!(exit_point, "tp_btf/sys_exit", exit);
program!(enter_function, "fentry/system_call", enter);
program!(exit_function, "fexit/system_call", exit);

#[inline(always)]
unsafe fn enter(context: *const u64) -> Option<()> {
    // SAFETY: the caller's.
    let call = unsafe { Call::of(context)? };
    let (kind, object) = call.object()?;
    flight::begin(&call, kind, object);
    Some(())
}

#[inline(always)]
unsafe fn exit(context: *const u64) -> Option<()> {
    // SAFETY: the caller's: the result follows the registers.
    let (call, result) = unsafe { (Call::of(context)?, read_volatile(context.add(1)) as i64) };
    if RESTARTS.contains(&result) {
        return None;
    }
    match call.class {
        class::FUTEX_WAKE if result > 0 => waker::woke(&call, call.argument(0)?, result as u64),
        class::FUTEX_WAKE => {}
        class::FUTEX => match call.argument(1)? & FUTEX_COMMAND {
            WAKE | REQUEUE | CMP_REQUEUE | WAKE_OP | WAKE_BITSET | CMP_REQUEUE_PI => {
                // Who wakes nobody is nobody's waker.
                if result > 0 {
                    waker::woke(&call, call.argument(0)?, result as u64);
                }
            }
            UNLOCK_PI => {
                if result == 0 {
                    waker::woke(&call, call.argument(0)?, 1);
                }
            }
            _ => flight::end(&call),
        },
        class => {
            flight::end(&call);
            if result > 0 && (class == class::IN || class == class::OUT) {
                transfer::moved(&call, call.argument(0)? as u32, result as u64);
            }
        }
    }
    Some(())
}

/// The process is one of those that are observed.
#[inline(always)]
pub(super) fn is_watched(tgid: u32) -> bool {
    WATCHED.get(tgid >> 6).is_some_and(|word| word >> (tgid & 63) & 1 == 1)
}

impl Call {
    /// The call that the current thread makes, if it is of interest.
    ///
    /// # Safety
    /// `context` begins with a pointer to the user's registers whose type the verifier knows.
    #[inline(always)]
    unsafe fn of(context: *const u64) -> Option<Self> {
        // SAFETY: the caller's; `CALLS` is a static, and volatile since the loader changes it after compilation.
        unsafe {
            let registers: *const c_void = read_volatile(context.cast());
            let number: u32 = member(registers, offset!(regs_syscall)?);
            if number as usize >= probe::CALLS {
                return None;
            }
            let class = read_volatile((&raw const CALLS).cast::<u8>().add(number as usize));
            if class == class::NONE {
                return None;
            }
            let ids = bpf_get_current_pid_tgid();
            let (tgid, tid) = ((ids >> 32) as u32, ids as u32);
            if !is_watched(tgid) {
                return None;
            }
            // A 32-bit call has numbers of its own.
            if let (Some(at), Some(mask)) = (offset!(compat_word), offset!(compat_mask)) {
                let task = bpf_get_current_task_btf() as *const c_void;
                let word: u32 = member(task, at);
                if word & mask != 0 {
                    return None;
                }
            }
            Some(Self { tgid, tid, number, class, registers })
        }
    }

    /// What it is about to wait for; `None`: it does not wait.
    #[inline(always)]
    fn object(&self) -> Option<(u32, u64)> {
        match self.class {
            class::FUTEX => match self.argument(1)? & FUTEX_COMMAND {
                WAIT | WAIT_BITSET | LOCK_PI | LOCK_PI2 | WAIT_REQUEUE_PI => {
                    Some((object::FUTEX, self.argument(0)?))
                }
                _ => None,
            },
            class::FUTEX_WAIT => Some((object::FUTEX, self.argument(0)?)),
            class::IN | class::OUT | class::DESCRIPTOR => {
                Some((object::DESCRIPTOR, self.argument(0)? & 0xffff_ffff))
            }
            class::POLL if self.argument(1)? == 1 => {
                // `struct pollfd` begins with the descriptor. The helper does not sleep: a page that is not there gives none.
                // SAFETY: the helper checks the user's address.
                let fd = unsafe { bpf_probe_read_user(self.argument(0)? as *const i32) };
                fd.map_or(Some((object::SEVERAL, 0)), |fd| Some((object::DESCRIPTOR, fd as u32 as u64)))
            }
            class::POLL | class::SEVERAL => Some((object::SEVERAL, 0)),
            _ => None,
        }
    }

    #[inline(always)]
    fn argument(&self, index: usize) -> Option<u64> {
        let at = match index {
            0 => offset!(regs_arguments[0])?,
            _ => offset!(regs_arguments[1])?,
        };
        // SAFETY: the registers' type is known to the verifier.
        Some(unsafe { member(self.registers, at) })
    }
}
