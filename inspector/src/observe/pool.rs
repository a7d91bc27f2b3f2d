//! Helper processes side by side: each slot reads its processes one after the other, under deadlines.

use std::{collections::HashSet, path::PathBuf, sync::Arc, time::Duration};

use tokio::task::JoinSet;

use super::helper::{
    Helper, HelperError,
    protocol::{Reply, Request, Stage},
};
use super::tasks::memory_walk::{Grants, Wanted};
use crate::model::{Gap, GilSample, PythonRuntime};

/// What one stage of one process may take: enough for a loaded host, and a thousand threads take longer than ten.
const STAGE_BASE: Duration = Duration::from_secs(1);
const STAGE_PER_THREAD: Duration = Duration::from_millis(2);
/// The most that it may take: a target with thirty thousand threads and one page that never comes holds us no longer.
const STAGE_MOST: Duration = Duration::from_secs(10);
/// What is left for a process's later stages once one of them was late.
const STAGE_AFTER_LATE: Duration = Duration::from_millis(300);
/// What one reading of the GILs may take. It is three reads; the rest is for a loaded host.
const GIL_DEADLINE: Duration = Duration::from_millis(500);

/// Everything that was read of one process in one round.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The host's pid.
    pub(super) pid: u32,
    /// The stages that were finished.
    pub(super) stages: Vec<(Stage, Reply)>,
    /// What could not be read.
    pub(super) gaps: Vec<Gap>,
}

/// A bounded number of helpers.
#[derive(Debug)]
pub(super) struct Pool {
    slots: Vec<Slot>,
    /// Helpers that the kernel did not let go while GILs were read.
    left: Vec<u32>,
}

impl Pool {
    /// A pool of `size` helpers, none of which is started yet.
    pub(super) fn new(executable: PathBuf, size: usize, walk: Option<Arc<Grants>>) -> Self {
        let slot = || Slot {
            executable: executable.clone(),
            walk: walk.clone(),
            helper: None,
            knows: HashSet::new(),
            queue: Vec::new(),
        };
        Self { slots: (0..size.max(1)).map(|_| slot()).collect(), left: Vec::new() }
    }

    /// Starts the helpers beside what the caller does next. One that cannot be started says so when it is asked.
    pub(super) fn start(&mut self) {
        for slot in &mut self.slots {
            slot.helper = Helper::start(&slot.executable, slot.walk.as_deref()).ok();
        }
    }

    /// Reads every request. The same process always goes to the same helper, which remembers its runtime; its native
    /// stacks to the next one, beside its Python stacks.
    pub(super) async fn read(&mut self, requests: Vec<Request>) -> Vec<Outcome> {
        let size = self.slots.len();
        for request in requests {
            let (native, others) = request.stages.iter().partition(|&&stage| stage == Stage::Native);
            let pid = request.pid as usize;
            for (place, stages) in [(pid, others), (pid.wrapping_add(1), native)] {
                if let Some(slot) = self.slots.get_mut(place % size)
                    && !Vec::is_empty(&stages)
                {
                    slot.queue.push(Request { stages, ..request.clone() });
                }
            }
        }
        let mut tasks = JoinSet::new();
        for (index, mut slot) in std::mem::take(&mut self.slots).into_iter().enumerate() {
            tasks.spawn(async move {
                let mut outcomes = Vec::new();
                for request in std::mem::take(&mut slot.queue) {
                    outcomes.push(slot.read(request).await);
                }
                (index, slot, outcomes)
            });
        }
        let mut outcomes = Vec::new();
        let mut slots = tasks.join_all().await;
        // Slots come back in the order in which they finished; a process finds its slot by position.
        slots.sort_by_key(|(index, ..)| *index);
        for (_, slot, read) in slots {
            outcomes.extend(read);
            self.slots.push(slot);
        }
        outcomes
    }

    /// One reading of each GIL of `runtime`; empty where that failed.
    pub(super) async fn gils(&mut self, pid: u32, runtime: &PythonRuntime) -> Vec<Option<GilSample>> {
        let size = self.slots.len();
        let Some(slot) = self.slots.get_mut(pid as usize % size) else { return Vec::new() };
        if let Ok(samples) = slot.gils(pid, runtime).await {
            return samples;
        }
        self.left.extend(slot.end_helper().await);
        Vec::new()
    }

