//! What inspector and its helper tell each other, in postcard behind a length.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::model::{
    Fd, Frame, Gap, GilSample, NamedTid, NativeStack, PythonRuntime, PythonThread, Registers, SavedMemory,
    SharedMapping, Syscall,
};

/// Longest message: a bound on what one side can make the other hold.
const MAX_MESSAGE: usize = 256 << 20;

/// From inspector to the helper.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Ask {
    /// Read a process; answered by one [`Answer::Stage`] a stage, in order.
    Read(Request),
    /// Read the GILs of a process; answered by [`Answer::Gils`].
    Gils {
        /// The host's pid.
        pid: u32,
        /// Its runtime, for a helper that did not read it itself.
        runtime: Option<PythonRuntime>,
    },
}

/// From the helper to inspector.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// One stage is done.
    Stage(Stage, Box<Reply>),
    /// A reading of each GIL, in the order of [`PythonRuntime::gils`]; `None` where it did not settle.
    Gils(Vec<Option<GilSample>>),
}

/// The parts of a reading, in their order. Each is answered by itself, so that one that blocks costs only itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stage {
    /// Open descriptors (an epoll set's `fdinfo` takes a lock that the target can hold).
    Descriptors,
    /// What system-call arguments point to.
    Arguments,
    /// Python stacks.
    Python,
    /// Native stacks.
    Native,
    /// Shared mappings, and whom the words in them name. The last: it looks at other processes too.
    Sharing,
}

/// Read this process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Request {
    /// The host's pid.
    pub pid: u32,
    /// What the kernel-only sweep saw of its threads.
    pub threads: Vec<ThreadRequest>,
    /// What to read, in order.
    pub stages: Vec<Stage>,
    /// The process was read a moment ago: what was found of it then (its images, which of its threads run Python) holds,
    /// and only `threads` are of interest.
    pub again: bool,
}

/// One thread to read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ThreadRequest {
    /// The host's tid.
    pub tid: u32,
    /// Its tid in its own PID namespace.
    pub ns_tid: u32,
    /// Its user registers; `None` while it runs.
    pub registers: Option<Registers>,
    /// Thread pointer (`pthread_self()` on x86-64).
    pub thread_pointer: Option<u64>,
    /// The system call it is in.
    pub syscall: Option<Syscall>,
}

/// What one stage read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Reply {
    /// Open descriptors.
    pub fds: Vec<Fd>,
    /// The Python runtime, its `unmatched` threads included.
    pub python: Option<PythonRuntime>,
    /// Threads that something was read of.
    pub threads: Vec<ThreadReply>,
    /// The frames that they refer to.
    pub frames: Vec<Frame>,
    /// Shared mappings.
    pub shared_memory: Option<Vec<SharedMapping>>,
    /// Threads elsewhere that words in shared memory name.
    pub named_tids: Vec<NamedTid>,
    /// What could not be read.
    pub gaps: Vec<Gap>,
}

/// What was read of one thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ThreadReply {
    /// The host's tid.
    pub tid: u32,
    /// Its Python thread state.
    pub python: Option<PythonThread>,
    /// Its native stack.
    pub native: Option<NativeStack>,
    /// What its system call's arguments point to.
    pub memory: Vec<SavedMemory>,
}

/// A message as it goes over the pipe: its length, then itself.
pub fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let mut bytes = postcard::to_extend(message, vec![0; 4]).map_err(io::Error::other)?;
    let length = within_limit(bytes.len() - 4)?;
    bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(bytes)
}

/// The message in a body that came without its length.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    postcard::from_bytes(body).map_err(io::Error::other)
}

/// How long the body is that follows these bytes.
pub fn body_length(prefix: [u8; 4]) -> io::Result<usize> {
    within_limit(u32::from_le_bytes(prefix) as usize)
}

fn within_limit(length: usize) -> io::Result<usize> {
    if length > MAX_MESSAGE {
        return Err(io::Error::other(format!("a message of {length} bytes is over the limit")));
    }
    Ok(length)
}

/// Writes one message.
pub fn write<T: Serialize>(output: &mut impl Write, message: &T) -> io::Result<()> {
    output.write_all(&encode(message)?)?;
    output.flush()
}

/// Reads one message; `None` at the end of the stream.
pub fn read<T: DeserializeOwned>(input: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match input.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = body_length(length)?;
    let mut body = Vec::new();
    input.by_ref().take(length as u64).read_to_end(&mut body)?;
    decode(&body).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_pipe() {
        let ask = Ask::Read(Request { pid: 7, stages: vec![Stage::Python], ..Request::default() });
        let mut pipe = Vec::new();
        write(&mut pipe, &ask).unwrap();
        write(&mut pipe, &Ask::Gils { pid: 9, runtime: None }).unwrap();
        let mut input = pipe.as_slice();
        assert!(matches!(read(&mut input).unwrap(), Some(Ask::Read(Request { pid: 7, .. }))));
        assert!(matches!(read(&mut input).unwrap(), Some(Ask::Gils { pid: 9, .. })));
        assert!(read::<Ask>(&mut input).unwrap().is_none());
    }

    #[test]
    fn a_message_over_the_limit_is_refused() {
        let mut input: &[u8] = &[0xff; 64];
        assert!(read::<Ask>(&mut input).is_err());
    }
}
