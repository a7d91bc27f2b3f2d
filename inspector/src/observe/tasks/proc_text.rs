//! The texts of `/proc/PID/task/TID`, taken apart. Pure.

use crate::model::{Registers, Syscall, TaskState};

/// Most kernel frames of one thread (the kernel prints 64).
const MAX_FRAMES: usize = 64;

/// `comm`, which ends in a newline that is not part of it.
pub(super) fn comm(text: &[u8]) -> String {
    String::from_utf8_lossy(text.strip_suffix(b"\n").unwrap_or(text)).into_owned()
}

/// What is used of `status` (`fs/proc/array.c`, `proc_pid_status`). Unlike `stat` it waits for nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) state: TaskState,
    /// Both switch counts, summed.
    pub(super) switches: Option<u64>,
}

/// `status`. A name holds no line break: the kernel escapes it.
pub(super) fn status(text: &[u8]) -> Option<Status> {
    let text = String::from_utf8_lossy(text);
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let count = |name: &str| value(name)?.parse::<u64>().ok();
    let state = TaskState::from_letter(value("State:")?.chars().next()?);
    let switches = count("voluntary_ctxt_switches:").zip(count("nonvoluntary_ctxt_switches:"));
    Some(Status { state, switches: switches.and_then(|(one, other)| one.checked_add(other)) })
}

/// `schedstat` (`fs/proc/base.c`, `proc_pid_schedstat`): CPU time, time spent waiting for a CPU, times switched in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) cpu_ns: u64,
    pub(super) switched_in: u64,
}

/// `schedstat`; `None` where the kernel keeps none of it (it prints zeroes).
pub(super) fn schedstat(text: &[u8]) -> Option<Schedule> {
    let mut fields = std::str::from_utf8(text).ok()?.split_ascii_whitespace().map(str::parse);
    let cpu_ns = fields.next()?.ok()?;
    let switched_in = fields.nth(1)?.ok()?;
    (switched_in != 0).then_some(Schedule { cpu_ns, switched_in })
}

/// `syscall` (`fs/proc/base.c`, `proc_pid_syscall`).
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Current {
    pub(super) running: bool,
    pub(super) syscall: Option<Syscall>,
    /// The program counter and the stack pointer; the kernel prints no other one.
    pub(super) registers: Option<Registers>,
}

/// `syscall`: `running`, or `-1 SP PC`, or the number, six arguments, SP and PC.
pub(super) fn syscall(text: &[u8]) -> Option<Current> {
    let text = std::str::from_utf8(text).ok()?.trim_end();
    if text == "running" {
        return Some(Current { running: true, ..Current::default() });
    }
    let mut fields = text.split_ascii_whitespace();
    let number: i64 = fields.next()?.parse().ok()?;
    let mut next = || u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok();
    let syscall = match u32::try_from(number) {
        Ok(number) => {
            let arguments = [next()?, next()?, next()?, next()?, next()?, next()?];
            Some(Syscall { number, arguments, restarted: false })
        }
        Err(_) => None,
    };
    let (sp, pc) = (next()?, next()?);
    // Kernel threads have neither.
    let registers = (sp != 0 && pc != 0).then_some(Registers { pc, sp, fp: 0, lr: 0 });
    Some(Current { running: false, syscall: syscall.filter(|_| registers.is_some()), registers })
}

/// `stack` (`fs/proc/base.c`, `proc_pid_stack`): lines like `[<0>] futex_wait_queue+0x63/0x90`, innermost first.
pub(super) fn stack(text: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(text)
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().nth(1)?.split('+').next().map(str::to_owned))
        .take(MAX_FRAMES)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        assert_eq!(comm(b"a) (b\n\n"), "a) (b\n");
        assert_eq!(comm(b""), "");
        assert_eq!(
            status(b"Name:\tState:\tR\nUmask:\t0022\nState:\tS (sleeping)\n"),
            Some(Status { state: TaskState::Sleeping, switches: None })
        );
        assert_eq!(status(b"Name:\tcut"), None);
    }

    #[test]
    fn a_system_call_has_arguments_and_registers() {
        let text = b"202 0x7f01 0x189 0x0 0x0 0x0 0xffffffff 0x7ffc10 0x7f0abc\n";
        let parsed = syscall(text).unwrap();
        assert_eq!(parsed.syscall.unwrap().number, 202);
        assert_eq!(parsed.syscall.unwrap().arguments, [0x7f01, 0x189, 0, 0, 0, 0xffff_ffff]);
        assert_eq!(parsed.registers.unwrap().sp, 0x7ffc10);
        assert_eq!(parsed.registers.unwrap().pc, 0x7f0abc);
        assert!(syscall(b"running\n").unwrap().running);
        assert_eq!(syscall(b"-1 0x7ffc10 0x7f0abc\n").unwrap().syscall, None);
        assert_eq!(
            syscall(b"0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n").unwrap().registers,
            None,
            "a kernel thread"
        );
        assert_eq!(syscall(b"202 0x7f01"), None);
    }

    #[test]
    fn counts_come_from_either_file() {
        assert_eq!(schedstat(b"4711 12 99\n"), Some(Schedule { cpu_ns: 4711, switched_in: 99 }));
        assert_eq!(schedstat(b"0 0 0\n"), None);
        let counted = b"State:\tR\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n";
        assert_eq!(status(counted).and_then(|status| status.switches), Some(7));
    }

    #[test]
    fn kernel_frames_lose_their_offsets() {
        assert_eq!(
            stack(b"[<0>] futex_wait_queue+0x63/0x90\n[<0>] do_futex+0x1/0x2\n"),
            ["futex_wait_queue", "do_futex"]
        );
        assert!(stack(b"\n").is_empty());
    }
}
