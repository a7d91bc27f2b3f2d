//! What functions say of a lock.

use crate::model::WaitKind::{self, Condvar, Futex, Mutex, Rwlock, Semaphore};

/// One function, by parts of its name.
#[derive(Debug)]
pub(super) struct Rule {
    /// All of these are in the name; for a `whole` rule the name is one of these.
    pub(super) marks: &'static [&'static str],
    /// The name is meant, not a part of it.
    pub(super) whole: bool,
    /// How much it says: 2 names an object that is built of a lock, 1 the lock, 0 only whose it is.
    pub(super) level: u8,
    pub(super) kind: WaitKind,
    pub(super) flavour: &'static str,
}

const fn by(level: u8, marks: &'static [&'static str], kind: WaitKind, flavour: &'static str) -> Rule {
    Rule { marks, whole: false, level, kind, flavour }
}

const fn one_of(level: u8, marks: &'static [&'static str], kind: WaitKind, flavour: &'static str) -> Rule {
    Rule { marks, whole: true, level, kind, flavour }
}

/// The first that fits a function counts.
pub(super) const RULES: &[Rule] = &[
    // Rust's standard library; before 1.78 in `std::sys::unix::locks` and `std::sys_common`.
    by(1, &["std::sys", "Mutex", "lock_contended"], Mutex, "rust std::sync::Mutex"),
    by(1, &["std::sys", "RwLock", "read_contended"], Rwlock, "rust std::sync::RwLock (read)"),
    by(1, &["std::sys", "RwLock", "write_contended"], Rwlock, "rust std::sync::RwLock (write)"),
    by(1, &["std::sys", "Condvar", "wait"], Condvar, "rust std::sync::Condvar"),
    by(2, &["std::sync::barrier::Barrier", "wait"], Condvar, "rust std::sync::Barrier"),
    by(1, &["once::futex::Once"], Futex, "rust std::sync::Once"),
    by(1, &["std::sync::mpmc"], Condvar, "rust std::sync::mpsc"),
    by(1, &["crossbeam_channel::"], Condvar, "rust crossbeam_channel"),
    by(0, &["std::thread", "::park"], Futex, "rust thread::park"),
    // parking_lot, which pthreads of Rust's older programs and tokio use.
    by(1, &["parking_lot::", "Mutex", "lock_slow"], Mutex, "parking_lot::Mutex"),
    by(1, &["parking_lot::", "RwLock", "lock_shared_slow"], Rwlock, "parking_lot::RwLock (read)"),
    by(1, &["parking_lot::", "RwLock", "lock_upgradable_slow"], Rwlock, "parking_lot::RwLock (read)"),
    by(1, &["parking_lot::", "RwLock", "lock_exclusive_slow"], Rwlock, "parking_lot::RwLock (write)"),
    by(1, &["parking_lot::", "RwLock", "wait_for_readers"], Rwlock, "parking_lot::RwLock (write)"),
    by(1, &["parking_lot::", "Condvar", "wait_until_internal"], Condvar, "parking_lot::Condvar"),
    by(1, &["parking_lot::", "once", "call_once_slow"], Futex, "parking_lot::Once"),
    by(0, &["parking_lot_core::"], Futex, "parking_lot"),
    // Go. Goroutines that wait are not on a thread: these are waits of the runtime itself.
    one_of(2, &["runtime.mPark", "runtime.stopm", "runtime.findRunnable"], Futex, "go idle thread"),
    one_of(1, &["runtime.lock2", "runtime.semasleep"], Mutex, "go runtime lock"),
    one_of(
        1,
        &["runtime.notesleep", "runtime.notetsleep_internal", "runtime.notetsleepg"],
        Futex,
        "go runtime note",
    ),
    one_of(0, &["runtime.futexsleep", "runtime.futex.abi0"], Futex, "go runtime futex"),
    // C++: libstdc++, then libc++.
    by(1, &["std::__atomic_futex_unsigned_base::_M_futex_wait_until"], Futex, "c++ std::future"),
    by(1, &["__cxa_guard_acquire"], Futex, "c++ static initialisation"),
    by(1, &["std::call_once"], Futex, "once"),
    by(2, &["std::__atomic_wait_address", "std::latch::wait"], Futex, "c++ std::latch"),
    by(2, &["std::__atomic_wait_address", "__tree_barrier"], Futex, "c++ std::barrier"),
    by(2, &["std::__atomic_wait_address", "__atomic_semaphore"], Semaphore, "c++ std::counting_semaphore"),
    by(0, &["std::__detail::__platform_wait"], Futex, "c++ std::atomic::wait"),
    by(0, &["std::__detail::__wait_"], Futex, "c++ std::atomic::wait"),
    by(0, &["std::__1::__libcpp_atomic_wait"], Futex, "c++ std::atomic::wait"),
    by(0, &["std::__1::__cxx_atomic_wait"], Futex, "c++ std::atomic::wait"),
    // Abseil (its names have the release in them: absl::lts_20230802::Mutex::LockSlow).
    by(2, &["absl::", "Notification::WaitFor"], Condvar, "absl::Notification"),
    by(2, &["absl::", "BlockingCounter::Wait"], Condvar, "absl::BlockingCounter"),
    by(2, &["absl::", "Barrier::Block"], Condvar, "absl::Barrier"),
    by(2, &["absl::", "CondVar::Wait"], Condvar, "absl::CondVar"),
    by(2, &["absl::", "Mutex::Await"], Condvar, "absl::Mutex::Await"),
    by(2, &["absl::", "Mutex::LockWhen"], Condvar, "absl::Mutex::LockWhen"),
    by(1, &["absl::", "Mutex::Lock"], Mutex, "absl::Mutex"),
    by(2, &["absl::", "Mutex::ReaderLock"], Rwlock, "absl::Mutex (read)"),
    by(1, &["absl::", "Mutex::lock"], Mutex, "absl::Mutex"),
    // Allocators.
    by(2, &["tcmalloc::", "SpinLock"], Mutex, "tcmalloc spinlock"),
    by(1, &["SpinLock::SlowLock"], Mutex, "absl spinlock"),
    by(0, &["AbslInternalSpinLockDelay"], Mutex, "absl spinlock"),
    by(0, &["AbslInternalPerThreadSemWait"], Futex, "absl"),
    one_of(
        1,
        &["malloc", "free", "calloc", "realloc", "posix_memalign", "aligned_alloc"],
        Mutex,
        "malloc arena lock",
    ),
    // OpenMP of GCC.
    by(1, &["gomp_mutex_lock_slow"], Mutex, "openmp lock (libgomp)"),
    by(1, &["gomp_sem_wait_slow"], Semaphore, "openmp semaphore (libgomp)"),
    by(1, &["gomp_", "barrier_wait"], Futex, "openmp barrier (libgomp)"),
    // glibc.
    by(1, &["pthread_once"], Futex, "once"),
    one_of(1, &["call_once", "__call_once"], Futex, "once"),
];

/// Libraries that come without names, by the beginning of the file's.
pub(super) const MODULES: &[(&str, WaitKind, &str)] = &[
    ("libgomp", Futex, "openmp (libgomp)"),
    ("libomp", Futex, "openmp (libomp)"),
    ("libiomp", Futex, "openmp (libiomp)"),
    ("libtbb", Futex, "oneTBB"),
    ("libcuda.so", Futex, "CUDA driver"),
    ("libjemalloc", Mutex, "jemalloc lock"),
    ("libtcmalloc", Mutex, "tcmalloc spinlock"),
];
