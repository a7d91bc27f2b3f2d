//! The processes that are observed.

use aya_ebpf::{macros::map, maps::Array};

/// Bit `tgid % 64` of word `tgid / 64` (tgids are below `PID_MAX_LIMIT`, 2^22). An array is looked into without a call, a
/// hash is not.
#[map]
static WATCHED: Array<u64> = Array::with_max_entries((1 << 22) / 64, 0);

/// The process is observed.
#[inline(always)]
pub(super) fn is_watched(tgid: u32) -> bool {
    WATCHED.get(tgid >> 6).is_some_and(|word| word >> (tgid & 63) & 1 == 1)
}
