//! Waits for objects of Python's, their holders, and what is not said.

use std::sync::Arc;

use super::super::super::resolve;
use crate::model::{
    Capture, Certainty, Frame, FrameKind, Host, LockHolder, Process, PythonFrame, PythonLock, PythonObject,
    PythonRuntime, PythonThread, SharedMapping, Stability, Syscall, TaskState, Thread, Wait, WaitKind,
};

const WORD: u64 = 0x7f00_0000_1000;
const OBJECT: u64 = 0x7f00_0000_2000;
const PID: u32 = 100;
const WAITER: u32 = 101;
const OTHER: u32 = 102;

fn lock(type_name: &str, address: u64) -> PythonLock {
    PythonLock {
        address,
        object: PythonObject {
            type_name: type_name.into(),
            address: OBJECT,
            path: Some("self._lock of Sender".into()),
            state: None,
        },
        ..PythonLock::default()
    }
}

fn thread(tid: u32, name: &str, python: PythonThread) -> Thread {
    Thread {
        tid,
        ns_tid: tid,
        state: TaskState::Sleeping,
        stability: Stability::Stable,
        python: Some(PythonThread { name: Some(name.into()), ..python }),
        ..Thread::default()
    }
}

/// A process in which one thread waits on a futex word in `function` of `file`, and another holds `held`.
fn capture(waits_on: Option<PythonLock>, held: Vec<PythonLock>, shared: bool) -> Capture {
    let frames = vec![PythonFrame { frame: 0, entry: true }];
    let mut waiter = thread(WAITER, "Waiter", PythonThread { frames, waits_on, ..PythonThread::default() });
    let operation = if shared { 0 } else { 128 };
    waiter.syscall =
        Some(Syscall { number: 202, arguments: [WORD, operation, 0, 0, 0, 0], restarted: false });
    let holder = thread(OTHER, "Holder", PythonThread { holds: held, ..PythonThread::default() });
    let frame = Frame {
        kind: FrameKind::Python,
        function: "Sender.send".into(),
        file: Some("sender.py".into()),
        line: Some(1),
        module: None,
        address: None,
    };
    Capture {
        host: Host { arch: "x86_64".into(), ..Host::default() },
        processes: vec![Process {
            pid: PID,
            ppid: 1,
            threads: vec![waiter, holder],
            frames: vec![Arc::new(frame)],
            python: Some(PythonRuntime { release: (3, 11), ..PythonRuntime::default() }),
            ..Process::default()
        }],
        ..Capture::default()
    }
}

fn wait(capture: &Capture) -> Wait {
    resolve(capture).remove(0).wait
}

fn held_by(tid: Option<u32>, exclusive: bool) -> LockHolder {
    let word = "owner word of the RLock".to_owned();
    LockHolder { ident: 0x77, tid, count: Some(2), exclusive, word }
}

#[test]
fn the_word_of_an_rlock_names_its_holder() {
    let mut rlock = lock("threading.RLock", WORD);
    rlock.holder = Some(held_by(Some(OTHER), true));
    let wait = wait(&capture(Some(rlock), Vec::new(), false));
    assert_eq!(wait.kind, WaitKind::PythonLock);
    assert_eq!(wait.text, "RLock 0x7f0000002000 (self._lock of Sender), held by Holder (tid 102), count 2");
    assert_eq!((wait.owners[0].tid, wait.owners[0].certainty), (Some(OTHER), Certainty::Proven));
    assert_eq!(wait.flavour.as_deref(), Some("RLock.acquire"));
    let object = wait.python_object.unwrap();
    assert_eq!((object.type_name.as_str(), object.address), ("threading.RLock", OBJECT));
}

