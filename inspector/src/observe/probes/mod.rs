//! The probes on system calls, for the length of a window: loaded beside the first reads, attached as the window begins,
//! detached as it ends.

mod convert;

use std::time::Duration;

use tokio::{task::JoinHandle, time::timeout};

use super::tasks::{
    TasksError,
    probes::{Span, SyscallProbes, Watched},
};
use crate::model::{Gap, ProbeWay, Probes};

/// Waits that are kept, nanoseconds: below it, a wait is how work is shared out.
const THRESHOLD_NS: u64 = 1_000_000;
/// What loading and attaching, and what detaching and reading may take.
const DEADLINE: Duration = Duration::from_secs(3);
/// What a window without them lacks.
const COSTS: &str = "who wakes whom, how many bytes go where and which threads end is not known";

/// Which probes to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeChoice {
    /// Those that work: `fentry`, else tracepoints.
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
    attached: Option<SyscallProbes>,
    gaps: Vec<Gap>,
}

impl Collector {
    /// Starts to load them, for these processes (the host's pids) of so many threads in all.
    pub(super) fn start(choice: ProbeChoice, pids: Vec<u32>, threads: u32) -> Self {
        let way = match choice {
            ProbeChoice::Off => return Self::default(),
            ProbeChoice::Auto => None,
            ProbeChoice::Only(way) => Some(way),
        };
        let watched = Watched { pids, threads, threshold_ns: THRESHOLD_NS };
        let loading = tokio::task::spawn_blocking(move || SyscallProbes::load(way, &watched));
        Self { loading: Some(loading), ..Self::default() }
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
        match timeout(DEADLINE, attaching).await {
            Ok(Ok(probes)) => {
                tracing::debug!("probes attached by {}", probes.way().name());
                self.attached = Some(probes);
            }
            Ok(Err(why)) => self.gap(&why),
            Err(_) => self.gap(&format!("they were not ready within {} s", DEADLINE.as_secs())),
        }
    }

    /// Detaches them and reads what they saw. `start_ns`: when the first sweep was made, of `CLOCK_MONOTONIC`.
    pub(super) async fn finish(&mut self, start_ns: u64) -> Option<Probes> {
        let mut probes = self.attached.take()?;
        let reading = tokio::task::spawn_blocking(move || {
            probes.detach();
            let counted = probes.read()?;
            let Span { from_ns, to_ns } = probes.span();
            let way = probes.way();
            Ok::<_, TasksError>((counted, convert::Frame { way, start_ns, from_ns, to_ns }))
        });
        let why = match timeout(DEADLINE, reading).await {
            Ok(Ok(Ok((counted, frame)))) => {
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
        self.gaps.push(Gap::host("probes", format!("no probes on system calls: {why}; {COSTS}")));
    }
}
