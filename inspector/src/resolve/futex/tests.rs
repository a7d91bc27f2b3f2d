//! Objects as they lie in memory, and random bytes.

mod runtimes;
mod sharing;

use std::sync::Arc;

use proptest::prelude::*;

use super::super::resolve;
use crate::model::{
    Capture, Certainty, Frame, FrameKind, Host, Process, SavedMemory, Stability, Syscall, TaskState, Thread,
    Wait, WaitKind,
};

pub(super) const OBJECT: u64 = 0x7f00_0000_1000;
pub(super) const WAITER: u32 = 100;
pub(super) const HOLDER: u32 = 101;
/// `FUTEX_WAIT | PRIVATE`, `FUTEX_WAIT_BITSET | PRIVATE | CLOCK_REALTIME`.
pub(super) const WAIT: u64 = 128;
const WAIT_BITSET: u64 = 0x189;

/// A process with a waiter on the word at `OBJECT + at` of an object of these 32-bit words, and a holder.
pub(super) fn capture(words: &[u32], at: u64, operation: u64, expected: u32) -> Capture {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let waiter = Thread {
        tid: WAITER,
        ns_tid: 7,
        comm: "waiter".into(),
        state: TaskState::Sleeping,
        stability: Stability::Stable,
        syscall: Some(Syscall {
            number: 202,
            arguments: [OBJECT + at, operation, u64::from(expected), 0, 0, 0],
            restarted: false,
        }),
        memory: vec![SavedMemory { address: OBJECT, bytes }],
        ..Thread::default()
    };
    let holder = Thread {
        tid: HOLDER,
        ns_tid: 8,
        comm: "holder".into(),
        state: TaskState::Running,
        thread_pointer: Some(OBJECT + 16),
        ..Thread::default()
    };
    Capture {
        host: Host { arch: "x86_64".into(), ..Host::default() },
        processes: vec![Process {
            pid: WAITER,
            ns_pids: vec![WAITER, 7],
            threads: vec![waiter, holder],
            ..Process::default()
        }],
        ..Capture::default()
    }
}

fn waits(words: &[u32], at: u64, operation: u64, expected: u32) -> Wait {
    resolve(&capture(words, at, operation, expected)).remove(0).wait
}

#[track_caller]
fn held_by_holder(wait: &Wait, kind: WaitKind, flavour: &str) {
    assert_eq!((wait.kind, wait.flavour.as_deref()), (kind, Some(flavour)), "{wait:?}");
    assert_eq!(wait.owners.len(), 1, "{wait:?}");
    // The owner word holds the thread's id inside its namespace; the answer is the host's.
    assert_eq!((wait.owners[0].pid, wait.owners[0].tid), (WAITER, Some(HOLDER)));
    assert_eq!(wait.owners[0].certainty, Certainty::Proven);
}

#[test]
fn an_owner_in_another_process_is_likely_only() {
    let mut capture = capture(&[2, 0, 200, 1, 128, 0], 0, 0, 2);
    capture.processes[0].ns_pids.clear();
    let thread = Thread { tid: 200, ns_tid: 200, stability: Stability::Stable, ..Thread::default() };
    capture.processes.push(Process { pid: 200, threads: vec![thread], ..Process::default() });
    let owners = resolve(&capture).remove(0).wait.owners;
    assert_eq!(owners.len(), 1, "{owners:?}");
    assert_eq!((owners[0].pid, owners[0].tid), (200, Some(200)));
    assert_eq!(owners[0].certainty, Certainty::Likely);
}

#[test]
fn mutexes_by_flavour() {
    for (kind, flavour) in [(0, "normal"), (1, "recursive"), (2, "errorcheck"), (3, "adaptive")] {
        for operation in [WAIT, WAIT_BITSET] {
            let wait = waits(&[2, 0, 8, 1, kind, 0], 0, operation, 2);
            held_by_holder(&wait, WaitKind::Mutex, flavour);
            assert_eq!(wait.address, Some(OBJECT));
        }
    }
    let robust = 0x8000_0000 | 8;
    held_by_holder(&waits(&[robust, 0, 8, 1, 16, 0], 0, 0, robust), WaitKind::Mutex, "robust");
    held_by_holder(&waits(&[robust, 0, 8, 1, 32, 0], 0, 6 | 128, 0), WaitKind::Mutex, "pi");
}

