//! `pthread_rwlock_t`: readers at 0 (count above three flag bits), writers at 4, write-phase futex at 8, writers futex
//! at 12, current writer's tid at 24 (`nptl/pthread_rwlock_common.c`).

use super::{Futex, MAX_TID};
use crate::model::{Wait, WaitKind};

/// Flags of the readers word.
const WRITE_PHASE: u32 = 1;
const WRITE_LOCKED: u32 = 2;
/// Both futex words: bit 0 the state, bit 1 "somebody waits".
const USED: u32 = 2;
const LOCKED_USED: u32 = 3;
/// Most plausible number of readers or writers.
const MAX_WAITERS: u32 = 1 << 22;

pub(super) fn decode(futex: &Futex<'_>) -> Option<Wait> {
    let value = futex.value()?;
    if value != USED && value != LOCKED_USED {
        return None;
    }
    write_phase(futex, value).or_else(|| writers(futex, value))
}

/// The word is the write-phase futex at 8: a reader waits for a writer to leave, or a writer for readers to leave.
fn write_phase(futex: &Futex<'_>, value: u32) -> Option<Wait> {
    let (readers, writer_tid) = (futex.at(-8)?, futex.at(16)?);
    // Neither count is plausible beyond the number of threads a kernel allows.
    if futex.at(-4)? & 0x7fff_ffff > MAX_WAITERS || readers >> 3 > MAX_WAITERS || futex.at(4)? > LOCKED_USED {
        return None;
    }
    let base = futex.base(8)?;
    if value == LOCKED_USED && readers & WRITE_PHASE != 0 && readers >> 3 >= 1 {
        return written(futex, base, "reader", writer_tid);
    }
    // A writer that has won against other writers and waits for the readers to leave.
    let waits_for_readers = value == USED
        && readers & (WRITE_PHASE | WRITE_LOCKED) == WRITE_LOCKED
        && readers >> 3 >= 1
        && writer_tid == 0;
    waits_for_readers.then(|| {
        let readers = readers >> 3;
        Wait {
            kind: WaitKind::Rwlock,
            text: format!(
                "rwlock {base:#x} held by {readers} reader{}, whom it does not record",
                if readers == 1 { "" } else { "s" }
            ),
            address: Some(base),
            flavour: Some("writer".to_owned()),
            ..Wait::default()
        }
    })
}

/// The word is the writers futex at 12: a writer waits for another one.
fn writers(futex: &Futex<'_>, value: u32) -> Option<Wait> {
    let (readers, writer_tid) = (futex.at(-12)?, futex.at(12)?);
    if value != LOCKED_USED || readers & WRITE_LOCKED == 0 || futex.at(-8)? & 0x7fff_ffff > MAX_WAITERS {
        return None;
    }
    let base = futex.base(12)?;
    written(futex, base, "writer", writer_tid)
}

/// Held by the writer of that number. One that nobody has is taken for it only below glibc's functions: what looks like a
/// lock elsewhere may be anything.
fn written(futex: &Futex<'_>, base: u64, flavour: &str, tid: u32) -> Option<Wait> {
    if !(1..=MAX_TID).contains(&tid) {
        return None;
    }
    let holder = futex.holder(tid, &format!("writer word at {:#x}", base.saturating_add(24)));
    if holder.owners.is_empty() && !futex.in_glibc() {
        return None;
    }
    let gone = holder.gone && futex.tids_are_known();
    Some(Wait {
        kind: WaitKind::Rwlock,
        text: format!("rwlock {base:#x} {}, for writing", holder.by),
        address: Some(base),
        flavour: Some(flavour.to_owned()),
        owner_gone: gone.then_some(tid),
        owners: holder.owners,
        ..Wait::default()
    })
}
