//! The task snapshot, by the best means that this host allows.

use std::{
    collections::HashMap,
    sync::Arc,
    thread::{self, JoinHandle},
};

use inspector_ebpf::UNCHANGED;

use super::{
    Sweep, Task, TasksError,
    clock::{Calibration, monotonic_ns},
    ebpf::Walk,
    memory_walk::Grants,
    proc::ProcWalk,
    record::{self, Context},
    restart,
    told::{Known, Told},
};
use crate::{
    model::{Gap, Tier},
    own_namespace,
};

/// Whether a scheduler written in eBPF replaces the fair class (6.12).
const SCHED_EXT: &str = "/sys/kernel/sched_ext/state";

/// What was found to work.
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
    backend: Backend,
}

#[derive(Debug)]
enum Backend {
    Ebpf(Box<Ebpf>),
    Proc(ProcWalk),
}

#[derive(Debug)]
struct Ebpf {
    walk: Walk,
    clock: Calibration,
    told: Told,
}

/// A snapshot that is being made ready.
///
/// Reading the kernel's types and loading the programs takes tens of milliseconds, whoever is to be observed: it is
/// done beside the search for them.
#[derive(Debug)]
pub struct Opening {
    most: Tier,
    ebpf: Option<JoinHandle<Result<Ebpf, TasksError>>>,
}

impl Opening {
    /// Starts to open the best source not above `most`.
    pub fn start(most: Tier) -> Self {
        // Without a thread there is none to wait for, and it is opened in the end.
        let opening = || thread::Builder::new().name("ebpf".into()).spawn(open_ebpf).ok();
        Self { most, ebpf: (most == Tier::Ebpf).then(opening).flatten() }
    }

    /// The source, for these processes (the host's pids). Reading `/proc` always works.
    pub fn finish(self, pids: &[u32]) -> Opened {
        let mut gaps = Vec::new();
        if self.most == Tier::Ebpf {
            let opened = self.ebpf.map_or_else(open_ebpf, |thread| {
                thread.join().unwrap_or_else(|_| Err(TasksError::Load("loading it panicked".into())))
            });
            let watched = opened.and_then(|mut ebpf| ebpf.walk.watch(pids).map(|()| ebpf));
            match watched {
                Ok(ebpf) => {
                    let without = ebpf.walk.without.iter();
                    gaps.extend(without.map(|what| Gap::host("tasks", format!("this kernel gives {what}"))));
                    let source = TaskSource { backend: Backend::Ebpf(Box::new(ebpf)) };
                    return Opened { source, tier: Tier::Ebpf, gaps };
                }
                Err(why) => gaps.push(Gap::host(
                    "tasks",
                    format!(
                        "no eBPF snapshot, so no off-CPU times, no mmap_lock state and slower sweeps: {why}"
                    ),
                )),
            }
        }
        let (tier, mut walk) = if self.most == Tier::Proc {
            (Tier::Proc, ProcWalk::default())
        } else {
            let walk = ProcWalk::open(pids, &mut gaps);
            (if walk.reads_syscalls() { Tier::Memory } else { Tier::Proc }, walk)
        };
        walk.watch(pids);
        Opened { source: TaskSource { backend: Backend::Proc(walk) }, tier, gaps }
    }
}

/// Opens the best source not above `most`, for these processes (the host's pids).
pub fn open(pids: &[u32], most: Tier) -> Opened {
    Opening::start(most).finish(pids)
}

fn open_ebpf() -> Result<Ebpf, TasksError> {
    check_namespace()?;
    let mut walk = Walk::open(tracing::enabled!(tracing::Level::DEBUG))?;
    if std::fs::read(SCHED_EXT).is_ok_and(|state| state.starts_with(b"enabled")) {
        walk.times = false;
        walk.without
            .push("no off-CPU times (a sched_ext scheduler runs, which keeps no time of the last switch-in)");
    }
    Ok(Ebpf { walk, clock: Calibration::default(), told: Told::default() })
}

/// The walk gives the host's ids, `/proc` gives those of its own namespace: they must be the same.
pub(super) fn check_namespace() -> Result<(), TasksError> {
    let hosts = own_namespace::is_hosts().map_err(TasksError::Namespace)?;
    if hosts { Ok(()) } else { Err(TasksError::PidNamespace) }
}

impl TaskSource {
    /// Replaces the set of wanted processes.
    pub fn watch(&mut self, pids: &[u32]) -> Result<(), TasksError> {
        match &mut self.backend {
            Backend::Ebpf(ebpf) => ebpf.walk.watch(pids),
            Backend::Proc(walk) => {
                walk.watch(pids);
                Ok(())
            }
        }
    }

