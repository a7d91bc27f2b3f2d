//! `sem_t` (`sysdeps/nptl/internaltypes.h`, `struct new_sem` with 64-bit atomics): value at 0, number of waiters at 4,
//! at 8 whether it is private (0, or `FUTEX_PRIVATE_FLAG` for a shared one).

use super::Futex;
use crate::model::{Wait, WaitKind};

/// Most plausible number of waiters.
const MAX_WAITERS: u32 = 1 << 22;

pub(super) fn decode(futex: &Futex<'_>) -> Option<Wait> {
    shape(futex).then(|| Wait {
        kind: WaitKind::Semaphore,
        text: format!("semaphore {:#x}, which records no owner", futex.word),
        address: Some(futex.word),
        ..Wait::default()
    })
}

/// The word is the value of a semaphore that has waiters.
pub(super) fn shape(futex: &Futex<'_>) -> bool {
    let private = if futex.private { 0 } else { 128 };
    futex.value() == Some(0)
        && futex.expected == 0
        && futex.at(4).is_some_and(|waiters| (1..=MAX_WAITERS).contains(&waiters))
        && futex.at(8) == Some(private)
}
