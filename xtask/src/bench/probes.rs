//! What a process pays while it, or another one, is probed: a futex wake that nobody waits for, and a message of 64 bytes over
//! loopback and back; beside strace, perf trace and bcc's offcputime on the same process.
//!
//! The machine's speed changes from second to second, so each number is a ratio to what the same process needed right
//! before and right after without a tool; of a burst's rounds the fastest counts, of the bursts the median.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::piped;
use super::table::{Row, median};
use crate::process::{Owned, cargo, exists, root, run, say};

const PATIENCE: Duration = Duration::from_secs(30);
/// What a peer gets to attach in: it does not say when it has.
const SETTLING: Duration = Duration::from_secs(2);
/// Rounds of a burst, and calls of a round: about a millisecond, so that some round is not disturbed.
const ROUNDS: usize = 30;
const WAKES: u32 = 3000;
const MESSAGES: u32 = 60;

/// What is measured: the fixture's command, calls of a round, the row's name.
const MEASURES: [(&str, u32, &str); 3] = [
    ("wake", WAKES, "futex wake that wakes nobody"),
    ("near", MESSAGES, "loopback message and answer, both threads on one CPU"),
    ("apart", MESSAGES, "loopback message and answer, each thread on a CPU"),
];

/// Something that watches a process.
struct Watcher {
    name: &'static str,
    command: Box<dyn Fn(u32) -> Command>,
    /// It says `ready`.
    says_ready: bool,
}

/// The process whose calls are measured.
struct Subject(Owned);

impl Subject {
    fn start() -> Result<Self> {
        let program = root().join("target/cost");
        let source = root().join("tests/fixtures/probes/cost.c");
        run(Command::new("cc").args(["-O1", "-pthread", "-D_GNU_SOURCE", "-o"]).arg(&program).arg(source))?;
        let mut owned = Owned::start(piped(&mut Command::new(program)))?;
        owned.line("ready", PATIENCE)?;
        Ok(Self(owned))
    }

    /// Nanoseconds of the fastest round's call, of each measure.
    fn burst(&mut self) -> Result<Vec<f64>> {
        MEASURES.iter().map(|&(command, calls, _)| self.fastest(command, calls)).collect()
    }

    fn fastest(&mut self, command: &str, calls: u32) -> Result<f64> {
        let mut fastest = f64::INFINITY;
        for _ in 0..ROUNDS {
            self.0.tell(&format!("{command} {calls}"))?;
            let took: f64 = self.0.line("took ", PATIENCE)?.trim().parse()?;
            fastest = fastest.min(took / f64::from(calls));
        }
        Ok(fastest)
    }
}

/// Measures all of them, one after the other, as often as `alternations` says.
pub(super) fn probes(alternations: u32, rows: &mut Vec<Row>) -> Result<()> {
    // What is measured runs in the kernel: how the loader was compiled does not matter.
    run(&mut cargo(&["build", "--package", "inspector-tests", "--bin", "hold-probes"]))?;
    let mut subject = Subject::start()?;
    let (watchers, absent) = watchers();
    let mut bare: Vec<Vec<f64>> = vec![Vec::new(); MEASURES.len()];
    let mut ratios = vec![vec![Vec::new(); MEASURES.len()]; watchers.len()];
    for round in 1..=alternations {
        say(&format!("cost of being watched: alternation {round} of {alternations}"));
        for (watcher, ratios) in watchers.iter().zip(&mut ratios) {
            let before = subject.burst()?;
            let during = watched(&mut subject, watcher)?;
            let after = subject.burst()?;
            for (index, ratios) in ratios.iter_mut().enumerate() {
                let at = |burst: &[f64]| burst.get(index).copied().unwrap_or(f64::NAN);
                let without = f64::midpoint(at(&before), at(&after));
                ratios.push(at(&during) / without);
                bare.get_mut(index).context("as many")?.push(without);
            }
        }
    }
    for (index, &(_, _, what)) in MEASURES.iter().enumerate() {
        let without = median(bare.iter().skip(index).take(1).flatten().copied());
        rows.push(Row::new(what, "nothing", without, "ns", Some(1.0)));
        for (watcher, ratios) in watchers.iter().zip(&ratios) {
            let ratio = median(ratios.iter().skip(index).take(1).flatten().copied());
            rows.push(Row::new(what, watcher.name, without * ratio, "ns", Some(ratio)));
        }
    }
    for (name, why) in absent {
        say(&format!("{name} is not in the table: {why}"));
    }
    Ok(())
}

