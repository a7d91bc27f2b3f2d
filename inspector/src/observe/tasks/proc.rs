//! The `memory` and `proc` tiers: the same facts from `/proc`, thread by thread, without eBPF.

use std::{collections::BTreeSet, fs::File, io, os::fd::AsFd};

use rustix::{
    fs::{Mode, OFlags, openat},
    io::Errno,
};

use super::{Fingerprint, Task, proc_text, restart};
use crate::model::{MmapLock, TaskState};

/// Largest `/proc` file that is read; longer ones are cut (only a kernel stack can come near it).
const MOST: usize = 16 << 10;

/// Reads threads from `/proc`.
#[derive(Debug)]
pub(super) struct ProcWalk {
    watched: BTreeSet<u32>,
    /// Read what only the tier `memory` may: system calls and registers.
    syscalls: bool,
    /// Read kernel stacks, until the kernel refuses one.
    stacks: bool,
    buffer: Vec<u8>,
}

impl ProcWalk {
    /// A walk that reads system calls, and kernel stacks, only where told to.
    pub(super) fn new(syscalls: bool, stacks: bool) -> Self {
        Self { watched: BTreeSet::new(), syscalls, stacks, buffer: vec![0; MOST] }
    }

    /// Replaces the set of wanted processes.
    pub(super) fn watch(&mut self, pids: &[u32]) {
        self.watched = pids.iter().copied().collect();
    }

    /// Every thread of the wanted processes, by pid and tid. What is gone is left out.
    ///
    /// Reading a system call or a kernel stack waits for an `execve` of that very process that is under way.
    pub(super) fn read(&mut self) -> Vec<Task> {
        let mut tasks = Vec::new();
        for pid in self.watched.clone() {
            let path = format!("/proc/{pid}/task");
            let Ok(names) = std::fs::read_dir(&path) else { continue };
            let Ok(folder) = File::open(&path) else { continue };
            let mut tids: Vec<u32> =
                names.flatten().filter_map(|name| name.file_name().to_str()?.parse().ok()).collect();
            tids.sort_unstable();
            tasks.extend(tids.into_iter().filter_map(|tid| self.thread(&folder, pid, tid)));
        }
        tasks
    }

    fn thread(&mut self, folder: &File, pid: u32, tid: u32) -> Option<Task> {
        let stat = proc_text::stat(self.file(folder, tid, "stat").ok()?)?;
        let mut task = Task {
            pid,
            tid,
            comm: stat.comm,
            state: stat.state,
            mmap_lock: MmapLock::Unknown,
            ..Task::default()
        };
        // Without the word of `syscall`, runnable and running cannot be told apart.
        task.on_cpu = task.state == TaskState::Running;
        if let Some(schedule) = self.file(folder, tid, "schedstat").ok().and_then(proc_text::schedstat) {
            task.fingerprint.cpu_ns = schedule.cpu_ns;
            task.fingerprint.switched_in = schedule.switched_in;
        } else if let Some(switches) = self.file(folder, tid, "status").ok().and_then(proc_text::switches) {
            task.fingerprint.switched_in = switches;
        }
        if self.stacks {
            match self.file(folder, tid, "stack") {
                Ok(text) => task.kernel_names = proc_text::stack(text),
                Err(Errno::ACCESS | Errno::PERM) => self.stacks = false,
                // The thread is gone.
                Err(_) => {}
            }
        }
        if self.syscalls
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
pub(super) fn allowed(pid: u32) -> (io::Result<()>, io::Result<()>) {
    let try_file = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).map(drop);
    (try_file("syscall"), try_file("stack"))
}
