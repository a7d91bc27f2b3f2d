//! The task iterator beside the `/proc` files that hold the same facts, on the same threads, in one run.
//!
//! `cargo xtask bench` runs it; `BENCH_THREADS` sets the number of blocked threads (1000). Needs root.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its result and stops at the first error"
)]

use std::{
    fs::{self, File},
    io::Read,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use inspector::{model::Tier, observe::tasks};

const RUNS: usize = 15;
const FILES: [&str; 3] = ["syscall", "stack", "stat"];

fn main() {
    let count = std::env::var("BENCH_THREADS").ok().and_then(|text| text.parse().ok()).unwrap_or(1000);
    let (sender, started) = mpsc::channel();
    for _ in 0..count {
        let sender = sender.clone();
        thread::Builder::new()
            .stack_size(64 << 10)
            .spawn(move || {
                sender.send(()).unwrap();
                thread::park_timeout(Duration::from_secs(3600));
            })
            .unwrap();
    }
    for _ in 0..count {
        started.recv().unwrap();
    }
    let pid = std::process::id();
    let opening = Instant::now();
    let mut opened = tasks::open(&[pid], Some(Tier::Ebpf));
    assert_eq!(opened.tier, Tier::Ebpf, "the eBPF tier is not reached: {:?}", opened.gaps);
    println!("open (BTF, load, attach)       {:>9.2} ms", ms(opening.elapsed()));

    let (mut walks, mut reads) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let start = Instant::now();
        let sweep = opened.source.sweep().unwrap();
        walks.push(start.elapsed());
        assert!(sweep.tasks.len() > count, "{} of {count} threads", sweep.tasks.len());
        reads.push(read_proc(pid));
    }
    let (walk, read) = (median(&mut walks), median(&mut reads));
    println!("{count} threads, median of {RUNS} runs");
    println!("iterator sweep                 {:>9.2} ms", ms(walk));
    println!("/proc syscall, stack, stat     {:>9.2} ms", ms(read));
    println!("ratio                          {:>9.3}", walk.as_secs_f64() / read.as_secs_f64());
}

/// How long it takes to read [`FILES`] of every thread of `pid`.
fn read_proc(pid: u32) -> Duration {
    let start = Instant::now();
    let mut buffer = [0; 16384];
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        for name in FILES {
            let mut file = File::open(task.path().join(name)).unwrap();
            while file.read(&mut buffer).unwrap() > 0 {}
        }
    }
    start.elapsed()
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
