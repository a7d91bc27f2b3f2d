//! Waits for io_uring completions.

use super::{scene::Blocked, time::Timeout};
use crate::model::{FdKind, Ring, Wait, WaitKind};

/// `IORING_ENTER_EXT_ARG` (`include/uapi/linux/io_uring.h`).
const IORING_ENTER_EXT_ARG: u64 = 8;

/// `io_uring_enter` that waits for completions. Whoever makes one of the requests complete ends it; the kernel does not
/// tell which files the requests are about.
pub(super) fn resolve(blocked: &Blocked<'_>) -> Wait {
    let fd = blocked.fd(0);
    let open = blocked.open(fd).filter(|open| matches!(open.kind, FdKind::IoUring));
    // `struct io_uring_getevents_arg`: the address of the time-out is its last word.
    let timeout = if blocked.argument(3) & IORING_ENTER_EXT_ARG == 0 {
        Timeout::NONE
    } else {
        match blocked.argument(4).checked_add(16).and_then(|at| blocked.thread.saved_u64(at)) {
            Some(0) => Timeout::NONE,
            Some(_) | None => Timeout::UNREAD,
        }
    };
    let state = open.and_then(|open| open.details.as_ref()?.ring.as_ref()).map(state).unwrap_or_default();
    let text = match blocked.argument(2) as u32 {
        1 => format!("an io_uring completion{state}"),
        number => format!("at least {number} io_uring completions{state}"),
    };
    timeout.of(Wait { kind: WaitKind::IoUring, text, fd: open.map(|_| fd), ..Wait::default() })
}

/// What is under way. A request can complete more than once, so that the two counts need not meet.
fn state(ring: &Ring) -> String {
    let mut facts = vec![format!("{} submitted, {} completed", ring.taken, ring.completed)];
    if ring.queued > 0 {
        facts.push(format!("{} not yet taken by the kernel", ring.queued));
    }
    if ring.unread > 0 {
        facts.push(format!("{} completions not read", ring.unread));
    }
    if !ring.polling.is_empty() {
        facts.push(format!("waiting for a file: {}", operations(&ring.polling)));
    }
    if let Some(tid) = ring.submitter {
        facts.push(format!("submitted by the kernel's thread {tid}"));
    }
    format!(": {}", facts.join("; "))
}

/// `2 recv, poll-add`, each once with its number.
fn operations(polling: &[u8]) -> String {
    let mut sorted = polling.to_vec();
    sorted.sort_unstable();
    let runs = sorted.chunk_by(|one, next| one == next);
    let named = runs.filter_map(|run| {
        let name = operation(*run.first()?);
        Some(if run.len() == 1 { name } else { format!("{} {name}", run.len()) })
    });
    named.collect::<Vec<_>>().join(", ")
}

/// `enum io_uring_op` (`include/uapi/linux/io_uring.h`), those that can wait for a file.
fn operation(code: u8) -> String {
    let name = match code {
        1 => "readv",
        2 => "writev",
        4 => "read-fixed",
        5 => "write-fixed",
        6 => "poll-add",
        9 => "sendmsg",
        10 => "recvmsg",
        13 => "accept",
        16 => "connect",
        22 => "read",
        23 => "write",
        26 => "send",
        27 => "recv",
        30 => "splice",
        47 => "send-zc",
        48 => "sendmsg-zc",
        49 => "read-multishot",
        other => return format!("operation {other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_is_said_in_one_line() {
        let ring = Ring { taken: 4, completed: 1, polling: vec![27, 6, 27], ..Ring::default() };
        assert_eq!(state(&ring), ": 4 submitted, 1 completed; waiting for a file: poll-add, 2 recv");
        let ring = Ring { taken: 1, queued: 2, unread: 3, submitter: Some(9), polling: vec![99], ..ring };
        let expected = ": 1 submitted, 1 completed; 2 not yet taken by the kernel; 3 completions not read; waiting for a file: operation 99; submitted by the kernel's thread 9";
        assert_eq!(state(&ring), expected);
    }
}
