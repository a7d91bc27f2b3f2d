//! What the kernel's own frames say where the system call alone does not tell.

use super::{Direction, scene::Blocked};
use crate::model::{Wait, WaitKind};

/// The function that says why a task sleeps: the innermost that is not the scheduler's or a general waiting helper.
pub(super) fn reason<'a>(mut functions: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // `kernel/sched`, `kernel/locking`, `mm/filemap.c`, `kernel/time`: how to sleep, not why.
    functions.find(|function| {
        let name = function.split('.').next().unwrap_or(function);
        !(name.starts_with("schedule")
            || name.starts_with("io_schedule")
            || matches!(
                name,
                "__schedule"
                    | "__switch_to"
                    | "__switch_to_asm"
                    | "context_switch"
                    | "preempt_schedule_common"
                    | "wait_woken"
                    | "bit_wait"
                    | "bit_wait_io"
                    | "__wait_on_bit"
                    | "out_of_line_wait_on_bit"
                    | "do_nanosleep"
                    | "__wait_for_common"
                    | "wait_for_completion"
                    | "wait_for_completion_state"
                    | "wait_for_completion_killable"
            )
            || name.starts_with("0x"))
    })
}

/// `fs/pipe.c`; the names changed in 6.15 (`anon_pipe_read`).
pub(super) fn pipe_function(function: &str) -> Option<Direction> {
    match function {
        "pipe_read" | "anon_pipe_read" | "fifo_pipe_read" => Some(Direction::In),
        "pipe_write" | "anon_pipe_write" | "fifo_pipe_write" => Some(Direction::Out),
        _ => None,
    }
}

/// A blocked read or write whose descriptor could not be read.
pub(super) fn transfer(blocked: &Blocked<'_>, direction: Direction) -> Option<Wait> {
    let socket_call = blocked.name.starts_with("recv") || blocked.name.starts_with("send");
    let (kind, what) = if socket_call && blocked.name != "sendfile" {
        match direction {
            Direction::In => (WaitKind::SocketRecv, "socket"),
            Direction::Out => (WaitKind::SocketSend, "socket"),
        }
    } else {
        blocked.kernel().find_map(|function| match (pipe_function(function), function, direction) {
            (Some(Direction::In), ..) => Some((WaitKind::PipeRead, "pipe")),
            (Some(Direction::Out), ..) => Some((WaitKind::PipeWrite, "pipe")),
            (_, "sock_read_iter", _) => Some((WaitKind::SocketRecv, "socket")),
            (_, "sock_write_iter", _) => Some((WaitKind::SocketSend, "socket")),
            (_, "eventfd_read" | "eventfd_write", _) => Some((WaitKind::Eventfd, "eventfd")),
            _ => None,
        })?
    };
    let fd = blocked.fd(0);
    Some(Wait {
        kind,
        text: format!("{} on {what} {fd}, which could not be looked at", blocked.name),
        fd: Some(fd),
        ..Wait::default()
    })
}

/// A call that no decoder knows.
pub(super) fn undecoded(blocked: &Blocked<'_>) -> Wait {
    let function = reason(blocked.kernel()).map(str::to_owned);
    let inside = function.as_deref().map(|function| format!(" in {function}")).unwrap_or_default();
    Wait {
        kind: WaitKind::Other,
        text: format!("{}{inside}", blocked.name),
        kernel_function: function,
        ..Wait::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_behind_the_scheduler() {
        let stack = ["__schedule", "schedule", "io_schedule", "folio_wait_bit_common", "filemap_fault"];
        assert_eq!(reason(stack.into_iter()), Some("folio_wait_bit_common"));
        assert_eq!(reason(["__schedule"].into_iter()), None);
        assert_eq!(reason(["schedule", "wait_woken", "n_tty_read"].into_iter()), Some("n_tty_read"));
    }
}
