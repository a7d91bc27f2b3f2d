//! The scheduler's clock against `CLOCK_MONOTONIC`.

use std::collections::VecDeque;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Calibrations that are looked back at. The clocks drift apart by at most 500 ppm, so this many are as good as one.
const WINDOW: usize = 64;

/// `CLOCK_MONOTONIC`, nanoseconds.
pub(super) fn monotonic_ns() -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Monotonic);
    (tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(tv_nsec as u64)
}

/// How far `CLOCK_MONOTONIC` is ahead of the scheduler's clock.
///
/// inspector's own thread sleeps for a moment, looks at the clock as soon as it runs again, and finds in the sweep
/// when the scheduler says that it was switched in. The difference is too large by the time from the switch to the
/// look, never too small: the smallest of the last few is the best. If the thread lost the CPU once more before the
/// sweep saw it (its switch counts tell), the time of its record takes the place of that look: a looser bound, not a
/// wrong one.
#[derive(Debug, Default)]
pub(super) struct Calibration {
    offsets: VecDeque<i128>,
    woke_ns: u64,
    switches: u64,
}

impl Calibration {
    /// Gives the CPU up for a moment, so that the own thread's last switch-in is now.
    pub(super) fn wake(&mut self) {
        std::thread::sleep(std::time::Duration::from_nanos(1));
        self.switches = own_switches();
        self.woke_ns = monotonic_ns();
    }

    /// The sweep saw the own thread, at `at_ns`, with this `last_arrival` and so many switches of both kinds.
    pub(super) fn own_arrival(&mut self, at_ns: u64, last_arrival: u64, switches: u64) {
        if last_arrival == 0 {
            return;
        }
        let looked_ns = if switches == self.switches { self.woke_ns } else { at_ns };
        if self.offsets.len() == WINDOW {
            self.offsets.pop_front();
        }
        self.offsets.push_back(i128::from(looked_ns) - i128::from(last_arrival));
    }

    /// The scheduler's time as `CLOCK_MONOTONIC`; `None` before the first calibration.
    pub(super) fn monotonic(&self, scheduler_ns: u64) -> Option<u64> {
        let offset = *self.offsets.iter().min()?;
        u64::try_from(i128::from(scheduler_ns) + offset).ok()
    }
}

/// Switches of the calling thread, of both kinds.
fn own_switches() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a whole `rusage`, for which zeroes are a valid value whatever the call does.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    (usage.ru_nvcsw as u64).saturating_add(usage.ru_nivcsw as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_difference_counts() {
        let mut clock = Calibration::default();
        assert_eq!(clock.monotonic(5), None);
        for late in [900, 40, 300] {
            clock.woke_ns = 10_000 + late;
            clock.own_arrival(20_000, 4_000, 0);
        }
        assert_eq!(clock.monotonic(5_000), Some(11_040));
        clock.own_arrival(20_000, 0, 0);
        clock.own_arrival(20_000, 9_000, 1);
        assert_eq!(
            clock.monotonic(5_000),
            Some(11_040),
            "neither an unknown arrival nor a looser bound counts"
        );
    }
}
