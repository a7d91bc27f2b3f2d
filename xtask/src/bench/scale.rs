//! A process of 4000 threads, 10 000 descriptors and 1000 sockets: the time of a diagnosis and the memory of inspector with
//! its helpers.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::piped;
use super::table::{Row, median};
use crate::process::{Owned, root, run, say};

const PATIENCE: Duration = Duration::from_mins(1);
/// How often the memory is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// `inspector diagnose` of the crowd, `runs` times.
pub(super) fn scale(inspector: &Path, runs: u32, rows: &mut Vec<Row>) -> Result<()> {
    let program = root().join("target/crowd");
    run(Command::new("cc")
        .args(["-g", "-O1", "-Wall", "-pthread", "-D_GNU_SOURCE", "-o"])
        .arg(&program)
        .arg(root().join("tests/fixtures/scale/crowd.c")))?;
    let mut crowd = Owned::start(piped(&mut Command::new(program)))?;
    crowd.line("ready", PATIENCE)?;
    let (mut times, mut peaks) = (Vec::new(), Vec::new());
    for round in 1..=runs {
        say(&format!("a crowd of 4000 threads: round {round} of {runs}"));
        let mut command = Command::new(inspector);
        command.args(["diagnose", "--json", "--pid", &crowd.pid().to_string()]).stdout(Stdio::null());
        let start = Instant::now();
        let mut owned = Owned::start(&mut command)?;
        let mut peak = 0;
        let status = loop {
            peak = peak.max(resident(owned.pid()));
            if let Some(status) = owned.wait_at_most(LOOK_EVERY)? {
                break status;
            }
        };
        times.push(start.elapsed().as_secs_f64());
        peaks.push(peak as f64 / 1024.0);
        ensure!(matches!(status.code(), Some(0 | 3)), "inspector diagnose: {status}");
    }
    let what = "diagnose of 4000 threads, 10 000 descriptors, 1000 sockets";
    rows.push(Row::new(what, "inspector, wall", median(times.into_iter()), "s", None));
    rows.push(Row::new(what, "inspector and helpers, resident", median(peaks.into_iter()), "MiB", None));
    Ok(())
}

/// KiB resident in a process and its children, pages that they share counted once for each.
fn resident(pid: u32) -> u64 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let helpers = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    std::iter::once(pid).chain(helpers).filter_map(|pid| own_resident(pid).ok()).sum()
}

fn own_resident(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("it has ended")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
