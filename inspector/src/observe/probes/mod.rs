//! The probes on what threads wait for, for the length of a window: loaded beside the first reads, attached as the window begins,
//! detached as it ends.

mod convert;

pub(super) use convert::name_descriptors;

use std::time::Duration;

use tokio::{task::JoinHandle, time::timeout};

use super::tasks::{
    TasksError,
    probes::{SyscallProbes, Watched},
};
use crate::model::{Gap, ProbeWay, Probes};

/// Waits that are kept, nanoseconds: below it, a wait is how work is shared out.
const THRESHOLD_NS: u64 = 1_000_000;
/// What loading and attaching, and what reading may take.
const DEADLINE: Duration = Duration::from_secs(3);
/// The same by `fentry`: to attach it to thirty functions takes the kernel seconds.
const LONG_DEADLINE: Duration = Duration::from_secs(10);
/// What a window without them lacks.
const COSTS: &str = "who wakes whom, how many bytes go where and which threads end is not known";

/// What the tracepoints of an older kernel do not show.
const NO_BYTES: &str = "how many bytes go through which socket is not known: the kernel has tracepoints for that from 6.3 on; \
                        --probes fentry sees them";

/// Which probes to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeChoice {
    /// Tracepoints, where they work; else `fentry`.
    #[default]
    Auto,
    /// These.
    Only(ProbeWay),
    /// None.
    Off,
}

/// The probes of one observation.
#[derive(Debug, Default)]
pub(super) struct Collector {
    loading: Option<JoinHandle<Result<SyscallProbes, TasksError>>>,
    deadline: Duration,
    attached: Option<SyscallProbes>,
    gaps: Vec<Gap>,
}

impl Collector {
    /// Starts to load them, for these processes (the host's pids) of so many threads in all.
    pub(super) fn start(choice: ProbeChoice, pids: Vec<u32>, threads: u32) -> Self {
        let ways = match choice {
            ProbeChoice::Off => return Self::default(),
            // They are there in a millisecond, and cost the least.
            ProbeChoice::Auto => vec![ProbeWay::Tracepoint, ProbeWay::Fentry],
            ProbeChoice::Only(way) => vec![way],
        };
        let deadline = if ways.contains(&ProbeWay::Fentry) { LONG_DEADLINE } else { DEADLINE };
        let watched = Watched { pids, threads, threshold_ns: THRESHOLD_NS };
        let loading = tokio::task::spawn_blocking(move || load(&ways, &watched));
        Self { loading: Some(loading), deadline, ..Self::default() }
    }

    /// Attaches them: the window begins.
    pub(super) async fn attach(&mut self) {
        let Some(loading) = self.loading.take() else { return };
        let attaching = async {
            let mut probes = loading.await.map_err(|why| why.to_string())?.map_err(|why| why.to_string())?;
            let attached = move || probes.attach().map(|()| probes);
            let attached = tokio::task::spawn_blocking(attached).await.map_err(|why| why.to_string())?;
            attached.map_err(|why| why.to_string())
        };
        match timeout(self.deadline, attaching).await {
            Ok(Ok(probes)) => self.attached = Some(probes),
            Ok(Err(why)) => self.gap(&why),
            Err(_) => self.gap(&format!("they were not ready within {} s", self.deadline.as_secs())),
        }
    }

    /// Reads what they saw, and has them detached, which nobody waits for. `start_ns`: when the first sweep was made, of `CLOCK_MONOTONIC`.
    pub(super) async fn finish(&mut self, start_ns: u64) -> Option<Probes> {
        let mut probes = self.attached.take()?;
        let reading = tokio::task::spawn_blocking(move || {
            let counted = probes.read();
            let (way, sees_bytes) = (probes.way(), probes.sees_bytes());
            tokio::task::spawn_blocking(move || probes.detach());
            Ok::<_, TasksError>((counted?, convert::Frame { way, start_ns }, sees_bytes))
        });
        let why = match timeout(DEADLINE, reading).await {
            Ok(Ok(Ok((counted, frame, sees_bytes)))) => {
                if !sees_bytes {
                    self.gaps.push(Gap::host("probes", NO_BYTES));
                }
                let seen = convert::probes(&counted, &frame, THRESHOLD_NS);
                self.gaps.extend(convert::gap(&seen.dropped));
                return Some(seen);
            }
            Ok(Ok(Err(why))) => why.to_string(),
            Ok(Err(why)) => why.to_string(),
            Err(_) => format!("they were not read within {} s", DEADLINE.as_secs()),
        };
        self.gap(&why);
        None
    }

    /// What was not seen, and why.
    pub(super) fn into_gaps(self) -> Vec<Gap> {
        self.gaps
    }

    fn gap(&mut self, why: &str) {
        self.gaps.push(Gap::host("probes", format!("no probes on waits and wakes: {why}; {COSTS}")));
    }
}

/// Loads them by the first of the ways that works. What takes long to attach is attached at once, beside the first reads.
fn load(ways: &[ProbeWay], watched: &Watched) -> Result<SyscallProbes, TasksError> {
    let mut result = Err(TasksError::Probes("there is no way to attach them".into()));
    for &way in ways {
        result = SyscallProbes::load(way, watched);
        if let (Ok(probes), ProbeWay::Fentry) = (&mut result, way) {
            result = probes.attach().and(result);
        }
        if result.is_ok() {
            break;
        }
    }
    result
}
