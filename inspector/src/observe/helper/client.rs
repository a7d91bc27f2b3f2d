//! inspector's end: starts a helper, asks it under deadlines, ends it.

use std::{os::fd::AsRawFd as _, path::Path, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::{Instant, timeout, timeout_at},
};

use super::{
    protocol::{self, Answer, Ask, MAX_MESSAGE, Reply, Request, Stage},
    serve,
};
use crate::{
    model::{GilSample, PythonRuntime},
    observe::tasks::memory_walk::{self, Grants},
};

/// How long a killed helper may take to go before it is left to itself.
const GRACE: Duration = Duration::from_millis(100);

/// Why a helper did not answer.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// It could not be started or spoken to.
    #[error("the helper process failed: {0}")]
    Failed(#[from] std::io::Error),
    /// It ended instead of answering.
    #[error("the helper process ended while it read this process ({0})")]
    Ended(String),
    /// It did not answer in time.
    #[error("no answer within {:.1} s", .0.as_secs_f64())]
    Late(Duration),
    /// It answered something else.
    #[error("the helper process answered out of turn")]
    Protocol,
}

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
            .stderr(Stdio::null())
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
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(self.ended().await),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(HelperError::Late(deadline)),
        }
    }

    async fn answer(&mut self, deadline: Duration) -> Result<Answer, HelperError> {
        let until = Instant::now() + deadline;
        match timeout_at(until, receive(&mut self.output)).await {
            Ok(Ok(Some(body))) => Ok(protocol::decode(&body)?),
            Ok(Ok(None)) => Err(self.ended().await),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(HelperError::Late(deadline)),
        }
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
async fn receive(output: &mut ChildStdout) -> std::io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match output.read_exact(&mut length).await {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    };
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_MESSAGE {
        return Err(std::io::Error::other(format!("a message of {length} bytes is over the limit")));
    }
    let mut body = Vec::new();
    output.take(length as u64).read_to_end(&mut body).await?;
    Ok(Some(body))
}
