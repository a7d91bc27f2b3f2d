//! System V semaphores and message queues that threads wait on.

use serde::{Deserialize, Serialize};

/// What kind of object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IpcKind {
    /// A set of semaphores.
    #[default]
    Semaphores,
    /// A message queue.
    Queue,
}

/// One object. Its id means something in one IPC namespace only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IpcObject {
    /// The kind.
    pub kind: IpcKind,
    /// Its id.
    pub id: i32,
    /// The wanted processes that live in its namespace and have a thread that waits on it.
    pub pids: Vec<u32>,
    /// The semaphores of a set, by number.
    pub semaphores: Vec<Semaphore>,
    /// The host's pid of who sent to a queue last; 0: nobody, or a process of another PID namespace.
    pub last_sender: u32,
    /// The same, of who received last.
    pub last_receiver: u32,
    /// Messages in the queue.
    pub messages: u64,
    /// Bytes in the queue.
    pub bytes: u64,
}

/// One semaphore of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Semaphore {
    /// Its value.
    pub value: u32,
    /// The host's pid of who changed it last (`sempid`); 0: nobody, or a process of another PID namespace.
    pub last: u32,
}
