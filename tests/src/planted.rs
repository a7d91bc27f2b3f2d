//! Processes that block in a planned shape (`tests/fixtures/graph/planted.c`), and what the plan says of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::{Fixture, compile, procfs};

/// What a thread blocks on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// Nobody: it sleeps.
    Root,
    /// A lock of its own process, or the end of one of its threads, by the thread's index: `mutex normal`, `read`, `join`.
    Inside(&'static str, usize),
    /// A mutex in shared memory that a thread holds: `shared robust`, by process and thread.
    Shared(&'static str, usize, usize),
    /// A message from a process: `unix`, `tcp`, `pipe`, `fill`.
    Message(&'static str, usize),
}

/// One process: its threads, the main thread first.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// In a PID namespace of its own.
    pub pid_namespace: bool,
    /// What its threads block on.
    pub threads: Vec<Block>,
}

/// All processes.
#[derive(Clone, Debug, Default)]
pub struct Plan(pub Vec<Process>);

/// A thread by process and index.
pub type Place = (usize, usize);

impl Plan {
    /// The plan as the program reads it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (index, process) in self.0.iter().enumerate() {
            text.push_str(if process.pid_namespace { "process pidns\n" } else { "process\n" });
            for block in &process.threads {
                // Writing to a String cannot fail.
                match block {
                    Block::Root => writeln!(text, "thread root"),
                    Block::Inside(kind, thread) => writeln!(text, "thread {kind} {index} {thread}"),
                    Block::Shared(kind, process, thread) => {
                        writeln!(text, "thread {kind} {process} {thread}")
                    }
                    Block::Message(kind, process) => writeln!(text, "thread {kind} {process} 0"),
                }
                .ok();
            }
        }
        text
    }

    /// Starts it, and waits until every thread blocks.
    pub fn start(&self) -> Result<Planted> {
        let program = compile::c("graph/planted.c", &[])?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("plan");
        std::fs::write(&file, self.text())?;
        let mut command = Command::new(program);
        command.arg(&file);
        let (fixture, facts) = Fixture::ready(command).with_context(|| self.text())?;
        let rows: Vec<Vec<u32>> = serde_json::from_value(facts)?;
        let mut threads = BTreeMap::new();
        let mut pids = Vec::new();
        for (index, (row, process)) in rows.iter().zip(&self.0).enumerate() {
            let (&pid, inside) = row.split_first().context("a process has a pid")?;
            ensure!(inside.len() == process.threads.len(), "{row:?}");
            let host = host_tids(pid)?;
            for (thread, tid) in inside.iter().enumerate() {
                let tid = *host.get(tid).with_context(|| format!("thread {tid} of {pid}"))?;
                threads.insert((index, thread), (pid, tid));
            }
            pids.push(pid);
        }
        let all: Vec<(u32, u32)> = threads.values().copied().collect();
        procfs::wait_all_blocked(&all).with_context(|| self.text())?;
        Ok(Planted { fixture, pids, threads })
    }

    /// The edges that follow from the plan: from a thread to a thread, or to a process where that has several.
    pub fn edges(&self) -> BTreeMap<Place, (usize, Option<usize>)> {
        let mut edges = BTreeMap::new();
        for (index, process) in self.0.iter().enumerate() {
            for (thread, block) in process.threads.iter().enumerate() {
                let to = match *block {
                    Block::Root => continue,
                    Block::Inside(_, other) => (index, Some(other)),
                    Block::Shared(_, process, other) => (process, Some(other)),
                    Block::Message(_, other) => (other, (self.0[other].threads.len() == 1).then_some(0)),
                };
                edges.insert((index, thread), to);
            }
        }
        edges
    }

    /// Threads that can never go on: whoever waits for one that sleeps can, and whoever waits for a process of which any
    /// thread can.
    pub fn stuck(&self) -> BTreeSet<Place> {
        let edges = self.edges();
        let all = |process: usize| (0..self.0[process].threads.len()).map(move |thread| (process, thread));
        let mut stuck: BTreeSet<Place> = edges.keys().copied().collect();
        loop {
            let free = |place: &Place| match edges[place] {
                (process, Some(thread)) => !stuck.contains(&(process, thread)),
                (process, None) => all(process).any(|thread| !stuck.contains(&thread)),
            };
            let Some(freed) = stuck.iter().find(|place| free(place)).copied() else { return stuck };
            stuck.remove(&freed);
        }
    }
}

/// The running processes of a plan.
#[derive(Debug)]
pub struct Planted {
    /// Ends all of them when dropped.
    pub fixture: Fixture,
    /// The host's pids.
    pub pids: Vec<u32>,
    /// The host's pid and tid of every thread.
    pub threads: BTreeMap<Place, (u32, u32)>,
}

/// The host's tids of a process by those of its own PID namespace.
fn host_tids(pid: u32) -> Result<BTreeMap<u32, u32>> {
    procfs::tids(pid)
        .into_iter()
        .map(|tid| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status"))?;
            let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            let inside = line.and_then(|line| line.split_whitespace().last()).context("no NSpid")?;
            Ok((inside.parse()?, tid))
        })
        .collect()
}
