//! Which call of Python's standard library waits: told by its frames, or by the C function below them.

use super::super::Futex;
use crate::model::Frame;

/// CPython's lock functions (`Python/thread_pthread.h`, `Python/lock.c`, `Python/parking_lot.c`,
/// `Modules/_threadmodule.c`).
pub(super) fn is_lock_function(name: &str) -> bool {
    matches!(
        name,
        "PyThread_acquire_lock"
            | "PyThread_acquire_lock_timed"
            | "PyThread_acquire_lock_timed_with_retries"
            | "acquire_timed"
            | "lock_PyThread_acquire_lock"
            | "rlock_acquire"
            | "PyMutex_Lock"
            | "PyMutex_LockSlow"
            | "_PyMutex_LockSlow"
            | "_PyMutex_LockTimed"
            | "_PyRecursiveMutex_Lock"
            | "_PyRecursiveMutex_LockTimed"
            | "_PyParkingLot_Park"
            | "_PySemaphore_Wait"
            | "_PySemaphore_PlatformWait"
            | "PyEvent_Wait"
            | "PyEvent_WaitTimed"
            | "_PyEvent_WaitTimed"
            | "_queue_SimpleQueue_get"
            | "_queue_SimpleQueue_get_impl"
            | "ThreadHandle_join"
    ) || name.starts_with("_thread_lock_")
        || name.starts_with("_thread_RLock_")
}

/// The call, for people: `Queue.get`; `None`: the innermost frame is the user's own and no C function tells more.
pub(super) fn name(futex: &Futex<'_>) -> Option<&'static str> {
    let frames: Vec<&Frame> = futex.blocked.python().take(4).collect();
    call_name(&frames).or_else(|| by_native(futex))
}

/// A C function that says more than the Python frame that called it (`_thread_…` from 3.14 on).
fn by_native(futex: &Futex<'_>) -> Option<&'static str> {
    futex.blocked.native_above_python().find_map(|frame| match frame.function.as_str() {
        name if name.starts_with("rlock_") || name.starts_with("_thread_RLock_") => Some("RLock.acquire"),
        name if name.starts_with("lock_") || name.starts_with("_thread_lock_") => Some("Lock.acquire"),
        name if name.starts_with("_queue_SimpleQueue_get") => Some("SimpleQueue.get"),
        "ThreadHandle_join" => Some("Thread.join"),
        "_enter_buffered_busy" => Some("lock of a buffered file"),
        _ => None,
    })
}

/// What waits for an object written in C do; for the program's own frames around one say no more.
pub(super) fn by_type(name: &str) -> Option<&'static str> {
    Some(match name {
        "threading.Lock" | "multiprocessing.Lock" => "Lock.acquire",
        "threading.RLock" | "multiprocessing.RLock" => "RLock.acquire",
        "queue.SimpleQueue" => "SimpleQueue.get",
        "multiprocessing.Semaphore" | "multiprocessing.BoundedSemaphore" => "Semaphore.acquire",
        _ => return None,
    })
}

/// The call of the standard library that waits, from the innermost Python frames (`Lib/threading.py`, `Lib/queue.py`,
/// `Lib/concurrent/futures/_base.py` of 3.8–3.15). `None`: the innermost frame is the user's own, which called a lock
/// directly.
fn call_name(frames: &[&Frame]) -> Option<&'static str> {
    let place = |index: usize| -> (&str, &str) {
        let Some(frame) = frames.get(index) else { return ("", "") };
        let path = frame.file.as_deref().unwrap_or_default();
        // Before 3.11 the name is plain; the last part of a qualified one is the same.
        (tail(path), frame.function.rsplit('.').next().unwrap_or_default())
    };
    match place(0) {
        ("threading.py", "wait") => match place(1) {
            ("threading.py", "wait") => match place(2) {
                ("threading.py", "start") => Some("Thread.start"),
                _ => Some("Event.wait"),
            },
            ("threading.py", "wait_for") => match place(2) {
                ("threading.py", "_wait" | "_enter") => Some("Barrier.wait"),
                _ => Some("Condition.wait_for"),
            },
            ("threading.py", "acquire") => Some("Semaphore.acquire"),
            ("threading.py", "_wait" | "_enter") => Some("Barrier.wait"),
            ("queue.py", function) => Some(queue(function)),
            ("futures/_base.py", "result" | "exception") => Some("Future.result"),
            _ => Some("Condition.wait"),
        },
        ("threading.py", "_wait_for_tstate_lock") => match place(1) {
            ("threading.py", "_shutdown") => Some("interpreter shutdown"),
            _ => Some("Thread.join"),
        },
        ("threading.py", "join") => Some("Thread.join"),
        ("threading.py", "_shutdown") => Some("interpreter shutdown"),
        ("threading.py", "_acquire_restore") => Some("Condition.wait"),
        ("threading.py", "__enter__" | "acquire") => Some("RLock.acquire"),
        ("queue.py", function) => Some(queue(function)),
        ("_bootstrap>", "acquire" | "__enter__") => Some("import lock"),
        _ => None,
    }
}

fn queue(function: &str) -> &'static str {
    match function {
        "put" => "Queue.put",
        "join" => "Queue.join",
        "get" => "Queue.get",
        _ => "Queue",
    }
}

/// The file's name; for `_base.py` with its folder, for `<frozen importlib._bootstrap>` its end.
fn tail(path: &str) -> &str {
    if path.ends_with("importlib._bootstrap>") {
        return "_bootstrap>";
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    if name == "_base.py" && path.ends_with("futures/_base.py") { "futures/_base.py" } else { name }
}
