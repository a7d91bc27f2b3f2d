//! Locks that are known by functions: recorded stacks of runtimes, and stacks that must not be taken for them.

use super::*;

const LIBC: &str = "/usr/lib/x86_64-linux-gnu/libc.so.6";
const GO: &str = "/usr/local/bin/gateway";

/// Puts these native frames on the waiter's stack, innermost first: function and module.
pub(super) fn below(capture: &mut Capture, frames: &[(&str, &str)]) {
    let process = &mut capture.processes[0];
    let mut indices = Vec::new();
    for (function, module) in frames {
        process.frames.push(Arc::new(Frame {
            kind: FrameKind::Native,
            function: (*function).into(),
            file: None,
            line: None,
            module: Some((*module).into()),
            address: None,
        }));
        indices.push(u32::try_from(process.frames.len() - 1).expect("few frames"));
    }
    process.threads[0].native.frames = indices;
}

/// What is said of a wait for a word of `value` below these frames.
fn named(value: u32, frames: &[(&str, &str)]) -> (WaitKind, Option<String>) {
    let mut capture = capture(&[value, 0, 0, 0], 0, WAIT, value);
    below(&mut capture, frames);
    let wait = resolve(&capture).remove(0).wait;
    assert!(wait.owners.is_empty(), "{wait:?}");
    (wait.kind, wait.flavour)
}

#[track_caller]
fn is(said: (WaitKind, Option<String>), kind: WaitKind, flavour: &str) {
    assert_eq!(said, (kind, Some(flavour.to_owned())));
}

#[test]
fn go() {
    let idle =
        ["runtime.futex.abi0", "runtime.futexsleep", "runtime.notesleep", "runtime.mPark", "runtime.stopm"];
    is(named(0, &idle.map(|name| (name, GO))), WaitKind::Futex, "go idle thread");
    let lock = [
        "runtime.futex.abi0",
        "runtime.futexsleep",
        "runtime.lock2",
        "runtime.lockWithRank",
        "runtime.mheap.alloc",
    ];
    is(named(2, &lock.map(|name| (name, GO))), WaitKind::Mutex, "go runtime lock");
    let note = ["runtime.futex.abi0", "runtime.futexsleep", "runtime.notetsleep_internal", "runtime.sysmon"];
    is(named(0, &note.map(|name| (name, GO))), WaitKind::Futex, "go runtime note");
}

#[test]
fn abseil() {
    let inner = [
        ("syscall", LIBC),
        ("absl::lts_20230802::synchronization_internal::FutexWaiter::Wait(absl::KernelTimeout)", GO),
        ("AbslInternalPerThreadSemWait_lts_20230802", GO),
        ("absl::lts_20230802::Mutex::Block(absl::base_internal::PerThreadSynch*)", GO),
        ("absl::lts_20230802::Mutex::LockSlowLoop(absl::SynchWaitParams*, int)", GO),
        ("absl::lts_20230802::Mutex::LockSlowWithDeadline(absl::MuHowS const*, absl::Condition const*)", GO),
    ];
    is(named(0, &inner), WaitKind::Mutex, "absl::Mutex");
    let notified =
        [&inner[..], &[("absl::lts_20230802::Notification::WaitForNotification() const", GO)]].concat();
    is(named(0, &notified), WaitKind::Condvar, "absl::Notification");
}

#[test]
fn older_rust_and_allocators() {
    let old = [("syscall", LIBC), ("std::sys::unix::locks::futex_mutex::Mutex::lock_contended", GO)];
    is(named(2, &old), WaitKind::Mutex, "rust std::sync::Mutex");
    let arena =
        [("0x7f0000001234", LIBC), ("malloc", LIBC), ("std::vector<int>::reserve(unsigned long)", GO)];
    is(named(2, &arena), WaitKind::Mutex, "malloc arena lock");
    let tcmalloc = [
        ("syscall", LIBC),
        ("SpinLock::SlowLock()", "libtcmalloc.so.4"),
        ("tcmalloc::CentralFreeList::Populate", GO),
    ];
    is(named(2, &tcmalloc), WaitKind::Mutex, "absl spinlock");
    let driver = [("syscall", LIBC), ("0x7f11", "/usr/lib/libcuda.so.570.1"), ("main", GO)];
    is(named(0, &driver), WaitKind::Futex, "CUDA driver");
    let tbb = [("syscall", LIBC), ("0x7f11", "/usr/lib/libtbb.so.12"), ("0x7f12", "/usr/lib/libtbb.so.12")];
    is(named(0, &tbb), WaitKind::Futex, "oneTBB");
}

#[test]
fn a_mutex_below_pthread_functions_keeps_its_owner_whoever_calls() {
    let mut capture = capture(&[2, 0, 8, 1, 0, 0], 0, WAIT, 2);
    below(
        &mut capture,
        &[
            ("0x7f01", LIBC),
            ("pthread_mutex_lock", LIBC),
            ("malloc_mutex_lock_slow", GO),
            ("malloc", "libjemalloc.so.2"),
        ],
    );
    held_by_holder(&resolve(&capture)[0].wait, WaitKind::Mutex, "normal");
}

#[test]
fn a_parked_rust_thread_is_no_robust_mutex() {
    // `PARKED` is all ones, and 16 bytes on lies anything.
    let words = [u32::MAX, 0, 0, 1, 16, 0];
    let wait = waits(&words, 0, WAIT, u32::MAX);
    assert_eq!((wait.kind, wait.owner_gone), (WaitKind::Futex, None), "{wait:?}");
}

