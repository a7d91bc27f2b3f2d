//! The `memory` and `proc` tiers: the same facts from `/proc`, thread by thread, without eBPF.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, ErrorKind},
    os::fd::AsFd,
    time::Duration,
};

use rustix::{
    fs::{Mode, OFlags, openat},
    io::Errno,
};

use super::{Fingerprint, Task, proc_text, restart};
use crate::{
    model::{Gap, MmapLock, TaskState},
    patience::Patience,
};

/// Largest `/proc` file that is read; longer ones are cut (only a kernel stack can come near it).
const MOST: usize = 16 << 10;

/// What the files of one thread may take: a hundred times what they do take. Nobody waits for it long: a process that hangs
/// in `execve` has one thread.
const PER_THREAD: Duration = Duration::from_millis(2);
/// The most that those of a process may take.
const PER_PROCESS: Duration = Duration::from_secs(2);

/// Reads threads from `/proc`.
#[derive(Debug, Default)]
pub(super) struct ProcWalk {
    watched: BTreeSet<u32>,
    files: Files,
    /// Processes that hang in `execve`: of them nothing is read that waits for it.
    held: BTreeSet<u32>,
    patience: Patience,
}

/// Which files to read, besides those that take no lock of a target.
#[derive(Clone, Copy, Debug, Default)]
struct Files {
    /// System calls and registers, which only the tier `memory` may read.
    syscalls: bool,
    /// Kernel stacks, until the kernel refuses one.
    stacks: bool,
}

impl ProcWalk {
    /// A walk that reads of system calls and kernel stacks what it is allowed to of one of these processes.
    pub(super) fn open(pids: &[u32], gaps: &mut Vec<Gap>) -> Self {
        let mut walk = Self::default();
        let own = [std::process::id()];
        for &pid in if pids.is_empty() { &own } else { pids } {
            match walk.patience.run(Duration::ZERO, move || allowed(pid)) {
                Ok((syscall, stack)) => {
                    walk.files.syscalls |= syscall.is_ok();
                    walk.files.stacks |= stack.is_ok();
                    gaps.extend(refused(pid, syscall, stack));
                }
                Err(late) => gaps.push(walk.hold(pid, &late.to_string())),
            }
        }
        // Of one that hangs it is not known what is allowed.
        walk.files.syscalls |= !walk.held.is_empty();
        walk.files.stacks |= !walk.held.is_empty();
        walk
    }

    /// Whether it reads more than states and counts.
    pub(super) fn reads_syscalls(&self) -> bool {
        self.files.syscalls
    }

    /// Replaces the set of wanted processes.
    pub(super) fn watch(&mut self, pids: &[u32]) {
        self.watched = pids.iter().copied().collect();
        self.held.retain(|pid| self.watched.contains(pid));
    }

    /// Every thread of the wanted processes, by pid and tid, and what could not be read. What is gone is left out.
    pub(super) fn read(&mut self) -> (Vec<Task>, Vec<Gap>) {
        let (mut tasks, mut gaps) = (Vec::new(), Vec::new());
        for pid in self.watched.clone() {
            let Ok(names) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
            let mut tids: Vec<u32> =
                names.flatten().filter_map(|name| name.file_name().to_str()?.parse().ok()).collect();
            tids.sort_unstable();
            tasks.extend(self.process(pid, tids, &mut gaps));
        }
        (tasks, gaps)
    }

    fn process(&mut self, pid: u32, tids: Vec<u32>, gaps: &mut Vec<Gap>) -> Vec<Task> {
        if (self.files.syscalls || self.files.stacks) && !self.held.contains(&pid) {
            let files = self.files;
            let more = PER_THREAD.saturating_mul(tids.len() as u32).min(PER_PROCESS);
            let asked = tids.clone();
            match self.patience.run(more, move || Reader::new(pid, files).threads(&asked)) {
                Ok((tasks, files)) => {
                    self.files.stacks &= files.stacks;
                    return tasks;
                }
                Err(late) => gaps.push(self.hold(pid, &late.to_string())),
            }
        }
        Reader::new(pid, Files::default()).threads(&tids).0
    }

