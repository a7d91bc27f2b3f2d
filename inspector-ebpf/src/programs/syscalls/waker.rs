//! Who wakes the waiters of a futex word.

use aya_ebpf::{helpers::bpf_ktime_get_ns, macros::map, maps::HashMap};
use inspector_ebpf::probe::{PROBE_VERSION, Waker, WakerKey, drops};

use super::{
    call::Call,
    update::{add, entry},
};

/// Futex words that somebody was woken at.
#[map]
static WAKERS: HashMap<WakerKey, Waker> = HashMap::with_max_entries(1 << 13, 0);

/// The current thread woke `woken` waiters at `address`.
#[inline(always)]
pub(super) fn woke(call: &Call, address: u64, woken: u64) {
    let key = WakerKey { tgid: call.tgid, reserved: 0, address };
    let fresh = || Waker { version: PROBE_VERSION, tid: call.tid, last_ns: 0, calls: 0, woken: 0 };
    let Some(waker) = entry(&WAKERS, &key, fresh, drops::WAKERS) else { return };
    // SAFETY: the map's value. Of two threads that wake at once either may be the last one.
    unsafe {
        (*waker).tid = call.tid;
        (*waker).last_ns = bpf_ktime_get_ns();
        add(&raw mut (*waker).calls, 1);
        add(&raw mut (*waker).woken, woken);
    }
}
