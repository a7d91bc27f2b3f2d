//! The system calls that are probed.

use std::str::FromStr as _;

use inspector_ebpf::probe::{CALLS, class};
use syscalls::Sysno;

/// Each by name, with what the probes do about it. A name that this architecture or kernel does not have is left out.
///
/// `sendmmsg` and `recvmmsg` return messages, not bytes; `splice` and `tee` move bytes between two descriptors: they are
/// timed at most.
const PROBED: [(&str, u8); 30] = [
    ("futex", class::FUTEX),
    ("futex_wait", class::FUTEX_WAIT),
    ("futex_wake", class::FUTEX_WAKE),
    ("futex_waitv", class::SEVERAL),
    ("read", class::READ),
    ("readv", class::READ),
    ("recvfrom", class::RECEIVE),
    ("recvmsg", class::RECEIVE),
    ("recvmmsg", class::DESCRIPTOR),
    ("write", class::WRITE),
    ("writev", class::WRITE),
    ("sendto", class::SEND),
    ("sendmsg", class::SEND),
    ("sendfile", class::SEND),
    ("sendmmsg", class::DESCRIPTOR),
    ("splice", class::DESCRIPTOR),
    ("tee", class::DESCRIPTOR),
    ("poll", class::POLL),
    ("ppoll", class::POLL),
    ("select", class::SEVERAL),
    ("pselect6", class::SEVERAL),
    ("epoll_wait", class::DESCRIPTOR),
    ("epoll_pwait", class::DESCRIPTOR),
    ("epoll_pwait2", class::DESCRIPTOR),
    ("connect", class::DESCRIPTOR),
    ("accept", class::DESCRIPTOR),
    ("accept4", class::DESCRIPTOR),
    ("flock", class::DESCRIPTOR),
    ("io_uring_enter", class::DESCRIPTOR),
    ("restart_syscall", class::RESTART),
];

/// Calls whose kernel function goes by another name: the one without the time's width (`kernel/sys_ni.c`,
/// `arch/*/entry/syscalls/`).
const SENDFILE: (&str, &str) = ("sendfile", "sendfile64");

/// The prefix of the functions that the calls enter the kernel by, `regs` their only argument.
const PREFIX: &str = if cfg!(target_arch = "aarch64") { "__arm64_sys_" } else { "__x64_sys_" };

/// By the number of the call: what to do about it.
pub(super) fn classes() -> [u8; CALLS] {
    let mut table = [class::NONE; CALLS];
    for (name, class) in PROBED {
        let Ok(number) = Sysno::from_str(name) else { continue };
        if let Some(entry) = table.get_mut(number.id().unsigned_abs() as usize) {
            *entry = class;
        }
    }
    table
}

/// The kernel's functions for them.
pub(super) fn functions() -> Vec<String> {
    let name = |name: &str| if name == SENDFILE.0 { SENDFILE.1.to_owned() } else { name.to_owned() };
    PROBED.iter().map(|&(call, _)| format!("{PREFIX}{}", name(call))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_architecture_has_most_of_them() {
        let table = classes();
        assert_eq!(table[Sysno::futex as usize], class::FUTEX);
        assert_eq!(table[Sysno::read as usize], class::READ);
        assert_eq!(table[Sysno::getpid as usize], class::NONE);
        // arm64 has no poll, select and epoll_wait.
        let probed = table.iter().filter(|&&class| class != class::NONE).count();
        assert!(probed >= PROBED.len() - 5, "{probed}");
    }

    #[test]
    fn the_kernel_knows_their_functions() {
        let types = super::super::btf::Btf::of_running_kernel().unwrap();
        let functions = functions();
        let names: Vec<&str> = functions.iter().map(String::as_str).collect();
        let known = types.attachable(&names, &[]);
        assert!(known.len() >= PROBED.len() - 5, "{known:?}");
    }
}
