//! Python stacks against real processes on every CPython at hand: compared with what the process knows of itself, and
//! with what py-spy reads.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use inspector::{
    model::{PythonEngine, PythonThread},
    observe::{
        frames::FrameTable,
        helper::protocol::ThreadRequest,
        memory::{MemoryError, Piece, ProcessReader, TargetMemory},
        python::{self, PythonRead},
    },
};
use inspector_tests::{Fixture, eventually, paths, python::all};
use py_spy::{Config, PythonSpy, config::LockingStrategy};
use serde::Deserialize;
use serde_json::Value;

/// One frame: function, file, line.
type Line = (String, String, Option<u32>);

/// What a process says of one of its threads.
#[derive(Debug, Deserialize)]
struct Truth {
    name: String,
    ident: u64,
    native: u32,
    daemon: bool,
    frames: Vec<(String, String, u32)>,
}

impl Truth {
    fn lines(&self) -> Vec<Line> {
        self.frames.iter().cloned().map(|(function, file, line)| (function, file, Some(line))).collect()
    }
}

/// A process as inspector reads it.
struct Seen {
    read: PythonRead,
    frames: FrameTable,
    calls: u64,
}

impl Seen {
    fn of(pid: u32) -> Result<Self> {
        Self::through(&ProcessReader::new(pid), pid)
    }

    fn through(memory: &dyn TargetMemory, pid: u32) -> Result<Self> {
        let mut frames = FrameTable::default();
        let read = python::read(memory, pid, &requests(pid)?, false, &mut frames)?;
        Ok(Self { read, frames, calls: memory.calls() })
    }

    fn thread(&self, tid: u32) -> Result<&PythonThread> {
        let found = self.read.threads.iter().find(|(other, _)| *other == tid);
        found.map(|(_, thread)| thread).with_context(|| format!("no thread {tid}"))
    }

    fn lines(&self, thread: &PythonThread) -> Vec<Line> {
        let frames = thread.frames.iter().filter_map(|frame| self.frames.get(frame.frame));
        frames
            .map(|frame| (frame.function.clone(), frame.file.clone().unwrap_or_default(), frame.line))
            .collect()
    }
}

/// The threads of a process of our own PID namespace, as `/proc` lists them.
fn requests(pid: u32) -> Result<Vec<ThreadRequest>> {
    let mut threads = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let tid = entry?.file_name().to_string_lossy().parse()?;
        threads.push(ThreadRequest { tid, ns_tid: tid, ..ThreadRequest::default() });
    }
    Ok(threads)
}

/// A process's memory, with reads that fail or come back wrong.
struct Broken {
    inner: ProcessReader,
    /// Each 2^n-th byte is changed, on average; `None`: none is.
    change: Option<u32>,
    /// Reads that touch these addresses fail.
    hole: Option<(u64, u64)>,
    state: Cell<u64>,
    /// The stretches that were read.
    pieces: RefCell<Vec<(u64, usize)>>,
}

impl Broken {
    fn new(pid: u32) -> Self {
        let pieces = RefCell::default();
        Self { inner: ProcessReader::new(pid), change: None, hole: None, state: Cell::new(1), pieces }
    }

    /// xorshift64: not random, but everywhere.
    fn next(&self) -> u64 {
        let mut state = self.state.get();
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.state.set(state);
        state
    }

    fn spoil(&self, bytes: &mut [u8]) {
        let Some(change) = self.change else { return };
        let mut at = self.next() >> (63 - change);
        while let Some(byte) = usize::try_from(at).ok().and_then(|at| bytes.get_mut(at)) {
            *byte ^= self.next() as u8;
            at += 1 + (self.next() >> (63 - change));
        }
    }

    fn fails(&self, address: u64, length: usize) -> bool {
        self.pieces.borrow_mut().push((address, length));
        self.hole.is_some_and(|(start, end)| address < end && start < address.saturating_add(length as u64))
    }
}

impl TargetMemory for Broken {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryError> {
        if self.fails(address, buffer.len()) {
            return Err(MemoryError { address, length: buffer.len(), errno: libc::EFAULT });
        }
        self.inner.read(address, buffer)?;
        self.spoil(buffer);
        Ok(())
    }

    fn read_many(&self, pieces: &mut [Piece]) {
        self.inner.read_many(pieces);
        for piece in pieces {
            if self.fails(piece.address, piece.bytes.len()) {
                piece.filled = 0;
            }
            self.spoil(&mut piece.bytes);
        }
    }

    fn calls(&self) -> u64 {
        self.inner.calls()
    }
}

fn program(name: &str) -> PathBuf {
    paths::root().join("tests/fixtures/python").join(name)
}

fn start(python: &Path, name: &str, arguments: &[&str]) -> Result<(Fixture, Value)> {
    let mut command = Command::new(python);
    command.arg(program(name)).args(arguments);
    Fixture::ready(command)
}

