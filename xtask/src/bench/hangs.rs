//! A target with a thread in uninterruptible sleep: who stops every thread before it reads waits for that one for ever.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::piped;
use super::table::Row;
use super::tools::Tool;
use crate::process::{Owned, root, run, say};

/// After that a tool is taken to hang. A dump of three threads takes a second at most.
const PATIENCE: Duration = Duration::from_secs(10);

/// Calls the library's `get_stuck` on a thread of a Python process.
const PROGRAM: &str = "
import ctypes, sys, threading, time
library = ctypes.CDLL(sys.argv[1])
threading.Thread(target=library.get_stuck, args=(None,), daemon=True).start()
while ctypes.c_int.in_dll(library, 'child').value == 0:
    time.sleep(0.01)
print('ready', flush=True)
sys.stdin.read()
";

/// The wall time of one dump each, or that it did not end.
pub(super) fn hangs(tools: &[Tool], rows: &mut Vec<Row>) -> Result<()> {
    let library = root().join("target/vfork.so");
    let source = root().join("tests/fixtures/unreadable/vfork.c");
    // The fixture is a program; as a library its names must be seen.
    let flags =
        ["-g", "-O1", "-pthread", "-D_GNU_SOURCE", "-Dstatic=", "-Dmain=program", "-shared", "-fPIC", "-o"];
    run(Command::new("cc").args(flags).arg(&library).arg(source))?;
    for tool in tools.iter().filter(|tool| tool.dumps) {
        say(&format!("a thread in D state: {}", tool.name));
        // One for each: what a tool leaves behind is not the next one's trouble.
        let mut target = Owned::start(piped(Command::new("python3").args(["-c", PROGRAM]).arg(&library)))?;
        target.line("ready", PATIENCE)?;
        let took = tool.run_at_most(target.pid(), PATIENCE)?;
        let unit = if took.is_some() { "s" } else { "s, given up" };
        let seconds = took.unwrap_or(PATIENCE).as_secs_f64();
        rows.push(Row::new("dump with a thread in D state, wall", tool.name, seconds, unit, None));
    }
    Ok(())
}
