//! `pthread_cond_t`. Up to glibc 2.40: wait sequence at 0, start of group 1 at 8, group references at 16 and 20, group
//! sizes at 24 and 28, original size of group 1 at 32, number of waiters (above three flag bits) at 36, signals at 40
//! and 44. From 2.41 on the references are gone and all that follows moves 8 bytes down.

use super::Futex;
use crate::model::{Wait, WaitKind};

/// Most plausible number of waiters.
const MAX_WAITERS: u32 = 1 << 22;

pub(super) fn decode(futex: &Futex<'_>) -> Option<Wait> {
    let value = futex.value()?;
    // Up to 2.40 a waiter sleeps while there is no signal at all; from 2.41 on signals count in steps of two.
    if value & 1 != 0 {
        return None;
    }
    let base = classic(futex, 0)
        .or_else(|| classic(futex, 1))
        .filter(|_| value == 0)
        .or_else(|| modern(futex, 0))
        .or_else(|| modern(futex, 1))?;
    Some(Wait {
        kind: WaitKind::Condvar,
        text: format!("condition variable {base:#x}, which records no owner"),
        address: Some(base),
        ..Wait::default()
    })
}

/// Up to glibc 2.40, the word being the signals of `group`.
fn classic(futex: &Futex<'_>, group: i64) -> Option<u64> {
    let back = 40 + 4 * group;
    let at = |offset: i64| futex.at(offset - back);
    let references = at(16 + 4 * group)? >> 1;
    // Each waiter in the group holds a reference, and is counted among all waiters.
    let fits = references >= 1 && references <= at(36)? >> 3 && plausible(futex, back, at(36)?);
    fits.then(|| futex.base(back.unsigned_abs())).flatten()
}

/// From glibc 2.41 on.
fn modern(futex: &Futex<'_>, group: i64) -> Option<u64> {
    let back = 32 + 4 * group;
    let at = |offset: i64| futex.at(offset - back);
    let sizes_fit = at(16)? <= MAX_WAITERS && at(20)? <= MAX_WAITERS && at(24)? >> 2 <= MAX_WAITERS;
    (sizes_fit && plausible(futex, back, at(28)?)).then(|| futex.base(back.unsigned_abs())).flatten()
}

/// There are waiters, and no more than have ever come.
fn plausible(futex: &Futex<'_>, back: i64, waiters: u32) -> bool {
    let (Some(sequence), Some(start)) = (futex.at_u64(-back), futex.at_u64(8 - back)) else { return false };
    let waiters = waiters >> 3;
    (1..=MAX_WAITERS).contains(&waiters) && sequence >> 1 >= u64::from(waiters) && sequence >> 1 >= start >> 1
}
