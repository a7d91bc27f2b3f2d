//! `cargo xtask bench`: inspector beside its peers on the same target in one run, as ratios.
//!
//! The target is a Python process of 1000 threads with 25 frames each, which also holds native heartbeat threads: one sleeps 1 ms at a
//! time, one maps and unmaps memory. The peers (py-spy, pystack) are installed into an environment of the bench's own.

mod hangs;
mod probes;
mod scale;
mod table;
mod target;
pub(crate) mod tools;

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::demo;
use crate::process::{capture, cargo, root, say};

use self::table::{Row, median};
use self::target::Target;
use self::tools::{Tool, tools};

/// Options of `cargo xtask bench`.
#[derive(Args)]
pub(crate) struct Options {
    /// Python threads of the target
    #[arg(long, default_value_t = 1000, value_name = "N")]
    threads: u32,
    /// Frames of each thread
    #[arg(long, default_value_t = 25, value_name = "N")]
    depth: u32,
    /// Timed runs of each tool
    #[arg(long, default_value_t = 8, value_name = "N")]
    runs: u32,
    /// Alternations of nothing, dump and diagnose in the zero-stop part; peers get a tenth of them
    #[arg(long, default_value_t = 200, value_name = "N")]
    alternations: u32,
    /// Only this part
    #[arg(long, value_enum, value_name = "PART")]
    only: Option<Part>,
}

/// Parts that can be run by themselves.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// What a process pays for being probed, beside strace, perf trace and offcputime
    Probes,
}

/// Alternations of the part about probes: each takes half a minute.
const PROBED: u32 = 10;

pub(crate) fn bench(options: &Options) -> Result<()> {
    if options.only == Some(Part::Probes) {
        let mut rows = Vec::new();
        probes::probes(PROBED.min(options.alternations), &mut rows)?;
        table::print(&rows);
        return Ok(());
    }
    let inspector = demo::build(false)?;
    let tools = tools(&inspector)?;
    let mut rows = Vec::new();
    let mut target = Target::start(options.threads, options.depth)?;
    dump_times(&tools, &target, options, &mut rows)?;
    sweep(&target, &mut rows)?;
    memory_reads(&tools, &target, options, &mut rows)?;
    zero_stop(&tools, &mut target, options, &mut rows)?;
    drop(target);
    hangs::hangs(&tools, &mut rows)?;
    probes::probes(PROBED.min(options.alternations), &mut rows)?;
    time_to_verdict(&inspector, options, &mut rows)?;
    scale::scale(&inspector, options.runs, &mut rows)?;
    let file = root().join("target/bench.json");
    fs::write(&file, serde_json::to_string_pretty(&json!({ "rows": rows }))?)?;
    table::print(&rows);
    say(&format!("written: {}", file.display()));
    Ok(())
}

