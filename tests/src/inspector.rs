//! Runs the `inspector` binary.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::{Document, PATIENCE, paths, spawner};

/// The binary under test: `INSPECTOR_BIN`, else the one of this checkout, brought up to date first in the profile that
/// the tests themselves were built with.
pub fn binary() -> Result<&'static Path> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = BINARY.get_or_init(|| {
        if let Some(given) = std::env::var_os("INSPECTOR_BIN") {
            // A relative path means the checkout's root: cargo runs tests in their package's directory.
            let path = paths::root().join(given);
            return std::fs::canonicalize(&path)
                .map_err(|error| format!("INSPECTOR_BIN {}: {error}", path.display()));
        }
        build().map_err(|error| format!("{error:#}"))
    });
    match found {
        Ok(path) => Ok(path),
        Err(error) => bail!("no inspector to test: {error}"),
    }
}

fn build() -> Result<PathBuf> {
    let release = !cfg!(debug_assertions);
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(paths::root()).args([
        "build",
        "--quiet",
        "--package",
        "inspector",
        "--bin",
        "inspector",
    ]);
    if release {
        cargo.arg("--release");
    }
    let output = cargo.output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cargo build: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(paths::target().join(if release { "release" } else { "debug" }).join("inspector"))
}

/// One run of `inspector`, to be configured.
#[derive(Debug)]
pub struct Inspector {
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    wrapper: Vec<OsString>,
    timeout: Duration,
}

impl Inspector {
    /// `inspector ARGUMENTS…`
    pub fn new<A: AsRef<OsStr>>(arguments: &[A]) -> Self {
        let arguments = arguments.iter().map(|argument| argument.as_ref().to_owned()).collect();
        Self { arguments, environment: Vec::new(), wrapper: Vec::new(), timeout: PATIENCE }
    }

    /// `inspector COMMAND --json --pid P…`
    pub fn json(command: &str, pids: &[u32]) -> Self {
        let mut arguments = vec![command.to_owned(), "--json".to_owned()];
        for pid in pids {
            arguments.extend(["--pid".to_owned(), pid.to_string()]);
        }
        Self::new(&arguments)
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Runs it under another program: `strace -f -o FILE`, `setpriv --reuid nobody …`, `unshare …`.
    #[must_use]
    pub fn under<A: AsRef<OsStr>>(mut self, wrapper: &[A]) -> Self {
        self.wrapper = wrapper.iter().map(|word| word.as_ref().to_owned()).collect();
        self
    }

    /// Kills it after `timeout` instead of [`PATIENCE`].
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The command as it will be run, for a test that wants to run it by itself.
    pub fn command(&self) -> Result<Command> {
        let mut words = self.wrapper.clone();
        words.push(binary()?.as_os_str().to_owned());
        words.extend(self.arguments.iter().cloned());
        let mut command = Command::new(words.first().context("there is a program")?);
        command.args(words.iter().skip(1));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// Runs it to its end.
    pub fn run(&self) -> Result<Finished> {
        let mut command = self.command()?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let start = Instant::now();
        let mut child = spawner::spawn(command, Signal::KILL).context("cannot run inspector")?;
        let stdout = collect(child.stdout.take().context("no stdout")?);
        let stderr = collect(child.stderr.take().context("no stderr")?);
        let status = wait(&mut child, start, self.timeout)?;
        let took = start.elapsed();
        let text = |thread: std::thread::JoinHandle<Vec<u8>>| {
            String::from_utf8_lossy(&thread.join().unwrap_or_default()).into_owned()
        };
        Ok(Finished { status, stdout: text(stdout), stderr: text(stderr), took })
    }

    /// Runs it, expects exit status 0 or 3, and reads the JSON it printed.
    pub fn document(&self) -> Result<Document> {
        let finished = self.run()?;
        if !matches!(finished.code(), Some(0 | 3)) {
            bail!("inspector {:?} failed: {}\n{}", self.arguments, finished.status, finished.stderr);
        }
        Document::parse(&finished.stdout)
            .with_context(|| format!("stdout of inspector {:?} is no report", self.arguments))
    }
}

/// How a run of `inspector` ended.
#[derive(Debug)]
pub struct Finished {
    /// Its exit status.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: String,
    /// What it said on stderr.
    pub stderr: String,
    /// Wall time from start to end.
    pub took: Duration,
}

impl Finished {
    /// Its exit code; absent when a signal ended it.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The signal that ended it.
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }
}

fn collect(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before an error is what there is.
        from.read_to_end(&mut bytes).ok();
        bytes
    })
}

fn wait(child: &mut Child, start: Instant, timeout: Duration) -> Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > timeout {
            // With what it started: a wrapper, helpers.
            if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
                kill_process_group(group, Signal::KILL).ok();
            }
            child.wait()?;
            bail!("inspector did not end within {} s", timeout.as_secs());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