#[test]
fn stacks_names_ids_and_flags_are_what_the_process_says() -> Result<()> {
    for (version, python) in all()? {
        let folder = tempfile::tempdir()?;
        let (fixture, facts) = start(&python, "corpus.py", &[&folder.path().to_string_lossy()])?;
        let truth: Vec<Truth> = serde_json::from_value(facts)?;
        ensure!(truth.len() > 50, "the corpus is not there");
        let seen = Seen::of(fixture.pid())?;
        assert!(seen.read.runtime.version.starts_with(version), "{}", seen.read.runtime.version);
        assert!(seen.read.gaps.is_empty(), "{version}: {:?}", seen.read.gaps);
        assert!(seen.read.runtime.unmatched.is_empty(), "{version}: {:?}", seen.read.runtime.unmatched);
        for expected in &truth {
            let what = format!("{version}, {}", expected.name);
            let thread = seen.thread(expected.native).context(what.clone())?;
            assert_eq!(seen.lines(thread), expected.lines(), "{what}");
            assert_eq!(thread.name.as_ref(), Some(&expected.name), "{what}");
            assert_eq!(thread.ident, expected.ident, "{what}");
            assert_eq!(thread.native_id, Some(expected.native), "{what}");
            assert_eq!(thread.daemon, Some(expected.daemon), "{what}");
            assert_eq!(thread.partial, None, "{what}");
            assert!(!thread.holds_gil, "{what}");
        }
        // One thread more: the one that printed the truth.
        assert_eq!(seen.read.threads.len(), truth.len() + 1, "{version}");
        assert!(seen.calls < 600, "{version}: {} calls", seen.calls);
    }
    Ok(())
}

#[test]
fn frames_lines_names_entries_and_ids_agree_with_py_spy() -> Result<()> {
    for (version, python) in all()? {
        let folder = tempfile::tempdir()?;
        let (fixture, _) = start(&python, "corpus.py", &[&folder.path().to_string_lossy()])?;
        let seen = Seen::of(fixture.pid())?;
        let config =
            Config { blocking: LockingStrategy::NonBlocking, include_idle: true, ..Config::default() };
        let mut spy = PythonSpy::new(fixture.pid().cast_signed(), &config)?;
        let traces = spy.get_stack_traces()?;
        assert_eq!(traces.len(), seen.read.threads.len(), "{version}");
        let threads: BTreeMap<u64, &PythonThread> =
            seen.read.threads.iter().map(|(_, thread)| (thread.ident, thread)).collect();
        // The thread that printed the truth may still be on its way to where it blocks.
        for trace in traces {
            let thread = threads.get(&trace.thread_id).context("a thread that only py-spy sees")?;
            if thread.name.as_deref() == Some("reporter") {
                continue;
            }
            let what = format!("{version}, {:?}", trace.thread_name);
            // py-spy 0.4.3 overlooks the slots of a subclass from 3.13 on, reads its name from the wrong place, and
            // may then give up on all names; the other test compares them with what the process says.
            let overlooks = matches!(version, "3.13" | "3.14" | "3.15");
            if !overlooks || trace.thread_name.is_some() && thread.name.as_deref() != Some("slotted") {
                assert_eq!(thread.name, trace.thread_name, "{what}");
            }
            assert_eq!(thread.holds_gil, trace.owns_gil, "{what}");
            if let Some(tid) = trace.os_thread_id {
                assert_eq!(thread.native_id.map(u64::from), Some(tid), "{what}");
            }
            // What the interpreter pushes behind an inlined constructor is no frame of anybody's; py-spy shows it.
            let frames: Vec<_> = trace.frames.iter().filter(|frame| frame.filename != "__init__").collect();
            let lines: Vec<Line> = frames
                .iter()
                .map(|frame| (frame.name.clone(), frame.filename.clone(), u32::try_from(frame.line).ok()))
                .collect();
            let mut seen_lines = seen.lines(thread);
            if version == "3.10" {
                // py-spy 0.4.3 passes over the length of a range without a line, so that its lines behind such a range
                // are wrong in 3.10; the other test compares these with what the process says.
                seen_lines = with_lines_of(seen_lines, &lines);
            }
            assert_eq!(seen_lines, lines, "{what}");
            let entries: Vec<bool> = match version {
                "3.8" | "3.9" | "3.10" => vec![true; frames.len()],
                "3.11" => frames.iter().map(|frame| frame.is_entry).collect(),
                _ => frames.iter().map(|frame| frame.is_shim_entry).collect(),
            };
            assert_eq!(thread.frames.iter().map(|frame| frame.entry).collect::<Vec<_>>(), entries, "{what}");
        }
    }
    Ok(())
}