    /// Ends every helper. Those that the kernel does not let go yet are named.
    pub(super) async fn end(mut self) -> Vec<u32> {
        let mut left = self.left;
        for slot in &mut self.slots {
            left.extend(slot.end_helper().await);
        }
        left
    }
}

/// One helper and what it has to read.
#[derive(Debug)]
struct Slot {
    executable: PathBuf,
    walk: Option<Arc<Grants>>,
    helper: Option<Helper>,
    /// The processes whose Python runtimes this helper knows; a new one knows none.
    knows: HashSet<u32>,
    queue: Vec<Request>,
}

impl Slot {
    async fn read(&mut self, mut request: Request) -> Outcome {
        let pid = request.pid;
        let mut outcome = Outcome { pid, ..Outcome::default() };
        let threads = u32::try_from(request.threads.len()).unwrap_or(u32::MAX);
        let mut deadline =
            STAGE_BASE.saturating_add(STAGE_PER_THREAD.saturating_mul(threads)).min(STAGE_MOST);
        // Every turn takes at least one stage off the list.
        while !request.stages.is_empty() {
            let Err(error) = self.attempt(&mut request, deadline, &mut outcome).await else { break };
            // The stages before the one that failed were answered and are off the list.
            let Some(&stage) = request.stages.first() else { break };
            let late = matches!(error, HelperError::Late { .. });
            let left = self.end_helper().await;
            outcome.gaps.push(Gap::process("helper", pid, explain(stage, &error, left)));
            request.stages.retain(|&other| other > stage);
            if late {
                deadline = STAGE_AFTER_LATE;
            }
        }
        outcome
    }

    async fn attempt(
        &mut self,
        request: &mut Request,
        deadline: Duration,
        outcome: &mut Outcome,
    ) -> Result<(), HelperError> {
        let helper = match &mut self.helper {
            Some(helper) => helper,
            empty => empty.insert(Helper::start(&self.executable, self.walk.as_deref())?),
        };
        if let (Some(walk), Some(pid)) = (&self.walk, helper.pid()) {
            let wanted = [(Stage::Arguments, Wanted::Futex), (Stage::Native, Wanted::WHOLE_STACK)];
            let wanted = wanted.iter().filter(|(stage, _)| request.stages.contains(stage));
            let wanted: Vec<Wanted> = wanted.map(|&(_, wanted)| wanted).collect();
            // What the walk does not give is read without it.
            walk.give(pid, request.pid, &wanted).ok();
        }
        let asked = request.clone();
        let knows = &mut self.knows;
        helper
            .read(asked, deadline, |stage, reply| {
                // A second reading leaves nothing with a helper that did not do the first.
                if reply.python.is_some() && !request.again {
                    knows.insert(request.pid);
                }
                request.stages.retain(|&other| other != stage);
                outcome.stages.push((stage, reply));
            })
            .await
    }

    async fn gils(
        &mut self,
        pid: u32,
        runtime: &PythonRuntime,
    ) -> Result<Vec<Option<GilSample>>, HelperError> {
        let helper = match &mut self.helper {
            Some(helper) => helper,
            empty => empty.insert(Helper::start(&self.executable, self.walk.as_deref())?),
        };
        let told = self.knows.insert(pid).then(|| runtime.clone());
        helper.gils(pid, told, GIL_DEADLINE).await
    }

    async fn end_helper(&mut self) -> Option<u32> {
        self.knows.clear();
        let helper = self.helper.take()?;
        let pid = helper.pid();
        let left = helper.end().await;
        // One that is stuck may be stuck in the walk, and still write where its record is.
        if let (Some(walk), Some(pid), None) = (&self.walk, pid, left) {
            walk.take(pid);
        }
        left
    }
}

fn explain(stage: Stage, error: &HelperError, left: Option<u32>) -> String {
    let what = match stage {
        Stage::Descriptors => "open descriptors",
        Stage::Arguments => "memory that system calls point to",
        Stage::Python => "Python stacks",
        Stage::Native => "native stacks",
        Stage::Sharing => "shared memory and its users",
    };
    let left = left.map_or_else(String::new, |pid| {
        format!("; helper process {pid} is stuck in that read and ends as soon as the kernel lets it")
    });
    format!("{what} not read: {error}{left}")
}
