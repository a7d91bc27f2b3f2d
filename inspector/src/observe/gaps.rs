//! Gaps between reads of a target's memory, for the target's own threads.
//!
//! Each read takes the target's `mmap_lock` for some microseconds, shared. A thread of the target that maps memory wants it
//! alone, and whoever reads again and again overtakes it: the kernel hands it over only after 4 ms
//! (`RWSEM_WAIT_TIMEOUT`, kernel/locking/rwsem.c). So reading stops for a moment every now and then.

use std::{
    cell::Cell,
    thread,
    time::{Duration, Instant},
};

/// After so much reading,
const WORK: Duration = Duration::from_micros(500);
/// so long a gap: a thread that was woken has to get a processor and the lock in it. (Timers add about 50 µs.)
const GAP: Duration = Duration::from_micros(100);

/// When the last gap was.
#[derive(Debug)]
pub(super) struct Gaps {
    since: Cell<Instant>,
}

impl Gaps {
    /// As of now.
    pub(super) fn new() -> Self {
        Self { since: Cell::new(Instant::now()) }
    }

    /// To be called before each read that takes the lock.
    pub(super) fn keep(&self) {
        if self.since.get().elapsed() >= WORK {
            thread::sleep(GAP);
            self.since.set(Instant::now());
        }
    }
}
