//! The system call behind `restart_syscall`.
//!
//! After a stop and a continue, a timed wait goes on as `restart_syscall`; its argument registers are the original
//! call's. Which call that was, the function tells that goes on with it: it is on the kernel stack, or (for those that
//! do not clear it) in `restart_block.fn`.

use std::{fs::File, io::Read};

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

/// Where the functions are, looked up when the first thread needs them.
#[derive(Debug, Default)]
pub(super) struct RestartNames {
    ranges: Option<Vec<(u64, u64, Call)>>,
}

impl RestartNames {
    /// The call that the thread is really in. Unchanged, but marked, if it cannot be told.
    pub(super) fn recover(&mut self, raw: Syscall, restart_fn: u64, kernel_stack: &[u64]) -> Syscall {
        if raw.number != RESTART {
            return raw;
        }
        let ranges = self.ranges.get_or_insert_with(|| read_ranges().unwrap_or_default());
        let call = call_of(ranges, restart_fn, kernel_stack);
        Syscall { number: call.map_or(RESTART, |call| number(call, raw.arguments)), restarted: true, ..raw }
    }

    /// The same, by the names on a kernel stack (`/proc/PID/task/TID/stack`).
    pub(super) fn recover_by_name(raw: Syscall, kernel_names: &[String]) -> Syscall {
        if raw.number != RESTART {
            return raw;
        }
        let call = kernel_names.iter().find_map(|name| {
            let name = name.split('+').next()?;
            FUNCTIONS.iter().find(|(function, _)| *function == name).map(|&(_, call)| call)
        });
        // The kernel leaves scheduling functions out of this file, and of the five only the sleep is one
        // (`__sched`): a stack of the system call's entry alone is a sleep.
        let entry = kernel_names.first().is_some_and(|name| ENTRIES.iter().any(|entry| name.contains(entry)));
        let call = call.or(entry.then_some(Call::Nanosleep));
        Syscall { number: call.map_or(RESTART, |call| number(call, raw.arguments)), restarted: true, ..raw }
    }
}

fn call_of(ranges: &[(u64, u64, Call)], restart_fn: u64, kernel_stack: &[u64]) -> Option<Call> {
    let at = |address: u64| {
        ranges.iter().find(|&&(start, end, _)| (start..end).contains(&address)).map(|&(_, _, call)| call)
    };
    // The stack first: a wait clears or leaves stale what `restart_block.fn` says. Frames hold return addresses, which
    // may lie just behind a function that ends in a call.
    kernel_stack.iter().find_map(|&frame| at(frame.wrapping_sub(1))).or_else(|| at(restart_fn))
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

/// Reads the functions' address ranges from `/proc/kallsyms`. `None` where the kernel hides addresses
/// (`kptr_restrict`, no CAP_SYSLOG).
fn read_ranges() -> Option<Vec<(u64, u64, Call)>> {
    let mut text = Vec::with_capacity(12 << 20);
    // The kernel's own table is a few MiB; the bound is for what modules and programs add.
    File::open("/proc/kallsyms").ok()?.take(256 << 20).read_to_end(&mut text).ok()?;
    Some(ranges_in(&text))
}

fn ranges_in(text: &[u8]) -> Vec<(u64, u64, Call)> {
    let mut found: Vec<(u64, u64, Call)> = Vec::new();
    let line_of = |line: &[u8]| {
        let line = std::str::from_utf8(line).ok()?;
        let mut fields = line.split_ascii_whitespace();
        let address = u64::from_str_radix(fields.next()?, 16).ok()?;
        let name = fields.nth(1)?.to_owned();
        Some((address, name))
    };
    // The table is sorted by address, so the next other address ends a function.
    let mut open: Option<(u64, Call)> = None;
    for line in text.split(|&byte| byte == b'\n') {
        if open.is_none() && !line.ends_with(b"restart") && !line.ends_with(b"poll") {
            continue;
        }
        let Some((address, name)) = line_of(line) else { continue };
        if let Some((start, call)) = open.filter(|&(start, _)| address > start) {
            found.push((start, address, call));
            open = None;
        }
        let call = FUNCTIONS.iter().find(|(function, _)| *function == name).map(|&(_, call)| call);
        if let Some(call) = call.filter(|_| address != 0) {
            open = Some((address, call));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"ffff000000001000 t before\nffff000000002000 t futex_wait_restart\n\
        ffff000000002000 t alias\nffff000000002100 T next\nffff000000003000 t do_restart_poll\n\
        ffff000000003080 t hrtimer_nanosleep_restart\nffff000000003100 t last\n";

    #[test]
    fn finds_the_call_on_the_stack_and_in_the_block() {
        let ranges = ranges_in(TABLE);
        assert_eq!(ranges.len(), 3);
        assert_eq!(call_of(&ranges, 0, &[0xffff_0000_0000_1500, 0xffff_0000_0000_2050]), Some(Call::Futex));
        assert_eq!(call_of(&ranges, 0xffff_0000_0000_3000, &[0xffff_0000_0000_1500]), Some(Call::Poll));
        assert_eq!(call_of(&ranges, 0, &[0xffff_0000_0000_3100]), Some(Call::Nanosleep), "a call ends it");
        assert_eq!(call_of(&ranges, 0xffff_0000_0000_2100, &[]), None);
    }

    #[test]
    fn hidden_addresses_give_nothing() {
        assert!(ranges_in(b"0000000000000000 t futex_wait_restart\n0000000000000000 t next\n").is_empty());
    }

    #[test]
    fn sleeps_are_told_apart_by_their_first_argument() {
        use syscalls::Sysno;
        assert_eq!(number(Call::Nanosleep, [0x7fff_0000_1000, 0, 0, 0, 0, 0]), Sysno::nanosleep as u32);
        assert_eq!(number(Call::Nanosleep, [1, 0, 0, 0, 0, 0]), Sysno::clock_nanosleep as u32);
    }

    #[test]
    fn names_do_as_well_as_addresses() {
        let raw = Syscall { number: RESTART, arguments: [7; 6], restarted: false };
        let names = ["futex_wait_queue".to_owned(), "futex_wait_restart+0x30/0x50".to_owned()];
        let recovered = RestartNames::recover_by_name(raw, &names);
        assert_eq!(recovered.number, syscalls::Sysno::futex as u32);
        assert!(recovered.restarted);
        assert_eq!(recovered.arguments, raw.arguments);
        let hidden = RestartNames::recover_by_name(raw, &["do_syscall_64".to_owned()]);
        assert_eq!(hidden.number, syscalls::Sysno::clock_nanosleep as u32, "the kernel hides its sleep");
        let unknown = RestartNames::recover_by_name(raw, &[]);
        assert_eq!((unknown.number, unknown.restarted), (RESTART, true));
    }
}
