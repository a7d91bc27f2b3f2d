//! Runs other programs, and ends them when this one ends.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::interrupt;

/// How often a wait looks for its end and for Ctrl-C.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long a program may take to clean up after SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(15);

/// The root of the checkout.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Says on stderr what comes next.
pub(crate) fn say(line: &str) {
    eprintln!("xtask: {line}");
}

/// The cargo that runs this xtask, in the root of the checkout.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Runs a command to its end; an error names it.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = line_of(command);
    say(&line);
    let status = Owned::start(command)?.wait()?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}

/// Runs a command to its end and gives what it printed, whatever its exit status.
pub(crate) fn capture(command: &mut Command) -> Result<(ExitStatus, String)> {
    command.stdout(Stdio::piped());
    let mut owned = Owned::start(command)?;
    let mut stdout = owned.child.stdout.take().context("no stdout")?;
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stdout.read_to_end(&mut bytes).map(|_| bytes)
    });
    let status = owned.wait()?;
    let bytes = reader.join().map_err(|_| io::Error::other("the reader panicked"))??;
    Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
}

/// Whether a program can be found and run.
pub(crate) fn exists(program: &str, argument: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A command's words, for people.
pub(crate) fn line_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// A started program in a process group of its own. Dropping it ends the group; the kernel ends the program when this
/// one is killed.
pub(crate) struct Owned {
    child: Child,
    lines: Option<Receiver<String>>,
    line: String,
}

impl Owned {
    /// Starts a command; it has no stdin unless the command says so.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let line = line_of(command);
        command.process_group(0);
        // SAFETY: the closure runs between fork and exec and makes one system call with plain numbers.
        unsafe {
            command.pre_exec(|| {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) == -1 {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().with_context(|| format!("cannot run {line}"))?;
        Ok(Self { child, lines: None, line })
    }

    /// Waits for a line of its stdout (which must be piped) that starts with `prefix`; gives the rest of it.
    pub(crate) fn line(&mut self, prefix: &str, patience: Duration) -> Result<String> {
        if let Some(stdout) = self.child.stdout.take() {
            let (sender, lines) = channel();
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
            self.lines = Some(lines);
        }
        let lines = self.lines.as_ref().context("its stdout is not piped")?;
        let start = Instant::now();
        loop {
            interrupt::check()?;
            match lines.recv_timeout(LOOK_EVERY) {
                Ok(line) => {
                    if let Some(rest) = line.strip_prefix(prefix) {
                        return Ok(rest.to_owned());
                    }
                }
                Err(RecvTimeoutError::Timeout) if start.elapsed() < patience => {}
                Err(RecvTimeoutError::Timeout) => {
                    bail!("{} said no {prefix:?} within {} s", self.line, patience.as_secs())
                }
                Err(RecvTimeoutError::Disconnected) => bail!("{} ended early", self.line),
            }
        }
    }

    /// Writes a line to its stdin, which must be piped.
    pub(crate) fn tell(&mut self, line: &str) -> Result<()> {
        let stdin = self.child.stdin.as_mut().context("its stdin is not piped")?;
        writeln!(stdin, "{line}").with_context(|| format!("{} does not read", self.line))
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end, or for Ctrl-C.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus> {
        self.wait_at_most(Duration::MAX)?.with_context(|| format!("{} goes on", self.line))
    }

    /// Waits for its end, but no longer than that; `None`: it goes on. It is noticed as it ends: runs are timed by this.
    pub(crate) fn wait_at_most(&mut self, patience: Duration) -> Result<Option<ExitStatus>> {
        let start = Instant::now();
        let pid = rustix::process::Pid::from_child(&self.child);
        let end = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
        let look_every = rustix::event::Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.as_nanos() as _ };
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if start.elapsed() >= patience {
                return Ok(None);
            }
            interrupt::check()?;
            let mut ended = [rustix::event::PollFd::new(&end, rustix::event::PollFlags::IN)];
            match rustix::event::poll(&mut ended, Some(&look_every)) {
                // A signal: the flag says which.
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(why) => return Err(why.into()),
            }
        }
    }

    fn signal_group(&self, signal: rustix::process::Signal) {
        if let Some(group) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            // ESRCH: it is gone, which is what was wanted.
            rustix::process::kill_process_group(group, signal).ok();
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let start = Instant::now();
        self.signal_group(rustix::process::Signal::TERM);
        while start.elapsed() < GRACE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        self.signal_group(rustix::process::Signal::KILL);
        self.child.wait().ok();
    }
}
