//! Processes to workers: engine, role, rank, GPUs, ports, parent, start time.
//!
//! Everything is read from `/proc`. What a target can hold up there (its `mmap_lock`, an `execve` that hangs) is read by
//! [`patient`], under a deadline. A process that hangs in `execve` is described by what `status` alone tells.

pub(crate) mod cgroup;
mod container;
mod hostname;
mod listening;
mod patient;
mod stat;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
};

use rustix::time::{ClockId, clock_gettime};

pub use listening::listening;

use self::{
    cgroup::Cgroup,
    hostname::Hostnames,
    patient::{Links, Patient},
    stat::Basics,
};
use crate::{
    knowledge::{File, Knowledge, ProcessRule, Sets, rank},
    model::{Container, Gap, Process, Worker},
    own_namespace,
};

/// Most ancestors looked at for flags.
const MAX_ANCESTORS: usize = 8;

/// Most descriptors looked at for GPU devices in one process.
const MAX_FDS: usize = 1 << 14;

/// Whom to look for.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// These processes and no others; empty: every worker of a known engine.
    pub pids: Vec<u32>,
    /// Plain Python programs too (without `pids`).
    pub all_python: bool,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// The processes, by pid; their threads, descriptors, sockets and runtimes are left for `observe`.
    pub processes: Vec<Process>,
    /// Those of them that hang in `execve`: of what `/proc` tells of them, much does not come.
    pub held: BTreeSet<u32>,
    /// What could not be read.
    pub gaps: Vec<Gap>,
}

/// Why there is nothing to look at.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// A named pid does not exist.
    #[error(
        "no process has the pid {0}: it has ended, or it is the pid of another PID namespace (`ps` lists the host's)"
    )]
    NoSuchProcess(u32),
    /// A named pid is a thread.
    #[error("{tid} is a thread of process {pid}, not a process: use --pid {pid}")]
    IsThread {
        /// What was named.
        tid: u32,
        /// Its process.
        pid: u32,
    },
    /// A named pid is a kernel thread.
    #[error(
        "pid {pid} ({comm}) is a kernel thread: it has no user stack, no descriptors and nothing to wait on that could be told"
    )]
    KernelThread {
        /// What was named.
        pid: u32,
        /// Its name.
        comm: String,
    },
    /// `/proc` shows another PID namespace than ours.
    #[error(
        "/proc shows another PID namespace than the one that inspector runs in: its numbers mean other processes here; run inspector in the host's PID namespace (hostPID: true, --pid=host), or mount a /proc of its own"
    )]
    OtherProc,
    /// `/proc` could not be listed.
    #[error("cannot list /proc: {0}; mount it, or run where it is mounted")]
    Proc(io::Error),
}

/// Finds the processes of a scope.
pub fn discover(knowledge: &Knowledge, scope: &Scope) -> Result<Discovery, DiscoverError> {
    if own_namespace::is_shown_by_proc().is_ok_and(|shown| !shown) {
        return Err(DiscoverError::OtherProc);
    }
    let mut finder = Finder::new(knowledge);
    if scope.pids.is_empty() {
        finder.everything(scope.all_python)?;
    } else {
        finder.named(&scope.pids)?;
    }
    Ok(finder.finish(scope))
}

/// What is known of a process while the search goes on.
#[derive(Clone, Debug)]
struct Candidate {
    basics: Basics,
    arguments: Vec<String>,
    /// It hangs in `execve`.
    held: bool,
}

struct Finder<'k> {
    knowledge: &'k Knowledge,
    patient: Patient,
    /// Every process looked at, ancestors included; `None`: it is gone.
    seen: BTreeMap<u32, Option<Candidate>>,
    wanted: BTreeSet<u32>,
    /// Those that hang in `execve`.
    held: BTreeSet<u32>,
    gaps: Vec<Gap>,
}

impl<'k> Finder<'k> {
    fn new(knowledge: &'k Knowledge) -> Self {
        Self {
            knowledge,
            patient: Patient::default(),
            seen: BTreeMap::new(),
            wanted: BTreeSet::new(),
            held: BTreeSet::new(),
            gaps: Vec::new(),
        }
    }

    /// Exactly these, whatever they are.
    fn named(&mut self, pids: &[u32]) -> Result<(), DiscoverError> {
        for &pid in pids {
            let basics = self.basics(pid).0.ok_or(DiscoverError::NoSuchProcess(pid))?;
            if basics.tgid != pid {
                return Err(DiscoverError::IsThread { tid: pid, pid: basics.tgid });
            }
            if basics.kernel_thread {
                return Err(DiscoverError::KernelThread { pid, comm: basics.comm });
            }
            if self.candidate(pid).is_none() {
                return Err(DiscoverError::NoSuchProcess(pid));
            }
            self.wanted.insert(pid);
        }
        Ok(())
    }

