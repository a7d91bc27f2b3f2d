//! Adding to a map's entry, which two CPUs may do at once.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    macros::map,
    maps::{Array, HashMap},
};
use inspector_ebpf::probe::drops;

/// How often a map had no room for a new entry, by [`drops`].
#[map]
static DROPS: Array<u64> = Array::with_max_entries(drops::COUNT, 0);

/// The entry of `key`, made with `fresh` where there is none. `None`: the map is full, which is counted under `drop`.
#[inline(always)]
pub(super) fn entry<K, V>(
    map: &'static HashMap<K, V>,
    key: &K,
    fresh: impl FnOnce() -> V,
    drop: u32,
) -> Option<*mut V> {
    let known = map.get_ptr_mut(key);
    if known.is_some() {
        return known;
    }
    // Another CPU may have been first: its entry is as good.
    let _ = map.insert(key, fresh(), u64::from(BPF_NOEXIST));
    let made = map.get_ptr_mut(key);
    if made.is_none() {
        dropped(drop);
    }
    made
}

/// Counts a loss.
#[inline(always)]
pub(super) fn dropped(which: u32) {
    if let Some(count) = DROPS.get_ptr_mut(which) {
        // SAFETY: the map's value.
        unsafe { add(count, 1) };
    }
}

/// Adds, whatever other CPUs do to the number.
///
/// # Safety
/// `number` must be in a map's value.
#[inline(always)]
pub(super) unsafe fn add(number: *mut u64, more: u64) {
    // SAFETY: the caller's; map values are aligned to 8 bytes.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(number, more) };
}
