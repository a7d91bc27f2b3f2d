//! What other tools say of the same threads. gdb and py-spy stop the process meanwhile, so they look after inspector has.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::expected::Fixture;
use super::fixture::Running;
use crate::bench::tools;
use crate::process::{Owned, exists, say};

/// The columns.
pub(super) const NAMES: [&str; 4] = ["py-spy", "pystack", "gdb", "/proc"];
/// Frames shown of a stack.
const FRAMES: usize = 3;

/// The tools that there are.
pub(super) struct Peers {
    py_spy: Option<PathBuf>,
    pystack: Option<PathBuf>,
    gdb: bool,
}

/// What they said, by tid; under 0 what they said of a process instead.
pub(super) struct Seen(Vec<BTreeMap<u32, String>>);

impl Peers {
    pub(super) fn find() -> Self {
        let bin = tools::peers().map_err(|why| say(&format!("{why:#}"))).ok();
        let program = |name: &str| Some(bin.as_ref()?.join(name)).filter(|program| program.exists());
        Self { py_spy: program("py-spy"), pystack: program("pystack"), gdb: exists("gdb", "--version") }
    }

    pub(super) fn look(&self, fixture: &Fixture, running: &Running) -> Seen {
        if fixture.dangerous {
            return Seen(vec![all("not asked"); NAMES.len()]);
        }
        let patience = Duration::from_secs(fixture.deadline);
        let mut columns = vec![BTreeMap::new(); NAMES.len()];
        for pid in running.pids() {
            let said =
                [proc(pid), self.py_spy(pid, patience), self.pystack(pid, patience), self.gdb(pid, patience)];
            let [proc, py_spy, pystack, gdb] = said;
            for (column, said) in columns.iter_mut().zip([py_spy, pystack, gdb, proc]) {
                column.extend(said);
            }
        }
        Seen(columns)
    }

    fn py_spy(&self, pid: u32, patience: Duration) -> BTreeMap<u32, String> {
        let Some(program) = &self.py_spy else { return all("not installed") };
        let mut command = Command::new(program);
        command.args(["dump", "--json", "--pid"]).arg(pid.to_string());
        let threads = match output(&mut command, patience) {
            Ok(text) => serde_json::from_str::<Vec<Value>>(&text).unwrap_or_default(),
            Err(why) => return all(&why),
        };
        let said = |thread: &Value| {
            let tid = u32::try_from(thread["os_thread_id"].as_u64()?).ok()?;
            let frames =
                thread["frames"].as_array().into_iter().flatten().filter_map(|frame| frame["name"].as_str());
            let state = if thread["active"] == true { "active" } else { "idle" };
            Some((tid, format!("{state}: {}", frames.take(FRAMES).collect::<Vec<_>>().join(" ← "))))
        };
        threads.iter().filter_map(said).collect()
    }

    fn pystack(&self, pid: u32, patience: Duration) -> BTreeMap<u32, String> {
        let Some(program) = &self.pystack else { return all("not installed") };
        let mut command = Command::new(program);
        command.args(["remote", "--native"]).arg(pid.to_string());
        output(&mut command, patience).map_or_else(|why| all(&why), |text| tracebacks(&text))
    }

    fn gdb(&self, pid: u32, patience: Duration) -> BTreeMap<u32, String> {
        if !self.gdb {
            return all("not installed");
        }
        let mut command = Command::new("gdb");
        command.args(["-nx", "-batch", "-p", &pid.to_string(), "-ex", "thread apply all backtrace 6"]);
        output(&mut command, patience).map_or_else(|why| all(&why), |text| backtraces(&text))
    }
}

impl Seen {
    /// A cell a tool.
    pub(super) fn of(&self, tid: u32) -> Vec<String> {
        let cell = |column: &BTreeMap<u32, String>| {
            let said = column.get(&tid).or_else(|| column.get(&0));
            said.map_or_else(|| "does not show it".to_owned(), Clone::clone)
        };
        self.0.iter().map(cell).collect()
    }
}

fn all(what: &str) -> BTreeMap<u32, String> {
    BTreeMap::from([(0, what.to_owned())])
}

