//! `cargo xtask table waits`: every kind of wait, each in a thread that really blocks so; what inspector says of it, and what
//! py-spy, pystack, gdb and `/proc` say of the same thread in the same run.
//!
//! The rows are data: `tests/fixtures/waits/expected.toml` names the fixtures and what is true of their threads.

mod answer;
mod expected;
mod fixture;
mod peers;
mod state;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::Value;

use crate::process::{capture, say};
use crate::{demo, interrupt};

use self::answer::Answer;
use self::expected::{Done, Fixture};
use self::fixture::Running;
use self::peers::Peers;

/// Options of `cargo xtask table waits`.
#[derive(Args)]
pub(crate) struct Options {
    /// Only fixtures whose program contains this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Leave out the other tools
    #[arg(long)]
    no_peers: bool,
}

/// Dumps in which a throttled thread may have a CPU before the last one is believed: it has one for a part of the time.
const DUMPS: usize = 20;

pub(crate) fn waits(options: &Options) -> Result<()> {
    // Nothing is timed here.
    let inspector = demo::build(true)?;
    let peers = if options.no_peers { None } else { Some(Peers::find()) };
    let mut table = Table { inspector, peers, wrong: Vec::new(), kinds: BTreeSet::new() };
    let wanted =
        |fixture: &&Fixture| options.only.as_ref().is_none_or(|only| fixture.name().contains(only.as_str()));
    let all = expected::read()?;
    let others: &[&str] = if table.peers.is_some() { &peers::NAMES } else { &[] };
    line(["thread", "inspector", "object", "owner"].iter().chain(others).map(|&cell| cell.to_owned()));
    println!("|{}", "---|".repeat(4 + others.len()));
    for fixture in all.iter().filter(wanted) {
        say(fixture.name());
        if let Err(why) = table.rows(fixture) {
            interrupt::check()?;
            table.wrong.push(format!("{}: {why:#}", fixture.name()));
        }
    }
    if options.only.is_none() {
        let schema = capture(Command::new(&table.inspector).arg("schema"))?.1;
        let promised = promised(&serde_json::from_str(&schema)?);
        let missing = promised.difference(&table.kinds).map(|kind| format!("{kind}: no thread shows it"));
        table.wrong.extend(missing);
    }
    if !table.wrong.is_empty() {
        bail!("inspector's answer is not what the fixtures say:\n  {}", table.wrong.join("\n  "));
    }
    Ok(())
}

/// The table while it is made.
struct Table {
    inspector: PathBuf,
    peers: Option<Peers>,
    /// Everything in which inspector is not right.
    wrong: Vec<String>,
    /// The kinds that it named.
    kinds: BTreeSet<String>,
}

impl Table {
    /// The rows of one fixture.
    fn rows(&mut self, fixture: &Fixture) -> Result<()> {
        let running = Running::start(fixture)?;
        let report = self.report(fixture, &running)?;
        let seen = self.peers.as_ref().map(|peers| peers.look(fixture, &running));
        for (name, row) in &fixture.rows {
            let Some(fact) = running.facts.get(name) else {
                self.wrong.push(format!("{}: it has no thread {name}", fixture.name()));
                continue;
            };
            let (pid, tid) = running.ids(fact)?;
            let answer = Answer::of(&report, pid, tid);
            let differs = answer.differs(row, fact, &running.facts);
            self.wrong.extend(differs.into_iter().map(|what| format!("{} {name}: {what}", fixture.name())));
            self.kinds.insert(answer.kind.clone());
            let said = [format!("{} {name}", fixture.name()), answer.what(), answer.object(), answer.owner()];
            line(said.into_iter().chain(seen.iter().flat_map(|seen| seen.of(tid))));
        }
        Ok(())
    }

    /// What inspector says of a fixture.
    fn report(&self, fixture: &Fixture, running: &Running) -> Result<Value> {
        let mut command = Command::new(&self.inspector);
        command
            .args(["dump", "--json"])
            .args(running.pids().iter().flat_map(|pid| ["--pid".to_owned(), pid.to_string()]));
        let dump = |command: &mut Command| -> Result<Value> {
            let (status, text) = capture(command)?;
            ensure!(status.success(), "inspector dump: {status}");
            serde_json::from_str(&text).context("inspector's report")
        };
        let mut report = dump(&mut command)?;
        let has_a_cpu = |report: &Value| {
            fixture
                .rows
                .keys()
                .filter_map(|name| running.ids(running.facts.get(name)?).ok())
                .any(|(pid, tid)| Answer::of(report, pid, tid).kind == "running")
        };
        for _ in 1..DUMPS {
            if fixture.state != Some(Done::Throttled) || !has_a_cpu(&report) {
                break;
            }
            report = dump(&mut command)?;
        }
        Ok(report)
    }
}

/// Prints one line of the table.
fn line(cells: impl Iterator<Item = String>) {
    println!("| {} |", cells.map(|cell| cell.replace('|', "\\|")).collect::<Vec<_>>().join(" | "));
}

/// The names of `wait.kind` that inspector's schema promises.
fn promised(schema: &Value) -> BTreeSet<String> {
    let kind = &schema["$defs"]["WaitKind"];
    let described = kind["oneOf"].as_array().into_iter().flatten();
    let names = described.flat_map(|entry| {
        let listed = entry["enum"].as_array().into_iter().flatten();
        listed.chain(Some(&entry["const"]))
    });
    names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
}
