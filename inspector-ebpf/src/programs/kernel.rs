//! Reading the kernel's memory by offsets that userspace resolved.

use core::{ffi::c_void, ptr::read_volatile};

use aya_ebpf::bindings::seq_file;
use inspector_ebpf::{MISSING, Offsets};

/// Filled in by the loader before the program is loaded. Being read-only, each offset is a constant to the verifier,
/// which drops the code of members that are missing and lets members be loaded without a helper call.
#[unsafe(no_mangle)]
static OFFSETS: Offsets = Offsets::NONE;

/// `struct bpf_iter__task` (`kernel/bpf/task_iter.c`).
#[repr(C)]
pub(crate) struct IteratorContext {
    pub(crate) meta: *const IteratorMeta,
    pub(crate) task: *const c_void,
}

/// `struct bpf_iter_meta` (`include/linux/bpf.h`).
#[repr(C)]
pub(crate) struct IteratorMeta {
    pub(crate) seq: *mut seq_file,
    pub(crate) session_id: u64,
    pub(crate) seq_num: u64,
}

/// The offset of one member; `None` where the kernel has none.
macro_rules! offset {
    ($($member:tt)+) => {
        crate::programs::kernel::global(|offsets| &offsets.$($member)+)
    };
}
pub(crate) use offset;

#[inline(always)]
pub(crate) fn global(member: impl FnOnce(&'static Offsets) -> &'static u32) -> Option<u32> {
    // SAFETY: a field of a static. Volatile, since the loader changes the value after compilation.
    let offset = unsafe { read_volatile(member(&OFFSETS)) };
    (offset != MISSING).then_some(offset)
}

/// The member at `offset` of a structure whose type the verifier knows.
///
/// # Safety
/// `base` must be such a pointer (the iterator's task, what `bpf_task_pt_regs` returned, or a pointer loaded from
/// one): the verifier then checks the offset against the kernel's BTF, and a load that faults gives 0.
#[inline(always)]
pub(crate) unsafe fn member<T: Copy>(base: *const c_void, offset: u32) -> T {
    // SAFETY: the caller's. Volatile keeps the load whole and where it is.
    unsafe { read_volatile(base.byte_add(offset as usize).cast()) }
}
