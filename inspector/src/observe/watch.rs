//! Sweeps over a window, and what they say of each thread.

use std::collections::BTreeMap;

use super::tasks::{Sweep, Task};
use crate::model::{Activity, MmapLock, Stability};

/// A thread's key: the host's pid and tid.
pub(super) type Key = (u32, u32);

/// What the sweeps of one observation saw.
#[derive(Debug, Default)]
pub(super) struct Watch {
    threads: BTreeMap<Key, Watched>,
    /// Sweeps taken.
    pub(super) sweeps: u32,
    /// `CLOCK_MONOTONIC` of the first and the latest sweep's start, nanoseconds.
    pub(super) span: Option<(u64, u64)>,
}

/// One thread over the window.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    first: Task,
    /// The latest sight of it.
    pub(super) last: Task,
    /// The number of the sweep of `last`.
    seen: u32,
    sweeps: u32,
    running: u32,
    moved: bool,
}

impl Watch {
    /// Takes in one sweep.
    pub(super) fn add(&mut self, sweep: &Sweep) {
        self.sweeps += 1;
        self.span = Some((self.span.map_or(sweep.at_ns, |(start, _)| start), sweep.at_ns));
        for task in &sweep.tasks {
            let running = u32::from(task.on_cpu || task.state == crate::model::TaskState::Running);
            if let Some(watched) = self.threads.get_mut(&(task.pid, task.tid)) {
                watched.moved |= moved(&watched.last, task);
                watched.last = task.clone();
                watched.seen = self.sweeps;
                watched.sweeps += 1;
                watched.running += running;
            } else {
                let (first, last) = (task.clone(), task.clone());
                let moved = task.on_cpu;
                let watched = Watched { first, last, seen: self.sweeps, sweeps: 1, running, moved };
                self.threads.insert((task.pid, task.tid), watched);
            }
        }
    }

    /// The threads of a process that the latest sweep still saw; all that were ever seen, if it saw none.
    pub(super) fn threads_of(&self, pid: u32) -> Vec<&Watched> {
        let all = || self.threads.range((pid, 0)..=(pid, u32::MAX)).map(|(_, watched)| watched);
        let alive: Vec<_> = all().filter(|watched| watched.seen == self.sweeps).collect();
        if alive.is_empty() { all().collect() } else { alive }
    }

    /// The latest sweep saw a thread of the process.
    pub(super) fn alive(&self, pid: u32) -> bool {
        self.threads.range((pid, 0)..=(pid, u32::MAX)).any(|(_, watched)| watched.seen == self.sweeps)
    }

    /// The process's `mmap_lock` as of the latest sweep.
    pub(super) fn mmap_lock(&self, pid: u32) -> MmapLock {
        self.threads_of(pid).first().map_or(MmapLock::Unknown, |watched| watched.last.mmap_lock)
    }
}

impl Watched {
    /// What it did over the window.
    pub(super) fn activity(&self) -> Activity {
        let (first, last) = (&self.first.fingerprint, &self.last.fingerprint);
        Activity {
            sweeps: self.sweeps,
            running: self.running,
            cpu_ns: last.cpu_ns.checked_sub(first.cpu_ns),
            switches: last.switched_in.checked_sub(first.switched_in),
            unchanged: !self.moved,
        }
    }
}

fn moved(before: &Task, after: &Task) -> bool {
    before.on_cpu || after.on_cpu || before.fingerprint != after.fingerprint
}

/// What two sweeps around a read say of it.
pub(super) fn stability(before: &Task, after: &Task) -> Stability {
    if !moved(before, after) {
        Stability::Stable
    } else if before.on_cpu && after.on_cpu {
        Stability::Running
    } else {
        Stability::Torn
    }
}
