//! `/proc/PID/stat`, for all who read it. Some kernels make its reader wait for an `execve` that is under way (seen on
//! 6.18): read it where that costs nothing ([`crate::patience`], a helper process).

use std::{fs::File, io::Read as _};

use crate::model::TaskState;

/// The file has some 300 bytes.
const LIMIT: u64 = 4096;

/// `PF_KTHREAD` (`include/linux/sched.h`).
const PF_KTHREAD: u64 = 0x0020_0000;

/// The fields that are used, by their numbers in proc(5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    /// 2: its name; it may hold anything, parentheses too.
    pub(crate) comm: String,
    /// 3.
    pub(crate) state: TaskState,
    /// 4.
    pub(crate) ppid: u32,
    /// 5: its process group.
    pub(crate) pgid: u32,
    /// From 9, `flags`.
    pub(crate) kernel_thread: bool,
    /// 22: when it was started, in clock ticks after the boot.
    pub(crate) start_ticks: u64,
    /// 26 and 28, where the program's code and stack begin: 0 or 1 without the right to trace the process, 0 while it exits.
    pub(crate) start_code: u64,
    pub(crate) start_stack: u64,
}

impl Stat {
    /// Reads the file; `None`: no such process.
    pub(crate) fn read(pid: u32) -> Option<Self> {
        let mut bytes = Vec::new();
        File::open(format!("/proc/{pid}/stat")).ok()?.take(LIMIT).read_to_end(&mut bytes).ok()?;
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    /// Parses its text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (before, after) = text.rsplit_once(')')?;
        let fields: Vec<&str> = after.split_ascii_whitespace().collect();
        // The first behind the name is field 3.
        let number = |field: usize| fields.get(field.checked_sub(3)?)?.parse::<u64>().ok();
        Some(Self {
            comm: before.split_once('(')?.1.to_owned(),
            state: TaskState::from_letter(fields.first()?.chars().next()?),
            ppid: u32::try_from(number(4)?).ok()?,
            pgid: number(5).and_then(|group| u32::try_from(group).ok()).unwrap_or(0),
            kernel_thread: number(9)? & PF_KTHREAD != 0,
            start_ticks: number(22)?,
            start_code: number(26).unwrap_or(0),
            start_stack: number(28).unwrap_or(0),
        })
    }
}

/// Clock ticks as nanoseconds.
pub(crate) fn ticks_ns(ticks: u64) -> u64 {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    u64::try_from(u128::from(ticks) * 1_000_000_000 / u128::from(per_second)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_comm_with_parentheses_and_spaces_is_read_whole() {
        let stat = Stat::parse(
            "7 (a) (b R 1) T 5 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 3 0 4242 1 2 18446744073709551615 55 66 77 0\n",
        );
        let expected = Stat {
            comm: "a) (b R 1".into(),
            state: TaskState::Stopped,
            ppid: 5,
            pgid: 7,
            kernel_thread: false,
            start_ticks: 4242,
            start_code: 55,
            start_stack: 77,
        };
        assert_eq!(stat, Some(expected));
        assert_eq!(Stat::parse("rubbish"), None);
    }

    #[test]
    fn our_own_process_is_read() {
        let own = Stat::read(std::process::id()).unwrap();
        assert_eq!(own.ppid, std::os::unix::process::parent_id());
        assert!(!own.kernel_thread && own.start_ticks > 0 && own.start_code > 1 && own.start_stack > 1);
        assert!(Stat::read(2).is_none_or(|kernel| kernel.kernel_thread));
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in any::<String>()) {
            Stat::parse(&text);
            Stat::parse(&format!("1 (x) S {text}"));
        }
    }
}
