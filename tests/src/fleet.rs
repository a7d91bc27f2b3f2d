//! The demo fleet of `tests/fleet/`, and what a verdict about it must say.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::{Document, Fixture, eventually, paths, python};

/// A running fleet. Dropping it ends all of its processes.
#[derive(Debug)]
pub struct Fleet {
    holder: Fixture,
    state: Value,
    directory: TempDir,
}

impl Fleet {
    /// Starts a fleet that has served its first request. `options` as for `fleet.py hold`: `--gentle`, `--backend mooncake`.
    pub fn start(options: &[&str]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let mut command = script(&directory);
        command.arg("hold").args(options);
        let mut holder = Fixture::spawn_until(command, Signal::TERM)?;
        let state = holder.wait_ready()?;
        Ok(Self { holder, state, directory })
    }

    /// Sends `count` requests through both halves; all of them must be answered rightly.
    pub fn request(&self, count: u32) -> Result<()> {
        self.ask(&["request", "--concurrency", "4", "--count", &count.to_string()])?;
        Ok(())
    }

    /// Keeps requests going until the value is dropped.
    pub fn load(&self, concurrency: u32) -> Result<Fixture> {
        let mut command = script(&self.directory);
        command.args(["load", "--seconds", "3600", "--concurrency", &concurrency.to_string()]);
        Fixture::spawn(command)
    }

    /// Wedges it; gives what `fleet.py wedge` says: family, culprits, victims, how many requests hang.
    pub fn wedge(&mut self, name: &str) -> Result<Value> {
        let facts = self.ask(&["wedge", name])?;
        self.state = facts["fleet"].clone();
        Ok(facts)
    }

    /// The six processes: HTTP server, scheduler and detokenizer of both halves.
    pub fn pids(&self) -> Vec<u32> {
        let halves = ["prefill", "decode"].into_iter();
        halves
            .flat_map(|role| ["http", "scheduler", "detokenizer"].map(|kind| self.pid(role, kind)))
            .collect()
    }

    /// Process `kind` (`http`, `scheduler`, `detokenizer`) of the half `role` (`prefill`, `decode`).
    pub fn pid(&self, role: &str, kind: &str) -> u32 {
        self.state[role][kind].as_u64().unwrap_or_default() as u32
    }

    fn ask(&self, arguments: &[&str]) -> Result<Value> {
        let mut command = script(&self.directory);
        let output =
            command.args(arguments).stderr(Stdio::inherit()).output().context("cannot run fleet.py")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "fleet.py {arguments:?}: {}: {text}", output.status);
        serde_json::from_str(&text).with_context(|| format!("fleet.py {arguments:?} printed no JSON: {text}"))
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // Its end of input lets the holder thaw what it froze; a kill would leave frozen processes for ever.
        self.holder.close_stdin();
        eventually("the fleet ends", || self.holder.ended().unwrap_or(true).then_some(())).ok();
    }
}

fn script(directory: &TempDir) -> Command {
    let mut command = Command::new(python::system());
    command.arg(paths::root().join("tests/fleet/fleet.py")).arg("--state").arg(directory.path());
    command.env("INSPECTOR_VENVS", python::venvs());
    command
}

/// Compares a report with what `fleet.py wedge` knows to be true; the error says everything that differs.
pub fn compare(report: &Document, truth: &Value) -> Result<()> {
    let mut differences = Vec::new();
    let (status, family) = report.verdict()?;
    if !matches!(status, "wedged" | "degraded") {
        differences.push(format!("status is {status}"));
    }
    if truth["family"] != family {
        differences.push(format!("family is {family}, not {}", truth["family"]));
    }
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let said = |name: &str| list(&report.json["verdict"][name]);
    let culprits = list(&truth["culprits"]);
    for culprit in &culprits {
        if !said("culprits").iter().any(|party| same(party, culprit)) {
            differences.push(format!("culprit not named: {culprit}"));
        }
    }
    // A send that blocks has two ends: naming the one that does not read is right too.
    let allowed: Vec<&Value> = culprits.iter().chain(truth.get("peer")).collect();
    for party in said("culprits") {
        if !allowed.iter().any(|culprit| same(&party, culprit)) && party["kind"] != "missing-peer" {
            differences.push(format!("innocent, but named as culprit: {party}"));
        }
    }
    for victim in list(&truth["victims"]) {
        if !said("victims").iter().any(|party| same(party, &victim)) {
            differences.push(format!("victim not named: {victim}"));
        }
    }
    if !differences.is_empty() {
        let [verdict, hypotheses, gaps] = ["verdict", "hypotheses", "gaps"].map(|part| &report.json[part]);
        bail!("{}\n{verdict:#}\n{hypotheses:#}\ngaps: {gaps:#}", differences.join("\n"));
    }
    Ok(())
}

/// Whether a party of the verdict is the one of the truth: the thread, the process, or the missing thread by its name.
fn same(party: &Value, truth: &Value) -> bool {
    if party["pid"] != truth["pid"] {
        return false;
    }
    match truth["kind"].as_str() {
        Some("process") => true,
        Some("missing-peer") => {
            let (said, gone) = (party["thread"].as_str(), truth["thread"].as_str());
            party["kind"] == "missing-peer" && target(said) == target(gone)
        }
        _ => party["tid"] == truth["tid"],
    }
}

/// `transfer_worker` of `Thread-4 (transfer_worker)`: which of several equal threads is gone cannot always be told.
fn target(name: Option<&str>) -> Option<&str> {
    let name = name?;
    Some(name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name))
}