    /// The memory walk; `None` below tier `ebpf` and before kernel 5.18.
    pub fn memory_walk(&self) -> Option<Arc<Grants>> {
        match &self.backend {
            Backend::Ebpf(ebpf) => ebpf.walk.memory().ok().cloned(),
            Backend::Proc(_) => None,
        }
    }

    /// The kernel's functions that hold `addresses`, where it knows one.
    pub fn kernel_names(&mut self, addresses: &[u64]) -> Result<HashMap<u64, String>, TasksError> {
        match &mut self.backend {
            Backend::Ebpf(ebpf) => ebpf.walk.kernel_names(addresses),
            // It gives names, and no addresses to ask about.
            Backend::Proc(_) => Ok(HashMap::new()),
        }
    }

    /// Makes the next sweep ask for all of every thread; without it, one that has not run is asked what it can change while
    /// it rests, and the rest is what was seen before.
    pub fn forget(&mut self) -> Result<(), TasksError> {
        match &mut self.backend {
            Backend::Ebpf(ebpf) => ebpf.walk.forget(),
            Backend::Proc(_) => Ok(()),
        }
    }

    /// Looks at every thread of the wanted processes once. A process that is gone has no threads.
    pub fn sweep(&mut self) -> Result<Sweep, TasksError> {
        match &mut self.backend {
            Backend::Ebpf(ebpf) => ebpf.sweep(),
            Backend::Proc(walk) => {
                let at_ns = monotonic_ns();
                let (tasks, gaps) = walk.read();
                Ok(Sweep { at_ns, ended_ns: monotonic_ns(), tasks, gaps })
            }
        }
    }
}

impl Ebpf {
    fn sweep(&mut self) -> Result<Sweep, TasksError> {
        let swept = self.sweep_once();
        // A walk that could not be used to its end has told of threads that nobody has heard of.
        match swept {
            Ok(Some(sweep)) => Ok(sweep),
            other => {
                self.told = Told::default();
                self.walk.forget()?;
                other.and_then(|_| self.sweep_once())?.ok_or(TasksError::Incomplete)
            }
        }
    }

    /// One walk; `None`: it says of a thread that it rests since it was told of, and nothing is known of it.
    fn sweep_once(&mut self) -> Result<Option<Sweep>, TasksError> {
        self.clock.wake();
        let own_pid = std::process::id();
        let own_tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let watches_own = self.walk.watches(own_pid);
        let times = self.walk.times;
        let at_ns = monotonic_ns();
        let stream = self.walk.read()?;
        let ended_ns = monotonic_ns();
        let views =
            inspector_ebpf::decode(stream).collect::<Result<Vec<_>, _>>().map_err(TasksError::Decode)?;
        if let Some(view) = views.iter().find(|view| view.head.pid == own_tid) {
            let head = &view.head;
            self.clock.own_arrival(head.at_ns, head.last_arrival, head.nvcsw.saturating_add(head.nivcsw));
        }
        let context = Context { clock: times.then_some(&self.clock), ended_ns };
        let mut told = self.told.next();
        for view in &views {
            let head = &view.head;
            let known = if head.present & UNCHANGED == 0 {
                Known { task: record::task(view, &context), restart_fn: head.restart_fn }
            } else {
                let Some(mut known) = told.last(head.tgid, head.pid) else { return Ok(None) };
                record::rests(&mut known.task, head, &context);
                known
            };
            told.tell(known);
        }
        self.told = told.done();
        let wanted = |task: &&Task| watches_own || task.pid != own_pid;
        let mut tasks: Vec<Task> = self.told.tasks().filter(wanted).cloned().collect();
        tasks.sort_unstable_by_key(|task| (task.pid, task.tid));
        self.recover_restarted(&mut tasks);
        Ok(Some(Sweep { at_ns, ended_ns, tasks, gaps: Vec::new() }))
    }

    /// Looks behind `restart_syscall`.
    fn recover_restarted(&mut self, tasks: &mut [Task]) {
        let mut blocks = None;
        for task in tasks {
            let Some(raw) = task.syscall.filter(|raw| raw.number == restart::RESTART) else { continue };
            let blocks = blocks.get_or_insert_with(|| self.told.restart_fns());
            let block = blocks.get(&task.tid).copied().unwrap_or(0);
            // A pointer to a function is its first byte, a return address the one behind a call.
            let addresses: Vec<u64> =
                task.kernel_stack.iter().map(|frame| frame.wrapping_sub(1)).chain([block]).collect();
            // Without names the call stays unknown, as it does where the kernel has no such function.
            let names = self.walk.kernel_names(&addresses).unwrap_or_default();
            let (block, stack) = addresses.split_last().unwrap_or((&0, &[]));
            let stack: Vec<String> = stack.iter().filter_map(|frame| names.get(frame).cloned()).collect();
            task.syscall = Some(restart::recover(raw, &stack, names.get(block).map(String::as_str)));
        }
    }
}
