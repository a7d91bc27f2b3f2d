//! Who wakes those who wait.

use aya_ebpf::{helpers::bpf_ktime_get_ns, macros::map, maps::HashMap};
use inspector_ebpf::probe::{PROBE_VERSION, Waker, WakerKey, drops};

use super::update::{add, entry};

/// What somebody was woken from.
#[map]
static WAKERS: HashMap<WakerKey, Waker> = HashMap::with_max_entries(1 << 13, 0);

/// The thread `by` (tgid and tid) woke `woken` waiters of an object of the process `tgid`.
#[inline(always)]
pub(super) fn woke(tgid: u32, kind: u32, object: u64, by: (u32, u32), woken: u64) {
    let key = WakerKey { tgid, kind, object };
    let fresh = || Waker {
        version: PROBE_VERSION,
        tid: by.1,
        tgid: by.0,
        reserved: 0,
        last_ns: 0,
        calls: 0,
        woken: 0,
    };
    let Some(waker) = entry(&WAKERS, &key, fresh, drops::WAKERS) else { return };
    // SAFETY: the map's value. Of two threads that wake at once either may be the last one.
    unsafe {
        (*waker).tid = by.1;
        (*waker).tgid = by.0;
        (*waker).last_ns = bpf_ktime_get_ns();
        add(&raw mut (*waker).calls, 1);
        add(&raw mut (*waker).woken, woken);
    }
}
