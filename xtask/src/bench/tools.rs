//! The tools that are compared.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::process::{Owned, capture, line_of, root, say};

/// Peers, by the versions that were compared.
const PEERS: [&str; 2] = ["py-spy==0.4.3", "pystack==1.7.2"];

/// One tool as it is called.
pub(super) struct Tool {
    pub(super) name: &'static str,
    program: PathBuf,
    arguments: &'static [&'static str],
    /// It prints every thread's stack.
    pub(super) dumps: bool,
    /// It is not inspector.
    pub(super) peer: bool,
}

/// Inspector's two commands, and its peers in a virtual environment made for them.
pub(super) fn tools(inspector: &Path) -> Result<Vec<Tool>> {
    let bin = peers()?;
    let own =
        |name, arguments, dumps| Tool { name, program: inspector.to_owned(), arguments, dumps, peer: false };
    let peer = |name, program, arguments| Tool {
        name,
        program: bin.join(program),
        arguments,
        dumps: true,
        peer: true,
    };
    Ok(vec![
        own("inspector dump", &["dump", "--pid"], true),
        own("inspector diagnose", &["diagnose", "--pid"], false),
        peer("py-spy dump", "py-spy", &["dump", "--pid"]),
        peer("py-spy dump --native", "py-spy", &["dump", "--native", "--pid"]),
        peer("pystack remote --native", "pystack", &["remote", "--native"]),
    ])
}

/// The folder of py-spy's and pystack's programs, in a virtual environment made for them.
pub(crate) fn peers() -> Result<PathBuf> {
    say("preparing py-spy and pystack");
    let (status, python) =
        capture(Command::new("python3").arg(root().join("tests/fleet/environment.py")).args(PEERS))?;
    ensure!(status.success(), "no environment for the peers");
    Ok(Path::new(python.trim()).parent().context("the interpreter has a directory")?.to_owned())
}

impl Tool {
    fn command(&self, pid: u32) -> Command {
        let mut command = Command::new(&self.program);
        command.args(self.arguments).arg(pid.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Runs it on a process to its end; gives the wall time.
    pub(super) fn run(&self, pid: u32) -> Result<Duration> {
        let mut command = self.command(pid);
        let start = Instant::now();
        let status = Owned::start(&mut command)?.wait()?;
        let took = start.elapsed();
        ensure!(status.success(), "{}: {status}", line_of(&command));
        Ok(took)
    }

    /// Runs it, but no longer than that; the wall time, `None` where it did not end.
    pub(super) fn run_at_most(&self, pid: u32, patience: Duration) -> Result<Option<Duration>> {
        let mut command = self.command(pid);
        let start = Instant::now();
        let ended = Owned::start(&mut command)?.wait_at_most(patience)?;
        let took = start.elapsed();
        Ok(ended.map(|_| took))
    }

    /// Runs it under strace and counts its reads of other processes' memory.
    pub(super) fn memory_reads(&self, pid: u32) -> Result<usize> {
        let log = tempfile::NamedTempFile::new()?;
        let mut command = Command::new("strace");
        command
            .args(["-f", "-qq", "-e", "trace=process_vm_readv", "-e", "signal=none", "-o"])
            .arg(log.path());
        command.arg(&self.program).args(self.arguments).arg(pid.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = Owned::start(&mut command)?.wait()?;
        ensure!(status.success(), "{}: {status}", line_of(&command));
        let text = std::fs::read_to_string(log.path())?;
        Ok(text.lines().filter(|line| line.contains("process_vm_readv(")).count())
    }
}
