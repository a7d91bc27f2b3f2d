//! Thread ids as the threads themselves know them.

use std::{collections::HashMap, fs};

use crate::model::Process;

/// For threads of a process in a PID namespace of its own: from the host's tid to the innermost one (`NSpid` of
/// `/proc/PID/task/TID/status`, Linux 4.1). Empty for a process in ours, whose ids are the host's.
pub(super) fn ns_tids(process: &Process) -> HashMap<u32, u32> {
    if process.ns_pids.len() < 2 {
        return HashMap::new();
    }
    let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", process.pid)) else { return HashMap::new() };
    tasks
        .flatten()
        .filter_map(|task| {
            let tid: u32 = task.file_name().to_str()?.parse().ok()?;
            let status = fs::read_to_string(task.path().join("status")).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
            Some((tid, line.split_whitespace().last()?.parse().ok()?))
        })
        .collect()
}
