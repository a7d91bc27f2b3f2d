//! File locks, from `/proc/locks` and `/proc/PID/fdinfo`.

use serde::{Deserialize, Serialize};

/// Whose a lock is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LockClass {
    /// `flock`: the open file description's.
    #[default]
    Flock,
    /// `fcntl(F_SETLK)`: the process's.
    Posix,
    /// `fcntl(F_OFD_SETLK)`: the open file description's.
    Ofd,
    /// A lease or delegation.
    Lease,
}

/// One lock, held or wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileLock {
    /// Whose it is.
    pub class: LockClass,
    /// Exclusive.
    pub write: bool,
    /// The host's pid of the process that asked for it: of a `flock` lock it need not be the one that has the descriptor
    /// now. `None`: not recorded (OFD locks), or not of this host.
    pub pid: Option<u32>,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// The file's inode.
    pub inode: u64,
    /// First byte.
    pub start: u64,
    /// Last byte; `None`: to the end of the file, however far that grows.
    pub end: Option<u64>,
}

impl FileLock {
    /// Whether both are the same lock, whoever asked for it.
    pub fn is(&self, other: &Self) -> bool {
        (self.class, self.write, self.device, self.inode, self.start, self.end)
            == (other.class, other.write, other.device, other.inode, other.start, other.end)
    }
}

/// A request that waits for a lock, as the kernel pairs them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockWait {
    /// What is wanted.
    pub wanted: FileLock,
    /// What stands in its way.
    pub held: FileLock,
}
