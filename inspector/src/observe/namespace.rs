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
            Some((tid, innermost(&fs::read(task.path().join("status")).ok()?)?))
        })
        .collect()
}

/// The last id of the line `NSpid`. The line `Name` before it need not be UTF-8: a name is cut after 15 bytes, in the
/// middle of a character too.
fn innermost(status: &[u8]) -> Option<u32> {
    let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"NSpid:"))?;
    std::str::from_utf8(line).ok()?.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::innermost;

    #[test]
    fn a_name_cut_inside_a_character_costs_no_id() {
        assert_eq!(innermost(b"Name:\tcaf\xc3\nTgid:\t71\nNSpid:\t72\t9\t2\nThreads:\t3\n"), Some(2));
        assert_eq!(innermost(b"Name:\tNSpid:\n"), None);
    }
}
