//! Threads that end.

use core::ffi::c_void;

use aya_ebpf::{
    helpers::{bpf_get_current_comm, bpf_get_current_task_btf, bpf_ktime_get_ns},
    macros::map,
    maps::HashMap,
};
use inspector_ebpf::probe::{Exit, PROBE_VERSION, drops};

use super::{flight, functions::current, update::dropped, watched::is_watched};
use crate::programs::kernel::{member, offset};

/// Threads that ended, by tid.
#[map]
static EXITS: HashMap<u32, Exit> = HashMap::with_max_entries(1 << 12, 0);

/// Minimum kernel: 5.11 (`bpf_get_current_task_btf`).
#[unsafe(no_mangle)]
#[unsafe(link_section = "tp_btf/sched_process_exit")]
extern "C" fn exits(_: *const u64) -> i32 {
    let (tgid, tid) = current();
    if !is_watched(tgid) {
        return 0;
    }
    flight::forget(tid);
    // SAFETY: the verifier knows the current task's type.
    let code =
        offset!(exit_code).map_or(0, |at| unsafe { member(bpf_get_current_task_btf() as *const c_void, at) });
    let exit = Exit {
        version: PROBE_VERSION,
        tgid,
        // SAFETY: a helper without arguments.
        at_ns: unsafe { bpf_ktime_get_ns() },
        code,
        reserved: 0,
        comm: bpf_get_current_comm().unwrap_or_default(),
    };
    if EXITS.insert(tid, exit, 0).is_err() {
        dropped(drops::EXITS);
    }
    0
}
