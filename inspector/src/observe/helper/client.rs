//! inspector's end: starts a helper, asks it under deadlines, ends it.

use std::{fs::File, io, os::fd::AsRawFd as _, path::Path, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::{Instant, timeout, timeout_at},
};

use super::{
    protocol::{self, Answer, Ask, Reply, Request, Stage},
    serve,
};
use crate::{
    model::{GilSample, PythonRuntime, TaskState},
    observe::tasks::memory_walk::{self, Grants},
    proc_stat::Stat,
};

/// How long a killed helper may take to go before it is left to itself.
const GRACE: Duration = Duration::from_millis(100);

/// How many deadlines a helper may take that is seen running each time one is over, and how often it is looked at then.
/// A bound all the same: a target can make its reader work.
const MOST_DEADLINES: u32 = 3;
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What a late helper was seen doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It works, or waits for a processor.
    Runnable,
    /// It sleeps in the kernel, in this state.
    Blocked(char),
    /// `/proc` does not tell.
    Unknown,
}

impl Progress {
    /// The state in `/proc/PID/stat` of a helper: a process of ours, for which no lock of a target is taken.
    fn of(pid: Option<u32>) -> Self {
        match pid.and_then(Stat::read).map(|stat| stat.state) {
            Some(TaskState::Running) => Self::Runnable,
            Some(state) => Self::Blocked(state.letter()),
            None => Self::Unknown,
        }
    }
}

/// How often a helper went to sleep so far.
fn switches(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}

impl std::fmt::Display for Progress {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Runnable => formatter.write_str(
                "the helper process was still running, so this host is too busy or there is too much to read; try again \
                 with --pid, which reads less",
            ),
            Self::Blocked(state) => write!(
                formatter,
                "the helper process sleeps in its read (state {state}): the memory or a file of the target does not come \
                 (a page that is never served, a lock on its address space, a file system that hangs)"
            ),
            Self::Unknown => formatter.write_str("what the helper process was doing is not known"),
        }
    }
}

/// Why a helper did not answer.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// It could not be started or spoken to.
    #[error("the helper process failed: {0}")]
    Failed(#[from] io::Error),
    /// It ended instead of answering.
    #[error("the helper process ended while it read this process ({0})")]
    Ended(String),
    /// It did not answer in time.
    #[error("no answer within {:.1} s: {}", .waited.as_secs_f64(), .seen)]
    Late {
        /// How long it was waited for.
        waited: Duration,
        /// What it was doing then.
        seen: Progress,
    },
    /// It answered something else.
    #[error("the helper process answered out of turn")]
    Protocol,
}

/// How glibc's malloc serves a helper (`man 7 ld.so` has the syntax; other C libraries ignore it).
const MALLOC: &str = "glibc.malloc.hugetlb=1:glibc.malloc.top_pad=16777216:glibc.malloc.mmap_threshold=268435456:\
                      glibc.malloc.trim_threshold=268435456";

