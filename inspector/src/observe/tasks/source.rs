//! The task snapshot, by the best means that this host allows.

use super::{
    Sweep, Task, TasksError,
    clock::{Calibration, monotonic_ns},
    ebpf::Walk,
    record::{self, Context},
    restart::RestartNames,
};
use crate::model::{Gap, Tier};

/// What [`open`] found to work.
#[derive(Debug)]
pub struct Opened {
    /// The snapshot.
    pub source: TaskSource,
    /// The tier that it reaches.
    pub tier: Tier,
    /// What was tried and failed, and what that costs.
    pub gaps: Vec<Gap>,
}

/// Takes snapshots of the wanted processes' threads.
#[derive(Debug)]
pub struct TaskSource {
    walk: Walk,
    clock: Calibration,
    restart: RestartNames,
}

/// Opens the best source not above `most`, for these processes (the host's pids).
pub fn open(pids: &[u32], most: Tier) -> Result<Opened, TasksError> {
    let _ = most;
    let mut walk = Walk::open()?;
    walk.watch(pids)?;
    let gaps = walk
        .without
        .iter()
        .map(|without| Gap::host("tasks", format!("this kernel gives {without}")))
        .collect();
    let source = TaskSource { walk, clock: Calibration::default(), restart: RestartNames::default() };
    Ok(Opened { source, tier: Tier::Ebpf, gaps })
}

impl TaskSource {
    /// Replaces the set of wanted processes.
    pub fn watch(&mut self, pids: &[u32]) -> Result<(), TasksError> {
        self.walk.watch(pids)
    }

    /// Looks at every thread of the wanted processes once. A process that is gone has no threads.
    pub fn sweep(&mut self) -> Result<Sweep, TasksError> {
        self.clock.wake();
        let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let at_ns = monotonic_ns();
        let watches_own = self.walk.watches(std::process::id());
        let times = self.walk.times;
        let stream = self.walk.read()?;
        let ended_ns = monotonic_ns();
        let views = inspector_ebpf::decode(stream).collect::<Result<Vec<_>, _>>()?;
        if let Some(view) = views.iter().find(|view| view.head.pid == own) {
            let head = &view.head;
            self.clock.own_arrival(head.at_ns, head.last_arrival, head.nvcsw.saturating_add(head.nivcsw));
        }
        let mut context =
            Context { clock: times.then_some(&self.clock), ended_ns, restart: &mut self.restart };
        let mut tasks: Vec<Task> = views
            .iter()
            .filter(|view| watches_own || view.head.tgid != std::process::id())
            .map(|view| record::task(view, &mut context))
            .collect();
        tasks.sort_unstable_by_key(|task| (task.pid, task.tid));
        Ok(Sweep { at_ns, ended_ns, tasks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sees_its_own_threads() {
        let start = std::time::Instant::now();
        let mut opened = open(&[std::process::id()], Tier::Ebpf).expect("eBPF needs root");
        eprintln!("open {:?}", start.elapsed());
        let start = std::time::Instant::now();
        let sweep = opened.source.sweep().unwrap();
        eprintln!("sweep {:?} {:#?} {:#?}", start.elapsed(), opened.gaps, sweep);
    }
}
