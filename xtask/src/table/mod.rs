//! `cargo xtask table waits`: every kind of wait, each in a thread that really blocks so; what inspector says of it, and what
//! py-spy, pystack, gdb and `/proc` say of the same thread in the same run.
//!
//! The rows are data: `tests/fixtures/waits/expected.toml` names the fixtures and what is true of their threads.

mod answer;
mod expected;
mod fixture;
mod peers;

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::Value;

use crate::demo;
use crate::process::{capture, say};

use self::answer::Answer;
use self::expected::Fixture;
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

pub(crate) fn waits(options: &Options) -> Result<()> {
    // Nothing is timed here.
    let inspector = demo::build(true)?;
    let peers = if options.no_peers { None } else { Some(Peers::find()) };
    let wanted =
        |fixture: &&Fixture| options.only.as_ref().is_none_or(|only| fixture.program.contains(only.as_str()));
    let all = expected::read()?;
    let (mut wrong, mut kinds) = (Vec::new(), BTreeSet::new());
    let others: &[&str] = if peers.is_some() { &peers::NAMES } else { &[] };
    let head: Vec<&str> =
        ["thread", "inspector", "object", "owner"].into_iter().chain(others.iter().copied()).collect();
    println!("| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()));
    for fixture in all.iter().filter(wanted) {
        say(&fixture.program);
        let running = match Running::start(fixture) {
            Ok(running) => running,
            Err(why) => {
                wrong.push(format!("{}: {why:#}", fixture.program));
                continue;
            }
        };
        let mut command = Command::new(&inspector);
        command
            .args(["dump", "--json"])
            .args(running.pids().iter().flat_map(|pid| ["--pid".to_owned(), pid.to_string()]));
        let (status, text) = capture(&mut command)?;
        ensure!(status.success(), "inspector dump: {status}");
        let report: Value = serde_json::from_str(&text).context("inspector's report")?;
        let seen = peers.as_ref().map(|peers| peers.look(&running));
        for missing in fixture.rows.keys().filter(|name| !running.facts.contains_key(*name)) {
            wrong.push(format!("{}: it has no thread {missing}", fixture.program));
        }
        for (name, fact) in &running.facts {
            let Some(row) = fixture.rows.get(name) else { continue };
            let (pid, tid) = running.ids(fact)?;
            let answer = Answer::of(&report, pid, tid);
            wrong.extend(
                answer
                    .differs(row, fact)
                    .into_iter()
                    .map(|what| format!("{} {name}: {what}", fixture.program)),
            );
            kinds.insert(answer.kind.clone());
            let mut cells =
                vec![format!("{} {name}", fixture.program), answer.what(), answer.object(), answer.owner()];
            cells.extend(seen.iter().flat_map(|seen| seen.of(tid)));
            println!(
                "| {} |",
                cells.iter().map(|cell| cell.replace('|', "\\|")).collect::<Vec<_>>().join(" | ")
            );
        }
    }
    let schema = capture(Command::new(&inspector).arg("schema"))?.1;
    let missing: Vec<String> =
        promised(&serde_json::from_str(&schema)?).difference(&kinds).cloned().collect();
    if options.only.is_none() && !missing.is_empty() {
        println!("\nKinds that no thread of this table shows: {}.", missing.join(", "));
    }
    if !wrong.is_empty() {
        bail!("inspector's answer is not what the fixture says:\n  {}", wrong.join("\n  "));
    }
    Ok(())
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
