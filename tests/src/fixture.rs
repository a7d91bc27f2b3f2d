//! A process that blocks on purpose, under the test's control.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use crate::{PATIENCE, spawner};

/// A started program. Dropping it kills its whole process group.
#[derive(Debug)]
pub struct Fixture {
    child: Child,
    lines: Receiver<String>,
    stdin: Option<ChildStdin>,
    name: String,
}

impl Fixture {
    /// Starts `command` with its stdin and stdout in the test's hands; stderr goes to the test's.
    pub fn spawn(command: Command) -> Result<Self> {
        Self::spawn_until(command, Signal::KILL)
    }

    /// As [`Fixture::spawn`], for a program that cleans up by itself when the test program's end sends it `at_death`.
    pub fn spawn_until(mut command: Command, at_death: Signal) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawner::spawn(command, at_death).with_context(|| format!("cannot start {name}"))?;
        let stdout = child.stdout.take().context("no stdout")?;
        let stdin = child.stdin.take();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines, stdin, name })
    }

    /// Starts `command` and waits for its line `ready` or `ready JSON`; gives the JSON, `null` where there is none.
    pub fn ready(command: Command) -> Result<(Self, Value)> {
        let mut fixture = Self::spawn(command)?;
        let facts = fixture.wait_ready()?;
        Ok((fixture, facts))
    }

    /// Waits for its line `ready` or `ready JSON`.
    pub fn wait_ready(&mut self) -> Result<Value> {
        loop {
            let line = self.line()?;
            if let Some(rest) = line.strip_prefix("ready") {
                let rest = rest.trim();
                return Ok(if rest.is_empty() { Value::Null } else { serde_json::from_str(rest)? });
            }
        }
    }

    /// As [`Fixture::ready`], for a program given by its file and arguments.
    pub fn program<A: AsRef<OsStr>>(file: &Path, arguments: &[A]) -> Result<(Self, Value)> {
        let mut command = Command::new(file);
        command.args(arguments);
        Self::ready(command)
    }

    /// The next line it prints.
    pub fn line(&mut self) -> Result<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => {
                bail!("{} printed nothing for {} s", self.name, PATIENCE.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait()?;
                let signal = status.signal().map(|signal| format!(" by signal {signal}")).unwrap_or_default();
                bail!("{} ended{signal} before it said what was awaited: {status}", self.name)
            }
        }
    }

    /// Writes a line to its stdin.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("its stdin was closed")?;
        writeln!(stdin, "{line}").with_context(|| format!("{} does not read", self.name))?;
        Ok(stdin.flush()?)
    }

    /// Closes its stdin.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal (the process, not its group).
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(self.rustix_pid()?, signal)?)
    }

    /// Whether it has ended.
    pub fn ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Kills its process group and reaps it.
    pub fn kill(&mut self) {
        if let Ok(pid) = self.rustix_pid() {
            // ESRCH: already gone.
            kill_process_group(pid, Signal::KILL).ok();
        }
        self.child.wait().ok();
    }

    fn rustix_pid(&self) -> Result<Pid> {
        Pid::from_raw(self.child.id().cast_signed()).context("a pid is never 0")
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.kill();
    }
}
