//! The process at the other end of a ZeroMQ connection: its I/O thread watches the connection; which of its threads takes
//! the messages the kernel does not record. Those that wait in a ZeroMQ call are named.

use super::operation;
use crate::{
    model::{Owner, Process},
    resolve::scene::{Blocked, Scene},
};

/// Most processes described.
const MAX_PROCESSES: usize = 2;
/// Most threads named of one.
const MAX_THREADS: usize = 3;

/// `; at the other end pid 12: tid 34 in zmq recv`.
pub(super) fn words(scene: &Scene<'_>, owners: &[Owner]) -> String {
    let described: Vec<String> =
        owners.iter().take(MAX_PROCESSES).map(|owner| beyond(scene, owner.pid)).collect();
    match (described.as_slice(), owners.len()) {
        ([], _) => String::new(),
        (some, all) if all > some.len() => {
            format!("; at the other end {} and {} more processes", some.join("; "), all - some.len())
        }
        (some, _) => format!("; at the other end {}", some.join("; ")),
    }
}

fn beyond(scene: &Scene<'_>, pid: u32) -> String {
    let Some(process) = scene.capture.process(pid) else {
        return format!("pid {pid}, whose threads were not looked at");
    };
    let waiting = in_calls(scene, process);
    let named: Vec<&str> = waiting.iter().take(MAX_THREADS).map(String::as_str).collect();
    let more = match waiting.len().saturating_sub(MAX_THREADS) {
        0 => String::new(),
        number => format!(" and {number} more"),
    };
    let stacks = process.threads.iter().any(|thread| {
        !thread.native.frames.is_empty()
            || thread.python.as_ref().is_some_and(|python| !python.frames.is_empty())
    });
    match named.as_slice() {
        [] if !stacks => format!("pid {pid}, whose stacks could not be read"),
        [] => format!("pid {pid}: none of its threads waits in a ZeroMQ call (an event loop would not show)"),
        some => format!("pid {pid}: {}{more}", some.join(", ")),
    }
}

/// Its threads that wait in a ZeroMQ call, and in which.
fn in_calls(scene: &Scene<'_>, process: &Process) -> Vec<String> {
    let one =
        |blocked: Blocked<'_>| Some(format!("tid {} in {}", blocked.thread.tid, operation(&blocked)?.verb()));
    process.threads.iter().filter_map(|thread| one(Blocked::new(scene, process, thread)?)).collect()
}