/// What a tool prints within its time; else what it says of its failure.
fn output(command: &mut Command, patience: Duration) -> Result<String, String> {
    let run = |command: &mut Command| -> Result<(Option<bool>, String, String)> {
        let (out, complaint) = (tempfile::NamedTempFile::new()?, tempfile::NamedTempFile::new()?);
        // A backtrace would be the last that py-spy says.
        command.env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::null()).stdout(out.reopen()?).stderr(complaint.reopen()?);
        let ended = Owned::start(command)?.wait_at_most(patience)?;
        let text = |path| anyhow::Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned());
        Ok((ended.map(|status| status.success()), text(out.path())?, text(complaint.path())?))
    };
    match run(command) {
        Ok((Some(true), out, _)) => Ok(out),
        Ok((Some(false), _, complaint)) => Err(last_line(&complaint)),
        Ok((None, ..)) => Err(format!("hangs: no answer in {} s", patience.as_secs())),
        Err(why) => Err(last_line(&format!("{why:#}"))),
    }
}

/// The last line that says something, in a cell's length.
fn last_line(text: &str) -> String {
    let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it does not say why");
    format!("fails: {}", line.trim().chars().take(80).collect::<String>())
}

/// The system call's number and the kernel function that each thread sleeps in.
fn proc(pid: u32) -> BTreeMap<u32, String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let said = |task: fs::DirEntry| {
        let tid = task.file_name().to_str()?.parse().ok()?;
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let syscall = read("syscall");
        let call: Vec<&str> = syscall.split_whitespace().take(2).collect();
        Some((tid, format!("syscall {}, in {}", call.join(" "), read("wchan").trim())))
    };
    tasks.filter_map(said).collect()
}

/// `Thread 2 (Thread 0x7f… (LWP 123) "name"):` and then `#0  0x… in function (…) at …`.
fn backtraces(text: &str) -> BTreeMap<u32, String> {
    let mut stacks: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    let mut tid = None;
    for line in text.lines() {
        if line.starts_with("Thread ") {
            let after = |mark: &str| {
                Some(line.split_once(mark)?.1.split(|c: char| !c.is_ascii_digit()).next()?.to_owned())
            };
            tid = after("(LWP ").or_else(|| after("process ")).and_then(|number| number.parse().ok());
        } else if let (Some(tid), Some(frame)) = (tid, line.strip_prefix('#')) {
            let rest = frame.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
            let function = rest.split_once(" in ").map_or(rest, |(_, function)| function);
            let function = function.split(" (").next().unwrap_or(function);
            stacks.entry(tid).or_default().push(function.chars().take(60).collect());
        }
    }
    stacks
        .into_iter()
        .map(|(tid, frames)| (tid, frames.into_iter().take(FRAMES).collect::<Vec<_>>().join(" ← ")))
        .collect()
}

/// `Traceback for thread 123 (name) [] (most recent call last):` and then `(Python) File "…", line 1, in function`.
fn tracebacks(text: &str) -> BTreeMap<u32, String> {
    let mut stacks: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    let mut tid = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("Traceback for thread ") {
            tid = rest.split(' ').next().and_then(|number| number.parse().ok());
        } else if let (Some(tid), Some((_, function))) = (tid, line.rsplit_once(", in ")) {
            stacks.entry(tid).or_default().push(function.trim().chars().take(60).collect());
        }
    }
    let innermost =
        |frames: Vec<String>| frames.into_iter().rev().take(FRAMES).collect::<Vec<_>>().join(" ← ");
    stacks.into_iter().map(|(tid, frames)| (tid, innermost(frames))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_tools_print() {
        let gdb = "Thread 2 (Thread 0x7f5 (LWP 12) \"name\"):\n#0  0x01 in futex_wait (a=1) at f.c:1\n#1  main () at m.c:2\n";
        assert_eq!(backtraces(gdb), BTreeMap::from([(12, "futex_wait ← main".to_owned())]));
        let pystack = "Traceback for thread 12 (x) [] (most recent call last):\n    (Python) File \"a.py\", line 1, in run\n    \
                       (C) File \"f.c\", line 2, in wait (libc.so)\n";
        assert_eq!(tracebacks(pystack), BTreeMap::from([(12, "wait (libc.so) ← run".to_owned())]));
    }
}
