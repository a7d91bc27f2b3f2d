//! Native stacks against gdb's backtrace of the same threads.
//!
//! The targets are the tests' own, stopped by SIGSTOP so that both see one state; gdb looks first and gives the
//! registers too, and is gone when inspector's walk begins. Every physical frame must have the same address. gdb also
//! shows inlined functions, from debug information that inspector does not read: they are left out.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use inspector::{
    model::{Frame, Registers, StackEnd},
    observe::{
        frames::FrameTable,
        helper::protocol::ThreadRequest,
        memory::{ProcessReader, TargetMemory as _},
        native::{WalkOptions, walk},
    },
};

/// A process of the test's own, killed at the end.
struct Target(Child);

impl Target {
    /// Starts `command` and reads its lines up to `ready`; what comes before is given to `line`.
    fn start(mut command: Command, mut line: impl FnMut(&str)) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("target starts");
        let output = child.stdout.take().expect("piped");
        let target = Self(child);
        let mut ready = false;
        for text in BufReader::new(output).lines() {
            let text = text.expect("target's output");
            if text == "ready" {
                ready = true;
                break;
            }
            line(&text);
        }
        assert!(ready, "the target ended before it was ready");
        target
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Stops it, as a whole, until it is killed: the test's own process, so that gdb sees what inspector sees.
    fn stop(&self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("stops");
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// What gdb saw of one thread.
#[derive(Debug, Default)]
struct GdbThread {
    registers: Registers,
    frames: Vec<(u64, String)>,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/native")
}

/// gdb's view of every thread, by tid.
fn gdb(pid: u32) -> BTreeMap<u32, GdbThread> {
    let output = Command::new("gdb")
        .args(["-nx", "-batch", "-p", &pid.to_string(), "-x"])
        .arg(fixtures().join("frames.py"))
        .output()
        .expect("gdb runs (apt-get install gdb)");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut threads: BTreeMap<u32, GdbThread> = BTreeMap::new();
    let mut tid = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        match words.as_slice() {
            ["thread", id] => tid = id.parse().expect("tid"),
            ["regs", ..] => {
                let mut values = line.split(' ').skip(1).map(|word| word.parse().expect("register"));
                let mut next = || values.next().expect("three registers");
                threads.entry(tid).or_default().registers =
                    Registers { pc: next(), sp: next(), fp: next(), lr: 0 };
            }
            ["frame", pc, name] => {
                threads.entry(tid).or_default().frames.push((pc.parse().expect("pc"), (*name).to_owned()));
            }
            _ => {}
        }
    }
    assert!(!threads.is_empty(), "gdb saw nothing: {text}\n{}", String::from_utf8_lossy(&output.stderr));
    threads
}

/// inspector's frames of the threads that gdb saw, and the memory-read calls made.
fn inspector(
    pid: u32,
    seen: &BTreeMap<u32, GdbThread>,
    options: &WalkOptions,
) -> (BTreeMap<u32, (Vec<Frame>, StackEnd)>, u64) {
    let requests: Vec<ThreadRequest> = seen
        .iter()
        .map(|(&tid, thread)| ThreadRequest {
            tid,
            registers: Some(thread.registers),
            ..ThreadRequest::default()
        })
        .collect();
    let memory = ProcessReader::new(pid);
    let mut frames = FrameTable::default();
    let read = walk(&memory, pid, &requests, options, &mut frames);
    assert_eq!(read.gaps, [], "nothing is missing");
    let stacks = read.threads.into_iter().map(|(tid, stack)| {
        let of = stack.frames.iter().map(|&index| frames.get(index).expect("interned").clone()).collect();
        (tid, (of, stack.end))
    });
    (stacks.collect(), memory.calls())
}

/// The same function: glibc has several names for one address, and gdb prefers the internal ones.
fn same_name(ours: &str, gdbs: &str) -> bool {
    let plain = |name: &str| {
        let name = name.split(['@', '(', '.']).next().unwrap_or_default();
        let name = name.trim_start_matches("__GI_").trim_start_matches('_').trim_start_matches("libc_");
        name.trim_end_matches("64").trim_end_matches("_impl").trim_start_matches("vdso_").to_owned()
    };
    // A stripped libc names its static functions nowhere but in debug information.
    ours.starts_with("0x") || plain(ours) == plain(gdbs)
}

/// Every thread has gdb's frames, and ends where the stack does.
fn assert_same(
    seen: &BTreeMap<u32, GdbThread>,
    ours: &BTreeMap<u32, (Vec<Frame>, StackEnd)>,
    name: impl Fn(u32) -> String,
) {
    for (tid, thread) in seen {
        let (frames, end) = &ours[tid];
        let name = name(*tid);
        let our_pcs: Vec<u64> =
            frames.iter().map(|frame| frame.address.expect("native frames have addresses")).collect();
        let gdb_pcs: Vec<u64> = thread.frames.iter().map(|frame| frame.0).collect();
        assert_eq!(our_pcs, gdb_pcs, "{name}: {end:?}\nours {frames:#?}\ngdb's {:#?}", thread.frames);
        assert_eq!(*end, StackEnd::Complete, "{name}");
        for (frame, (_, theirs)) in frames.iter().zip(&thread.frames) {
            assert!(same_name(&frame.function, theirs), "{name}: {frame:?}, gdb says {theirs}");
        }
    }
}

#[test]
fn threads_that_are_hard_to_unwind() {
    let directory = tempfile::tempdir().expect("directory");
    let binary = directory.path().join("blocked");
    let built = Command::new("gcc")
        .args(["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-mavx2", "-pthread", "-o"])
        .arg(&binary)
        .arg(fixtures().join("blocked.c"))
        .status()
        .expect("gcc runs (apt-get install gcc)");
    assert!(built.success());

    let mut names = BTreeMap::new();
    let mut command = Command::new(&binary);
    command.arg("spin");
    let target = Target::start(command, |line| {
        let (tid, name) = line.split_once(' ').expect("tid and name");
        names.insert(tid.parse::<u32>().expect("tid"), name.to_owned());
    });
    target.stop();
    let seen = gdb(target.pid());
    let (ours, calls) = inspector(target.pid(), &seen, &WalkOptions::default());
    let name = |tid| names.get(&tid).cloned().unwrap_or_else(|| "main".into());
    assert_same(&seen, &ours, name);

    // The binary has its symbols: no frame of it is nameless, and the signal frame is in its place.
    let by_name: BTreeMap<&str, Vec<&str>> = names
        .iter()
        .map(|(tid, name)| (name.as_str(), ours[tid].0.iter().map(|frame| frame.function.as_str()).collect()))
        .collect();
    for (thread, function, times) in [
        ("alloca_thread", "recurse_alloca", 61),
        ("large_thread", "recurse_large", 21),
        ("realigned_thread", "realigned", 6),
        ("mutex_thread", "mutex_wait", 1),
        ("cond_thread", "cond_wait", 1),
        ("poll_thread", "poll_wait", 1),
        ("sleep_thread", "sleep_wait", 1),
        ("sort_thread", "compare", 1),
        ("signal_thread", "<signal handler called>", 1),
        ("altstack_thread", "<signal handler called>", 1),
        ("altstack_thread", "raise_on_other_stack", 1),
    ] {
        let found = by_name[thread].iter().filter(|name| **name == function).count();
        assert_eq!(found, times, "{function} in {thread}: {:?}", by_name[thread]);
    }
    // Both stacks of the recursions reach far beyond the first read: rounds are few, not one a frame.
    assert!(calls < 60, "{calls} memory reads for {} threads", seen.len());
}

/// Every CPython that is there: blocked threads of the interpreter.
#[test]
fn threads_of_cpython() {
    let home = std::env::var_os("HOME").map(PathBuf::from).expect("a home");
    let versions = std::fs::read_dir(home.join(".pyenv/versions")).expect("pyenv's Pythons");
    let mut tried = 0;
    for version in versions {
        let python = version.expect("entry").path().join("bin/python3");
        let mut command = Command::new(&python);
        let Ok(output) =
            Command::new(&python).arg("-c").arg("import sys; print(sys.version_info >= (3, 8))").output()
        else {
            continue;
        };
        if !output.stdout.starts_with(b"True") {
            continue;
        }
        let mut names = BTreeMap::new();
        command.arg(fixtures().join("python_blocked.py"));
        let target = Target::start(command, |line| {
            let (tid, name) = line.split_once(' ').expect("tid and name");
            names.insert(tid.parse::<u32>().expect("tid"), name.to_owned());
        });
        target.stop();
        let seen = gdb(target.pid());
        let (ours, calls) = inspector(target.pid(), &seen, &WalkOptions::default());
        let python = python.display();
        assert_same(&seen, &ours, |tid| format!("{python} {:?}", names.get(&tid)));
        for (tid, name) in &names {
            let evals = ours[tid]
                .0
                .iter()
                .filter(|frame| frame.function.starts_with("_PyEval_EvalFrameDefault"))
                .count();
            assert!(evals > 0, "{python} {name} {:#?}", ours[tid].0);
        }
        assert!(calls < 12, "{python}: {calls} memory reads for {} threads", seen.len());
        tried += 1;
    }
    assert!(tried > 0, "no CPython 3.8 or later below ~/.pyenv/versions");
}