    /// Every process that a rule recognises.
    fn everything(&mut self, plain: bool) -> Result<(), DiscoverError> {
        let own = std::process::id();
        let entries = fs::read_dir("/proc").map_err(DiscoverError::Proc)?;
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        for pid in pids.filter(|&pid| pid != own) {
            let knowledge = self.knowledge;
            let Some(candidate) = self.candidate(pid) else { continue };
            let rule = knowledge.process_rule(&candidate.arguments, &candidate.basics.comm);
            if rule.is_some_and(|(_, rule)| plain || !rule.plain) {
                self.wanted.insert(pid);
            }
        }
        Ok(())
    }

    /// Reads a process once; `None` for kernel threads and those that are gone.
    fn candidate(&mut self, pid: u32) -> Option<&Candidate> {
        if !self.seen.contains_key(&pid) {
            let (basics, held) = self.basics(pid);
            let basics = basics.filter(|basics| !basics.kernel_thread && basics.tgid == pid);
            let candidate = basics.map(|basics| {
                let arguments = if held { Ok(Vec::new()) } else { self.patient.arguments(pid) };
                let arguments = arguments.unwrap_or_else(|reason| {
                    self.gaps.push(Gap::process("discover", pid, reason));
                    Vec::new()
                });
                Candidate { basics, arguments, held }
            });
            self.seen.insert(pid, candidate);
        }
        self.seen.get(&pid)?.as_ref()
    }

    /// The facts that cost nothing, and whether the process hangs in `execve`; `None`: it does not exist.
    fn basics(&mut self, pid: u32) -> (Option<Basics>, bool) {
        if self.held.contains(&pid) {
            return (Basics::during_exec(pid), true);
        }
        match self.patient.basics(pid) {
            Ok(basics) => (basics, false),
            Err(late) => {
                self.held.insert(pid);
                let reason = format!(
                    "/proc/{pid}/stat {late}; its program, arguments, age, namespaces and descriptors are not known, nor what is in its memory"
                );
                self.gaps.push(Gap::process("discover", pid, reason));
                (Basics::during_exec(pid), true)
            }
        }
    }

    fn finish(mut self, scope: &Scope) -> Discovery {
        let mut cgroups = cgroup::of(self.wanted.iter().copied());
        let mut hostnames = Hostnames::new();
        let boot = boot_unix_ns();
        let mut processes = Vec::new();
        for pid in self.wanted.clone() {
            if let Some(process) = self.describe(pid, cgroups.remove(&pid), &mut hostnames, boot) {
                processes.push(process);
            } else {
                self.gaps.push(Gap::process("discover", pid, "the process ended while it was looked at"));
            }
        }
        if !own_namespace::is_hosts().unwrap_or(true) {
            let reason = "inspector runs in a PID namespace of its own: processes outside of it are not seen, as workers or as \
                          the other end of anything, and ids are that namespace's";
            self.gaps.push(Gap::host("discover", reason));
        }
        if processes.is_empty() && scope.pids.is_empty() {
            let what = if scope.all_python { "no Python program and no worker" } else { "no worker" };
            let hosts = own_namespace::is_hosts().unwrap_or(true);
            let place = if hosts { "on this host" } else { "in inspector's own PID namespace" };
            let hint = if scope.all_python {
                ""
            } else {
                "; --all takes plain Python programs too, --pid any process"
            };
            self.gaps.push(Gap::host("discover", format!("{what} of a known engine runs {place}{hint}")));
        }
        // Of those that are not wanted nobody needs to know.
        let wanted = &self.wanted;
        let (unwanted, mut gaps): (Vec<Gap>, Vec<Gap>) =
            self.gaps.drain(..).partition(|gap| gap.pid.is_some_and(|pid| !wanted.contains(&pid)));
        if !unwanted.is_empty() {
            let reason = "could not be read in time or at all and were told apart by name only; one that is a worker under another name is missing here";
            gaps.push(Gap::host(
                "discover",
                format!("the arguments of {} more processes {reason}", unwanted.len()),
            ));
        }
        let held =
            processes.iter().map(|process| process.pid).filter(|pid| self.held.contains(pid)).collect();
        Discovery { processes, held, gaps }
    }

