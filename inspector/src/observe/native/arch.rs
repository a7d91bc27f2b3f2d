//! What the walk must know of the architecture: DWARF register numbers, framehop's types, the signal frame.

use framehop::{FrameAddress, MayAllocateDuringUnwind, UnwindRegsNative, Unwinder as _};
use gimli::Register;

use super::modules::Bytes;
use crate::model::Registers;

/// framehop's unwinder, over tables that are shared with [`super::row`].
pub(super) type Unwinder = framehop::UnwinderNative<Bytes, MayAllocateDuringUnwind>;
/// Its cache of rules.
pub(super) type Cache = framehop::CacheNative<MayAllocateDuringUnwind>;

/// The registers that a walk knows, in DWARF's numbering (System V ABI for x86-64, figure 3.36; DWARF for the Arm
/// 64-bit architecture, §4.1).
#[cfg(target_arch = "x86_64")]
pub(super) mod register {
    use gimli::{Register, X86_64};

    pub(in super::super) const STACK: Register = X86_64::RSP;
    pub(in super::super) const FRAME: Register = X86_64::RBP;
    pub(in super::super) const RETURN: Register = X86_64::RA;
}

/// The registers that a walk knows, in DWARF's numbering (DWARF for the Arm 64-bit architecture, §4.1).
#[cfg(target_arch = "aarch64")]
pub(super) mod register {
    use gimli::{AArch64, Register};

    pub(in super::super) const STACK: Register = AArch64::SP;
    pub(in super::super) const FRAME: Register = AArch64::X29;
    pub(in super::super) const RETURN: Register = AArch64::X30;
}

/// What a signal handler returns to, and where the kernel saved the interrupted registers, as distances from the stack
/// pointer there.
#[derive(Clone, Copy, Debug)]
pub(super) struct SignalFrame {
    /// The code: how a trampoline without unwind information (musl's) is told.
    pub(super) code: &'static [u8],
    pc: u64,
    sp: u64,
    fp: u64,
    lr: Option<u64>,
}

/// `mov $15, %eax; syscall` (`__NR_rt_sigreturn`). The stack pointer is at the `ucontext` of `struct rt_sigframe`
/// (arch/x86/include/asm/sigframe.h: the return address before it is popped); `uc_mcontext` is at +40 and holds eight
/// registers, then di, si, bp, bx, dx, ax, cx, sp, ip (arch/x86/include/uapi/asm/sigcontext.h).
#[cfg(target_arch = "x86_64")]
pub(super) const SIGNAL_FRAME: SignalFrame = SignalFrame {
    code: &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05],
    fp: 40 + 10 * 8,
    sp: 40 + 15 * 8,
    pc: 40 + 16 * 8,
    lr: None,
};

/// `mov x8, #139; svc #0` (`__NR_rt_sigreturn`). The stack pointer is at `struct rt_sigframe` (arch/arm64/kernel/
/// signal.c): `siginfo` of 128 bytes, then `ucontext`, whose `uc_mcontext` is at +176 and holds the fault address,
/// x0 to x30, sp and pc (arch/arm64/include/uapi/asm/{ucontext,sigcontext}.h).
#[cfg(target_arch = "aarch64")]
pub(super) const SIGNAL_FRAME: SignalFrame = SignalFrame {
    code: &[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4],
    fp: 128 + 176 + 8 + 29 * 8,
    lr: Some(128 + 176 + 8 + 30 * 8),
    sp: 128 + 176 + 8 + 31 * 8,
    pc: 128 + 176 + 8 + 32 * 8,
};

impl SignalFrame {
    /// The registers that the signal interrupted.
    pub(super) fn restore<E>(
        self,
        sp: u64,
        mut read: impl FnMut(u64) -> Result<u64, E>,
    ) -> Result<Registers, E> {
        let mut at = |distance: u64| read(sp.wrapping_add(distance));
        Ok(Registers {
            pc: at(self.pc)?,
            sp: at(self.sp)?,
            fp: at(self.fp)?,
            lr: self.lr.map(at).transpose()?.unwrap_or_default(),
        })
    }
}

/// One frame outwards by framehop. `Ok(None)`: the return address is 0.
#[cfg(target_arch = "x86_64")]
pub(super) fn step(
    unwinder: &Unwinder,
    cache: &mut Cache,
    address: FrameAddress,
    registers: Registers,
    mut read: impl FnMut(u64) -> Result<u64, ()>,
) -> Result<Option<Registers>, framehop::Error> {
    let mut native = UnwindRegsNative::new(registers.pc, registers.sp, registers.fp);
    let pc = unwinder.unwind_frame(address, &mut native, cache, &mut read)?;
    Ok(pc.map(|pc| Registers { pc, sp: native.sp(), fp: native.bp(), lr: 0 }))
}

/// One frame outwards by framehop. `Ok(None)`: the return address is 0.
#[cfg(target_arch = "aarch64")]
pub(super) fn step(
    unwinder: &Unwinder,
    cache: &mut Cache,
    address: FrameAddress,
    registers: Registers,
    mut read: impl FnMut(u64) -> Result<u64, ()>,
) -> Result<Option<Registers>, framehop::Error> {
    // A signed return address carries its signature above the address bits.
    let mask = framehop::aarch64::PtrAuthMask(USER_ADDRESS_BITS);
    let mut native = UnwindRegsNative::new_with_ptr_auth_mask(mask, registers.lr, registers.sp, registers.fp);
    let pc = unwinder.unwind_frame(address, &mut native, cache, &mut read)?;
    Ok(pc.map(|pc| Registers { pc, sp: native.sp(), fp: native.fp(), lr: native.lr() }))
}

/// User addresses have at most 52 bits (`ARM64_VA_BITS_52`); a signature lies above bit 54 at least then, and above
/// bit 47 in the common layout, whose addresses never set the bits between.
#[cfg(target_arch = "aarch64")]
const USER_ADDRESS_BITS: u64 = (1 << 48) - 1;

/// The value of a register that the walk knows.
pub(super) fn value(registers: &Registers, number: Register) -> Option<u64> {
    match number {
        register::STACK => Some(registers.sp),
        register::FRAME => Some(registers.fp),
        // On x86-64 the column stands for the instruction pointer, on arm64 for the link register.
        register::RETURN if cfg!(target_arch = "x86_64") => Some(registers.pc),
        register::RETURN => Some(registers.lr),
        _ => None,
    }
}
