//! Facts about running processes: one collector a file, each under a deadline, each returning what it saw and what it
//! could not see and why. Nothing here stops, signals or writes to a target.
//!
//! The kernel-only sweep ([`tasks`]) touches no user memory and runs in inspector itself. Everything that can block on
//! a target's memory or files happens in a [`helper`] process that can be abandoned; what can block below `/proc`, on a
//! thread that can (`patience`).

pub mod arguments;
mod assemble;
mod calls;
mod cgroups;
pub mod fds;
pub mod frames;
mod gaps;
pub mod helper;
mod host;
mod ipc;
mod mapped_file;
mod maps;
pub mod memory;
mod namespace;
pub mod native;
mod peers;
mod pool;
mod probes;
mod program;
pub mod python;
mod readings;
mod root;
mod session;
mod sharing;
pub mod sockets;
pub mod tasks;
mod watch;

use std::{path::PathBuf, time::Duration};

pub use host::host;
pub use probes::ProbeChoice;

use crate::{
    discover::Discovery,
    model::{Capture, Tier},
};

/// What to observe, and how deep.
pub struct Plan<'a> {
    /// For how long to watch after the stacks were read; zero: one look.
    pub duration: Duration,
    /// Read Python stacks.
    pub python: bool,
    /// Walk native stacks.
    pub native: bool,
    /// Which probes to use while watching.
    pub probes: ProbeChoice,
    /// The `inspector` binary that helper processes are started from.
    pub helper: PathBuf,
    /// Told what is being done, in a few words.
    pub progress: &'a dyn Fn(&str),
}

/// What an observation needs whoever is observed, made ready beside the search for them.
pub struct Prepared {
    tasks: tasks::Opening,
}

impl Prepared {
    /// Starts. `tier`: the highest to use; `None`: the highest that works.
    pub fn start(tier: Option<Tier>) -> Self {
        Self { tasks: tasks::Opening::start(tier.unwrap_or(Tier::Ebpf)) }
    }
}

/// Observes the processes that were discovered.
///
/// Never fails: what could not be seen is in the capture's gaps.
pub fn observe(plan: &Plan<'_>, prepared: Prepared, discovery: Discovery) -> std::io::Result<Capture> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let capture = runtime.block_on(session::run(plan, prepared, discovery));
    // A collector that is stuck is left to itself.
    runtime.shutdown_background();
    Ok(capture)
}