    fn describe(
        &mut self,
        pid: u32,
        cgroup: Option<Cgroup>,
        hostnames: &mut Hostnames,
        boot_ns: u64,
    ) -> Option<Process> {
        let Candidate { basics, arguments, held } = self.candidate(pid)?.clone();
        let environment =
            if held { Ok(BTreeMap::new()) } else { self.patient.environment(pid, self.knowledge) };
        let environment = environment.unwrap_or_else(|reason| {
            self.gaps.push(Gap::process("discover", pid, reason));
            BTreeMap::new()
        });
        let links = if held { Ok(Links::default()) } else { self.patient.links(pid) };
        let links = links.unwrap_or_else(|late| {
            let reason =
                format!("the links of /proc/{pid} could not be followed: the first that hangs {late}");
            self.gaps.push(Gap::process("discover", pid, reason));
            Links::default()
        });
        let worker = self.worker(pid, &environment, &links.gpus);
        // Read once more after everything else: the pid must still be that of the process we looked at.
        let (now, held_now) = self.basics(pid);
        let now = now.filter(|now| held_now || now.start_ticks == basics.start_ticks)?;
        // 0: not known.
        let start_unix_ns = if held_now { 0 } else { boot_ns.saturating_add(now.start_ns()) };
        let cgroup = cgroup.unwrap_or_default();
        let mut container = cgroup.container;
        let hostname = links.uts.as_ref().and_then(|uts| hostnames.other_than_hosts(uts));
        if hostname.is_some() {
            container.get_or_insert_with(Container::default).hostname = hostname;
        }
        Some(Process {
            pid,
            ns_pids: now.ns_pids,
            pid_ns: links.pid_ns,
            ppid: now.ppid,
            pgid: now.pgid,
            comm: now.comm,
            cmdline: arguments,
            exe: links.exe,
            state: now.state,
            start_unix_ns,
            uid: now.uid,
            tracer_pid: now.tracer_pid,
            cgroup: cgroup.path,
            container,
            frozen: cgroup.frozen,
            frozen_cgroups: cgroup.frozen_cgroups,
            net_ns: links.net_ns,
            environment,
            worker,
            thread_count: now.threads,
            ..Process::default()
        })
    }

    /// What a process does, by the first rule that matches; its flags are its own or those of the nearest ancestor
    /// that shows some (a title hides them).
    fn worker(
        &mut self,
        pid: u32,
        environment: &BTreeMap<String, String>,
        devices: &[u32],
    ) -> Option<Worker> {
        let knowledge = self.knowledge;
        let candidate = self.candidate(pid)?.clone();
        let (file, rule) = knowledge.process_rule(&candidate.arguments, &candidate.basics.comm)?;
        let flags = self.flags(&candidate, rule);
        // A process that was forked and has not taken a title yet still shows its parent's arguments.
        let parent = self.candidate(candidate.basics.ppid).cloned();
        let is_fork = !rule.plain
            && candidate.arguments.len() > 1
            && parent.is_some_and(|parent| parent.arguments == candidate.arguments);
        let mut worker = Worker {
            engine: file.name.clone(),
            kind: if is_fork { "child".into() } else { rule.kind.clone() },
            rank: rank(rule, &candidate.arguments),
            gpus: gpus(devices, environment),
            knowledge: file.name.clone(),
            ..Worker::default()
        };
        if let Some((flags_from, arguments, holder)) = flags {
            let variable = |name: &str| environment.get(name).cloned();
            let files: Vec<&File> = [Some(file), holder].into_iter().flatten().collect();
            let ask = |sets, role: Option<&str>| {
                files.iter().find_map(|file| file.setting(sets, &arguments, variable, role))
            };
            worker.role = ask(Sets::Role, None);
            worker.backend = ask(Sets::Backend, worker.role.as_deref());
            worker.flags_from = Some(flags_from);
        }
        Some(worker)
    }

    /// Whose arguments hold the flags of this process, the arguments, and the file that knows that process.
    fn flags(&mut self, of: &Candidate, rule: &ProcessRule) -> Option<(u32, Vec<String>, Option<&'k File>)> {
        if rule.plain || of.arguments.len() > 1 {
            return Some((of.basics.tgid, of.arguments.clone(), None));
        }
        let knowledge = self.knowledge;
        let mut pid = of.basics.ppid;
        for _ in 0..MAX_ANCESTORS {
            let ancestor = self.candidate(pid)?.clone();
            let known = knowledge.process_rule(&ancestor.arguments, &ancestor.basics.comm);
            if let Some((file, _)) = known.filter(|(_, rule)| !rule.plain && ancestor.arguments.len() > 1) {
                return Some((pid, ancestor.arguments, Some(file)));
            }
            pid = ancestor.basics.ppid;
        }
        None
    }
}

/// Indices of a process's GPUs: of the devices that it has open, else those that `CUDA_VISIBLE_DEVICES` lists by number.
fn gpus(devices: &[u32], environment: &BTreeMap<String, String>) -> Vec<u32> {
    let open: BTreeSet<u32> = devices.iter().copied().collect();
    if !open.is_empty() {
        return open.into_iter().collect();
    }
    let listed = environment.get("CUDA_VISIBLE_DEVICES").map(String::as_str).unwrap_or_default();
    listed.split(',').map_while(|index| index.trim().parse().ok()).take(256).collect()
}

/// When the host was started, nanoseconds since the epoch: `starttime` in `stat` counts from there.
fn boot_unix_ns() -> u64 {
    let now = |clock| {
        let time = clock_gettime(clock);
        (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
    };
    now(ClockId::Realtime).saturating_sub(now(ClockId::Boottime))
}
