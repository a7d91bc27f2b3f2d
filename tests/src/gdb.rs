//! gdb's view of a process: the oracle for native stacks.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, bail};
use inspector::model::Registers;

use crate::paths;

/// What gdb saw of one thread.
#[derive(Clone, Debug, Default)]
pub struct GdbThread {
    /// Its registers.
    pub registers: Registers,
    /// The address and the name of each physical frame, innermost first; `?` where gdb has no name.
    pub frames: Vec<(u64, String)>,
}

/// Attaches gdb to the test's own process `pid`, and is gone again: every thread by tid.
pub fn threads(pid: u32) -> Result<BTreeMap<u32, GdbThread>> {
    let output = Command::new("gdb")
        .args(["-nx", "-batch", "-p", &pid.to_string(), "-x"])
        .arg(paths::fixtures().join("native/frames.py"))
        .output()
        .context("cannot run gdb: install it (gdb)")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut threads: BTreeMap<u32, GdbThread> = BTreeMap::new();
    let mut tid = 0;
    for line in text.lines() {
        match line.splitn(3, ' ').collect::<Vec<_>>().as_slice() {
            ["thread", id] => tid = id.parse()?,
            ["regs", ..] => {
                let values = line.split(' ').skip(1).map(str::parse).collect::<Result<Vec<u64>, _>>()?;
                let [pc, sp, fp] = values[..] else { bail!("gdb's registers: {line}") };
                threads.entry(tid).or_default().registers = Registers { pc, sp, fp, lr: 0 };
            }
            ["frame", pc, name] => {
                threads.entry(tid).or_default().frames.push((pc.parse()?, (*name).to_owned()));
            }
            _ => {}
        }
    }
    if threads.is_empty() {
        bail!("gdb saw no thread of {pid}: {text}\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(threads)
}