/// A running helper process.
#[derive(Debug)]
pub struct Helper {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl Helper {
    /// Starts one from `executable`, an `inspector` binary. It inherits the memory walk, where there is one.
    pub fn start(executable: &Path, walk: Option<&Grants>) -> Result<Self, HelperError> {
        let program = walk.map(|walk| memory_walk::inheritable(walk.program())).transpose()?;
        let mut child = Command::new(executable)
            .arg0(serve::ARGUMENT)
            .arg(serve::ARGUMENT)
            .args(program.as_ref().map(|program| program.as_raw_fd().to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A helper that the kernel does not let go must not keep a pipe open that somebody reads to its end.
            .stderr(nowhere()?)
            // What it reads of a process with a thousand threads is tens of MiB, each byte touched once: with large pages, and
            // without giving any back, that costs fewer page faults.
            .env("GLIBC_TUNABLES", MALLOC)
            // Ctrl-C is for inspector, which ends its helpers itself.
            .process_group(0)
            .spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(HelperError::Protocol);
        };
        Ok(Self { child, input, output })
    }

    /// Its process id; `None` once it ended.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Asks for `request`'s stages; each finished one goes to `each`. `deadline` bounds every single stage.
    ///
    /// On an error the helper is of no use any more: [`Self::end`] it. What `each` got stays valid.
    pub async fn read(
        &mut self,
        request: Request,
        deadline: Duration,
        mut each: impl FnMut(Stage, Reply),
    ) -> Result<(), HelperError> {
        let stages = request.stages.clone();
        self.send(&Ask::Read(request), deadline).await?;
        for expected in stages {
            match self.answer(deadline).await? {
                Answer::Stage(stage, reply) if stage == expected => each(stage, *reply),
                _ => return Err(HelperError::Protocol),
            }
        }
        Ok(())
    }

    /// Reads the GILs of a process; `runtime`: `None` if this helper read it, or was told it before.
    pub async fn gils(
        &mut self,
        pid: u32,
        runtime: Option<PythonRuntime>,
        deadline: Duration,
    ) -> Result<Vec<Option<GilSample>>, HelperError> {
        self.send(&Ask::Gils { pid, runtime }, deadline).await?;
        match self.answer(deadline).await? {
            Answer::Gils(samples) => Ok(samples),
            Answer::Stage(..) => Err(HelperError::Protocol),
        }
    }

    /// Ends the helper. `Some(pid)`: the kernel does not let it go yet; it ends by itself once its read returns.
    pub async fn end(mut self) -> Option<u32> {
        let pid = self.child.id();
        // An error here means that it is gone already.
        self.child.start_kill().ok();
        match timeout(GRACE, self.child.wait()).await {
            Ok(_) => None,
            Err(_) => pid,
        }
    }

    async fn send(&mut self, ask: &Ask, deadline: Duration) -> Result<(), HelperError> {
        let bytes = protocol::encode(ask)?;
        match timeout(deadline, self.input.write_all(&bytes)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Err(self.ended().await),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(HelperError::Late { waited: deadline, seen: self.progress() }),
        }
    }

    /// Waits for an answer. A helper that works, waits for a processor on a loaded host, or sleeps for moments only gets
    /// more time; one that sleeps in one and the same read does not.
    async fn answer(&mut self, deadline: Duration) -> Result<Answer, HelperError> {
        let started = Instant::now();
        let most = started + deadline * MOST_DEADLINES;
        let received = {
            let Self { child, output, .. } = self;
            let receiving = receive(output);
            tokio::pin!(receiving);
            let mut until = started + deadline;
            let mut slept = None;
            loop {
                if let Ok(received) = timeout_at(until, &mut receiving).await {
                    break Ok(received);
                }
                let seen = Progress::of(child.id());
                let switches = child.id().and_then(switches);
                let stuck = seen != Progress::Runnable && (switches.is_none() || switches == slept);
                slept = switches;
                if stuck || until >= most {
                    break Err(HelperError::Late { waited: started.elapsed(), seen });
                }
                until = (Instant::now() + LOOK_AGAIN).min(most);
            }
        };
        match received? {
            Ok(Some(body)) => Ok(protocol::decode(&body)?),
            Ok(None) => Err(self.ended().await),
            Err(error) => Err(error.into()),
        }
    }

    fn progress(&self) -> Progress {
        Progress::of(self.child.id())
    }

    async fn ended(&mut self) -> HelperError {
        let how = match timeout(GRACE, self.child.wait()).await {
            Ok(Ok(status)) => status.to_string(),
            _ => "its pipe is closed".into(),
        };
        HelperError::Ended(how)
    }
}

/// One message's body; `None` at the end of the stream.
async fn receive(output: &mut ChildStdout) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match output.read_exact(&mut length).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    };
    let length = protocol::body_length(length)?;
    let mut body = Vec::new();
    output.take(length as u64).read_to_end(&mut body).await?;
    Ok(Some(body))
}

/// Where what is written is lost. A container with nothing but this program in it has no `/dev/null`.
fn nowhere() -> io::Result<Stdio> {
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        return Ok(null.into());
    }
    Ok(rustix::fs::memfd_create("nowhere", rustix::fs::MemfdFlags::CLOEXEC)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A "helper" that never answers: a shell that sleeps in `read`, or spins.
    fn shell(script: &str) -> Helper {
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a shell");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Helper { child, input, output }
    }

    async fn lateness(script: &str, deadline: Duration) -> (Duration, Progress) {
        match shell(script).answer(deadline).await {
            Err(HelperError::Late { waited, seen }) => (waited, seen),
            other => panic!("{script} answered: {:?}", other.map(drop)),
        }
    }

    #[tokio::test]
    async fn a_late_helper_that_runs_gets_more_time_and_one_that_sleeps_is_given_up() {
        let deadline = Duration::from_millis(300);
        let (waited, seen) = lateness("while :; do :; done", deadline).await;
        assert_eq!(seen, Progress::Runnable);
        assert!(waited >= deadline * MOST_DEADLINES, "given up after {waited:?} although it ran");
        // Given up at the first look that sees it asleep for a whole pause: the bound is not used up.
        let (_, seen) = lateness("read line", deadline).await;
        assert_eq!(seen, Progress::Blocked('S'));
        let text = HelperError::Late { waited: deadline, seen }.to_string();
        assert!(text.contains("sleeps in its read") && text.contains("state S"), "{text}");
    }
}
