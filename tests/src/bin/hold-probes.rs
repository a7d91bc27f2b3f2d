//! Attaches the probes to one process and keeps them until its stdin ends: `hold-probes WAY PID`. Prints
//! `ready` once they are attached. A part of `cargo xtask bench`, which measures meanwhile what that process pays, or another.

use std::io::{Read as _, Write as _};

use anyhow::{Context, Result, bail};
use inspector::{
    model::ProbeWay,
    observe::tasks::probes::{SyscallProbes, Watched},
};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let way = match arguments.next().as_deref() {
        Some("fentry") => ProbeWay::Fentry,
        Some("tracepoint") => ProbeWay::Tracepoint,
        _ => bail!("usage: hold-probes fentry|tracepoint PID"),
    };
    let pid: u32 = arguments.next().context("no process id")?.parse()?;
    let watched = Watched { pids: vec![pid], threads: 64, threshold_ns: 1_000_000 };
    let mut probes = SyscallProbes::load(way, &watched)?;
    probes.attach()?;
    say("ready");
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

#[allow(clippy::print_stdout, reason = "whoever started it waits for this line")]
fn say(line: &str) {
    println!("{line}");
}