#[test]
fn a_mutex_of_a_thread_that_is_gone_has_no_owner() {
    let wait = waits(&[2, 0, 4711, 1, 0, 0], 0, WAIT, 2);
    assert_eq!((wait.kind, wait.owners.len()), (WaitKind::Mutex, 0));
    assert!(wait.text.contains("4711, which is no thread of the process"), "{}", wait.text);
    assert_eq!(wait.owner_gone, None, "it may be another library's lock");
    let in_glibc = |kind| {
        let mut capture = capture(&[2, 0, 4711, 1, kind, 0], 0, WAIT, 2);
        let process = &mut capture.processes[0];
        process.frames.push(Arc::new(Frame {
            kind: FrameKind::Native,
            function: "pthread_mutex_lock".into(),
            file: None,
            line: None,
            module: None,
            address: None,
        }));
        let frames = vec![u32::try_from(process.frames.len() - 1).unwrap()];
        for thread in process.threads.iter_mut().filter(|thread| thread.tid == WAITER) {
            thread.native.frames.clone_from(&frames);
        }
        capture
    };
    let gone = |capture: &Capture| resolve(capture).remove(0).wait.owner_gone;
    assert_eq!(gone(&in_glibc(0)), Some(4711));
    assert_eq!(gone(&in_glibc(128)), None, "a shared one's may be another process's");
    let mut unmapped = in_glibc(0);
    unmapped.processes[0].ns_pids = vec![WAITER, 7];
    assert_eq!(gone(&unmapped), Some(4711));
    for thread in &mut unmapped.processes[0].threads {
        thread.ns_tid = thread.tid;
    }
    assert_eq!(gone(&unmapped), None, "its number inside the container is not known");
}

#[test]
fn a_word_that_moved_on_proves_nothing() {
    let wait = waits(&[0, 0, 8, 1, 0, 0], 0, WAIT, 2);
    assert_eq!((wait.kind, wait.owners.len()), (WaitKind::Futex, 0), "{wait:?}");
}

#[test]
fn an_unstable_waiter_gives_a_likely_owner() {
    let mut capture = capture(&[2, 0, 8, 1, 0, 0], 0, WAIT, 2);
    capture.processes[0].threads[0].stability = Stability::Torn;
    assert_eq!(resolve(&capture)[0].wait.owners[0].certainty, Certainty::Likely);
}

#[test]
fn rwlocks() {
    // A reader waits for the writer: one reader counted, write phase, held for writing.
    let reader = waits(&[(1 << 3) | 3, 0, 3, 1, 0, 0, 8, 0], 8, WAIT_BITSET, 3);
    held_by_holder(&reader, WaitKind::Rwlock, "reader");
    assert_eq!(reader.address, Some(OBJECT));
    let writer = waits(&[3, 1, 1, 3, 0, 0, 8, 0], 12, WAIT_BITSET, 3);
    held_by_holder(&writer, WaitKind::Rwlock, "writer");
    let behind_readers = waits(&[(2 << 3) | 2, 0, 2, 1, 0, 0, 0, 0], 8, WAIT_BITSET, 2);
    assert_eq!((behind_readers.kind, behind_readers.owners.len()), (WaitKind::Rwlock, 0));
    assert!(behind_readers.text.contains("2 readers"), "{}", behind_readers.text);
}

#[test]
fn condition_variables_of_both_layouts() {
    // Sequence 2 (one waiter has come), one reference in group 1, one waiter.
    let classic = [2, 0, 0, 0, 0, 2, 0, 0, 0, 1 << 3, 0, 0];
    let wait = waits(&classic, 44, WAIT_BITSET, 0);
    assert_eq!((wait.kind, wait.address), (WaitKind::Condvar, Some(OBJECT)), "{wait:?}");
    let modern = [2, 0, 0, 0, 0, 0, 0, 1 << 3, 0, 0, 0, 0];
    let wait = waits(&modern, 32, WAIT_BITSET, 0);
    assert_eq!((wait.kind, wait.address), (WaitKind::Condvar, Some(OBJECT)), "{wait:?}");
}

#[test]
fn semaphores() {
    assert_eq!(waits(&[0, 1, 0, 0], 0, WAIT_BITSET, 0).kind, WaitKind::Semaphore);
    // A shared one waits with a shared futex.
    assert_eq!(waits(&[0, 1, 128, 0], 0, 0x109, 0).kind, WaitKind::Semaphore);
    assert_eq!(waits(&[0, 0, 0, 0], 0, WAIT_BITSET, 0).kind, WaitKind::Futex);
}

#[test]
fn a_join_leads_to_the_joined_thread() {
    let wait = waits(&[8, 0, 0, 0], 0, 0x109, 8);
    assert_eq!(wait.kind, WaitKind::Join);
    assert_eq!((wait.owners[0].tid, wait.owners[0].certainty), (Some(HOLDER), Certainty::Proven));
}

proptest! {
    #[test]
    fn random_bytes_never_name_a_thread_that_is_not_there(
        words in proptest::collection::vec(prop_oneof![0u32..10, any::<u32>()], 0..40),
        at in 0u64..160,
        operation in 0u64..512,
        expected in prop_oneof![0u32..10, any::<u32>()],
        number in prop_oneof![Just(202u32), 0u32..460],
        release in (3u8..4, 8u8..16),
    ) {
        let mut capture = capture(&words, at, operation, expected);
        let process = &mut capture.processes[0];
        process.python = Some(crate::model::PythonRuntime { release, ..Default::default() });
        if let Some(syscall) = &mut process.threads[0].syscall {
            syscall.number = number;
        }
        for resolved in resolve(&capture) {
            for owner in resolved.wait.owners {
                if let Some(tid) = owner.tid {
                    prop_assert!(capture.processes[0].thread(tid).is_some());
                }
            }
        }
    }
}
