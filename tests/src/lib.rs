//! What the end-to-end tests share: they run the real `inspector` binary against real processes.
//!
//! A test starts a [`Fixture`], waits until it says that it is ready and until the thread in question really blocks
//! ([`procfs`]), runs [`Inspector`], and reads the report. Everything started is killed when its value is dropped, and by
//! the kernel when the test program itself is killed.

pub mod cgroup;
pub mod compile;
pub mod container;
pub mod fixture;
pub mod fleet;
pub mod gdb;
pub mod inspector;
pub mod paths;
pub mod planted;
pub mod procfs;
pub mod python;
pub mod report;
mod spawner;
pub mod waiters;

pub use fixture::Fixture;
pub use inspector::{Finished, Inspector};
pub use report::Document;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How long a test waits for something that needs milliseconds on an idle machine. Only a broken test ever waits that long.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Waits until `condition` gives a value, looking every 10 ms; an error names `what` after [`PATIENCE`].
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return Ok(value);
        }
        if start.elapsed() > PATIENCE {
            bail!("waited {} s in vain until {what}", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
