//! The machine, and the clocks at the start of an observation.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::model::Host;

/// The machine that we run on.
pub fn host() -> Host {
    let uname = rustix::system::uname();
    Host {
        hostname: uname.nodename().to_string_lossy().into_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
        arch: uname.machine().to_string_lossy().into_owned(),
        cpus: std::thread::available_parallelism().map_or(0, |cpus| cpus.get() as u32),
        inspector: env!("CARGO_PKG_VERSION").into(),
    }
}

/// Wall clock, nanoseconds since the epoch.
pub(super) fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
