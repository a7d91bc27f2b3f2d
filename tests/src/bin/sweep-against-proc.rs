//! How long the task iterator takes for the threads of one process, beside reading `/proc/PID/task/TID/{syscall,stack,stat}` of the
//! same threads: `sweep-against-proc PID [ROUNDS]`. Prints JSON with the medians in nanoseconds. A part of `cargo xtask bench`.

use std::fs::File;
use std::io::Read;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use inspector::model::Tier;
use inspector::observe::tasks;
use inspector_tests::procfs;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let pid: u32 = arguments.next().context("usage: sweep-against-proc PID [ROUNDS]")?.parse()?;
    let rounds: usize = arguments.next().map_or(Ok(21), |rounds| rounds.parse())?;
    let opening = Instant::now();
    let mut opened = tasks::open(&[pid], Tier::Ebpf);
    let open_ns = opening.elapsed().as_nanos();
    ensure!(opened.tier == Tier::Ebpf, "the tier reached is {:?}: {:?}", opened.tier, opened.gaps);
    let (mut sweeps, mut reads) = (Vec::new(), Vec::new());
    let mut threads = 0;
    let mut buffer = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        threads = opened.source.sweep()?.tasks.len();
        sweeps.push(start.elapsed().as_nanos());

        let start = Instant::now();
        for tid in procfs::tids(pid) {
            for name in ["syscall", "stack", "stat"] {
                buffer.clear();
                // A thread that is gone costs nothing.
                if let Ok(mut file) = File::open(format!("/proc/{pid}/task/{tid}/{name}")) {
                    file.read_to_end(&mut buffer).ok();
                }
            }
        }
        reads.push(start.elapsed().as_nanos());
    }
    let (sweep_ns, proc_ns) = (median(sweeps), median(reads));
    print(&serde_json::json!({
        "threads": threads, "rounds": rounds, "open_ns": open_ns, "sweep_ns": sweep_ns, "proc_ns": proc_ns,
    }));
    Ok(())
}

fn median(mut values: Vec<u128>) -> u128 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[allow(clippy::print_stdout, reason = "the numbers are its result")]
fn print(value: &serde_json::Value) {
    println!("{value}");
}
