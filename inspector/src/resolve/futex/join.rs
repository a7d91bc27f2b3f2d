//! `pthread_join`: the word is the joined thread's tid in its own `struct pthread`, which the kernel clears when the
//! thread ends (`CLONE_CHILD_CLEARTID`), so the expected value is the tid itself.

use super::{Command, Futex, likely_unless};
use crate::model::{Owner, Wait, WaitKind};

/// Bound on how far into `struct pthread` the tid lies (720 bytes in glibc 2.36 on x86-64). On x86-64 the thread
/// pointer is the beginning of that structure; on aarch64 it is its end.
const REACH: u64 = 4096;

pub(super) fn decode(futex: &Futex<'_>) -> Option<Wait> {
    // The kernel wakes without the private flag.
    if futex.private || futex.command != Command::Wait {
        return None;
    }
    let tid = futex.value()?;
    let process = futex.blocked.process;
    let thread = futex.blocked.scene.thread_by_ns_tid(process, tid).filter(|_| tid != 0)?;
    let near = thread.thread_pointer.map(|pointer| pointer.abs_diff(futex.word) < REACH);
    if near == Some(false) {
        return None;
    }
    let owner = Owner {
        pid: process.pid,
        tid: Some(thread.tid),
        certainty: likely_unless(near == Some(true), futex.blocked.certainty()),
        evidence: format!("the futex word at {:#x} is the tid of the joined thread", futex.word),
    };
    Some(Wait {
        kind: WaitKind::Join,
        text: format!("end of {} (tid {})", thread.name(), thread.tid),
        address: Some(futex.word),
        owners: vec![owner],
        ..Wait::default()
    })
}
