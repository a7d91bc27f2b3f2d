//! Bytes through descriptors.

use core::ffi::c_void;

use aya_ebpf::{
    helpers::{bpf_get_current_task_btf, bpf_ktime_get_ns, bpf_probe_read_kernel},
    macros::map,
    maps::HashMap,
};
use inspector_ebpf::probe::{IN, OUT, PROBE_VERSION, Transfer, TransferKey, class, drops};

use super::{
    call::Call,
    update::{add, entry},
};
use crate::programs::kernel::{member, offset};

/// Descriptors that bytes went through, each direction by itself.
#[map]
static TRANSFERS: HashMap<TransferKey, Transfer> = HashMap::with_max_entries(1 << 13, 0);

/// The current thread moved `bytes` through `fd`.
#[inline(always)]
pub(super) fn moved(call: &Call, fd: u32, bytes: u64) {
    let direction = if call.class == class::IN { IN } else { OUT };
    let key = TransferKey { tgid: call.tgid, fd, direction, reserved: 0 };
    let (file, inode) = file(fd).unwrap_or((0, 0));
    let fresh =
        || Transfer { version: PROBE_VERSION, tid: call.tid, last_ns: 0, bytes: 0, calls: 0, file, inode };
    let Some(transfer) = entry(&TRANSFERS, &key, fresh, drops::TRANSFERS) else { return };
    // SAFETY: the map's value.
    unsafe {
        if (*transfer).file != file {
            (*transfer).file = file;
            (*transfer).inode = inode;
            (*transfer).bytes = 0;
            (*transfer).calls = 0;
        }
        (*transfer).tid = call.tid;
        (*transfer).last_ns = bpf_ktime_get_ns();
        add(&raw mut (*transfer).bytes, bytes);
        add(&raw mut (*transfer).calls, 1);
    }
}

/// The open file behind a descriptor of the current thread, and its inode's number.
#[inline(always)]
fn file(fd: u32) -> Option<(u64, u64)> {
    // SAFETY: the verifier knows the types down to the table; behind it everything is read by helper, which checks it. No
    // file is freed while the program runs, and one that is replaced in the same moment is read whole.
    unsafe {
        let task = bpf_get_current_task_btf() as *const c_void;
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
        let inode = bpf_probe_read_kernel((file + u64::from(offset!(file_inode)?)) as *const u64).ok()?;
        let number = bpf_probe_read_kernel((inode + u64::from(offset!(inode_number)?)) as *const u64).ok()?;
        Some((file, number))
    }
}
