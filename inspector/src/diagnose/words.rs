//! How findings name things.

use super::scene::Actor;
use crate::model::{Frame, FrameKind, Process, WaitKind};

/// `2m03s`: nanoseconds with the two units that matter.
pub(super) fn age(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0 => format!("{}ms", ns / 1_000_000),
        1..60 => format!("{seconds}.{}s", ns % 1_000_000_000 / 100_000_000),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// `decode scheduler TP0 (pid 4711)`; the `comm` of a program that is no worker.
pub(super) fn process(process: &Process) -> String {
    format!("{} (pid {})", role(process), process.pid)
}

/// `decode scheduler TP0`; the `comm` of a program that is no worker of an engine.
pub(super) fn role(process: &Process) -> String {
    match &process.worker {
        Some(worker) if worker.engine != "python" => worker.label(),
        _ => process.comm.clone(),
    }
}

/// `MainThread (tid 4711) of decode scheduler TP0`.
pub(super) fn thread(actor: &Actor<'_>) -> String {
    format!("{} (tid {}) of {}", actor.name(), actor.thread.tid, role(actor.process))
}

/// What a thread waits on, without its age: `send to … in send_metadata`.
pub(super) fn waits_on(actor: &Actor<'_>) -> String {
    let wait = &actor.resolved.wait;
    // All endpoints of a message socket's process: the whole list stands in the thread's own entry.
    let text = wait.text.split_once(": endpoints ").map_or(wait.text.as_str(), |(head, _)| head);
    let what = if text.is_empty() { wait.kind.name().to_owned() } else { text.to_owned() };
    match place(&actor.resolved.frames) {
        Some(place) => format!("{what}, in {place}"),
        None => what,
    }
}

/// One line for a party: `blocked 2m03s, no deadline: send to …, in send_metadata (decode.py:99)`.
pub(super) fn detail(actor: &Actor<'_>) -> String {
    let wait = &actor.resolved.wait;
    if matches!(wait.kind, WaitKind::Running) {
        return match place(&actor.resolved.frames) {
            Some(place) => format!("running in {place}"),
            None => "running".into(),
        };
    }
    let since = match actor.blocked_ns() {
        Some(ns) if wait.kind != WaitKind::Gil => format!("blocked {}", age(ns)),
        _ if actor.thread.activity.unchanged => "blocked all the time".into(),
        _ => "waits".into(),
    };
    // A GIL waiter's five-millisecond slices are no deadline that anybody chose.
    let limit = match (wait.has_deadline, wait.remaining_ns) {
        _ if wait.kind == WaitKind::Gil => String::new(),
        (false, _) => ", no deadline".into(),
        (true, Some(left)) => format!(", deadline in {}", age(left)),
        (true, None) => ", with a deadline".into(),
    };
    format!("{since}{limit}: {}", waits_on(actor))
}

/// The innermost frame that says something: Python's, outside the standard library's `threading` and the like where
/// there is one; else the innermost named native one.
fn place(frames: &[Frame]) -> Option<String> {
    let python = || frames.iter().filter(|frame| frame.kind == FrameKind::Python);
    let frame = python().find(|frame| !is_plumbing(frame)).or_else(|| python().next()).or_else(|| {
        frames.iter().find(|frame| frame.kind == FrameKind::Native && !frame.function.starts_with("0x"))
    })?;
    let file = frame.file.as_deref().map(|file| file.rsplit('/').next().unwrap_or(file));
    Some(match (file, frame.line) {
        (Some(file), Some(line)) => format!("{} ({file}:{line})", frame.function),
        (Some(file), None) => format!("{} ({file})", frame.function),
        _ => frame.function.clone(),
    })
}

/// Frames of the libraries through which programs wait.
fn is_plumbing(frame: &Frame) -> bool {
    let file = frame.file.as_deref().unwrap_or_default();
    ["/threading.py", "/queue.py", "/socket.py", "/selectors.py", "/subprocess.py"]
        .iter()
        .any(|name| file.ends_with(name))
        || file.contains("/zmq/")
        || file.contains("/concurrent/futures/")
}

/// `3 threads`, `1 thread`.
pub(super) fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ if what.ends_with('s') => format!("{number} {what}es"),
        _ => format!("{number} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_show_two_units() {
        let cases = [(40_000_000, "40ms"), (1_250_000_000, "1.2s"), (123_000_000_000, "2m03s")];
        for (ns, text) in cases {
            assert_eq!(age(ns), text);
        }
        assert_eq!(age(61_380_000_000_000), "17h03m");
        assert_eq!(age(u64::MAX), "213503d23h");
    }
}
