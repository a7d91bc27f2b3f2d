//! Open descriptors, from `/proc/PID/fd` and `/proc/PID/fdinfo`.

use serde::{Deserialize, Serialize};

/// One open descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fd {
    /// Its number.
    pub fd: i32,
    /// Open flags (`O_NONBLOCK`, the access mode), as `fdinfo` prints them.
    pub flags: u32,
    /// What it refers to.
    pub kind: FdKind,
}

impl Fd {
    /// The inode of the socket that it is.
    pub fn socket_inode(&self) -> Option<u64> {
        match self.kind {
            FdKind::Socket { inode } => Some(inode),
            _ => None,
        }
    }
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

/// One descriptor that an epoll set watches (`tfd:` lines of fdinfo).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpollTarget {
    /// Descriptor number at the time it was added.
    pub fd: i32,
    /// The `EPOLL*` bits.
    pub events: u32,
}
