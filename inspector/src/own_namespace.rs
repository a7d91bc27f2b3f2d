//! inspector's own PID namespace, and whether `/proc` shows that one: every id that is read there is passed on to system
//! calls, which take it in the caller's namespace.

use std::{fs, io};

/// `/proc/self/ns/pid` in the initial PID namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const INITIAL: &str = "pid:[4026531836]";

/// Whether inspector runs in the host's PID namespace.
pub(crate) fn is_hosts() -> io::Result<bool> {
    Ok(fs::read_link("/proc/self/ns/pid")?.as_os_str() == INITIAL)
}

/// Whether `/proc` shows the processes of our own PID namespace under the numbers that we know them by. A container may
/// have the host's `/proc` mounted and no part in the host's PID namespace.
pub(crate) fn is_shown_by_proc() -> io::Result<bool> {
    let status = fs::read_to_string("/proc/self/status")?;
    Ok(is_shown(&status, std::process::id()))
}

/// From the namespace of that `/proc` inwards, `NSpid` lists one number for each namespace.
fn is_shown(status: &str, own_pid: u32) -> bool {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    // Before Linux 4.1 there is no such line, nor anything else that inspector needs.
    numbers.is_none_or(|numbers| numbers.split_ascii_whitespace().eq([own_pid.to_string()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proc_of_an_outer_namespace_is_noticed() {
        assert!(is_shown("Name:\ta\nNSpid:\t71\nThreads:\t1\n", 71));
        assert!(!is_shown("NSpid:\t71\t2\n", 2));
        assert!(!is_shown("NSpid:\t71\n", 2));
        assert!(is_shown_by_proc().is_ok_and(|shown| shown));
    }
}
