//! `cargo xtask demo`: a fleet that serves, a wedge, and the verdict.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::Value;

use crate::process::{Owned, capture, cargo, root, run, say};

/// Options of `cargo xtask demo`.
#[derive(Args)]
pub(crate) struct Options {
    /// How to wedge the fleet; `python3 tests/fleet/fleet.py wedges` lists the names
    #[arg(long, default_value = "blocked-send", value_name = "NAME")]
    wedge: String,
    /// Build without optimisation: quicker to build, slower to answer
    #[arg(long)]
    debug: bool,
}

/// Longer than a virtual environment takes to make on a slow network.
const START: Duration = Duration::from_mins(10);

pub(crate) fn demo(options: &Options) -> Result<()> {
    let inspector = build(options.debug)?;
    let directory = root().join("target/demo");
    fs::create_dir_all(&directory)?;
    let fleet = Fleet::start(&directory)?;
    say("asking it for 20 answers");
    fleet.ask(&["request", "--count", "20", "--concurrency", "4"])?;
    let before = diagnose(&inspector, &pids(&fleet.state)?, &[])?;
    say(&format!("before the wedge: {}", before.text.lines().next().unwrap_or_default()));

    say(&format!("wedging it: {}", options.wedge));
    let truth = fleet.ask(&["wedge", &options.wedge])?;
    say(&format!(
        "{} of {} requests hang; /health of prefill and decode: {} and {}",
        truth["hung"], truth["pending"], truth["health"]["prefill"], truth["health"]["decode"]
    ));

    let report = directory.join("report.json");
    let stacks = directory.join("stacks.folded");
    let files = [report.as_path(), stacks.as_path()];
    let verdict = diagnose(&inspector, &pids(&truth["fleet"])?, &files)?;
    fs::write(directory.join("verdict.txt"), &verdict.text)?;
    print(&verdict.text);
    say(&format!("that took {:.2} s, of which 1 s was watching", verdict.took.as_secs_f64()));
    say(&format!("written: {}/{{verdict.txt,report.json,stacks.folded}}", directory.display()));
    drop(fleet);
    let report = fs::read_to_string(&report).context("inspector wrote no report")?;
    check(&serde_json::from_str(&report)?, &truth)
}

fn print(text: &str) {
    print!("{text}");
}

/// Builds inspector and gives its path.
pub(crate) fn build(debug: bool) -> Result<PathBuf> {
    let mut build = cargo(&["build", "--package", "inspector", "--bin", "inspector"]);
    if !debug {
        build.arg("--release");
    }
    run(&mut build)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Ok(target.join(if debug { "debug" } else { "release" }).join("inspector"))
}

/// The demo fleet, ended when dropped.
pub(crate) struct Fleet {
    /// Owns every process of the fleet.
    _holder: Owned,
    pub(crate) state: Value,
    directory: PathBuf,
}

impl Fleet {
    pub(crate) fn start(directory: &Path) -> Result<Self> {
        say("starting a prefill/decode pair");
        let directory = directory.join("fleet");
        let mut command = script(&directory);
        command.args(["hold", "--gentle", "--heartbeat", "1"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = Owned::start(&mut command)?;
        let state = holder.line("ready ", START)?;
        Ok(Self { _holder: holder, state: serde_json::from_str(&state)?, directory })
    }

    fn ask(&self, arguments: &[&str]) -> Result<Value> {
        let (status, text) = capture(script(&self.directory).args(arguments))?;
        if !status.success() {
            bail!("fleet.py {}: {status}: {text}", arguments.join(" "));
        }
        Ok(serde_json::from_str(&text)?)
    }
}

/// The six processes of the fleet.
pub(crate) fn pids(state: &Value) -> Result<Vec<u64>> {
    let mut pids = Vec::new();
    for role in ["prefill", "decode"] {
        for kind in ["http", "scheduler", "detokenizer"] {
            pids.push(state[role][kind].as_u64().with_context(|| format!("no pid of the {role} {kind}"))?);
        }
    }
    Ok(pids)
}

fn script(directory: &Path) -> Command {
    let mut command = Command::new("python3");
    command.arg(root().join("tests/fleet/fleet.py")).arg("--state").arg(directory);
    command
}

/// What `inspector diagnose` printed, and how long it took from start to end.
pub(crate) struct Verdict {
    text: String,
    pub(crate) took: Duration,
}

/// Runs `inspector diagnose` on some processes, writing `files` too.
pub(crate) fn diagnose(inspector: &Path, pids: &[u64], files: &[&Path]) -> Result<Verdict> {
    let mut command = Command::new(inspector);
    command.arg("diagnose");
    for pid in pids {
        command.arg("--pid").arg(pid.to_string());
    }
    for file in files {
        command.arg("-o").arg(file);
    }
    let start = Instant::now();
    let (status, text) = capture(&mut command)?;
    let took = start.elapsed();
    ensure!(matches!(status.code(), Some(0 | 3)), "inspector diagnose failed: {status}");
    Ok(Verdict { text, took })
}

/// The demo fails when the verdict does not name what was really done.
fn check(report: &Value, truth: &Value) -> Result<()> {
    let verdict = &report["verdict"];
    ensure!(
        verdict["family"] == truth["family"],
        "the verdict is {}, but the wedge was {}",
        verdict["family"],
        truth["family"]
    );
    let said = verdict["culprits"].as_array().context("no culprits")?;
    for culprit in truth["culprits"].as_array().into_iter().flatten() {
        let named = said.iter().any(|party| party["pid"] == culprit["pid"] && party["tid"] == culprit["tid"]);
        ensure!(named, "the verdict does not name the true culprit: {culprit}");
    }
    say("the verdict names the true culprit");
    Ok(())
}
