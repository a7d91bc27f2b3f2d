//! Fixtures with one named thread for each kind of wait, and what inspector says of them.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{Document, Fixture, Inspector, compile, paths, procfs};

/// Compiles a fixture of `waits/`.
pub fn program(source: &str) -> Result<PathBuf> {
    program_with(source, &[])
}

/// As [`program`], with flags for the compiler.
pub fn program_with(source: &str, flags: &[&str]) -> Result<PathBuf> {
    // The fixtures share a header that the cache of compiled programs does not know of.
    let mut digest = DefaultHasher::new();
    std::fs::read(paths::fixtures().join("waits/common.h"))?.hash(&mut digest);
    let version = format!("-DCOMMON_VERSION={}ULL", digest.finish());
    compile::c(&format!("waits/{source}"), &[&[version.as_str()], flags].concat())
}

/// The threads of a fixture as it named them: `ready {NAME: {"tid": N, "address": N, "fd": N, "owner": N}}`, and `"pid": N`
/// where it is more than one process.
#[derive(Debug)]
pub struct Waiters {
    /// The program.
    pub fixture: Fixture,
    /// What it said of each thread.
    pub named: BTreeMap<String, Value>,
}

impl Waiters {
    /// Starts a program.
    pub fn start(file: &Path, arguments: &[&Path]) -> Result<Self> {
        Self::new(Fixture::program(file, arguments)?)
    }

    /// Of a program that is ready.
    pub fn new((fixture, facts): (Fixture, Value)) -> Result<Self> {
        let facts = facts.as_object().context("the fixture names its threads")?;
        let named = facts.iter().map(|(name, fact)| (name.clone(), fact.clone())).collect();
        Ok(Self { fixture, named })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.fixture.pid()
    }

    /// The thread of a name.
    pub fn tid(&self, name: &str) -> Result<u32> {
        let tid = self.named.get(name).and_then(|fact| fact["tid"].as_u64());
        tid.and_then(|tid| u32::try_from(tid).ok()).with_context(|| format!("the fixture has no {name}"))
    }

    /// A number that it said of a thread.
    pub fn number(&self, name: &str, key: &str) -> Option<u64> {
        self.named.get(name)?[key].as_u64()
    }

    /// The process of a name.
    pub fn pid_of(&self, name: &str) -> u32 {
        self.number(name, "pid").and_then(|pid| u32::try_from(pid).ok()).unwrap_or(self.pid())
    }

    /// Its processes: the one that was started, and those of its rows.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.named.keys().map(|name| self.pid_of(name)).collect();
        pids.push(self.pid());
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Waits until all its threads but `running` block.
    pub fn wait_blocked(&self) -> Result<()> {
        for name in self.named.keys().filter(|name| *name != "running") {
            procfs::wait_blocked(self.pid_of(name), self.tid(name)?).with_context(|| name.clone())?;
        }
        Ok(())
    }

    /// What `inspector dump` says of them.
    pub fn dump(&self) -> Result<Waits> {
        self.dump_of(&self.pids())
    }

    /// What it says of the threads of these processes, and is told of no others.
    pub fn dump_of(&self, pids: &[u32]) -> Result<Waits> {
        let document = Inspector::json("dump", pids).document()?;
        let mut threads = BTreeMap::new();
        for name in self.named.keys().filter(|name| pids.contains(&self.pid_of(name))) {
            let thread = document.thread(self.pid_of(name), self.tid(name)?).with_context(|| name.clone())?;
            threads.insert(name.clone(), thread.clone());
        }
        Ok(Waits { threads, document })
    }

    /// Stops it, continues it, and waits until its threads block again.
    pub fn stop_and_continue(&self) -> Result<()> {
        for pid in self.pids() {
            signal(pid, Signal::STOP)?;
            for &tid in &procfs::tids(pid) {
                procfs::wait_state(pid, tid, "T")?;
            }
        }
        for pid in self.pids() {
            signal(pid, Signal::CONT)?;
        }
        self.wait_blocked()
    }
}