/// A burst while it is watched.
fn watched(subject: &mut Subject, watcher: &Watcher) -> Result<Vec<f64>> {
    let mut command = (watcher.command)(subject.0.pid());
    command.stderr(Stdio::null());
    let mut tool = Owned::start(piped(&mut command))?;
    if watcher.says_ready {
        tool.line("ready", PATIENCE)?;
    } else {
        sleep(SETTLING);
    }
    let during = subject.burst()?;
    ensure!(tool.wait_at_most(Duration::ZERO)?.is_none(), "{} ended early", watcher.name);
    Ok(during)
}

/// Those that run here, and why the others do not.
fn watchers() -> (Vec<Watcher>, Vec<(&'static str, String)>) {
    let own = root().join("target/debug/hold-probes");
    let probe = move |own: PathBuf, way: &'static str, wanted: bool| -> Box<dyn Fn(u32) -> Command> {
        Box::new(move |pid| {
            let mut command = Command::new(&own);
            // Its own process in place of the subject: others pay as well.
            command.arg(way).arg(if wanted { pid } else { std::process::id() }.to_string());
            command
        })
    };
    let peer = |words: &'static [&'static str]| -> Box<dyn Fn(u32) -> Command> {
        Box::new(move |pid| {
            let mut command = Command::new(words.first().copied().unwrap_or_default());
            command.args(words.iter().skip(1)).arg(pid.to_string());
            command
        })
    };
    let mut all = vec![
        Watcher {
            name: "inspector's probes, of this process",
            command: probe(own.clone(), "tracepoint", true),
            says_ready: true,
        },
        Watcher {
            name: "inspector's probes, of another process",
            command: probe(own.clone(), "tracepoint", false),
            says_ready: true,
        },
        Watcher {
            name: "inspector's probes by fentry, of this process",
            command: probe(own.clone(), "fentry", true),
            says_ready: true,
        },
        Watcher {
            name: "inspector's probes by fentry, of another process",
            command: probe(own, "fentry", false),
            says_ready: true,
        },
    ];
    let peers: [(&'static str, &'static [&'static str], &'static str); 4] = [
        ("strace -f -c", &["strace", "-f", "-c", "-p"], "strace"),
        ("perf trace -s", &["perf", "trace", "-s", "-p"], "linux-perf"),
        ("offcputime (libbpf-tools)", &["offcputime", "-p"], "libbpf-tools"),
        ("offcputime-bpfcc", &["offcputime-bpfcc", "-f", "-p"], "bpfcc-tools"),
    ];
    let mut absent = Vec::new();
    for (name, words, package) in peers {
        if exists(words.first().copied().unwrap_or_default(), "--help") {
            all.push(Watcher { name, command: peer(words), says_ready: false });
        } else {
            absent.push((name, format!("not installed (Debian: {package})")));
        }
    }
    let mut usable = Vec::new();
    for watcher in all {
        match try_out(&watcher) {
            Ok(()) => usable.push(watcher),
            Err(why) => absent.push((watcher.name, why)),
        }
    }
    (usable, absent)
}

/// Whether it stays attached to a process; what it said, if not.
fn try_out(watcher: &Watcher) -> Result<(), String> {
    let text = |error: anyhow::Error| format!("{error:#}");
    let mut sleeper = Owned::start(Command::new("sleep").arg("60")).map_err(text)?;
    let log = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    let mut command = (watcher.command)(sleeper.pid());
    command.stderr(log.reopen().map_err(|error| error.to_string())?);
    let mut tool = Owned::start(piped(&mut command)).map_err(text)?;
    let ended = tool.wait_at_most(SETTLING).map_err(text)?;
    sleeper.wait_at_most(Duration::ZERO).map_err(text)?;
    let Some(status) = ended else { return Ok(()) };
    let said = std::fs::read_to_string(log.path()).unwrap_or_default();
    let last = said.lines().map(str::trim).find(|line| line.contains("rror") || line.contains("annot"));
    Err(format!("{status}: {}", last.or_else(|| said.lines().last()).unwrap_or_default()))
}
