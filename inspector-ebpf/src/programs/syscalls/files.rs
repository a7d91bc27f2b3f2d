//! What descriptors refer to.

use core::ffi::c_void;

use aya_ebpf::helpers::{bpf_get_current_task_btf, bpf_probe_read_kernel};

use crate::programs::kernel::{member, offset};

/// Number of the inode behind a descriptor of the current thread.
#[inline(always)]
pub(super) fn current_inode(fd: u32) -> Option<u64> {
    // SAFETY: the verifier knows the current task's type; behind the table everything is read by helper, which checks it.
    unsafe {
        let file = file(bpf_get_current_task_btf() as *const c_void, fd)?;
        let inode = bpf_probe_read_kernel((file + u64::from(offset!(file_inode)?)) as *const u64).ok()?;
        bpf_probe_read_kernel((inode + u64::from(offset!(inode_number)?)) as *const u64).ok()
    }
}

/// What all descriptors of one pipe or one eventfd have in common, whichever process holds them: the file's
/// `private_data` (`fs/pipe.c`, `fs/eventfd.c`); 0: not known.
///
/// # Safety
/// The verifier must know the type of `task`.
#[inline(always)]
pub(super) unsafe fn shared(task: *const c_void, fd: u32) -> u64 {
    // SAFETY: the caller's; the helper checks what it reads.
    let data = unsafe {
        file(task, fd).and_then(|file| {
            bpf_probe_read_kernel((file + u64::from(offset!(file_private)?)) as *const u64).ok()
        })
    };
    data.unwrap_or(0)
}

/// Both are known, and the same.
#[inline(always)]
pub(super) fn is_same(one: u64, other: u64) -> bool {
    one != 0 && one == other
}

/// The open file behind a task's descriptor. No file is freed while the program runs, and one that is replaced in the same
/// moment is read whole.
#[inline(always)]
unsafe fn file(task: *const c_void, fd: u32) -> Option<u64> {
    // SAFETY: the verifier knows the types down to the table; behind it is read by helper, which checks it.
    unsafe {
        let files: *const c_void = member(task, offset!(files)?);
        if files.is_null() {
            return None;
        }
        let table: *const c_void = member(files, offset!(files_table)?);
        if table.is_null() {
            return None;
        }
        let size: u32 = member(table, offset!(table_size)?);
        if fd >= size {
            return None;
        }
        let array: u64 = member(table, offset!(table_files)?);
        let file = bpf_probe_read_kernel((array + u64::from(fd) * 8) as *const u64).ok()?;
        (file != 0).then_some(file)
    }
}
