//! How long the task iterator takes for the threads of one process, beside reading `/proc/PID/task/TID/{syscall,stack}` of the
//! same threads: `sweep-against-proc PID [ROUNDS]`. Prints JSON with the medians in nanoseconds. A part of `cargo xtask bench`.
//!
//! `rest_ns`: threads that have not run since the sweep before; `sweep_ns`: all of every thread, kernel stack included;
//! `full_ns`: that, and the memory walk (512 bytes of user stack and the futex word of each).

use std::fs::File;
use std::io::Read;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use inspector::model::Tier;
use inspector::observe::tasks::{
    self,
    memory_walk::{self, Wanted},
};
use inspector_tests::procfs;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let pid: u32 = arguments.next().context("usage: sweep-against-proc PID [ROUNDS]")?.parse()?;
    let rounds: usize = arguments.next().map_or(Ok(21), |rounds| rounds.parse())?;
    let opening = Instant::now();
    let mut opened = tasks::open(&[pid], Tier::Ebpf);
    let open_ns = opening.elapsed().as_nanos();
    ensure!(opened.tier == Tier::Ebpf, "the tier reached is {:?}: {:?}", opened.tier, opened.gaps);
    let memory = opened.source.memory_walk().context("no memory walk")?;
    let own = std::process::id();
    memory.give(own, pid, &[Wanted::Futex, Wanted::Stack(512)])?;
    let mut times: [Vec<u128>; 5] = Default::default();
    let mut threads = 0;
    let timed = |times: &mut Vec<u128>, work: &mut dyn FnMut() -> Result<()>| {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed().as_nanos());
        Ok::<_, anyhow::Error>(())
    };
    for _ in 0..rounds {
        let [rest, sweep, full, syscall, both] = &mut times;
        opened.source.forget()?;
        timed(sweep, &mut || {
            threads = opened.source.sweep()?.tasks.len();
            Ok(())
        })?;
        timed(rest, &mut || opened.source.sweep().map(drop).map_err(Into::into))?;
        opened.source.forget()?;
        timed(full, &mut || {
            opened.source.sweep()?;
            memory_walk::read(memory.program(), pid)?;
            Ok(())
        })?;
        timed(syscall, &mut || {
            read(pid, &["syscall"]);
            Ok(())
        })?;
        timed(both, &mut || {
            read(pid, &["syscall", "stack"]);
            Ok(())
        })?;
    }
    memory.take(own);
    let [rest_ns, sweep_ns, full_ns, syscall_ns, proc_ns] = times.map(median);
    print(&serde_json::json!({
        "threads": threads, "rounds": rounds, "open_ns": open_ns, "rest_ns": rest_ns, "sweep_ns": sweep_ns,
        "full_ns": full_ns, "syscall_ns": syscall_ns, "proc_ns": proc_ns,
    }));
    Ok(())
}

/// Reads these files of every thread; one that is gone costs nothing.
fn read(pid: u32, names: &[&str]) {
    let mut buffer = Vec::new();
    for tid in procfs::tids(pid) {
        for name in names {
            buffer.clear();
            if let Ok(mut file) = File::open(format!("/proc/{pid}/task/{tid}/{name}")) {
                file.read_to_end(&mut buffer).ok();
            }
        }
    }
}

fn median(mut values: Vec<u128>) -> u128 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[allow(clippy::print_stdout, reason = "the numbers are its result")]
fn print(value: &serde_json::Value) {
    println!("{value}");
}
