//! Eventfds, signals, System V semaphores and io_uring.

use super::{
    scene::{Blocked, Object},
    text,
    time::Timeout,
};
use crate::model::{Certainty, FdKind, Wait, WaitKind};

/// `IORING_ENTER_EXT_ARG` (`include/uapi/linux/io_uring.h`).
const IORING_ENTER_EXT_ARG: u64 = 8;

/// A blocked read (the count is 0) or write (the count is full) of an eventfd. Nobody owns it; processes that share it
/// are the only ones who can signal it, besides the waiter's own threads.
pub(super) fn eventfd(blocked: &Blocked<'_>, id: Option<u64>, count: u64) -> Wait {
    let own = blocked.process.pid;
    let owners = id.map_or_else(Vec::new, |id| {
        let evidence = format!("shares eventfd {id}");
        blocked.owners(Object::EventFd(id), Certainty::Likely, &evidence, |holder| holder.pid != own)
    });
    let name = id.map(|id| format!(" {id}")).unwrap_or_default();
    Wait {
        kind: WaitKind::Eventfd,
        text: format!("eventfd{name} (count {count})"),
        fd: Some(blocked.fd(0)),
        owners,
        open_ended: true,
        ..Wait::default()
    }
}

/// `pause`, `sigsuspend`, `sigtimedwait`, a read of a signalfd.
pub(super) fn signal(blocked: &Blocked<'_>) -> Wait {
    let timeout = match blocked.name {
        "rt_sigtimedwait" => Timeout::relative_at(blocked, blocked.argument(2)),
        _ => Timeout::NONE,
    };
    let fd = matches!(blocked.name, "read" | "readv").then(|| blocked.fd(0));
    let set = (blocked.name == "rt_sigtimedwait")
        .then(|| blocked.thread.saved_u64(blocked.argument(0)))
        .flatten()
        // A read of a signalfd; the other calls have no descriptor.
        .or_else(|| Some(blocked.open(fd?)?.details.as_ref()?.signals))
        .map(text::signals)
        .unwrap_or_default();
    timeout.of(Wait { kind: WaitKind::Signal, text: format!("a signal{set}"), fd, ..Wait::default() })
}

/// `semop`, `semtimedop`.
pub(super) fn sysv_semaphore(blocked: &Blocked<'_>) -> Wait {
    let timeout = match blocked.name {
        "semtimedop" => Timeout::relative_at(blocked, blocked.argument(3)),
        _ => Timeout::NONE,
    };
    timeout.of(Wait {
        kind: WaitKind::Semaphore,
        text: format!("System V semaphore set {}", blocked.fd(0)),
        flavour: Some("sysv".to_owned()),
        ..Wait::default()
    })
}

/// `io_uring_enter` that waits for completions.
pub(super) fn io_uring(blocked: &Blocked<'_>) -> Wait {
    let fd = blocked.fd(0);
    let known = matches!(blocked.open(fd).map(|open| &open.kind), Some(FdKind::IoUring));
    // `struct io_uring_getevents_arg`: the address of the time-out is its last word.
    let timeout = if blocked.argument(3) & IORING_ENTER_EXT_ARG == 0 {
        Timeout::NONE
    } else {
        match blocked.argument(4).checked_add(16).and_then(|at| blocked.thread.saved_u64(at)) {
            Some(0) => Timeout::NONE,
            Some(_) | None => Timeout::UNREAD,
        }
    };
    timeout.of(Wait {
        kind: WaitKind::IoUring,
        text: format!("at least {} io_uring completions", blocked.argument(2) as u32),
        fd: known.then_some(fd),
        ..Wait::default()
    })
}
