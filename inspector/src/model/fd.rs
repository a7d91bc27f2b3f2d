//! Open descriptors, from `/proc/PID/fd` and `/proc/PID/fdinfo`.

use serde::{Deserialize, Serialize};

use super::FileLock;

/// One open descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fd {
    /// Its number.
    pub fd: i32,
    /// Open flags (`O_NONBLOCK`, the access mode), as `fdinfo` prints them.
    pub flags: u32,
    /// What it refers to.
    pub kind: FdKind,
    /// What is known beyond that, of the few descriptors that have more to tell.
    #[serde(default)]
    pub details: Option<Box<FdDetails>>,
}

impl Fd {
    /// The inode of the socket that it is.
    pub fn socket_inode(&self) -> Option<u64> {
        match self.kind {
            FdKind::Socket { inode } => Some(inode),
            _ => None,
        }
    }

    /// The file locks that its open file description, or its process, holds on it.
    pub fn locks(&self) -> &[FileLock] {
        self.details.as_ref().map_or(&[], |details| details.locks.as_slice())
    }
}

/// What `fdinfo` and the socket itself say beyond the kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FdDetails {
    /// Mount id and inode of a file: the same pair in another process is the same file.
    pub file: Option<(u32, u64)>,
    /// Signals of a signalfd; bit n-1 stands for signal n.
    pub signals: u64,
    /// Watches of an inotify or marks of a fanotify descriptor.
    pub watches: u32,
    /// File locks that are held through it.
    pub locks: Vec<FileLock>,
    /// State of an io_uring.
    pub ring: Option<Ring>,
    /// Protocol of a socket that `sock_diag` is not asked about: `NETLINK`, `AF_VSOCK`, `RAW`, `PACKET`.
    pub protocol: Option<String>,
}

/// State of an io_uring, from its `fdinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ring {
    /// Requests that the kernel has taken over its life (the submission queue's head; it wraps).
    pub taken: u32,
    /// Requests in the submission queue that the kernel has not taken.
    pub queued: u32,
    /// Completions that the kernel has posted over its life (the completion queue's tail; it wraps).
    pub completed: u32,
    /// Completions that the program has not taken.
    pub unread: u32,
    /// `IORING_OP_*` of the requests that wait for their file to be ready.
    pub polling: Vec<u8>,
    /// Tid of the kernel's thread that submits (`IORING_SETUP_SQPOLL`).
    pub submitter: Option<u32>,
}

/// What a descriptor refers to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FdKind {
    /// A socket: the key to [`super::Socket::inode`].
    Socket {
        /// Its inode.
        inode: u64,
    },
    /// A pipe or FIFO; the access mode in the flags tells the end.
    Pipe {
        /// Its inode.
        inode: u64,
        /// Path of a FIFO; `None` for an anonymous pipe.
        path: Option<String>,
    },
    /// An eventfd.
    EventFd {
        /// `eventfd-id`: unique on the host; the same id in another process is the same object.
        id: Option<u64>,
        /// `eventfd-count` (hexadecimal in fdinfo).
        count: u64,
    },
    /// An epoll set.
    Epoll {
        /// What it watches.
        targets: Vec<EpollTarget>,
    },
    /// A timerfd.
    TimerFd {
        /// Nanoseconds until it expires; 0: disarmed.
        remaining_ns: u64,
    },
    /// A signalfd.
    SignalFd,
    /// A pidfd.
    PidFd {
        /// The host's pid of the process it refers to (`Pid` of its fdinfo, which is of the namespace of `/proc`, whoever
        /// holds the descriptor); -1 once that is gone and reaped.
        pid: i32,
    },
    /// An inotify or fanotify descriptor.
    Inotify,
    /// An io_uring.
    IoUring,
    /// A device (`/dev/nvidia0`).
    Device {
        /// Its path.
        path: String,
    },
    /// A regular file or directory.
    File {
        /// Its path in the target's mount namespace.
        path: String,
    },
    /// Anything else: the text of the link.
    Other {
        /// The link.
        link: String,
    },
}

impl Default for FdKind {
    fn default() -> Self {
        Self::Other { link: String::new() }
    }
}

impl FdKind {
    /// It is a socket.
    pub const fn is_socket(&self) -> bool {
        matches!(self, Self::Socket { .. })
    }
}

/// One descriptor that an epoll set watches (`tfd:` lines of fdinfo).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpollTarget {
    /// Descriptor number at the time it was added.
    pub fd: i32,
    /// The `EPOLL*` bits.
    pub events: u32,
    /// Inode of the file that was added (one for all anonymous inodes); 0: not told. The number may mean another file by
    /// now.
    #[serde(default)]
    pub inode: u64,
}
