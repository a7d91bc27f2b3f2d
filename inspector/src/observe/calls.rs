//! What the system calls of blocked threads need to be looked for outside of their processes.

use std::collections::BTreeSet;

use crate::model::{IpcKind, Process};

/// Most objects of one kind.
const MAX_OBJECTS: usize = 4096;

/// What to look for.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// A thread waits for a child.
    pub(super) child: bool,
    /// A thread waits for a file lock.
    pub(super) lock: bool,
    /// POSIX message queues, by mount id and inode.
    pub(super) queues: BTreeSet<(u32, u64)>,
    /// System V objects: the waiter's process, the kind, the id.
    pub(super) ipc: BTreeSet<(u32, IpcKind, i32)>,
}

impl Calls {
    pub(super) fn of(processes: &[Process]) -> Self {
        let mut calls = Self::default();
        for process in processes {
            for syscall in process.threads.iter().filter_map(|thread| thread.syscall) {
                let first = syscall.arguments[0] as i32;
                let kind = match syscall.name(std::env::consts::ARCH) {
                    Some("wait4" | "waitid" | "vfork" | "clone" | "clone3") => {
                        calls.child = true;
                        continue;
                    }
                    Some("flock" | "fcntl") => {
                        calls.lock = true;
                        continue;
                    }
                    Some("mq_timedsend" | "mq_timedreceive") => {
                        let open = process.fds.iter().find(|open| open.fd == first);
                        let file = open.and_then(|open| open.details.as_ref()?.file);
                        calls.queues.extend(file.filter(|_| calls.queues.len() < MAX_OBJECTS));
                        continue;
                    }
                    Some("semop" | "semtimedop") => IpcKind::Semaphores,
                    Some("msgsnd" | "msgrcv") => IpcKind::Queue,
                    _ => continue,
                };
                if calls.ipc.len() < MAX_OBJECTS {
                    calls.ipc.insert((process.pid, kind, first));
                }
            }
        }
        calls
    }
}
