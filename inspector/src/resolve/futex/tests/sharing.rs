//! Locks in memory that processes share: whom their words name.

use super::*;
use crate::model::{NamedTid, Namesake, SharedMapping, SharedObject};

const SHARED: u64 = 128;
/// `FUTEX_WAIT` on a shared word.
const WAIT_SHARED: u64 = 0;

fn mapping(start: u64) -> SharedMapping {
    let path = "/memfd:x".into();
    SharedMapping { start, end: start + 0x1000, device: 1, inode: 7, offset: 0x2000, path, read_only: false }
}

fn object() -> SharedObject {
    SharedObject { device: "0:1".into(), inode: 7, offset: 0x2000, path: "/memfd:x".into() }
}

/// A waiter for a mutex that thread 200 holds, in a mapping of the two processes.
fn two_processes() -> Capture {
    let mut capture = capture(&[2, 0, 200, 1, SHARED as u32, 0], 0, WAIT_SHARED, 2);
    let waiter = &mut capture.processes[0];
    (waiter.ns_pids, waiter.pid_ns) = (vec![WAITER], Some(1));
    waiter.shared_memory = Some(vec![mapping(OBJECT)]);
    let thread = Thread { tid: 200, ns_tid: 200, stability: Stability::Stable, ..Thread::default() };
    capture.processes.push(Process {
        pid: 199,
        ns_pids: vec![199],
        pid_ns: Some(1),
        threads: vec![thread],
        shared_memory: Some(vec![mapping(0x5000_0000)]),
        ..Process::default()
    });
    capture
}

fn wait_in(capture: &Capture) -> Wait {
    resolve(capture).remove(0).wait
}

fn owners(capture: &Capture) -> Vec<(u32, Option<u32>, Certainty)> {
    wait_in(capture).owners.into_iter().map(|owner| (owner.pid, owner.tid, owner.certainty)).collect()
}

#[test]
fn an_owner_that_maps_the_same_page_is_proven() {
    let capture = two_processes();
    assert_eq!(owners(&capture), [(199, Some(200), Certainty::Proven)]);
    let wait = wait_in(&capture);
    assert_eq!((wait.object, wait.address), (Some(object()), Some(OBJECT)));
    assert!(wait.text.contains("(tid 200 of pid 199), in shared memory /memfd:x+0x2000"), "{}", wait.text);
}

#[test]
fn who_does_not_map_it_is_no_owner() {
    let mut capture = two_processes();
    for mappings in [
        None,
        Some(Vec::new()),
        Some(vec![SharedMapping { offset: 0x9000, ..mapping(0x5000_0000) }]),
        // Whoever can write there may name an innocent thread that can only read.
        Some(vec![SharedMapping { read_only: true, ..mapping(0x5000_0000) }]),
    ] {
        capture.processes[1].shared_memory = mappings;
        assert_eq!(owners(&capture), []);
        assert_eq!(wait_in(&capture).owner_gone, None);
    }
    // Memory that is known to be the process's own can only be locked by its own threads.
    let mut own = two_processes();
    own.processes[0].shared_memory = Some(Vec::new());
    assert_eq!(owners(&own), []);
}

#[test]
fn another_pid_namespace_counts_for_itself() {
    let mut capture = two_processes();
    capture.processes[1].pid_ns = Some(2);
    assert_eq!(owners(&capture), [(199, Some(200), Certainty::Likely)]);
    // The same number twice.
    let twin = Thread { tid: 301, ns_tid: 200, ..Thread::default() };
    let mappings = Some(vec![mapping(0x6000_0000)]);
    let other = Process {
        pid: 300,
        threads: vec![twin],
        pid_ns: Some(3),
        shared_memory: mappings,
        ..Process::default()
    };
    capture.processes.push(other);
    let both = [(199, Some(200), Certainty::Likely), (300, Some(301), Certainty::Likely)];
    assert_eq!(owners(&capture), both);
    // A System V segment's id is counted in each IPC namespace.
    let mut sysv = two_processes();
    for process in &mut sysv.processes {
        for mapping in process.shared_memory.iter_mut().flatten() {
            mapping.path = "/SYSV00000001".into();
        }
    }
    assert_eq!(owners(&sysv), [(199, Some(200), Certainty::Likely)]);
}

#[test]
fn an_owner_that_was_looked_up() {
    let mut capture = two_processes();
    capture.processes.truncate(1);
    let named =
        |thread: Option<Namesake>, complete| NamedTid { ns_tid: 200, object: object(), thread, complete };
    let namesake = |maps_object| Some(Namesake { pid: 9, tid: 200, comm: "stranger".into(), maps_object });
    let with = |capture: &mut Capture, named| {
        capture.processes[0].named_tids = vec![named];
        (owners(capture), wait_in(capture))
    };
    let (found, wait) = with(&mut capture, named(namesake(true), false));
    assert_eq!(found, [(9, Some(200), Certainty::Likely)]);
    assert!(wait.text.contains("stranger (tid 200 of pid 9, which was not looked at)"), "{}", wait.text);
    let (found, wait) = with(&mut capture, named(namesake(false), false));
    assert_eq!((found.len(), wait.owner_gone), (0, None));
    assert!(wait.text.contains("does not map this memory"), "{}", wait.text);
    let (_, wait) = with(&mut capture, named(None, true));
    assert!(wait.text.contains("which has ended"), "{}", wait.text);
    assert_eq!(wait.owner_gone, None, "no function of glibc is on the stack");
    let (_, wait) = with(&mut capture, named(None, false));
    assert!(wait.text.contains("no thread of the processes that were looked at"), "{}", wait.text);
    // Below glibc's functions it is gone for certain.
    runtimes::below(&mut capture, &[("pthread_mutex_lock", "/lib/libc.so.6")]);
    let (_, wait) = with(&mut capture, named(None, true));
    assert_eq!(wait.owner_gone, Some(200));
    assert_eq!(with(&mut capture, named(None, false)).1.owner_gone, None);
}

proptest! {
    #[test]
    fn random_words_in_shared_memory_name_nobody_who_is_not_there(
        words in proptest::collection::vec(prop_oneof![0u32..10, Just(200), any::<u32>()], 0..40),
        at in 0u64..160,
        operation in 0u64..512,
        expected in prop_oneof![0u32..10, any::<u32>()],
        number in prop_oneof![Just(202u32), Just(449), Just(455)],
        maps in any::<bool>(),
    ) {
        let mut capture = two_processes();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let thread = &mut capture.processes[0].threads[0];
        thread.memory = vec![SavedMemory { address: OBJECT, bytes }];
        let arguments = [OBJECT + at, operation, u64::from(expected), 0, OBJECT, 0];
        thread.syscall = Some(Syscall { number, arguments, restarted: false });
        if !maps {
            capture.processes[1].shared_memory = Some(Vec::new());
        }
        for owner in wait_in(&capture).owners {
            let process = capture.process(owner.pid).expect("a captured process");
            prop_assert!(owner.tid.is_some_and(|tid| process.thread(tid).is_some()));
            prop_assert!(maps || owner.pid == WAITER);
        }
    }
}
