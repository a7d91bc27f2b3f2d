//! What is done to a fixture from outside: stopped, frozen, given too little of the CPUs.

use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use self::cgroup::{Group, Hierarchy};
use super::expected::Done;

#[path = "../../../tests/src/cgroup.rs"]
#[allow(unreachable_pub, reason = "it is a module of the tests' library too, and has to be the same there")]
mod cgroup;

/// How long a process may take to be stopped or frozen, or to use up its quota in most periods of 100 ms.
const SETTLE: Duration = Duration::from_secs(2);
/// What one thread that spins is given of each 100 ms.
const QUOTA_MS: u32 = 5;

/// A state that a process is in until this is dropped.
pub(super) enum State {
    Stopped(Pid),
    In { _group: Group, cgroup: String },
}

impl State {
    pub(super) fn enter(done: Done, pid: u32) -> Result<Self> {
        let state = match done {
            Done::Stopped => {
                let pid = Pid::from_raw(pid.cast_signed()).context("a pid is never 0")?;
                kill_process(pid, Signal::STOP)?;
                Self::Stopped(pid)
            }
            Done::Frozen => {
                let first = Hierarchy::Controller("freezer");
                let (hierarchy, file, on, off) = if first.mount().is_some() {
                    (first, "freezer.state", "FROZEN", "THAWED")
                } else {
                    (Hierarchy::Unified, "cgroup.freeze", "1", "0")
                };
                let (mut group, cgroup, folder) = below(hierarchy, pid)?;
                group.set(&folder, file, on, off)?;
                Self::In { _group: group, cgroup }
            }
            Done::Throttled => {
                let (mut group, cgroup, folder) = below(Hierarchy::of_cpu()?.0, pid)?;
                group.limit_cpu(&folder, QUOTA_MS)?;
                Self::In { _group: group, cgroup }
            }
        };
        std::thread::sleep(SETTLE);
        Ok(state)
    }

    /// The cgroup that is the reason.
    pub(super) fn cgroup(&self) -> Option<&str> {
        match self {
            Self::Stopped(_) => None,
            Self::In { cgroup, .. } => Some(cgroup),
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let Self::Stopped(pid) = self {
            // It may have been killed meanwhile.
            kill_process(*pid, Signal::CONT).ok();
        }
    }
}

/// Moves a process into a cgroup below one to act on, since the reason is seldom the process's own cgroup; gives that one.
fn below(hierarchy: Hierarchy, pid: u32) -> Result<(Group, String, std::path::PathBuf)> {
    let group = Group::new(hierarchy, "/inner")?;
    group.add(pid)?;
    let (cgroup, folder) = group.top();
    Ok((group, cgroup, folder))
}
