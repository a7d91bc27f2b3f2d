//! What a thread waits on, resolved.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{SharedObject, SocketTimer};

/// Kind of wait. The names are promised to other tools.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum WaitKind {
    /// On a CPU or runnable.
    Running,
    /// A pthread mutex.
    Mutex,
    /// A pthread read-write lock.
    Rwlock,
    /// A condition variable.
    Condvar,
    /// A POSIX semaphore.
    Semaphore,
    /// The end of another thread.
    Join,
    /// Python's global interpreter lock.
    Gil,
    /// A `threading.Lock`, `RLock`, `Event`, `Condition`, `Queue`… of Python.
    PythonLock,
    /// A futex whose object was not decoded.
    Futex,
    /// Bytes from a socket.
    SocketRecv,
    /// Room in a socket's send buffer, or a peer to send to.
    SocketSend,
    /// An answer to a connection attempt.
    Connect,
    /// An incoming connection.
    Accept,
    /// `poll`, `select` and their kin.
    Poll,
    /// `epoll_wait` and its kin.
    Epoll,
    /// An eventfd.
    Eventfd,
    /// Bytes from a pipe.
    PipeRead,
    /// Room in a pipe.
    PipeWrite,
    /// A time.
    Sleep,
    /// A child process.
    Child,
    /// `flock`, `fcntl` or OFD lock.
    FileLock,
    /// An io_uring completion.
    IoUring,
    /// A disk or file system (D state).
    Disk,
    /// A device driver.
    Device,
    /// A signal (`pause`, `sigtimedwait`…).
    Signal,
    /// Stopped by a signal or a tracer.
    Stopped,
    /// A frozen cgroup.
    Frozen,
    /// A CPU quota.
    Throttled,
    /// Ended, not yet reaped.
    Zombie,
    /// Anything else.
    #[default]
    Other,
}

impl WaitKind {
    /// The promised name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Mutex => "mutex",
            Self::Rwlock => "rwlock",
            Self::Condvar => "condvar",
            Self::Semaphore => "semaphore",
            Self::Join => "join",
            Self::Gil => "gil",
            Self::PythonLock => "python-lock",
            Self::Futex => "futex",
            Self::SocketRecv => "socket-recv",
            Self::SocketSend => "socket-send",
            Self::Connect => "connect",
            Self::Accept => "accept",
            Self::Poll => "poll",
            Self::Epoll => "epoll",
            Self::Eventfd => "eventfd",
            Self::PipeRead => "pipe-read",
            Self::PipeWrite => "pipe-write",
            Self::Sleep => "sleep",
            Self::Child => "child",
            Self::FileLock => "file-lock",
            Self::IoUring => "io-uring",
            Self::Disk => "disk",
            Self::Device => "device",
            Self::Signal => "signal",
            Self::Stopped => "stopped",
            Self::Frozen => "frozen",
            Self::Throttled => "throttled",
            Self::Zombie => "zombie",
            Self::Other => "other",
        }
    }
}

/// How sure a statement about an owner or an edge is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// Inferred: last waker, naming, frames.
    #[default]
    Likely,
    /// An owner word, a socket peer, a joined thread id, read while all its ends were stable; or a GIL's holder that
    /// stood still, or was the same with the same switch number in every reading.
    Proven,
}

impl Certainty {
    /// The promised name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Proven => "proven",
            Self::Likely => "likely",
        }
    }
}

/// Who has to act for a wait to end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Owner {
    /// Its process, the host's id.
    pub pid: u32,
    /// Its thread, the host's id; `None`: only the process is known.
    pub tid: Option<u32>,
    /// How sure.
    pub certainty: Certainty,
    /// Where it comes from: `owner word at 0x…`, `sock_diag`, `value of the futex is the joined thread's tid`.
    pub evidence: String,
}

/// Who last woke a waiter of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastWaker {
    /// Its process, the host's id.
    pub pid: u32,
    /// Its thread, the host's id.
    pub tid: u32,
    /// How long before the end of the window that was, nanoseconds.
    pub before_end_ns: u64,
    /// Times that waiters were woken in the window, by whichever thread.
    pub times: u64,
    /// The thread has ended since.
    pub ended: bool,
}

