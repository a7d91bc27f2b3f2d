//! Whether a process still runs the program that it ran when the observation began.

use std::{collections::HashMap, time::Duration};

use crate::{patience::Patience, proc_stat::Stat};

/// What processes ran when the observation began.
#[derive(Debug, Default)]
pub(super) struct Programs {
    known: HashMap<u32, Program>,
    patience: Patience,
}

impl Programs {
    /// Looks at what `pids` run now.
    pub(super) fn of(pids: impl Iterator<Item = u32>) -> Self {
        let mut programs = Self::default();
        for pid in pids {
            let program = programs.patience.run(Duration::ZERO, move || Program::of(pid));
            programs.known.extend(program.ok().flatten().map(|program| (pid, program)));
        }
        programs
    }

    /// Whether the process runs another program than then. One that hangs in `execve` still has its old memory.
    pub(super) fn changed(&mut self, pid: u32) -> bool {
        let Some(&before) = self.known.get(&pid) else { return false };
        let now = self.patience.run(Duration::ZERO, move || Program::of(pid));
        now.ok().flatten().is_some_and(|now| now != before)
    }
}

/// What `execve` changes and a running program does not: where its code and the base of its stack lie. The kernel places
/// both at random, so that the same file run again differs too (not where randomisation is off: then it goes unnoticed,
/// unless it is another program).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Program {
    start_code: u64,
    start_stack: u64,
}

impl Program {
    /// Reads `/proc/PID/stat`. `None`: gone, or we may not know.
    fn of(pid: u32) -> Option<Self> {
        Self::told(&Stat::read(pid)?)
    }

    fn told(stat: &Stat) -> Option<Self> {
        let &Stat { start_code, start_stack, .. } = stat;
        (start_code > 1 && start_stack > 1).then_some(Self { start_code, start_stack })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader, Write as _},
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn a_process_that_runs_another_program_is_noticed() {
        let mut child = Command::new("sh")
            .args(["-c", "echo ready; read line; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut lines = BufReader::new(output).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        let before = Program::of(child.id()).expect("our own child");
        assert_eq!(Program::of(child.id()), Some(before), "the same program stays the same");
        input.write_all(b"go\nhello\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "hello", "cat answers");
        assert_ne!(Program::of(child.id()), Some(before));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn addresses_that_are_hidden_are_not_compared() {
        let stat = |start_code| Stat { start_code, start_stack: 77, ..Stat::default() };
        assert_eq!(Program::told(&stat(55)), Some(Program { start_code: 55, start_stack: 77 }));
        assert_eq!(Program::told(&stat(1)), None);
    }
}
