//! The process that every tool looks at.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::piped;
use crate::process::{Owned, root, run};

/// 1000 threads take a while to start on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// A Python process of many threads, with heartbeats.
pub(super) struct Target(Owned);

impl Target {
    pub(super) fn start(threads: u32, depth: u32) -> Result<Self> {
        let fixtures = root().join("tests/fixtures/harm");
        let library = root().join("target/heartbeat.so");
        run(Command::new("cc")
            .args(["-g", "-O1", "-Wall", "-pthread", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(fixtures.join("heartbeat.c")))?;
        let mut command = Command::new("python3");
        command
            .arg(fixtures.join("heartbeat.py"))
            .arg(library)
            .args([threads.to_string(), depth.to_string()]);
        let mut owned = Owned::start(piped(&mut command))?;
        owned.line("ready", PATIENCE)?;
        Ok(Self(owned))
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Files what its heartbeats recorded since the last call under `label`.
    pub(super) fn take(&mut self, label: &str) -> Result<()> {
        self.0.tell(&format!("take {label}"))?;
        self.0.line("taken", PATIENCE).map(drop)
    }

    /// Quantiles by label.
    pub(super) fn report(&mut self) -> Result<Value> {
        self.0.tell("report")?;
        Ok(serde_json::from_str(&self.0.line("report ", PATIENCE)?)?)
    }
}