/// The frames with the lines of others, where these are of generator expressions.
fn with_lines_of(frames: Vec<Line>, others: &[Line]) -> Vec<Line> {
    let pairs = frames.into_iter().zip(others.iter().map(|(_, _, line)| *line));
    let line = |function: &str, own, other| if function == "<genexpr>" { other } else { own };
    pairs
        .map(|((function, file, own), other)| (function.clone(), file, line(&function, own, other)))
        .collect()
}

/// The first argument of the system call that a thread is in.
fn syscall_argument(pid: u32, tid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    let argument = text.split(' ').nth(1)?.strip_prefix("0x")?.to_owned();
    u64::from_str_radix(&argument, 16).ok()
}

#[test]
fn a_gil_held_in_a_c_call_has_its_holder_and_its_waiters() -> Result<()> {
    for (version, python) in all()? {
        for how in ["usleep", "mutex"] {
            let (fixture, facts) = start(&python, "gil.py", &[how])?;
            let tid = |name: &str| facts.get(name).and_then(Value::as_u64).map(|tid| tid as u32);
            let holder = tid("holder").context("no holder")?;
            let waiters = ["spin", "sleep", "main"].map(|name| tid(name).unwrap_or_default());
            let pid = fixture.pid();
            // All of them wait once the holder is in its call.
            let (start, end) = eventually("everybody waits for the GIL", || {
                let seen = Seen::of(pid).ok()?;
                let (start, end) = seen.read.runtime.gils().next()?.cond?;
                let waits =
                    |&tid: &u32| syscall_argument(pid, tid).is_some_and(|at| (start..end).contains(&at));
                if !waiters.iter().all(waits) {
                    return None;
                }
                // They also wait, for a moment, on its way there: then it changes hands once more.
                let before = python::sample_gils(&ProcessReader::new(pid), &seen.read.runtime);
                std::thread::sleep(std::time::Duration::from_millis(50));
                let after = python::sample_gils(&ProcessReader::new(pid), &seen.read.runtime);
                (before == after && before.iter().flatten().all(|gil| gil.holder == Some(holder)))
                    .then_some((start, end))
            })?;
            let seen = Seen::of(pid)?;
            let what = format!("{version}, {how}, GIL's condition variable {start:#x}..{end:#x}");
            let gils: Vec<_> = seen.read.runtime.gils().collect();
            let [gil] = gils.as_slice() else { bail!("{what}: {} GILs", gils.len()) };
            let first = gil.first().context("the GIL did not settle")?;
            assert!(first.locked, "{what}");
            assert_eq!(first.holder, Some(holder), "{what}");
            for (tid, thread) in &seen.read.threads {
                assert_eq!(thread.holds_gil, *tid == holder, "{what}, {:?}", thread.name);
            }
            assert_eq!(seen.thread(holder)?.name.as_deref(), Some("holder"), "{what}");
            // Stuck: the progress counter stands still, and each further sample says so.
            let samples = python::sample_gils(&ProcessReader::new(pid), &seen.read.runtime);
            assert_eq!(samples, [Some(*first)], "{what}");
        }
    }
    Ok(())
}

#[test]
fn a_gil_in_use_makes_progress() -> Result<()> {
    for (version, python) in all()? {
        let mut command = Command::new(&python);
        command.arg("-c").arg(
            "import threading, time\n\
             def spin():\n while True: time.sleep(0)\n\
             for n in range(2): threading.Thread(target=spin, daemon=True).start()\n\
             print('ready', flush=True)\nspin()",
        );
        let (fixture, _) = Fixture::ready(command)?;
        let seen = Seen::of(fixture.pid())?;
        let memory = ProcessReader::new(fixture.pid());
        let number = || python::sample_gils(&memory, &seen.read.runtime).pop().flatten();
        let before = eventually("the GIL settles", number)?.switch_number;
        eventually(&format!("{version}: the GIL is switched"), || {
            number().filter(|sample| sample.switch_number > before)
        })?;
    }
    Ok(())
}

