//! The task snapshot, by the best means that this host allows.

use std::os::fd::BorrowedFd;

use super::{
    Sweep, Task, TasksError,
    clock::{Calibration, monotonic_ns},
    ebpf::Walk,
    proc::{self, ProcWalk},
    record::{self, Context},
    restart::RestartNames,
};
use crate::model::{Gap, Tier};

/// `/proc/self/ns/pid` in the initial PID namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Whether a scheduler written in eBPF replaces the fair class (6.12).
const SCHED_EXT: &str = "/sys/kernel/sched_ext/state";

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
    restart: RestartNames,
}

/// Opens the best source not above `most`, for these processes (the host's pids). Reading `/proc` always works.
pub fn open(pids: &[u32], most: Tier) -> Opened {
    let mut gaps = Vec::new();
    if most == Tier::Ebpf {
        match open_ebpf(pids) {
            Ok(ebpf) => {
                let without = ebpf.walk.without.iter();
                gaps.extend(without.map(|what| Gap::host("tasks", format!("this kernel gives {what}"))));
                return Opened {
                    source: TaskSource { backend: Backend::Ebpf(Box::new(ebpf)) },
                    tier: Tier::Ebpf,
                    gaps,
                };
            }
            Err(why) => gaps.push(Gap::host(
                "tasks",
                format!("no eBPF snapshot, so no off-CPU times, no mmap_lock state and slower sweeps: {why}"),
            )),
        }
    }
    let (tier, mut walk) = if most == Tier::Proc {
        (Tier::Proc, ProcWalk::new(false, false))
    } else {
        open_proc(pids, &mut gaps)
    };
    walk.watch(pids);
    Opened { source: TaskSource { backend: Backend::Proc(walk) }, tier, gaps }
}

fn open_ebpf(pids: &[u32]) -> Result<Ebpf, TasksError> {
    check_namespace()?;
    let mut walk = Walk::open(tracing::enabled!(tracing::Level::DEBUG))?;
    if std::fs::read(SCHED_EXT).is_ok_and(|state| state.starts_with(b"enabled")) {
        walk.times = false;
        walk.without
            .push("no off-CPU times (a sched_ext scheduler runs, which keeps no time of the last switch-in)");
    }
    walk.watch(pids)?;
    Ok(Ebpf { walk, clock: Calibration::default(), restart: RestartNames::default() })
}

/// The walk gives the host's ids, `/proc` gives those of its own namespace: they must be the same.
pub(super) fn check_namespace() -> Result<(), TasksError> {
    let namespace = std::fs::read_link("/proc/self/ns/pid").map_err(TasksError::Namespace)?;
    if namespace.as_os_str() == INITIAL_PID_NAMESPACE { Ok(()) } else { Err(TasksError::PidNamespace) }
}

fn open_proc(pids: &[u32], gaps: &mut Vec<Gap>) -> (Tier, ProcWalk) {
    let own = [std::process::id()];
    let mut syscalls = false;
    let mut stacks = false;
    for &pid in if pids.is_empty() { &own } else { pids } {
        let (syscall, stack) = proc::allowed(pid);
        match syscall {
            Ok(()) => syscalls = true,
            Err(why) if why.kind() == std::io::ErrorKind::NotFound && !exists(pid) => continue,
            Err(why) => gaps.push(Gap::process(
                "tasks",
                pid,
                format!("no system calls and no stacks of process {pid}: cannot read /proc/{pid}/syscall: {why}; it needs its user or CAP_SYS_PTRACE (and Yama's consent)"),
            )),
        }
        match stack {
            Ok(()) => stacks = true,
            Err(why) => gaps.push(Gap::process(
                "tasks",
                pid,
                format!("no kernel stacks of process {pid}: cannot read /proc/{pid}/stack: {why}; it needs CAP_SYS_ADMIN"),
            )),
        }
    }
    (if syscalls { Tier::Memory } else { Tier::Proc }, ProcWalk::new(syscalls, stacks))
}

fn exists(pid: u32) -> bool {
    std::fs::exists(format!("/proc/{pid}")).unwrap_or(false)
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

    /// The link of the memory walk ([`super::memory_walk`]), for a helper to inherit; `None` below tier `ebpf` and before
    /// kernel 5.18.
    pub fn memory_link(&self) -> Option<BorrowedFd<'_>> {
        match &self.backend {
            Backend::Ebpf(ebpf) => ebpf.walk.memory().ok(),
            Backend::Proc(_) => None,
        }
    }

    /// Lets the process `reader` (a helper) read the memory of `target` through the memory walk, in place of what it
    /// was granted before; it must not be reading at the moment.
    pub fn grant(&mut self, reader: u32, target: u32) -> Result<(), TasksError> {
        match &mut self.backend {
            Backend::Ebpf(ebpf) => ebpf.walk.grant(reader, target),
            Backend::Proc(_) => Err(TasksError::NoMemoryWalk),
        }
    }

    /// Takes that back, once `reader` is gone. There is room for 64 readers.
    pub fn revoke(&mut self, reader: u32) {
        if let Backend::Ebpf(ebpf) = &mut self.backend {
            ebpf.walk.revoke(reader);
        }
    }

    /// Looks at every thread of the wanted processes once. A process that is gone has no threads.
    pub fn sweep(&mut self) -> Result<Sweep, TasksError> {
        match &mut self.backend {
            Backend::Ebpf(ebpf) => ebpf.sweep(),
            Backend::Proc(walk) => {
                let at_ns = monotonic_ns();
                let tasks = walk.read();
                Ok(Sweep { at_ns, ended_ns: monotonic_ns(), tasks })
            }
        }
    }
}

impl Ebpf {
    fn sweep(&mut self) -> Result<Sweep, TasksError> {
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
        let mut context =
            Context { clock: times.then_some(&self.clock), ended_ns, restart: &mut self.restart };
        let mut tasks: Vec<Task> = views
            .iter()
            .filter(|view| watches_own || view.head.tgid != own_pid)
            .map(|view| record::task(view, &mut context))
            .collect();
        tasks.sort_unstable_by_key(|task| (task.pid, task.tid));
        Ok(Sweep { at_ns, ended_ns, tasks })
    }
}
