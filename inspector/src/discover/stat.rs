//! What `/proc/PID/stat` and `status` say together. Who reads `stat` may have to wait for an `execve` that is under way;
//! `status` takes no lock of the target.

use std::{fs::File, io::Read};

use crate::{
    model::TaskState,
    proc_stat::{Stat, ticks_ns},
};

/// `status` has about 1.5 KiB; its longest lines (CPU and memory masks) bound it on the largest hosts.
const LIMIT: u64 = 64 << 10;

/// Most nested PID namespaces (`MAX_PID_NS_LEVEL`, `kernel/pid_namespace.c`).
const MAX_PID_NS_LEVEL: usize = 32;

/// The facts that cost nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Basics {
    pub(super) comm: String,
    pub(super) state: TaskState,
    pub(super) ppid: u32,
    pub(super) pgid: u32,
    pub(super) kernel_thread: bool,
    pub(super) start_ticks: u64,
    pub(super) tgid: u32,
    pub(super) ns_pids: Vec<u32>,
    pub(super) tracer_pid: u32,
    pub(super) uid: u32,
    pub(super) threads: u32,
}

impl Basics {
    /// Reads both files; `None`: no such process.
    pub(super) fn read(pid: u32) -> Option<Self> {
        Self::parse(&read(pid, "stat")?, &read(pid, "status")?)
    }

    /// What does not wait for an `execve` that hangs: everything but the start time.
    pub(super) fn during_exec(pid: u32) -> Option<Self> {
        let comm = read(pid, "comm")?.trim_end_matches('\n').to_owned();
        // Kernel threads run no programs.
        Self { comm, ..Self::default() }.with_status(&read(pid, "status")?)
    }

    fn parse(stat: &str, status: &str) -> Option<Self> {
        let Stat { comm, state, ppid, pgid, kernel_thread, start_ticks, .. } = Stat::parse(stat)?;
        Self { comm, state, ppid, pgid, kernel_thread, start_ticks, ..Self::default() }.with_status(status)
    }

    fn with_status(mut self, status: &str) -> Option<Self> {
        for line in status.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            let mut values = value.split_ascii_whitespace().map_while(|word| word.parse::<u32>().ok());
            match key {
                "State" => self.state = TaskState::from_letter(value.trim_start().chars().next()?),
                "PPid" => self.ppid = values.next()?,
                "Tgid" => self.tgid = values.next()?,
                "TracerPid" => self.tracer_pid = values.next()?,
                "Uid" => self.uid = values.next()?,
                "Threads" => self.threads = values.next()?,
                // From the host's PID namespace inwards.
                "NSpgid" => self.pgid = values.next()?,
                "NSpid" => self.ns_pids = values.take(MAX_PID_NS_LEVEL + 1).collect(),
                _ => {}
            }
        }
        Some(self)
    }

    /// When it was started, nanoseconds after boot.
    pub(super) fn start_ns(&self) -> u64 {
        ticks_ns(self.start_ticks)
    }
}

fn read(pid: u32, name: &str) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(format!("/proc/{pid}/{name}")).ok()?.take(LIMIT).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STATUS: &str = "Name:\ta\nTgid:\t7\nTracerPid:\t9\nUid:\t1\t2\t3\t4\nNSpid:\t7\t1\nThreads:\t3\n";

    #[test]
    fn a_comm_with_parentheses_and_spaces_is_read_whole() {
        let stat = "7 (a) (b R 1) T 5 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 3 0 4242 1 2\n";
        let basics = Basics::parse(stat, STATUS).unwrap();
        assert_eq!(basics.comm, "a) (b R 1");
        assert_eq!((basics.state, basics.ppid, basics.start_ticks), (TaskState::Stopped, 5, 4242));
        assert_eq!((basics.tgid, basics.tracer_pid, basics.uid, basics.threads), (7, 9, 1, 3));
        assert_eq!(basics.ns_pids, [7, 1]);
        assert!(!basics.kernel_thread);
    }

    #[test]
    fn our_own_process_is_read() {
        let own = Basics::read(std::process::id()).unwrap();
        assert_eq!(own.tgid, std::process::id());
        assert!(own.threads >= 1 && !own.kernel_thread);
        let status = Basics::during_exec(std::process::id()).unwrap();
        // Its state may differ: this thread's, or that of the test's main thread.
        assert_eq!(status, Basics { start_ticks: 0, state: status.state, threads: status.threads, ..own });
        assert_eq!(Basics::read(u32::MAX), None);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(stat in ".{0,200}", status in "(.{0,40}\n){0,5}") {
            let _ = Basics::parse(&stat, &status);
        }
    }
}
