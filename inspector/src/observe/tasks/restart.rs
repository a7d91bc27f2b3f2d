//! The system call behind `restart_syscall`.
//!
//! After a stop and a continue, a timed wait goes on as `restart_syscall`; its argument registers are the original
//! call's. Which call that was, the function tells that goes on with it: it is on the kernel stack, or (for those that
//! do not clear it) in `restart_block.fn`.

use crate::model::Syscall;

/// `restart_syscall`'s own number.
pub(super) const RESTART: u32 = syscalls::Sysno::restart_syscall as u32;

/// The functions that go on with a call (those that set `restart_block.fn`, kernel 5.15 to 6.18), and the call.
const FUNCTIONS: [(&str, Call); 5] = [
    ("futex_wait_restart", Call::Futex),
    ("do_restart_poll", Call::Poll),
    ("hrtimer_nanosleep_restart", Call::Nanosleep),
    ("posix_cpu_nsleep_restart", Call::ClockNanosleep),
    ("alarm_timer_nsleep_restart", Call::ClockNanosleep),
];

/// Functions of a system call's entry, x86-64 and arm64: what they call does the work.
const ENTRIES: [&str; 3] = ["do_syscall_64", "sys_restart_syscall", "invoke_syscall"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Futex,
    Poll,
    Nanosleep,
    ClockNanosleep,
}

/// The call that the thread is really in, by the names of the functions on its kernel stack. Unchanged, but marked, if
/// it cannot be told.
///
/// `block`: the function in `restart_block.fn`, where it is known.
pub(super) fn recover(raw: Syscall, kernel_names: &[String], block: Option<&str>) -> Syscall {
    if raw.number != RESTART {
        return raw;
    }
    // The stack first: a wait clears or leaves stale what `restart_block.fn` says.
    let call = kernel_names.iter().find_map(|name| call_of(name)).or_else(|| call_of(block?));
    // `/proc/PID/stack` leaves scheduling functions out, and of the five only the sleep is one (`__sched`): a stack of
    // the system call's entry alone is a sleep.
    let entry = kernel_names.first().is_some_and(|name| ENTRIES.iter().any(|entry| name.contains(entry)));
    let call = call.or(entry.then_some(Call::Nanosleep));
    Syscall { number: call.map_or(RESTART, |call| number(call, raw.arguments)), restarted: true, ..raw }
}

/// By a function's name, as `/proc/PID/stack` has it with its offset or alone.
fn call_of(name: &str) -> Option<Call> {
    let name = name.split('+').next()?;
    FUNCTIONS.iter().find(|(function, _)| *function == name).map(|&(_, call)| call)
}

fn number(call: Call, arguments: [u64; 6]) -> u32 {
    use syscalls::Sysno;
    let number = match call {
        Call::Futex => Sysno::futex,
        // arm64 has no poll: its C library calls ppoll, which never restarts this way.
        #[cfg(target_arch = "x86_64")]
        Call::Poll => Sysno::poll,
        #[cfg(not(target_arch = "x86_64"))]
        Call::Poll => Sysno::ppoll,
        // Both calls go on in one function. The first argument is a pointer in one, a clock's number in the other.
        Call::Nanosleep if arguments.first().is_some_and(|first| (4096..1 << 63).contains(first)) => {
            Sysno::nanosleep
        }
        Call::Nanosleep | Call::ClockNanosleep => Sysno::clock_nanosleep,
    };
    number as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_call_on_the_stack_and_in_the_block() {
        use syscalls::Sysno;
        let raw = Syscall { number: RESTART, arguments: [0; 6], restarted: false };
        let recovered = |stack: &[&str], block| {
            let stack: Vec<String> = stack.iter().map(|&name| name.to_owned()).collect();
            recover(raw, &stack, block).number
        };
        assert_eq!(recovered(&["futex_do_wait", "futex_wait_restart"], None), Sysno::futex as u32);
        assert_eq!(recovered(&["futex_wait_restart+0x3/0x10"], Some("do_restart_poll")), Sysno::futex as u32);
        assert_eq!(recovered(&["schedule"], Some("futex_wait_restart")), Sysno::futex as u32);
        assert_eq!(recovered(&["do_syscall_64+0x1/0x2"], None), Sysno::clock_nanosleep as u32);
        assert_eq!(recovered(&["schedule"], Some("futex_wait")), RESTART);
        assert!(recover(raw, &[], None).restarted, "it is marked all the same");
    }

    #[test]
    fn sleeps_are_told_apart_by_their_first_argument() {
        use syscalls::Sysno;
        assert_eq!(number(Call::Nanosleep, [0x7fff_0000_1000, 0, 0, 0, 0, 0]), Sysno::nanosleep as u32);
        assert_eq!(number(Call::Nanosleep, [1, 0, 0, 0, 0, 0]), Sysno::clock_nanosleep as u32);
    }
}
