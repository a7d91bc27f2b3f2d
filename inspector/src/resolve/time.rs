//! Sleeps, and the time-outs of every other wait.

use super::scene::Blocked;
use crate::model::{Wait, WaitKind, format::humane};

const NS_PER_S: u64 = 1_000_000_000;
/// `TIMER_ABSTIME` of `clock_nanosleep`.
const TIMER_ABSTIME: u64 = 1;

/// The clock that an absolute time-out is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    Monotonic,
    Realtime,
    /// Another one (`CLOCK_BOOTTIME`, a process's CPU time): nothing to count to.
    Other,
}

impl Clock {
    /// From a `clockid_t` (`include/uapi/linux/time.h`).
    pub(super) const fn from_id(id: u64) -> Self {
        match id {
            0 => Self::Realtime,
            1 => Self::Monotonic,
            _ => Self::Other,
        }
    }
}

/// When a wait ends at the latest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Timeout {
    pub has_deadline: bool,
    /// The whole of a relative one.
    pub span_ns: Option<u64>,
    pub remaining_ns: Option<u64>,
}

impl Timeout {
    pub(super) const NONE: Self = Self { has_deadline: false, span_ns: None, remaining_ns: None };
    /// There is one, but it could not be read.
    pub(super) const UNREAD: Self = Self { has_deadline: true, span_ns: None, remaining_ns: None };

    /// `timeout_ns` from when the call began.
    pub(super) fn relative(blocked: &Blocked<'_>, timeout_ns: u64) -> Self {
        let remaining_ns = blocked.elapsed_ns().map(|elapsed| timeout_ns.saturating_sub(elapsed));
        Self { has_deadline: true, span_ns: Some(timeout_ns), remaining_ns }
    }

    /// Until `at_ns` on `clock`.
    pub(super) fn absolute(blocked: &Blocked<'_>, clock: Clock, at_ns: u64) -> Self {
        let window = &blocked.scene.capture.window;
        let now = match clock {
            Clock::Monotonic => window.ended_monotonic_ns,
            Clock::Realtime => Some(window.ended_unix_ns()),
            Clock::Other => None,
        };
        let remaining_ns = now.map(|now| at_ns.saturating_sub(now));
        Self { has_deadline: true, span_ns: None, remaining_ns }
    }

    /// A relative `struct timespec` at `address`; none at 0.
    pub(super) fn relative_at(blocked: &Blocked<'_>, address: u64) -> Self {
        Self::at(blocked, address, |ns| Self::relative(blocked, ns))
    }

    /// An absolute `struct timespec` at `address`; none at 0.
    pub(super) fn absolute_at(blocked: &Blocked<'_>, clock: Clock, address: u64) -> Self {
        Self::at(blocked, address, |ns| Self::absolute(blocked, clock, ns))
    }

    fn at(blocked: &Blocked<'_>, address: u64, then: impl Fn(u64) -> Self) -> Self {
        if address == 0 {
            return Self::NONE;
        }
        timespec(blocked, address, NS_PER_S).map_or(Self::UNREAD, then)
    }

    /// An `int` of milliseconds, negative for none.
    pub(super) fn milliseconds(blocked: &Blocked<'_>, value: u64) -> Self {
        match u64::try_from(value as i32) {
            Ok(milliseconds) => Self::relative(blocked, milliseconds * 1_000_000),
            Err(_) => Self::NONE,
        }
    }

    /// The wait with this time-out.
    pub(super) fn of(self, wait: Wait) -> Wait {
        let Self { has_deadline, span_ns, remaining_ns } = self;
        Wait { has_deadline, timeout_ns: span_ns, remaining_ns, ..wait }
    }
}

/// Two words, seconds and a fraction of which `per_second` make one; `None`: not saved, or not a legal value.
fn timespec(blocked: &Blocked<'_>, address: u64, per_second: u64) -> Option<u64> {
    let seconds = blocked.thread.saved_u64(address)?;
    let fraction = blocked.thread.saved_u64(address.checked_add(8)?)?;
    let ns = fraction.checked_mul(NS_PER_S / per_second)?;
    (fraction < per_second).then(|| seconds.saturating_mul(NS_PER_S).saturating_add(ns))
}

/// `nanosleep`, `clock_nanosleep`.
pub(super) fn sleep(blocked: &Blocked<'_>) -> Wait {
    let timeout = if blocked.name == "nanosleep" {
        Timeout::relative_at(blocked, blocked.argument(0))
    } else if blocked.argument(1) & TIMER_ABSTIME != 0 {
        Timeout::absolute_at(blocked, Clock::from_id(blocked.argument(0)), blocked.argument(2))
    } else {
        Timeout::relative_at(blocked, blocked.argument(2))
    };
    // Without a request the call would have failed.
    asleep(Timeout { has_deadline: true, ..timeout })
}

/// A call that waits for a time and nothing else.
pub(super) fn asleep(timeout: Timeout) -> Wait {
    let text = match timeout.span_ns {
        Some(ns) => format!("sleep of {}", humane(ns)),
        None if timeout.has_deadline => "sleep until a set time".to_owned(),
        None => "sleep without end".to_owned(),
    };
    timeout.of(Wait { kind: WaitKind::Sleep, text, ..Wait::default() })
}

/// `select` and `pselect6`: argument 4 is a `struct timeval` or `struct timespec`. The kernel keeps its own copy of
/// the end, so what user memory holds is the whole time-out while the call lasts.
pub(super) fn of_select(blocked: &Blocked<'_>) -> Timeout {
    let address = blocked.argument(4);
    let per_second = if blocked.name == "select" { 1_000_000 } else { NS_PER_S };
    if address == 0 {
        return Timeout::NONE;
    }
    timespec(blocked, address, per_second).map_or(Timeout::UNREAD, |ns| Timeout::relative(blocked, ns))
}

/// A read of a timerfd.
pub(super) fn timerfd(blocked: &Blocked<'_>, remaining_ns: u64) -> Wait {
    // 0: disarmed, so nothing but another thread's arming ends the wait.
    let armed = remaining_ns > 0;
    Wait {
        kind: WaitKind::Sleep,
        text: if armed { "timerfd".to_owned() } else { "timerfd that is not armed".to_owned() },
        fd: Some(blocked.fd(0)),
        has_deadline: armed,
        remaining_ns: armed.then_some(remaining_ns),
        ..Wait::default()
    }
}