#[test]
fn a_word_of_one_is_no_condition_variable() {
    let parked = [2, 0, 0, 0, 0, 2, 0, 0, 0, 1 << 3, 0, 1];
    assert_eq!(waits(&parked, 44, WAIT, 1).kind, WaitKind::Futex);
}

#[test]
fn a_stripped_program_says_nothing() {
    let said = named(2, &[("syscall", LIBC), ("0x5601", GO), ("0x5602", GO)]);
    assert_eq!(said, (WaitKind::Futex, None));
    assert_eq!(named(2, &[]), (WaitKind::Futex, None));
}

#[test]
fn barriers_and_once() {
    // Two rounds of three are over, two have come to the third.
    let mut barrier = capture(&[8, 6, 3, 0, 6], 4, WAIT, 6);
    assert_eq!(resolve(&barrier)[0].wait.kind, WaitKind::Futex);
    assert_eq!(resolve(&barrier)[0].wait.flavour, None);
    below(&mut barrier, &[("pthread_barrier_wait", LIBC)]);
    let wait = resolve(&barrier).remove(0).wait;
    assert_eq!((wait.flavour.as_deref(), wait.address), (Some("barrier"), Some(OBJECT)));
    assert!(wait.text.contains("2 of 3 threads"), "{}", wait.text);
    is(named(5, &[("__pthread_once_slow", LIBC), ("init", GO)]), WaitKind::Futex, "once");
    is(
        named(5, &[("0x7f", LIBC), ("void std::call_once<int (&)()>(std::once_flag&)", GO)]),
        WaitKind::Futex,
        "once",
    );
}

#[test]
fn a_waiter_that_may_be_moved_to_a_mutex_accuses_nobody() {
    let mut capture = capture(&[0, 0, 8, 0], 0, 139, 0);
    if let Some(syscall) = &mut capture.processes[0].threads[0].syscall {
        syscall.arguments[4] = OBJECT + 8;
    }
    let wait = resolve(&capture).remove(0).wait;
    assert_eq!((wait.flavour.as_deref(), wait.owners.len()), (Some("requeue-pi"), 0));
    assert!(
        wait.text.ends_with(&format!("to be moved to the PI mutex {:#x}, held by tid 8", OBJECT + 8)),
        "{}",
        wait.text
    );
}

#[test]
fn the_waiters_of_a_robust_mutex_whose_owner_died() {
    let mut capture = capture(&[0xc000_0000, 0, 0, 1, 144, 0], 0, 0, 0x8000_1267);
    assert_eq!(resolve(&capture)[0].wait.kind, WaitKind::Futex, "not below glibc's functions");
    below(&mut capture, &[("0x7f01", LIBC), ("main", GO)]);
    let wait = resolve(&capture).remove(0).wait;
    assert_eq!((wait.kind, wait.owner_gone), (WaitKind::Mutex, None));
    assert!(wait.text.contains("whose owner has ended"), "{}", wait.text);
}

#[test]
fn read_write_locks_of_a_writer_that_is_gone() {
    let mut capture = capture(&[3, 1, 1, 3, 0, 0, 4711, 0], 12, WAIT_BITSET, 3);
    assert_eq!(resolve(&capture)[0].wait.owner_gone, None, "it may be another library's lock");
    below(&mut capture, &[("pthread_rwlock_wrlock", LIBC)]);
    let wait = resolve(&capture).remove(0).wait;
    assert_eq!((wait.kind, wait.owner_gone), (WaitKind::Rwlock, Some(4711)));
}

fn waitv(entries: &[(u64, u64, u32)], words: &[u32], count: u64) -> Wait {
    const ARRAY: u64 = 0x7fff_0000;
    let mut capture = capture(words, 0, 0, 0);
    let bytes = entries.iter().flat_map(|(value, address, flags)| {
        [*value, *address, u64::from(*flags)].into_iter().flat_map(u64::to_le_bytes)
    });
    let thread = &mut capture.processes[0].threads[0];
    thread.memory.push(SavedMemory { address: ARRAY, bytes: bytes.collect() });
    thread.syscall = Some(Syscall { number: 449, arguments: [ARRAY, count, 0, 0, 0, 0], restarted: false });
    resolve(&capture).remove(0).wait
}

#[test]
fn several_words_each_as_if_it_were_alone() {
    let mutex = [2, 0, 8, 1, 0, 0];
    held_by_holder(&waitv(&[(2, OBJECT, 130)], &mutex, 1), WaitKind::Mutex, "normal");
    let several = waitv(&[(2, OBJECT, 130), (0, OBJECT + 8000, 130), (2, OBJECT, 130)], &mutex, 5);
    assert_eq!((several.kind, several.flavour.as_deref()), (WaitKind::Futex, Some("waitv")));
    assert_eq!(several.owners.len(), 1);
    assert_eq!((several.owners[0].tid, several.owners[0].certainty), (Some(HOLDER), Certainty::Likely));
    assert!(
        several.text.starts_with("any of 5 futexes: mutex 0x") && several.text.ends_with("; 2 more"),
        "{}",
        several.text
    );
    assert_eq!(waitv(&[], &mutex, 3).text, "any of 3 futexes");
}
