//! `pthread_barrier_t` (`sysdeps/nptl/internaltypes.h`, `struct pthread_barrier`): arrivals so far at 0, those that belong to
//! finished rounds at 4, threads a round at 8, whether it is private at 12, departures at 16.

use super::Futex;
use crate::model::{Wait, WaitKind};

pub(super) fn decode(futex: &Futex<'_>) -> Option<Wait> {
    // A semaphore with two waiters can have the same shape.
    if !futex.below(|function| function.contains("barrier_wait")) {
        return None;
    }
    let finished = futex.value()?;
    let arrived = futex.at(-4)?.wrapping_sub(finished);
    let count = futex.at(4)?;
    let private = if futex.private { 0 } else { 128 };
    let fits = arrived >= 1 && arrived < count && futex.at(8)? == private;
    let base = futex.base(4)?;
    fits.then(|| Wait {
        kind: WaitKind::Futex,
        text: format!("barrier {base:#x}, at which {arrived} of {count} threads have arrived"),
        address: Some(base),
        flavour: Some("barrier".to_owned()),
        ..Wait::default()
    })
}