    fn hold(&mut self, pid: u32, why: &str) -> Gap {
        self.held.insert(pid);
        let reason = format!(
            "no system calls, registers and kernel stacks of process {pid}: /proc/{pid}/syscall {why}"
        );
        Gap::process("tasks", pid, reason)
    }
}

/// Reads the files of one process's threads.
struct Reader {
    pid: u32,
    files: Files,
    buffer: Vec<u8>,
}

impl Reader {
    fn new(pid: u32, files: Files) -> Self {
        Self { pid, files, buffer: vec![0; MOST] }
    }

    /// The threads, and which files are still allowed.
    fn threads(mut self, tids: &[u32]) -> (Vec<Task>, Files) {
        let Ok(folder) = File::open(format!("/proc/{}/task", self.pid)) else {
            return (Vec::new(), self.files);
        };
        let tasks = tids.iter().filter_map(|&tid| self.thread(&folder, tid)).collect();
        (tasks, self.files)
    }

    fn thread(&mut self, folder: &File, tid: u32) -> Option<Task> {
        let comm = self.file(folder, tid, "comm").ok().map(proc_text::comm)?;
        let status = proc_text::status(self.file(folder, tid, "status").ok()?)?;
        let mut task = Task {
            pid: self.pid,
            tid,
            comm: comm.into(),
            state: status.state,
            mmap_lock: MmapLock::Unknown,
            ..Task::default()
        };
        task.fingerprint.switched_in = status.switches.unwrap_or_default();
        // Without the word of `syscall`, runnable and running cannot be told apart.
        task.on_cpu = task.state == TaskState::Running;
        if let Some(schedule) = self.file(folder, tid, "schedstat").ok().and_then(proc_text::schedstat) {
            task.fingerprint.cpu_ns = schedule.cpu_ns;
            task.fingerprint.switched_in = schedule.switched_in;
        }
        if self.files.stacks {
            match self.file(folder, tid, "stack") {
                Ok(text) => task.kernel_names = proc_text::stack(text),
                Err(Errno::ACCESS | Errno::PERM) => self.files.stacks = false,
                // The thread is gone.
                Err(_) => {}
            }
        }
        if self.files.syscalls
            && let Some(state) = self.file(folder, tid, "syscall").ok().and_then(proc_text::syscall)
        {
            task.on_cpu = state.running;
            task.registers = state.registers;
            task.syscall = state.syscall.map(|raw| restart::recover(raw, &task.kernel_names, None));
            let registers = task.registers.unwrap_or_default();
            task.fingerprint = Fingerprint { pc: registers.pc, sp: registers.sp, ..task.fingerprint };
        }
        Some(task)
    }

    fn file(&mut self, folder: &File, tid: u32, name: &str) -> Result<&[u8], Errno> {
        let path = format!("{tid}/{name}");
        let file = openat(folder.as_fd(), path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let length = rustix::io::read(&file, self.buffer.as_mut_slice())?;
        Ok(self.buffer.get(..length).unwrap_or_default())
    }
}

/// Whether this process may read the system calls, then the kernel stacks, of `pid`.
fn allowed(pid: u32) -> (io::Result<()>, io::Result<()>) {
    let try_file = |name: &str| fs::read(format!("/proc/{pid}/{name}")).map(drop);
    (try_file("syscall"), try_file("stack"))
}

/// What is not allowed of a process that is still there.
fn refused(pid: u32, syscall: io::Result<()>, stack: io::Result<()>) -> Vec<Gap> {
    let gone = |why: &io::Error| {
        why.kind() == ErrorKind::NotFound && !fs::exists(format!("/proc/{pid}")).unwrap_or(false)
    };
    if syscall.as_ref().is_err_and(gone) {
        return Vec::new();
    }
    let syscall = syscall.err().map(|why| {
        format!("no system calls and no stacks of process {pid}: cannot read /proc/{pid}/syscall: {why}; it needs its user or CAP_SYS_PTRACE (and Yama's consent)")
    });
    let stack = stack.err().map(|why| {
        format!(
            "no kernel stacks of process {pid}: cannot read /proc/{pid}/stack: {why}; it needs CAP_SYS_ADMIN"
        )
    });
    syscall.into_iter().chain(stack).map(|reason| Gap::process("tasks", pid, reason)).collect()
}
