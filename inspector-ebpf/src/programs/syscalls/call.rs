//! A system call, by the registers that it was made with.

use core::{ffi::c_void, ptr::read_volatile};

use aya_ebpf::helpers::{bpf_probe_read_user, bpf_task_pt_regs};
use inspector_ebpf::probe::{self, class, object};

use crate::programs::kernel::{member, offset};

/// What to do about each call, by its number. Filled in by the loader.
#[unsafe(no_mangle)]
static CALLS: [u8; probe::CALLS] = [class::NONE; probe::CALLS];

/// `FUTEX_CMD_MASK` and `FUTEX_PRIVATE_FLAG` (`include/uapi/linux/futex.h`), and the operations.
const FUTEX_COMMAND: u64 = 0x7f;
const PRIVATE: u64 = 0x80;
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

/// A system call of a thread of a watched process.
pub(super) struct Call {
    pub(super) number: u32,
    pub(super) class: u8,
    /// The user's registers.
    registers: *const c_void,
}

/// A call that wakes waiters of a futex word.
pub(super) struct Wake {
    pub(super) address: u64,
    /// Only the caller's own process.
    pub(super) private: bool,
    /// It hands over a priority-inheriting mutex: its result does not count those who were woken.
    pub(super) hands_over: bool,
}

impl Call {
    /// The call that was made with these registers, if it is of interest.
    ///
    /// # Safety
    /// The verifier must know the type of `registers`.
    #[inline(always)]
    pub(super) unsafe fn by(registers: *const c_void) -> Option<Self> {
        // SAFETY: the caller's; `CALLS` is a static, and volatile since the loader changes it after compilation.
        unsafe {
            let number: u32 = member(registers, offset!(regs_syscall)?);
            if number as usize >= probe::CALLS {
                return None;
            }
            let class = read_volatile((&raw const CALLS).cast::<u8>().add(number as usize));
            (class != class::NONE).then_some(Self { number, class, registers })
        }
    }

    /// The call that a task is in, if it is of interest.
    ///
    /// # Safety
    /// The verifier must know the type of `task`, which has not exited.
    #[inline(always)]
    pub(super) unsafe fn of(task: *const c_void) -> Option<Self> {
        // SAFETY: the caller's.
        unsafe {
            if is_compat(task) {
                return None;
            }
            let registers = bpf_task_pt_regs(task.cast_mut().cast()) as *const c_void;
            if registers.is_null() {
                return None;
            }
            Self::by(registers)
        }
    }

    /// What it waits for, if it has to; `None`: it does not wait.
    #[inline(always)]
    pub(super) fn object(&self) -> Option<(u32, u64)> {
        match self.class {
            class::FUTEX => match self.argument(1)? & FUTEX_COMMAND {
                WAIT | WAIT_BITSET | LOCK_PI | LOCK_PI2 | WAIT_REQUEUE_PI => {
                    Some((object::FUTEX, self.argument(0)?))
                }
                _ => None,
            },
            class::FUTEX_WAIT => Some((object::FUTEX, self.argument(0)?)),
            class::READ | class::WRITE | class::RECEIVE | class::SEND | class::DESCRIPTOR => {
                Some((object::DESCRIPTOR, self.argument(0)? & 0xffff_ffff))
            }
            class::POLL | class::SEVERAL => Some((object::SEVERAL, 0)),
            _ => None,
        }
    }

    /// The same of the current thread's call, whose memory can be read: a poll of one descriptor waits for that one.
    #[inline(always)]
    pub(super) fn own_object(&self) -> Option<(u32, u64)> {
        if self.class == class::POLL && self.argument(1)? == 1 {
            // `struct pollfd` begins with the descriptor. The helper does not sleep: a page that is not there gives none.
            // SAFETY: the helper checks the user's address.
            let fd = unsafe { bpf_probe_read_user(self.argument(0)? as *const i32) };
            if let Ok(fd) = fd {
                return Some((object::DESCRIPTOR, fd as u32 as u64));
            }
        }
        self.object()
    }

    /// The futex word that it wakes waiters of, if it does.
    #[inline(always)]
    pub(super) fn wakes(&self) -> Option<Wake> {
        match self.class {
            class::FUTEX_WAKE => Some(Wake { address: self.argument(0)?, private: false, hands_over: false }),
            class::FUTEX => {
                let operation = self.argument(1)?;
                let (address, private) = (self.argument(0)?, operation & PRIVATE != 0);
                match operation & FUTEX_COMMAND {
                    WAKE | REQUEUE | CMP_REQUEUE | WAKE_OP | WAKE_BITSET | CMP_REQUEUE_PI => {
                        Some(Wake { address, private, hands_over: false })
                    }
                    UNLOCK_PI => Some(Wake { address, private, hands_over: true }),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// The descriptor that is its first argument.
    #[inline(always)]
    pub(super) fn fd(&self) -> Option<u32> {
        self.argument(0).map(|fd| fd as u32)
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

/// The task is in a 32-bit call, which has a number of its own.
///
/// # Safety
/// The verifier must know the type of `task`.
#[inline(always)]
unsafe fn is_compat(task: *const c_void) -> bool {
    match (offset!(compat_word), offset!(compat_mask)) {
        // SAFETY: the caller's.
        (Some(at), Some(mask)) => unsafe { member::<u32>(task, at) & mask != 0 },
        _ => false,
    }
}