#[test]
fn a_waiter_that_moved_proves_nothing_and_one_whom_others_can_free_neither() {
    let mut rlock = lock("threading.RLock", WORD);
    rlock.holder = Some(held_by(Some(OTHER), true));
    let mut moved = capture(Some(rlock.clone()), Vec::new(), false);
    moved.processes[0].threads[0].stability = Stability::Torn;
    assert_eq!(wait(&moved).owners[0].certainty, Certainty::Likely);
    rlock.holder = Some(held_by(Some(OTHER), false));
    let wait = wait(&capture(Some(rlock), Vec::new(), false));
    assert_eq!(wait.owners[0].certainty, Certainty::Likely);
    assert!(wait.text.contains("last taken by Holder"), "{}", wait.text);
}

#[test]
fn a_holder_that_is_no_thread_is_said_to_be_missing() {
    let mut rlock = lock("threading.RLock", WORD);
    rlock.holder = Some(held_by(None, true));
    let wait = wait(&capture(Some(rlock), Vec::new(), false));
    assert!(wait.owners.is_empty());
    assert!(wait.text.ends_with("held by a thread that was not found (ident 0x77)"), "{}", wait.text);
}

#[test]
fn a_lock_without_owner_is_likely_held_by_who_is_in_its_with_block() {
    let plain = lock("threading.Lock", WORD);
    let wait = wait(&capture(Some(plain.clone()), vec![plain], false));
    assert_eq!(wait.text, "Lock 0x7f0000002000 (self._lock of Sender), in a with block of Holder (tid 102)");
    assert_eq!((wait.owners[0].tid, wait.owners[0].certainty), (Some(OTHER), Certainty::Likely));
}

#[test]
fn who_holds_another_lock_is_no_owner() {
    let other = PythonLock { object: PythonObject::default(), ..lock("threading.Lock", WORD + 64) };
    let wait = wait(&capture(Some(lock("threading.Lock", WORD)), vec![other], false));
    assert!(wait.owners.is_empty());
    assert!(wait.text.ends_with("which records no owner"), "{}", wait.text);
}

#[test]
fn what_was_read_of_another_wait_is_not_told_of_this_one() {
    let wait = wait(&capture(Some(lock("threading.Lock", WORD + 8)), Vec::new(), false));
    assert_eq!((wait.kind, wait.python_object), (WaitKind::Futex, None));
}

#[test]
fn a_semaphore_has_the_holders_of_the_object() {
    // Its waiters wait on a lock of their own.
    let held = PythonLock { address: OBJECT, ..lock("threading.Semaphore", WORD) };
    let wait = wait(&capture(Some(lock("threading.Semaphore", WORD)), vec![held], false));
    assert_eq!(wait.owners.len(), 1, "{wait:?}");
}

/// What waits of the first process have for owners when the holder lives in another, which maps the semaphore of `inode`
/// somewhere else.
fn owners_in_another_process(inode: u64, shared: bool) -> Vec<(u32, Option<u32>, Certainty)> {
    const ELSEWHERE: u64 = 0x7e00_0000_0000;
    let mapping = |start: u64, inode: u64| {
        let path = "/dev/shm/sem.one".to_owned();
        Some(vec![SharedMapping {
            start,
            end: start + 4096,
            device: 1,
            inode,
            offset: 0,
            path,
            read_only: false,
        }])
    };
    let mut capture = capture(Some(lock("multiprocessing.Lock", WORD)), Vec::new(), shared);
    let mut holder = capture.processes[0].threads.pop().unwrap();
    holder.tid = 201;
    holder.python.as_mut().unwrap().holds = vec![lock("multiprocessing.Lock", ELSEWHERE)];
    capture.processes[0].shared_memory = mapping(WORD, 7);
    let shared_memory = mapping(ELSEWHERE, inode);
    capture.processes.push(Process { pid: 200, threads: vec![holder], shared_memory, ..Process::default() });
    wait(&capture).owners.iter().map(|owner| (owner.pid, owner.tid, owner.certainty)).collect()
}

#[test]
fn a_lock_that_processes_share_is_told_by_the_memory_it_lies_in() {
    assert_eq!(owners_in_another_process(7, true), [(200, Some(201), Certainty::Likely)]);
    assert_eq!(owners_in_another_process(8, true), []);
    assert_eq!(owners_in_another_process(7, false), [], "a private wait is for the process's own memory");
}
