//! What was read of a Python runtime.

use serde::{Deserialize, Serialize};

/// Who read the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PythonEngine {
    /// inspector's own reader.
    #[default]
    Own,
    /// The `py-spy` crate, for a runtime that the own reader does not recognise.
    PySpy,
}

/// The Python runtime of one process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PythonRuntime {
    /// `3.11.7`, or `3.11` where the patch level is not known.
    pub version: String,
    /// Major and minor version.
    pub release: (u8, u8),
    /// Who read it.
    pub engine: PythonEngine,
    /// Built with `--disable-gil`.
    pub free_threaded: bool,
    /// Address of `_PyRuntime`.
    pub runtime_address: Option<u64>,
    /// Every interpreter as the runtime links them: the last one created first, the main one last.
    pub interpreters: Vec<Interpreter>,
    /// Python thread states that no thread of the process could be matched with.
    pub unmatched: Vec<PythonThread>,
    /// Which thread each thread state belongs to: a GIL names its holder by the thread state's address.
    #[serde(default)]
    pub thread_states: Vec<ThreadState>,
}

/// The owner of a `PyThreadState`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadState {
    /// Address of the `PyThreadState` in the target.
    pub address: u64,
    /// The host's tid.
    pub tid: u32,
}

impl PythonRuntime {
    /// The GILs of the runtime: one before 3.12 and for shared-GIL interpreters, one an own-GIL interpreter.
    pub fn gils(&self) -> impl Iterator<Item = &Gil> {
        self.interpreters.iter().filter_map(|interpreter| interpreter.gil.as_ref())
    }

    /// The host's tid of the thread whose `PyThreadState` lies at `address`.
    pub fn host_tid(&self, address: u64) -> Option<u32> {
        self.thread_states.iter().find(|state| state.address == address).map(|state| state.tid)
    }
}

/// One interpreter.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Interpreter {
    /// `PyInterpreterState.id`: 0 is the main interpreter.
    pub id: i64,
    /// Its address in the target.
    pub address: u64,
    /// Its GIL; `None` for an interpreter that shares the main one's (it is listed there) or a free-threaded build.
    pub gil: Option<Gil>,
}

/// One `_gil_runtime_state` and how it moved.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Gil {
    /// Address of the `_gil_runtime_state`.
    pub address: u64,
    /// First byte of the GIL's condition variable and the first byte after it, where known: a futex wait inside it is a
    /// wait for this GIL.
    pub cond: Option<(u64, u64)>,
    /// Readings, in time order; the first belongs to the stacks.
    pub samples: Vec<GilSample>,
}

impl Gil {
    /// The reading that belongs to the stacks.
    pub fn first(&self) -> Option<&GilSample> {
        self.samples.first()
    }
}

/// One reading of a GIL. The reader repeats it until two in a row agree; a reading that never settled has no holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GilSample {
    /// Nanoseconds since the window's start.
    pub at_ns: u64,
    /// Somebody holds it.
    pub locked: bool,
    /// The holder's tid in the host's PID namespace, while locked and known.
    pub holder: Option<u32>,
    /// `switch_number`: a free progress counter. Unchanged with waiters present, the GIL is stuck.
    pub switch_number: u64,
}

/// One Python thread state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PythonThread {
    /// Id of its interpreter.
    pub interpreter: i64,
    /// `threading.Thread.name`; `None` for a thread that `threading` does not know.
    pub name: Option<String>,
    /// `threading.get_ident()`: `pthread_self()`.
    pub ident: u64,
    /// tid in the target's own PID namespace, from the runtime (3.11+) or from glibc's thread structure.
    pub native_id: Option<u32>,
    /// It is the holder of its interpreter's GIL.
    pub holds_gil: bool,
    /// Frames, innermost first.
    pub frames: Vec<PythonFrame>,
    /// Why `frames` is not the whole stack, as one clause; `None`: it is.
    pub partial: Option<String>,
    /// It is a daemon thread, where `threading` says so.
    pub daemon: Option<bool>,
    /// What its innermost call waits on, where the address of the wait led to an object of Python's.
    #[serde(default)]
    pub waits_on: Option<PythonLock>,
    /// What its frames hold by a `with` block.
    #[serde(default)]
    pub holds: Vec<PythonLock>,
    /// Descriptors of the sockets and connections that its innermost frames have in variables and in attributes of `self`.
    #[serde(default)]
    pub descriptors: Vec<i32>,
}

/// A lock, a queue or another object of Python's that threads wait on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonLock {
    /// What a futex wait for it shows: the address of its semaphore, or of the lock that waiters park on. Of a
    /// `threading.Semaphore`, which has none of its own, the object's.
    pub address: u64,
    /// The object as the program knows it: a `Queue`, not the lock inside.
    pub object: PythonObject,
    /// Who holds it (or, of a thread that is joined, who it is), where the object itself says so.
    pub holder: Option<LockHolder>,
}

/// One object of a Python program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonObject {
    /// `threading.RLock`, `queue.Queue`; for a class of the program's own its bare name.
    pub type_name: String,
    /// `id()` of it.
    pub address: u64,
    /// How the program names it: `self._send_lock of Sender`, `local lock in worker()`, `global LOCK`.
    pub path: Option<String>,
    /// How it stands: `2 of 2 items`, `value 0`.
    pub state: Option<String>,
}

/// The thread that an object names as its holder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHolder {
    /// `threading.get_ident()` of it.
    pub ident: u64,
    /// The host's tid; `None`: no thread of the process is known to be it.
    pub tid: Option<u32>,
    /// How often it took the lock; `None`: it is a thread to be joined.
    pub count: Option<u64>,
    /// Nobody else can end the wait.
    pub exclusive: bool,
    /// What names it: `rlock_owner`, `_ident of the joined Thread`.
    pub word: String,
}

impl PythonThread {
    /// Its stack was read to its outer end.
    pub fn is_whole(&self) -> bool {
        self.partial.is_none() && !self.frames.is_empty()
    }
}

/// One Python frame of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonFrame {
    /// Index into [`super::Process::frames`].
    pub frame: u32,
    /// The frame is the outermost that one C call of the eval loop runs: above it in the native stack comes the
    /// caller of `_PyEval_EvalFrameDefault`. Always true before 3.11, where each frame has its own C call.
    pub entry: bool,
}
