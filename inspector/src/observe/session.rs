//! One observation: sweep, read, sweep again, watch, put together.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Duration,
};

use tokio::time::sleep;

use super::{
    Plan, Prepared, assemble,
    assemble::Sight,
    cgroups::CpuQuotas,
    helper::protocol::{Request, Stage, ThreadRequest},
    host::{host, unix_ns},
    namespace::ns_tids,
    peers,
    pool::Pool,
    probes::{Collector, ProbeChoice, name_descriptors},
    program::Programs,
    readings::Reading,
    tasks::{self, Sweep, Task, TaskSource},
    watch::{Key, Watch, stability},
};
use crate::{
    discover::{Discovery, listening},
    model::{
        Capture, Gap, GilSample, MmapLock, Process, Stability, TaskState, Tier, Window,
        capture::CAPTURE_VERSION,
    },
};

/// How often threads that moved while they were read are read again at most.
const REREADS: u32 = 3;
/// How often a contended `mmap_lock` is looked at again, and after how long. A writer that is stuck is seen every time; a
/// process that maps memory without pause is seen free after a few looks, and its memory must not be given up.
const LOCK_LOOKS: u32 = 40;
const LOCK_PAUSE: Duration = Duration::from_millis(1);
/// Sweeps in a window, and the shortest pause between two.
const SWEEPS: u32 = 10;
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);

/// Runs one observation.
pub(super) async fn run(plan: &Plan<'_>, prepared: Prepared, discovery: Discovery) -> Capture {
    let Discovery { processes, held, gaps } = discovery;
    let pids: Vec<u32> = processes.iter().map(|process| process.pid).collect();
    let ns_tids = processes.iter().map(|process| (process.pid, ns_tids(process))).collect();
    let slots = std::thread::available_parallelism().map_or(2, usize::from).min(4);
    let quotas = CpuQuotas::start(&pids);
    let programs = Programs::of(pids.iter().copied().filter(|pid| !held.contains(pid)));
    let tasks::Opened { source, tier, gaps: opened_gaps } = prepared.tasks.finish(&pids);
    let watches = !plan.duration.is_zero() && !processes.is_empty() && tier == Tier::Ebpf;
    let threads = processes.iter().fold(0, |sum: u32, process| sum.saturating_add(process.thread_count));
    let probes = Collector::start(if watches { plan.probes } else { ProbeChoice::Off }, pids, threads);
    let mut pool = Pool::new(plan.helper.clone(), slots, source.memory_walk());
    pool.start();
    let session = Session {
        plan,
        source,
        tier,
        pool,
        probes,
        watch: Watch::default(),
        sights: BTreeMap::new(),
        readings: HashMap::new(),
        ns_tids,
        programs,
        quotas,
        held,
        unreadable: HashSet::new(),
        gils_lost: HashSet::new(),
        gaps: gaps.into_iter().chain(opened_gaps).collect(),
    };
    session.run(processes).await
}

struct Session<'a> {
    plan: &'a Plan<'a>,
    source: TaskSource,
    tier: Tier,
    pool: Pool,
    probes: Collector,
    watch: Watch,
    sights: BTreeMap<Key, Sight>,
    readings: HashMap<u32, Reading>,
    /// By pid: tids inside the process's own PID namespace.
    ns_tids: HashMap<u32, HashMap<u32, u32>>,
    /// What they ran when the observation began.
    programs: Programs,
    /// The CPU quotas of their cgroups when it began.
    quotas: CpuQuotas,
    /// Processes that hang in `execve`: nothing of them that a helper reads would come.
    held: BTreeSet<u32>,
    /// Processes that held a helper up, or ended one. They are not asked again: each time would cost the deadlines anew.
    unreadable: HashSet<u32>,
    /// The same, of GILs.
    gils_lost: HashSet<u32>,
    gaps: Vec<Gap>,
}