#[test]
fn every_interpreter_is_read() -> Result<()> {
    for (version, python) in all()? {
        for how in ["shared", "own"] {
            let (fixture, facts) = start(&python, "subinterpreters.py", &[how])?;
            let fact = |name: &str| facts.get(name).and_then(Value::as_u64).context("a fact is missing");
            let (inside, beside) = (fact("inside")? as u32, fact("beside")? as u32);
            let id = fact("interpreter")?.cast_signed();
            let what = format!("{version}, {how}");
            let seen = eventually("the subinterpreter sleeps", || {
                let seen = Seen::of(fixture.pid()).ok()?;
                let innermost = seen.lines(seen.thread(inside).ok()?).first()?.0.clone();
                (innermost == "inner").then_some(seen)
            })?;
            assert_eq!(seen.read.runtime.interpreters.len(), 2, "{what}");
            let own = how == "own" && !matches!(version, "3.8" | "3.9" | "3.10" | "3.11");
            assert_eq!(seen.read.runtime.gils().count(), if own { 2 } else { 1 }, "{what}");
            let thread = seen.thread(inside)?;
            assert_eq!(thread.interpreter, id, "{what}");
            let functions: Vec<String> =
                seen.lines(thread).into_iter().map(|(function, _, _)| function).collect();
            let [inner, module, caller, ..] = functions.as_slice() else { bail!("{what}: {functions:?}") };
            assert_eq!([inner, module, caller], ["inner", "<module>", "run_inside"], "{what}");
            assert_eq!(thread.name.as_deref(), Some("run_inside"), "{what}");
            assert_eq!(seen.thread(beside)?.interpreter, 0, "{what}");
            assert_eq!(seen.thread(beside)?.name.as_deref(), Some("beside"), "{what}");
            assert!(seen.read.runtime.unmatched.is_empty(), "{what}");
        }
    }
    Ok(())
}

#[test]
fn a_process_without_python_is_none() -> Result<()> {
    let mut command = Command::new("sleep");
    command.arg("1000");
    let fixture = Fixture::spawn(command)?;
    eventually("the program is there", || {
        let program = std::fs::read_link(format!("/proc/{}/exe", fixture.pid())).ok()?;
        program.ends_with("sleep").then_some(())
    })?;
    let Err(error) = Seen::of(fixture.pid()) else { bail!("sleep runs Python") };
    assert!(
        matches!(error.downcast_ref(), Some(python::PythonError::NotPython(pid)) if *pid == fixture.pid()),
        "{error}"
    );
    Ok(())
}

#[test]
fn a_process_that_is_gone_is_an_error() -> Result<()> {
    let mut fixture = Fixture::spawn(Command::new("true"))?;
    fixture.kill();
    let memory = ProcessReader::new(fixture.pid());
    let read = python::read(&memory, fixture.pid(), &[], false, &mut FrameTable::default());
    assert!(matches!(read, Err(python::PythonError::Unreadable { .. })), "{read:?}");
    Ok(())
}

#[test]
fn memory_that_changes_under_the_reader_never_makes_it_panic() -> Result<()> {
    for (_, python) in all()? {
        let folder = tempfile::tempdir()?;
        let (fixture, _) = start(&python, "corpus.py", &[&folder.path().to_string_lossy()])?;
        for round in 0..20u64 {
            let mut memory = Broken::new(fixture.pid());
            // From one byte in 64 to one in 2^20.
            memory.change = Some(6 + (round % 15) as u32);
            memory.state.set(round + 1);
            let threads = requests(fixture.pid())?;
            match python::read(&memory, fixture.pid(), &threads, false, &mut FrameTable::default()) {
                Ok(_)
                | Err(python::PythonError::NotRecognised { .. } | python::PythonError::NotPython(_)) => {}
                Err(error) => bail!("{error}"),
            }
        }
    }
    Ok(())
}

#[test]
fn what_cannot_be_read_costs_no_other_thread_and_is_said() -> Result<()> {
    for (version, python) in all()? {
        let folder = tempfile::tempdir()?;
        let (fixture, facts) = start(&python, "corpus.py", &[&folder.path().to_string_lossy()])?;
        let truth: Vec<Truth> = serde_json::from_value(facts)?;
        let all = Broken::new(fixture.pid());
        Seen::through(&all, fixture.pid())?;
        let pieces = all.pieces.into_inner();
        let mut harmed = 0;
        // Every piece in turn would take minutes: one in 37 of the thousands, spread over all of them.
        for &(address, length) in pieces.iter().step_by(37) {
            let mut memory = Broken::new(fixture.pid());
            memory.hole = Some((address, address + length as u64));
            let Ok(seen) = Seen::through(&memory, fixture.pid()) else { continue };
            if seen.read.runtime.engine == PythonEngine::PySpy {
                continue;
            }
            for expected in &truth {
                let what = format!("{version}, {}, without {address:#x}+{length}", expected.name);
                let Ok(thread) = seen.thread(expected.native) else {
                    assert!(!seen.read.gaps.is_empty() || !seen.read.runtime.unmatched.is_empty(), "{what}");
                    continue;
                };
                let same = |(ours, theirs): (Line, Line)| {
                    (ours.0, ours.1) == (theirs.0, theirs.1) && (ours.2 == theirs.2 || ours.2.is_none())
                };
                let lines = seen.lines(thread);
                let whole =
                    lines.len() == expected.frames.len() && lines.into_iter().zip(expected.lines()).all(same);
                assert!(whole || thread.partial.is_some(), "{what}");
                harmed += usize::from(!whole);
            }
        }
        assert!(harmed > 0, "{version}: no hole did any harm");
    }
    Ok(())
}