/// What a thread waits on. Fields that do not apply are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Wait {
    /// The kind.
    pub kind: WaitKind,
    /// One line for people, without the age: `mutex 0x7f…c0 held by tid 4711`, `recv on 127.0.0.1:5000 ← 127.0.0.1:41872 ESTABLISHED`.
    pub text: String,
    /// The system call's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syscall: Option<String>,
    /// Address of the object in user memory (mutex, semaphore, futex word), lock address of a parking-lot wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
    /// Identity of the object where it lies in memory that processes share: the same in each of them, whatever its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<SharedObject>,
    /// The object of Python's that is waited on, where it was found: the `Queue`, not the lock inside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python_object: Option<PythonWait>,
    /// Flavour of the object: `normal`, `recursive`, `errorcheck`, `robust`, `pi`; `reader`, `writer`; `barrier`, `once`; for
    /// locks of other runtimes their name there (`rust std::sync::Mutex`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flavour: Option<String>,
    /// The descriptor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fd: Option<i32>,
    /// Inode of the socket or pipe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// Local address of the socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,
    /// Remote address of the socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// State of the connection (`ESTABLISHED`, `SYN_SENT`…).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_state: Option<String>,
    /// Bytes waiting to be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recv_queue: Option<u32>,
    /// Bytes waiting to be acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_queue: Option<u32>,
    /// Retransmissions or probes without an answer (TCP).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u32>,
    /// The timer of the connection (TCP).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer: Option<SocketTimer>,
    /// Nanoseconds since the last byte was sent (TCP).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sent_ns: Option<u64>,
    /// Nanoseconds since the last byte was received (TCP).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_received_ns: Option<u64>,
    /// Descriptors that a poll or epoll watches, each as one line for people.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<WaitTarget>,
    /// A deadline ends the wait at the latest.
    pub has_deadline: bool,
    /// Nanoseconds until the deadline at the end of the window, where it could be computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_ns: Option<u64>,
    /// The timeout that the call was made with, nanoseconds, where it is relative.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ns: Option<u64>,
    /// The cgroup that is frozen, or whose CPU quota is used up: the process's own or an ancestor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Kernel function that names the reason of a D-state or driver wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_function: Option<String>,
    /// Those who have to act; several where several can (a pipe's writers), none where the object keeps none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Owner>,
    /// Others than the owners can end the wait as well: who sends to a datagram socket or connects to a message socket next,
    /// a thread of the process itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub open_ended: bool,
    /// Who last woke a waiter of the object while inspector watched, where the object names no owner: the one who is likely
    /// to do so again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_waker: Option<LastWaker>,
    /// The tid (the target's own number) that a pthread mutex or a read-write lock names as its owner and that no thread has
    /// which could have taken it: it ended while it held the lock, or the process was forked meanwhile. Either way nobody is
    /// left to release it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_gone: Option<u32>,
}

/// The object that a thread of a Python program waits on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PythonWait {
    /// `threading.RLock`, `queue.Queue`; for a class of the program's own its bare name.
    #[serde(rename = "type")]
    pub type_name: String,
    /// `id()` of it.
    pub address: u64,
    /// How the program names it: `self._send_lock of Sender`, `local lock in worker()`, `global LOCK`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How it stands: `2 of 2 items`, `value 0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// One descriptor that a `poll` or `epoll` wait watches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WaitTarget {
    /// Its number.
    pub fd: i32,
    /// What it is, for people: `tcp 127.0.0.1:1 → 127.0.0.1:2 ESTABLISHED`, `eventfd 12`.
    pub text: String,
    /// Readiness that is awaited: `in`, `out`, `in|out`.
    pub events: String,
    /// Inode of the socket or pipe that it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// The epoll set that it belongs to, where that set is itself one of the descriptors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<i32>,
    /// Local address, for a socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,
    /// Remote address, for a socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// State of the connection, for a socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_state: Option<String>,
}