impl Session<'_> {
    async fn run(mut self, mut processes: Vec<Process>) -> Capture {
        (self.plan.progress)("reading stacks");
        let started_unix_ns = unix_ns();
        let (first, unreadable) = self.first_sweep().await;
        let sockets = peers::sockets(&processes);
        let (sockets, ()) = tokio::join!(sockets, self.read(first, &unreadable));
        let mut probed = None;
        if !self.plan.duration.is_zero() && !processes.is_empty() {
            (self.plan.progress)("watching");
            self.probes.attach().await;
            self.watch().await;
            probed = self.probes.finish(self.watch.span.map_or(0, |(start, _)| start)).await;
        }
        self.gaps.extend(std::mem::take(&mut self.probes).into_gaps());
        self.finish(&mut processes);
        if let Some(probed) = &mut probed {
            name_descriptors(probed, &processes);
        }
        self.gaps.extend(self.quotas.finish(&mut processes).await);
        let peers = peers::find(&processes, sockets).await;
        for process in &mut processes {
            process.listening = listening(&process.fds, &peers.sockets);
        }
        for pid in self.pool.end().await {
            let reason =
                format!("helper process {pid} is stuck in a read; it ends as soon as the kernel lets it");
            self.gaps.push(Gap::host("helper", reason));
        }
        self.gaps.extend(peers.gaps);
        let duration_ns = self.watch.span.map_or(0, |(start, end)| end.saturating_sub(start));
        Capture {
            version: CAPTURE_VERSION,
            host: host(),
            tier: self.tier,
            window: Window {
                started_unix_ns,
                duration_ns,
                sweeps: self.watch.sweeps,
                ended_monotonic_ns: self.watch.span.map(|(_, end)| end),
            },
            processes,
            bystanders: peers.bystanders,
            sockets: peers.sockets,
            locks: peers.locks,
            probes: probed,
            ipc: peers.ipc,
            gaps: self.gaps,
        }
    }

    /// The first sweep, and the processes whose memory must not be read.
    async fn first_sweep(&mut self) -> (Sweep, HashSet<u32>) {
        let mut contended = HashSet::new();
        for look in 0..LOCK_LOOKS {
            let sweep = self.sweep();
            let with = |state: MmapLock| -> HashSet<u32> {
                sweep.tasks.iter().filter(|task| task.mmap_lock == state).map(|task| task.pid).collect()
            };
            // Every thread's record has the lock as it was just then: one that is stuck is so in all of them. A thread
            // that has exited has none.
            let now = &with(MmapLock::Contended) - &with(MmapLock::Free);
            contended = if look == 0 { now } else { &contended & &now };
            if contended.is_empty() || look + 1 == LOCK_LOOKS {
                return (sweep, contended);
            }
            sleep(LOCK_PAUSE).await;
        }
        (Sweep::default(), contended)
    }

    fn sweep(&mut self) -> Sweep {
        match self.source.sweep() {
            Ok(mut sweep) => {
                self.watch.add(&sweep);
                self.gaps.append(&mut sweep.gaps);
                sweep
            }
            Err(error) => {
                let gap = Gap::host("tasks", format!("a sweep over the threads failed: {error}"));
                if !self.gaps.contains(&gap) {
                    self.gaps.push(gap);
                }
                Sweep::default()
            }
        }
    }

    /// Reads the memory of every process that can be read, until its threads held still or the tries are used up.
    async fn read(&mut self, first: Sweep, unreadable: &HashSet<u32>) {
        for &pid in unreadable {
            let reason = "memory not read: its mmap_lock is held for writing or waited for, and every read would wait \
                          behind that; system calls and kernel stacks are shown";
            self.gaps.push(Gap::process("helper", pid, reason));
        }
        let mut before = first;
        let mut wanted: Option<HashSet<Key>> = None;
        self.unreadable.clone_from(unreadable);
        for round in 0..=REREADS {
            let requests = self.requests(&before, wanted.as_ref());
            if round > 0 && requests.is_empty() {
                break;
            }
            let outcomes = self.pool.read(requests).await;
            let after = self.sweep();
            self.judge(&before, &after, wanted.as_ref());
            for outcome in outcomes {
                let pid = outcome.pid;
                if !outcome.gaps.is_empty() {
                    self.unreadable.insert(pid);
                }
                let sights = &self.sights;
                let still =
                    |tid| sights.get(&(pid, tid)).is_some_and(|sight| sight.stability == Stability::Stable);
                self.readings.entry(pid).or_default().absorb(outcome, round == 0, still);
            }
            wanted = Some(self.read_again(round));
            before = after;
        }
    }

    fn requests(&self, sweep: &Sweep, only: Option<&HashSet<Key>>) -> Vec<Request> {
        let mut stages = Vec::new();
        stages.extend(only.is_none().then_some(Stage::Descriptors));
        if self.tier > Tier::Proc {
            stages.push(Stage::Arguments);
            stages.extend(self.plan.python.then_some(Stage::Python));
            stages.extend(self.plan.native.then_some(Stage::Native));
            stages.extend(only.is_none().then_some(Stage::Sharing));
        }
        let mut by_pid: BTreeMap<u32, Vec<ThreadRequest>> = BTreeMap::new();
        for task in &sweep.tasks {
            let asked = only.is_none_or(|only| only.contains(&(task.pid, task.tid)));
            if asked {
                by_pid.entry(task.pid).or_default().push(self.thread_request(task));
            }
        }
        let request = |(pid, threads): (u32, Vec<ThreadRequest>)| {
            // Descriptors are not in memory: they are read all the same.
            let readable = |stage: &Stage| match stage {
                Stage::Descriptors => !self.held.contains(&pid),
                _ => !self.held.contains(&pid) && !self.unreadable.contains(&pid),
            };
            // Few of the threads that move run Python: native helpers of an engine do not, and spin.
            let runs_python = |thread: &ThreadRequest| {
                self.readings.get(&pid).is_some_and(|reading| reading.runs_python(thread.tid))
            };
            let python = only.is_none() || threads.iter().any(runs_python);
            let readable = |stage: &Stage| readable(stage) && (*stage != Stage::Python || python);
            let stages: Vec<Stage> = stages.iter().copied().filter(readable).collect();
            Request { pid, threads, stages, again: only.is_some() }
        };
        by_pid.into_iter().map(request).filter(|request| !request.stages.is_empty()).collect()
    }

    /// Notes for each thread that was read which sight its stack belongs to.
    fn judge(&mut self, before: &Sweep, after: &Sweep, only: Option<&HashSet<Key>>) {
        let after: HashMap<Key, &Task> =
            after.tasks.iter().map(|task| ((task.pid, task.tid), task)).collect();
        for task in &before.tasks {
            let key = (task.pid, task.tid);
            if only.is_some_and(|only| !only.contains(&key)) {
                continue;
            }
            let stability = after.get(&key).map_or(Stability::Torn, |after| stability(task, after));
            self.sights.insert(key, Sight { task: task.clone(), stability });
        }
    }

    /// Threads that moved while they were read in this round. Who moved twice rarely comes to rest: of those only what
    /// was read in pieces is worth another sweep.
    fn read_again(&self, round: u32) -> HashSet<Key> {
        let in_pieces = |&(pid, tid): &Key| self.readings.get(&pid).is_some_and(|r| r.is_in_pieces(tid));
        let moved = self.sights.iter().filter(|(_, sight)| sight.stability != Stability::Stable);
        moved.map(|(&key, _)| key).filter(|key| round == 0 || in_pieces(key)).collect()
    }

    /// Sweeps and GIL readings until the window is over.
    async fn watch(&mut self) {
        let pause = (self.plan.duration / SWEEPS).max(SHORTEST_PAUSE);
        let count = (self.plan.duration.as_nanos() / pause.as_nanos()).max(1);
        let start = tokio::time::Instant::now();
        for turn in 1..=count as u32 {
            tokio::time::sleep_until(start + pause * turn).await;
            self.sweep();
            let at_ns = self.watch.span.map_or(0, |(start, end)| end.saturating_sub(start));
            let pids: Vec<u32> = self.readings.keys().copied().collect();
            for pid in pids {
                self.sample_gils(pid, at_ns).await;
            }
        }
    }

    async fn sample_gils(&mut self, pid: u32, at_ns: u64) {
        let Some(runtime) = self.readings.get_mut(&pid).and_then(|reading| reading.runtime.as_mut()) else {
            return;
        };
        if runtime.gils().next().is_none() {
            return;
        }
        // A process that held a helper up once is not asked again.
        let samples =
            if self.gils_lost.contains(&pid) { Vec::new() } else { self.pool.gils(pid, runtime).await };
        if samples.is_empty() {
            self.gils_lost.insert(pid);
            let reason = "its GIL could not be read again: whether it changed hands is not known for all of the window";
            let gap = Gap::process("python", pid, reason);
            if !self.gaps.contains(&gap) {
                self.gaps.push(gap);
            }
        }
        let gils = runtime.interpreters.iter_mut().filter_map(|interpreter| interpreter.gil.as_mut());
        for (gil, sample) in gils.zip(samples) {
            gil.samples.extend(sample.map(|sample| GilSample { at_ns, ..sample }));
        }
    }

    fn finish(&mut self, processes: &mut [Process]) {
        let kernel_names = self.kernel_names();
        for process in processes {
            let mut reading = self.readings.remove(&process.pid).unwrap_or_default();
            if self.programs.changed(process.pid) {
                let reason = "it replaced its program (execve) while it was observed: what was read of its memory may be \
                              of the program before, and is left out; run the command again";
                self.gaps.push(Gap::process("tasks", process.pid, reason));
                reading = Reading::default();
            }
            let ended = !self.watch.alive(process.pid);
            if ended {
                let reason = "it ended while it was observed; what was read of it before is shown";
                self.gaps.push(Gap::process("tasks", process.pid, reason));
            }
            let gaps = assemble::fill(process, reading, &self.watch, &self.sights, &kernel_names, self.tier);
            self.gaps.extend(gaps);
            if ended {
                process.state = TaskState::Dead;
            }
            let ns_tids = self.ns_tids.get(&process.pid);
            let inside = process.ns_pids.len() > 1;
            for thread in process.threads.iter_mut().filter(|thread| thread.ns_tid == 0) {
                let inner = ns_tids.and_then(|tids| tids.get(&thread.tid)).copied();
                // Not known: by the host's number another thread may go in there.
                thread.ns_tid = inner.unwrap_or(if inside { 0 } else { thread.tid });
            }
        }
    }

    /// The names of the functions on the threads' kernel stacks, by return address.
    fn kernel_names(&mut self) -> HashMap<u64, String> {
        let stacks = self.sights.values().map(|sight| sight.task.kernel_stack.iter());
        let mut frames: Vec<u64> = stacks.flatten().copied().collect();
        frames.sort_unstable();
        frames.dedup();
        // A call may be the last instruction of its function: its return address belongs to the next one.
        let addresses: Vec<u64> = frames.iter().map(|frame| frame.wrapping_sub(1)).collect();
        let mut names = self.source.kernel_names(&addresses).unwrap_or_else(|error| {
            self.gaps.push(Gap::host("tasks", format!("{error}: kernel frames are shown as addresses")));
            HashMap::new()
        });
        let named = frames.iter().zip(&addresses);
        named.filter_map(|(&frame, address)| Some((frame, names.remove(address)?))).collect()
    }

    fn thread_request(&self, task: &Task) -> ThreadRequest {
        ThreadRequest {
            tid: task.tid,
            ns_tid: self.ns_tid(task),
            registers: task.registers.filter(|_| !task.on_cpu),
            thread_pointer: task.thread_pointer,
            syscall: task.syscall,
        }
    }

    fn ns_tid(&self, task: &Task) -> u32 {
        if let Some(tid) = task.ns_tid {
            return tid;
        }
        match self.ns_tids.get(&task.pid).filter(|tids| !tids.is_empty()) {
            Some(inside) => inside.get(&task.tid).copied().unwrap_or(0),
            None => task.tid,
        }
    }
}
