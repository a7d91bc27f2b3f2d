//! How long waits take.

use core::ptr::read_volatile;

use aya_ebpf::{macros::map, maps::HashMap};
use inspector_ebpf::probe::{Flight, PROBE_VERSION, WaitKey, Waited, drops};

use super::{
    call::Call,
    update::{add, entry},
};

/// Shorter waits are not kept, nanoseconds. Filled in by the loader.
#[unsafe(no_mangle)]
static THRESHOLD: u64 = 0;

/// The call that each thread is in. A thread keeps its entry, so that a call costs two look-ups and no insertion. The
/// loader makes as much room as there are threads.
#[map]
static FLIGHTS: HashMap<u32, Flight> = HashMap::with_max_entries(1 << 10, 0);

/// Waits that are over.
#[map]
static WAITS: HashMap<WaitKey, Waited> = HashMap::with_max_entries(1 << 13, 0);

/// The thread goes into a call that can wait, or to sleep in it.
#[inline(always)]
pub(super) fn begin(tgid: u32, tid: u32, call: &Call, kind: u32, object: u64, now: u64) {
    let fresh = || Flight { version: PROBE_VERSION, tgid, started_ns: 0, call: call.number, kind, object };
    let Some(flight) = entry(&FLIGHTS, &tid, fresh, drops::FLIGHTS) else { return };
    // SAFETY: the map's value, which is only written on the thread's own behalf.
    unsafe {
        // A call that is made again after a signal goes on.
        let again = (*flight).started_ns != 0
            && (*flight).call == call.number
            && (*flight).kind == kind
            && (*flight).object == object;
        if again {
            return;
        }
        (*flight).call = call.number;
        (*flight).kind = kind;
        (*flight).object = object;
        (*flight).started_ns = now;
    }
}

/// The thread comes out of the call, or is awake again.
#[inline(always)]
pub(super) fn end(tid: u32, now: u64) {
    let Some(flight) = FLIGHTS.get_ptr_mut(tid) else { return };
    // SAFETY: the map's value, which is only written on the thread's own behalf; a static, volatile since the loader changes
    // it.
    unsafe {
        let started = (*flight).started_ns;
        // It began before the probes did.
        if started == 0 {
            return;
        }
        (*flight).started_ns = 0;
        let took = now.saturating_sub(started);
        if took < read_volatile(&raw const THRESHOLD) {
            return;
        }
        let key = WaitKey {
            tid,
            call: (*flight).call,
            kind: (*flight).kind,
            reserved: 0,
            object: (*flight).object,
        };
        let fresh = || Waited {
            version: PROBE_VERSION,
            tgid: (*flight).tgid,
            count: 0,
            total_ns: 0,
            longest_ns: 0,
            last_ns: 0,
        };
        let Some(waited) = entry(&WAITS, &key, fresh, drops::WAITS) else { return };
        (*waited).last_ns = now;
        if took > (*waited).longest_ns {
            (*waited).longest_ns = took;
        }
        add(&raw mut (*waited).count, 1);
        add(&raw mut (*waited).total_ns, took);
    }
}

/// The current thread ends.
#[inline(always)]
pub(super) fn forget(tid: u32) {
    let _ = FLIGHTS.remove(tid);
}