/// Wall time of one dump of the whole target.
fn dump_times(tools: &[Tool], target: &Target, options: &Options, rows: &mut Vec<Row>) -> Result<()> {
    let dumpers: Vec<&Tool> = tools.iter().filter(|tool| tool.dumps).collect();
    let mut runs = vec![Vec::new(); dumpers.len()];
    // In turn, so that a machine that is slower for a while is so for all, and each round begins with another one, so
    // that none always runs on the caches that one that takes seconds left behind.
    for round in 1..=options.runs {
        say(&format!("timing dumps: round {round} of {}", options.runs));
        let mut order: Vec<usize> = (0..dumpers.len()).collect();
        order.rotate_left(round as usize % dumpers.len().max(1));
        for index in order {
            if let (Some(tool), Some(took)) = (dumpers.get(index), runs.get_mut(index)) {
                took.push(tool.run(target.pid())?.as_secs_f64());
            }
        }
    }
    let times: Vec<(&'static str, f64)> =
        dumpers.iter().zip(runs).map(|(tool, took)| (tool.name, median(took.into_iter()))).collect();
    let reference = times.iter().find(|(name, _)| *name == "py-spy dump --native").context("py-spy ran")?.1;
    for (name, seconds) in times {
        say(&format!("{name}: {seconds:.3} s, {:.3} of py-spy dump --native", seconds / reference));
        rows.push(Row::new("dump of the target, wall", name, seconds, "s", Some(seconds / reference)));
    }
    Ok(())
}

/// The task iterator beside /proc for the same threads.
fn sweep(target: &Target, rows: &mut Vec<Row>) -> Result<()> {
    let mut command =
        cargo(&["run", "--release", "--package", "inspector-tests", "--bin", "sweep-against-proc", "--"]);
    let (status, text) = capture(command.arg(target.pid().to_string()))?;
    ensure!(status.success(), "sweep-against-proc: {status}");
    let measured: Value = serde_json::from_str(&text)?;
    let milliseconds = |name: &str| measured[name].as_f64().map(|ns| ns / 1e6).context("no number");
    let (syscall, both) = (milliseconds("syscall_ns")?, milliseconds("proc_ns")?);
    for (what, reference, who, name) in [
        ("threads that have not run, wall", syscall, "/proc/…/syscall", "syscall_ns"),
        ("threads that have not run, wall", syscall, "task iterator", "rest_ns"),
        ("threads' states, wall", both, "/proc/…/{syscall,stack}", "proc_ns"),
        ("threads' states, wall", both, "task iterator", "sweep_ns"),
        ("threads' states, wall", both, "task iterator and memory walk", "full_ns"),
    ] {
        let took = milliseconds(name)?;
        rows.push(Row::new(what, who, took, "ms", Some(took / reference)));
    }
    rows.push(Row::new("eBPF set-up, wall", "inspector", milliseconds("open_ns")?, "ms", None));
    Ok(())
}

/// System calls that read the target's memory, per thread.
fn memory_reads(tools: &[Tool], target: &Target, options: &Options, rows: &mut Vec<Row>) -> Result<()> {
    // pystack makes so many that it takes many minutes under strace.
    for tool in tools.iter().filter(|tool| tool.dumps && !tool.name.starts_with("pystack")) {
        say(&format!("counting memory reads of {}", tool.name));
        let reads = tool.memory_reads(target.pid())?;
        rows.push(Row::new(
            "process_vm_readv calls a thread",
            tool.name,
            reads as f64 / f64::from(options.threads),
            "",
            None,
        ));
    }
    Ok(())
}

/// How long the target's heartbeats took while each tool looked at it, beside nothing.
fn zero_stop(tools: &[Tool], target: &mut Target, options: &Options, rows: &mut Vec<Row>) -> Result<()> {
    let peers = options.alternations.div_ceil(10);
    for round in 0..options.alternations {
        if round % 20 == 0 {
            say(&format!("zero stop: alternation {round} of {}", options.alternations));
        }
        target.take("between")?;
        std::thread::sleep(Duration::from_secs(1));
        target.take("nothing")?;
        for tool in tools.iter().filter(|tool| !tool.peer || round < peers) {
            target.take("between")?;
            tool.run(target.pid())?;
            target.take(tool.name)?;
        }
    }
    let report = target.report()?;
    for (series, what) in [("beat", "1 ms sleep, p99.9"), ("map", "mmap and munmap, p99.9")] {
        let p999 = |label: &str| {
            report[label][series]["p999_ns"].as_f64().with_context(|| format!("no {series} under {label}"))
        };
        let nothing = p999("nothing")?;
        for label in std::iter::once("nothing").chain(tools.iter().map(|tool| tool.name)) {
            let value = p999(label)?;
            rows.push(Row::new(what, label, value / 1e6, "ms", Some(value / nothing)));
        }
    }
    Ok(())
}

/// From start to printed verdict on the demo fleet, with an observation of 1 s.
fn time_to_verdict(inspector: &std::path::Path, options: &Options, rows: &mut Vec<Row>) -> Result<()> {
    let directory = root().join("target/bench");
    fs::create_dir_all(&directory)?;
    let fleet = demo::Fleet::start(&directory)?;
    let pids = demo::pids(&fleet.state)?;
    let mut times = Vec::new();
    for _ in 0..options.runs {
        times.push(demo::diagnose(inspector, &pids, &[])?.took.as_secs_f64());
    }
    rows.push(Row::new(
        "diagnose of the demo fleet, wall",
        "inspector diagnose",
        median(times.into_iter()),
        "s",
        None,
    ));
    Ok(())
}

/// Piped both ways.
fn piped(command: &mut std::process::Command) -> &mut std::process::Command {
    command.stdin(Stdio::piped()).stdout(Stdio::piped())
}