fn signal(pid: u32, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(pid.cast_signed()).context("a pid is never 0")?;
    Ok(kill_process(pid, signal)?)
}

/// One report about them.
#[derive(Debug)]
pub struct Waits {
    /// The entries of `threads`, by the fixture's names.
    pub threads: BTreeMap<String, Value>,
    /// All of it.
    pub document: Document,
}

impl Waits {
    /// What a thread waits on.
    pub fn wait(&self, name: &str) -> &Value {
        &self.threads[name]["wait"]
    }

    /// What must not change while a thread stays in its wait.
    pub fn essence(&self, name: &str) -> Value {
        let wait = self.wait(name);
        // `select` writes what is left of its time-out back when it is interrupted, so its text counts down.
        let keys = [
            "kind",
            "address",
            "object",
            "flavour",
            "fd",
            "inode",
            "local",
            "remote",
            "socket_state",
            "has_deadline",
            "owners",
            "owner_gone",
        ];
        keys.iter().map(|key| (key.to_string(), wait[*key].clone())).collect::<serde_json::Map<_, _>>().into()
    }

    /// Checks what the fixture says of itself: descriptor, address and owner.
    pub fn check(&self, waiters: &Waiters, name: &str, kind: &str) -> Result<()> {
        let (wait, fact) = (self.wait(name), &waiters.named[name]);
        ensure!(wait["kind"] == kind, "{name}: {kind} expected, got {wait:#}");
        if fact["fd"].as_i64() != Some(-1) {
            ensure!(wait["fd"] == fact["fd"], "{name}: descriptor {} expected, got {wait:#}", fact["fd"]);
        }
        if fact["address"] != 0 {
            ensure!(wait["address"] == fact["address"], "{name}: {} expected, got {wait:#}", fact["address"]);
        }
        let timed = ["timed", "until", "sleep", "ppoll", "timerfd"].iter().any(|mark| name.contains(mark));
        ensure!(wait["has_deadline"] == timed, "{name}: deadline {timed} expected, got {wait:#}");
        Ok(())
    }

    /// Checks kind and flavour; `-`: no flavour.
    pub fn is(&self, name: &str, kind: &str, flavour: &str) -> Result<()> {
        let wait = self.wait(name);
        let said = (wait["kind"].as_str().unwrap_or(""), wait["flavour"].as_str().unwrap_or("-"));
        ensure!(said == (kind, flavour), "{name}: {kind} {flavour} expected, got {wait:#}");
        Ok(())
    }

    /// Checks that this thread is the only owner, and so sure.
    pub fn is_owned(&self, name: &str, tid: u64, certainty: &str) -> Result<()> {
        let owner = self.owner(name)?;
        let right = owner["tid"] == tid && owner["certainty"] == certainty;
        ensure!(right, "{name}: {certainty} owner {tid} expected, got {:#}", self.wait(name));
        Ok(())
    }

    /// The only owner of a wait.
    pub fn owner(&self, name: &str) -> Result<&Value> {
        let owners = self.wait(name)["owners"].as_array().map_or(&[][..], Vec::as_slice);
        ensure!(owners.len() == 1, "{name}: one owner expected, got {:#}", self.wait(name));
        Ok(&owners[0])
    }

    /// Checks that a wait names nobody.
    pub fn has_no_owner(&self, name: &str) -> Result<()> {
        ensure!(self.wait(name)["owners"].is_null(), "{name}: no owner expected, got {:#}", self.wait(name));
        Ok(())
    }
}

/// The same answers before and after a stop and a continue.
pub fn same_after_stop(waiters: &Waiters, before: &Waits) -> Result<()> {
    waiters.stop_and_continue()?;
    let after = waiters.dump()?;
    for name in waiters.named.keys() {
        let (before, after) = (before.essence(name), after.essence(name));
        ensure!(before == after, "{name} changed by a stop and a continue:\n{before:#}\n{after:#}");
    }
    Ok(())
}
