//! Bytes by where they go.

use aya_ebpf::{helpers::bpf_ktime_get_ns, macros::map, maps::HashMap};
use inspector_ebpf::probe::{IN, OUT, PROBE_VERSION, Transfer, TransferKey, drops};

use super::update::{add, entry};

/// What bytes went through, each direction by itself.
#[map]
static TRANSFERS: HashMap<TransferKey, Transfer> = HashMap::with_max_entries(1 << 13, 0);

/// The thread `by` (tgid and tid) moved `bytes`.
#[inline(always)]
pub(super) fn moved(by: (u32, u32), fd: u32, inode: u64, into: bool, bytes: u64) {
    let direction = if into { IN } else { OUT };
    let key = TransferKey { tgid: by.0, fd, direction, reserved: 0, inode };
    let fresh = || Transfer { version: PROBE_VERSION, tid: by.1, last_ns: 0, bytes: 0, calls: 0 };
    let Some(transfer) = entry(&TRANSFERS, &key, fresh, drops::TRANSFERS) else { return };
    // SAFETY: the map's value. Of two threads that move bytes at once either may be the last one.
    unsafe {
        (*transfer).tid = by.1;

        (*transfer).last_ns = bpf_ktime_get_ns();
        add(&raw mut (*transfer).bytes, bytes);
        add(&raw mut (*transfer).calls, 1);
    }
}
