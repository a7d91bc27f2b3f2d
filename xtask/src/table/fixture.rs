//! Starts a fixture and reads which threads it has.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::expected::{Done, Fixture};
use super::state::State;
use crate::process::{Owned, capture, cargo, root, run};

/// How long a fixture may take to be ready, and how long its last thread may take to block after that.
const PATIENCE: Duration = Duration::from_mins(1);
const SETTLE: Duration = Duration::from_secs(1);

/// A fixture that is ready. Dropping it ends it.
pub(super) struct Running {
    /// Dropped first: who is stopped or frozen does not end.
    _state: Option<State>,
    owned: Owned,
    /// Its threads by name: `tid`, and what it knows of them.
    pub(super) facts: BTreeMap<String, Value>,
    _folder: TempDir,
}

impl Running {
    pub(super) fn start(fixture: &Fixture) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut command = program(fixture)?;
        for argument in &fixture.arguments {
            let path = folder.path().display().to_string();
            command.arg(argument.replace("FOLDER", &path).replace("FILE", &format!("{path}/file")));
        }
        command.envs(&fixture.environment).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut owned = Owned::start(&mut command)?;
        let line = owned.line("ready", PATIENCE)?;
        let facts = serde_json::from_str(line.trim()).context("its line `ready`")?;
        let mut facts = as_objects(facts);
        std::thread::sleep(SETTLE);
        let state = fixture.state.map(|done| State::enter(done, owned.pid())).transpose()?;
        if let Some(cgroup) = state.as_ref().and_then(State::cgroup) {
            for fact in facts.values_mut() {
                *fact = json!({ "tid": fact["tid"], "cgroup": cgroup });
            }
        }
        // What it waited for before is no owner and no object of this wait.
        if fixture.state == Some(Done::Stopped) {
            for fact in facts.values_mut() {
                *fact = json!({ "tid": fact["tid"] });
            }
        }
        Ok(Self { _state: state, owned, facts, _folder: folder })
    }

    /// The process and thread of a row.
    pub(super) fn ids(&self, fact: &Value) -> Result<(u32, u32)> {
        let number = |key: &str| fact[key].as_u64().and_then(|number| u32::try_from(number).ok());
        Ok((number("pid").unwrap_or(self.owned.pid()), number("tid").context("a row has a tid")?))
    }

    /// Every process of its rows.
    pub(super) fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> =
            self.facts.values().filter_map(|fact| Some(self.ids(fact).ok()?.0)).collect();
        pids.push(self.owned.pid());
        pids.sort_unstable();
        pids.dedup();
        pids
    }
}

/// Some fixtures say only numbers: `{"pid": N, NAME: TID}`.
fn as_objects(facts: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let Some(pid) = facts.get("pid").filter(|pid| pid.is_u64()).cloned() else { return facts };
    facts.into_iter().map(|(name, tid)| (name, json!({ "pid": pid, "tid": tid }))).collect()
}

/// How to call it, compiled first where it needs to be.
fn program(fixture: &Fixture) -> Result<Command> {
    let source = root().join("tests/fixtures").join(&fixture.program);
    let compiler = match source.extension().and_then(|extension| extension.to_str()) {
        Some("c") => fixture.compiler.as_deref().unwrap_or("cc"),
        Some("cc") => "c++",
        Some("py") => {
            let mut command = Command::new(interpreter(&fixture.packages)?);
            command.arg(source);
            return Ok(command);
        }
        _ => {
            run(&mut cargo(&[
                "build",
                "--quiet",
                "--package",
                "inspector-tests",
                "--bin",
                &fixture.program,
            ]))?;
            return Ok(Command::new(target().join("debug").join(&fixture.program)));
        }
    };
    let folder = target().join("table");
    fs::create_dir_all(&folder)?;
    let program = folder.join(source.file_stem().context("a program has a name")?);
    let mut compile = Command::new(compiler);
    compile
        .args(["-g", "-O1", "-pthread", "-D_GNU_SOURCE", "-o"])
        .arg(&program)
        .arg(&source)
        .args(&fixture.flags);
    run(&mut compile)?;
    Ok(Command::new(program))
}

fn interpreter(packages: &[String]) -> Result<PathBuf> {
    if packages.is_empty() {
        return Ok("python3".into());
    }
    let (status, python) =
        capture(Command::new("python3").arg(root().join("tests/fleet/environment.py")).args(packages))?;
    ensure!(status.success(), "no environment with {packages:?}");
    Ok(Path::new(python.trim()).to_owned())
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}
