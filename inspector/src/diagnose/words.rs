//! How findings name things.

use std::sync::Arc;

use super::scene::Actor;
use crate::model::{Frame, FrameKind, Process, WaitKind, format::humane};

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

/// What a thread waits on: `zmq send: no peer is connected`.
pub(super) fn object<'a>(actor: &Actor<'a>) -> &'a str {
    let wait = &actor.resolved.wait;
    if wait.text.is_empty() { wait.kind.name() } else { &wait.text }
}

/// What a thread waits on, and where: `send to … in send_metadata`.
fn waits_on(actor: &Actor<'_>) -> String {
    let what = object(actor);
    match place(&actor.resolved.frames) {
        Some(place) => format!("{what}, in {place}"),
        None => what.to_owned(),
    }
}

/// ` in send_metadata (decode.py:99)`; empty where no frame says anything.
pub(super) fn in_place(actor: &Actor<'_>) -> String {
    place(&actor.resolved.frames).map(|place| format!(" in {place}")).unwrap_or_default()
}

/// One line for a party: `blocked 2m03s, no deadline: send to …, in send_metadata (decode.py:99)`.
pub(super) fn detail(actor: &Actor<'_>) -> String {
    let wait = &actor.resolved.wait;
    if matches!(wait.kind, WaitKind::Running) {
        return format!("running{}", in_place(actor));
    }
    if matches!(wait.kind, WaitKind::Throttled) {
        return format!("throttled: {}", waits_on(actor));
    }
    let since = match actor.blocked_ns() {
        Some(ns) if wait.kind != WaitKind::Gil => format!("blocked {}", humane(ns)),
        _ if actor.thread.activity.unchanged => "blocked all the time".into(),
        _ => "waits".into(),
    };
    // A GIL waiter's five-millisecond slices are no deadline that anybody chose.
    let limit = match (wait.has_deadline, wait.remaining_ns) {
        _ if wait.kind == WaitKind::Gil => String::new(),
        (false, _) => ", no deadline".into(),
        (true, Some(left)) => format!(", deadline in {}", humane(left)),
        (true, None) => ", with a deadline".into(),
    };
    format!("{since}{limit}: {}", waits_on(actor))
}

/// The innermost frame that says something: Python's, outside the standard library's `threading` and the like where
/// there is one; else the innermost named native one.
fn place(frames: &[Arc<Frame>]) -> Option<String> {
    let python = || frames.iter().filter(|frame| frame.kind == FrameKind::Python);
    let frame = python().find(|frame| !frame.is_plumbing()).or_else(|| python().next()).or_else(|| {
        let named = || {
            let native = frames.iter().filter(|frame| frame.kind == FrameKind::Native);
            native.filter(|frame| !frame.function.starts_with("0x"))
        };
        named().find(|frame| !frame.is_plumbing()).or_else(|| named().next())
    })?;
    let file = frame.file.as_deref().map(|file| file.rsplit('/').next().unwrap_or(file));
    Some(match (file, frame.line) {
        (Some(file), Some(line)) => format!("{} ({file}:{line})", frame.function),
        (Some(file), None) => format!("{} ({file})", frame.function),
        _ => frame.function.clone(),
    })
}

/// `3 threads`, `1 thread`.
pub(super) fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ if what.ends_with('s') => format!("{number} {what}es"),
        _ => format!("{number} {what}s"),
    }
}
