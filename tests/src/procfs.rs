//! What the kernel says about a thread, to know that a fixture really blocks before inspector looks.

use std::fs;

use anyhow::Result;

use crate::eventually;

/// Thread ids of a process, ascending; empty when it is gone.
pub fn tids(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut tids: Vec<u32> = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    tids.sort_unstable();
    tids
}

/// State letter of a thread, as in `/proc/PID/task/TID/stat`.
pub fn state(pid: u32, tid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Number of the system call that a thread is blocked in.
pub fn syscall(pid: u32, tid: u32) -> Option<u64> {
    fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?.split(' ').next()?.parse().ok()
}

/// `comm` of a thread.
pub fn comm(pid: u32, tid: u32) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).ok()?.trim_end_matches('\n').to_owned())
}

/// Voluntary switches of a thread.
pub fn voluntary_switches(pid: u32, tid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse().ok()
}

/// The numbers in a line of a thread's `status`.
pub fn status_numbers(pid: u32, tid: u32, key: &str) -> Option<Vec<u64>> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.split_whitespace().map(|number| number.parse().ok()).collect()
}

/// Waits until a thread sleeps and stays in the same wait for 50 ms.
pub fn wait_blocked(pid: u32, tid: u32) -> Result<()> {
    wait_all_blocked(&[(pid, tid)])
}

/// Waits until all these threads, by pid and tid, sleep and stay in the same waits for 50 ms.
pub fn wait_all_blocked(threads: &[(u32, u32)]) -> Result<()> {
    let asleep = |&(pid, tid): &(u32, u32)| {
        let switches = voluntary_switches(pid, tid)?;
        matches!(state(pid, tid)?, 'S' | 'D').then_some(switches)
    };
    eventually(&format!("threads block: {threads:?}"), || {
        let before: Vec<u64> = threads.iter().map(asleep).collect::<Option<_>>()?;
        std::thread::sleep(std::time::Duration::from_millis(50));
        let after: Vec<u64> = threads.iter().map(asleep).collect::<Option<_>>()?;
        (before == after).then_some(())
    })
}

/// Waits until a thread is in one of the states whose letters are given.
pub fn wait_state(pid: u32, tid: u32, states: &str) -> Result<()> {
    eventually(&format!("thread {tid} of process {pid} is in state {states}"), || {
        state(pid, tid).filter(|state| states.contains(*state)).map(|_| ())
    })
}
