//! A program whose threads block in every lock of Rust's standard library and of `parking_lot`. Prints
//! `ready {NAME: {"tid": N, "address": N, "fd": -1, "owner": 0}}` and stays.

#![allow(clippy::print_stdout, reason = "that is how the test learns of the threads")]

use std::{
    collections::BTreeMap,
    io::Write as _,
    sync::{Barrier, Condvar, Mutex, Once, RwLock, mpsc},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

/// What the threads block on; leaked, so that they can outlive `main`'s frame.
#[derive(Default)]
struct Locks {
    mutex: Mutex<u64>,
    read: RwLock<u64>,
    write: RwLock<u64>,
    condvar: Condvar,
    guard: Mutex<()>,
    parking_mutex: parking_lot::Mutex<u64>,
    parking_read: parking_lot::RwLock<u64>,
    parking_write: parking_lot::RwLock<u64>,
    parking_condvar: parking_lot::Condvar,
    parking_guard: parking_lot::Mutex<()>,
}

static ONCE: Once = Once::new();

fn main() -> ! {
    let locks: &'static Locks = Box::leak(Box::default());
    let barrier: &'static Barrier = Box::leak(Box::new(Barrier::new(2)));
    let mutex = locks.mutex.lock();
    let writer = locks.read.write();
    let reader = locks.write.read();
    let parking_mutex = locks.parking_mutex.lock();
    let parking_writer = locks.parking_read.write();
    let parking_reader = locks.parking_write.read();
    let (sender, receiver) = mpsc::channel::<u64>();

    let mut waiters = Waiters::default();
    waiters.start("rust-mutex", move || drop(locks.mutex.lock()));
    waiters.start("rust-rwlock-reader", move || drop(locks.read.read()));
    waiters.start("rust-rwlock-writer", move || drop(locks.write.write()));
    waiters.start("rust-condvar", move || {
        let Ok(guard) = locks.guard.lock() else { return };
        drop(locks.condvar.wait(guard));
    });
    waiters.start("rust-park", thread::park);
    waiters.start("rust-park-timed", || thread::park_timeout(Duration::from_secs(1000)));
    waiters.start("rust-mpsc", move || drop(receiver.recv().ok().map(Box::new)));
    waiters.start("rust-barrier", move || assert!(!barrier.wait().is_leader()));
    waiters.start("rust-once-first", || ONCE.call_once(|| thread::sleep(Duration::from_secs(100_000))));
    // The one before is inside by now: it sleeps.
    thread::sleep(Duration::from_millis(100));
    waiters.start("rust-once", || ONCE.call_once(|| ()));
    let (joined, owner) = spawn(|| thread::sleep(Duration::from_secs(100_000)));
    waiters.start("rust-join", move || drop(joined.join()));
    if let Some(fact) = waiters.named.get_mut("rust-join") {
        fact["owner"] = json!(owner);
    }
    waiters.start("parking-mutex", move || drop(locks.parking_mutex.lock()));
    waiters.start("parking-rwlock-reader", move || drop(locks.parking_read.read()));
    waiters.start("parking-rwlock-writer", move || drop(locks.parking_write.write()));
    waiters.start("parking-condvar", move || {
        let mut guard = locks.parking_guard.lock();
        locks.parking_condvar.wait(&mut guard);
    });

    println!("ready {}", json!(waiters.named));
    std::io::stdout().flush().ok();
    loop {
        thread::park();
        // Nothing unparks it, but the standard library allows it to wake by itself; all of these are held for good.
        std::hint::black_box((&mutex, &writer, &reader, &sender));
        std::hint::black_box((&parking_mutex, &parking_writer, &parking_reader));
    }
}

/// The threads by name.
#[derive(Default)]
struct Waiters {
    named: BTreeMap<&'static str, Value>,
}

impl Waiters {
    fn start(&mut self, name: &'static str, block: impl FnOnce() + Send + 'static) {
        let (_, tid) = spawn(block);
        self.named.insert(name, json!({ "tid": tid, "address": 0, "fd": -1, "owner": 0 }));
    }
}

/// A thread that runs `block`, and its tid.
fn spawn(block: impl FnOnce() + Send + 'static) -> (thread::JoinHandle<()>, i32) {
    let (said, tid) = mpsc::channel();
    let thread = thread::spawn(move || {
        said.send(rustix::thread::gettid().as_raw_nonzero().get()).ok();
        block();
    });
    (thread, tid.recv().unwrap_or_default())
}
