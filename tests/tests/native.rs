//! Native stacks against gdb's backtrace of the same threads.
//!
//! The targets are the tests' own, stopped by SIGSTOP so that both see one state; gdb looks first and gives the
//! registers too, and is gone when inspector's walk begins. Every physical frame must have the same address. gdb also
//! shows inlined functions and those gone by a tail call, from debug information that inspector does not read: they
//! are left out.
#![cfg(target_arch = "x86_64")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use inspector::model::{Frame, SavedMemory, StackEnd};
use inspector::observe::frames::FrameTable;
use inspector::observe::helper::protocol::ThreadRequest;
use inspector::observe::memory::{ProcessReader, TargetMemory as _};
use inspector::observe::native::{WalkOptions, Walker};
use inspector_tests::gdb::{self, GdbThread};
use inspector_tests::{Fixture, compile, eventually, paths, python};
use rustix::process::Signal;

/// A target that stands still, and its threads' names.
struct Target {
    process: Fixture,
    names: BTreeMap<u32, String>,
}

impl Target {
    /// Starts a program that prints `TID NAME` a thread and `ready`, and stops it for good.
    fn start(command: Command) -> Result<Self> {
        let mut process = Fixture::spawn(command)?;
        let mut names = BTreeMap::new();
        loop {
            let line = process.line()?;
            if line == "ready" {
                break;
            }
            let (tid, name) = line.split_once(' ').with_context(|| line.clone())?;
            names.insert(tid.parse()?, name.to_owned());
        }
        process.signal(Signal::STOP)?;
        Ok(Self { process, names })
    }

    fn name(&self, tid: u32) -> &str {
        self.names.get(&tid).map_or("main", String::as_str)
    }
}

/// inspector's stacks.
struct Walked {
    /// Frames and why they end, by tid.
    stacks: BTreeMap<u32, (Vec<Frame>, StackEnd)>,
    /// Memory-read system calls.
    calls: u64,
}

impl Walked {
    /// Walks the threads that gdb saw, from the registers that it saw.
    fn new(pid: u32, seen: &BTreeMap<u32, GdbThread>, options: &WalkOptions) -> Self {
        Self::with_tops(pid, seen, options, &BTreeMap::new())
    }

    /// The same, with the tops of stacks that were read before.
    fn with_tops(
        pid: u32,
        seen: &BTreeMap<u32, GdbThread>,
        options: &WalkOptions,
        tops: &BTreeMap<u32, SavedMemory>,
    ) -> Self {
        let request = |(&tid, thread): (&u32, &GdbThread)| ThreadRequest {
            tid,
            registers: Some(thread.registers),
            ..ThreadRequest::default()
        };
        let requests: Vec<ThreadRequest> = seen.iter().map(request).collect();
        let memory = Rc::new(ProcessReader::new(pid));
        let mut table = FrameTable::default();
        let mut walker = Walker::new(Rc::<ProcessReader>::clone(&memory), pid, options).expect("its maps");
        assert!(walker.knows(&requests), "every thread is where something is mapped");
        let read = walker.walk(&requests, &|tid| tops.get(&tid), &mut table);
        assert_eq!(read.gaps, [], "nothing is missing");
        let table = table.into_frames();
        let frames = |indices: &[u32]| indices.iter().map(|&index| table[index as usize].clone()).collect();
        let stacks =
            read.threads.iter().map(|(tid, stack)| (*tid, (frames(&stack.frames), stack.end.clone())));
        Self { stacks: stacks.collect(), calls: memory.calls() }
    }

    fn functions(&self, tid: u32) -> Vec<&str> {
        self.stacks[&tid].0.iter().map(|frame| frame.function.as_str()).collect()
    }

    /// The thread has gdb's frames, all of them.
    fn assert_same(&self, tid: u32, name: &str, seen: &GdbThread) {
        let (frames, end) = &self.stacks[&tid];
        let ours: Vec<u64> = frames.iter().filter_map(|frame| frame.address).collect();
        let gdbs: Vec<u64> = seen.frames.iter().map(|frame| frame.0).collect();
        assert_eq!(ours, gdbs, "{name}: {end:?}\nours {frames:#?}\ngdb's {:#?}", seen.frames);
        assert_eq!(*end, StackEnd::Complete, "{name}");
        for (frame, (_, theirs)) in frames.iter().zip(&seen.frames) {
            assert!(same_name(&frame.function, theirs), "{name}: {frame:?}, gdb says {theirs}");
        }
    }
}

/// The same function: glibc has several names for one address, gdb prefers the internal ones, and takes C++ names with
/// their parameters and without the compiler's suffix.
fn same_name(ours: &str, gdbs: &str) -> bool {
    let plain = |name: &str| {
        let name = name.split(['@', '(', '.']).next().unwrap_or_default();
        let name = name.trim_start_matches("__GI_").trim_start_matches('_').trim_start_matches("libc_");
        let name = name.trim_end_matches("64").trim_end_matches("_impl").trim_start_matches("vdso_");
        name.replace("IO_new_", "IO_")
    };
    // A stripped library names its static functions nowhere but in debug information.
    ours.starts_with("0x") || plain(ours) == plain(gdbs)
}

fn blocked() -> Result<PathBuf> {
    compile::c(
        "native/blocked.c",
        &["-O2", "-g0", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-mavx2"],
    )
}

/// Threads of `blocked.c` that gdb can unwind and inspector must stop in, and why.
const STOPPED: [(&str, &str); 2] =
    [("generated_thread", "no unwind information for"), ("register_thread", "the CFA is in register 3")];

/// Threads of `blocked.c` that gdb cannot unwind: it looks at a trampoline's code only where no function has a name.
const BEYOND_GDB: &str = "restorer_thread";

/// Checks the threads of a program made from `blocked.c`: against gdb, where gdb can open the program, and against
/// what its source says.
fn check_blocked(command: Command, against_gdb: bool) -> Result<()> {
    let target = Target::start(command)?;
    let pid = target.process.pid();
    let seen = gdb::threads(pid)?;
    let walked = Walked::new(pid, &seen, &WalkOptions::default());
    for (&tid, thread) in &seen {
        let name = target.name(tid);
        match STOPPED.iter().find(|(stopped, _)| *stopped == name) {
            None if against_gdb && name != BEYOND_GDB => walked.assert_same(tid, name, thread),
            None => assert_eq!(walked.stacks[&tid].1, StackEnd::Complete, "{name}"),
            Some((_, why)) => {
                let (frames, end) = &walked.stacks[&tid];
                assert!(matches!(end, StackEnd::Stopped(text) if text.contains(why)), "{name}: {end:?}");
                if against_gdb {
                    let ours: Vec<u64> = frames.iter().filter_map(|frame| frame.address).collect();
                    let gdbs: Vec<u64> = thread.frames.iter().map(|frame| frame.0).take(ours.len()).collect();
                    assert_eq!(ours, gdbs, "{name}: what comes before the stop is right");
                }
            }
        }
    }

    let tid_of = |wanted: &str| target.names.iter().find(|(_, name)| *name == wanted).map(|(&tid, _)| tid);
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
        ("restorer_thread", "<signal handler called>", 1),
        ("restorer_thread", "raise_to_bare_restorer", 1),
        ("generated_thread", "leaf_wait", 1),
        ("register_thread", "cfa_in_rbx", 1),
    ] {
        let functions = walked.functions(tid_of(thread).with_context(|| thread.to_owned())?);
        let found = functions.iter().filter(|name| **name == function).count();
        assert_eq!(found, times, "{function} in {thread}: {functions:?}");
    }
    // Both recursions reach far beyond the first read: rounds are few, not one a frame.
    assert!(walked.calls < 60, "{} memory reads for {} threads", walked.calls, seen.len());
    Ok(())
}

#[test]
fn threads_that_are_hard_to_unwind() -> Result<()> {
    let mut command = Command::new(blocked()?);
    command.arg("spin");
    check_blocked(command, true)
}

/// The binary's path leads nowhere: it was deleted, and its directory is hidden in another mount namespace. gdb finds
/// neither symbols nor unwind tables there and gives registers alone.
#[test]
fn a_deleted_binary_in_another_mount_namespace() -> Result<()> {
    let hidden = tempfile::tempdir()?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec"]).arg(
        "mount -t tmpfs none \"$1\"; cp \"$0\" \"$1/blocked\"; cd \"$1\"; \
         exec sh -c 'exec 3<blocked; rm blocked; exec /proc/self/fd/3'",
    );
    command.arg(blocked()?).arg(hidden.path());
    check_blocked(command, false)?;
    ensure!(!hidden.path().join("blocked").exists(), "the host must not see the binary");
    Ok(())
}

/// No file may be opened: the same addresses, by the tables in the target's own memory.
#[test]
fn memory_alone_gives_the_same_addresses() -> Result<()> {
    let target = Target::start(Command::new(blocked()?))?;
    let pid = target.process.pid();
    let seen = gdb::threads(pid)?;
    let options = WalkOptions { memory_only: true, ..WalkOptions::default() };
    let walked = Walked::new(pid, &seen, &options);
    for (&tid, thread) in &seen {
        let name = target.name(tid);
        if name != BEYOND_GDB && !STOPPED.iter().any(|(stopped, _)| *stopped == name) {
            walked.assert_same(tid, name, thread);
        }
        assert!(walked.stacks[&tid].0.iter().all(|frame| frame.function.starts_with(['0', '<'])), "{name}");
    }
    Ok(())
}

/// The memory walk brings the tops of stacks: they are used, and those of another moment are not.
#[test]
fn the_tops_of_stacks_may_be_given() -> Result<()> {
    let target = Target::start(Command::new(blocked()?))?;
    let pid = target.process.pid();
    let seen = gdb::threads(pid)?;
    let plain = Walked::new(pid, &seen, &WalkOptions::default());
    let memory = ProcessReader::new(pid);
    let mut tops = BTreeMap::new();
    for (&tid, thread) in &seen {
        let mut top = SavedMemory { address: thread.registers.sp, bytes: vec![0; 1024] };
        memory.read(top.address, &mut top.bytes)?;
        tops.insert(tid, top);
    }
    let given = Walked::with_tops(pid, &seen, &WalkOptions::default(), &tops);
    assert_eq!(given.stacks, plain.stacks);
    // Noise in place of stacks, from 16 bytes below: were it used, no stack would come out right.
    for top in tops.values_mut() {
        top.address -= 16;
        top.bytes.fill(0xa5);
    }
    let stale = Walked::with_tops(pid, &seen, &WalkOptions::default(), &tops);
    assert_eq!(stale.stacks, plain.stacks);
    for top in tops.values_mut() {
        top.address += 16;
    }
    let noise = Walked::with_tops(pid, &seen, &WalkOptions::default(), &tops);
    assert_ne!(noise.stacks, plain.stacks, "what is given is used");
    Ok(())
}

#[test]
fn a_limit_on_frames_is_kept_and_said() -> Result<()> {
    let target = Target::start(Command::new(blocked()?))?;
    let pid = target.process.pid();
    let seen = gdb::threads(pid)?;
    let walked = Walked::new(pid, &seen, &WalkOptions { max_frames: 10, ..WalkOptions::default() });
    for (tid, (frames, end)) in &walked.stacks {
        assert!(frames.len() <= 10);
        assert_eq!(*end == StackEnd::Limit, frames.len() == 10, "{}: {end:?}", target.name(*tid));
    }
    Ok(())
}

/// Compares every thread of a Python program; gives the walk.
fn compare_python(python: &Path, program: &str) -> Result<(Target, Walked)> {
    let mut command = Command::new(python);
    command.arg(paths::fixtures().join(program));
    let target = Target::start(command)?;
    let seen = gdb::threads(target.process.pid())?;
    let walked = Walked::new(target.process.pid(), &seen, &WalkOptions::default());
    for (&tid, thread) in &seen {
        walked.assert_same(tid, &format!("{} {}", python.display(), target.name(tid)), thread);
    }
    Ok((target, walked))
}

/// Blocked threads of the interpreter, on every version.
#[test]
fn threads_of_cpython() -> Result<()> {
    for (version, python) in python::all()? {
        let (target, walked) = compare_python(&python, "native/python_blocked.py")?;
        for (&tid, name) in &target.names {
            let functions = walked.functions(tid);
            let has =
                |wanted: &str| functions.iter().any(|function| function.split('.').next() == Some(wanted));
            assert!(has("_PyEval_EvalFrameDefault"), "{version} {name} {functions:?}");
        }
        assert!(walked.calls < 12, "{version}: {} memory reads", walked.calls);
    }
    Ok(())
}

/// Threads that wait inside of libzmq, and libzmq's own.
#[test]
fn threads_of_libzmq() -> Result<()> {
    let python = python::pyenv("3.11").context("pyenv has no Python 3.11")?;
    let python = python::venv(&python, &["pyzmq==27.1.0"])?;
    let (target, walked) = compare_python(&python, "native/zmq_blocked.py")?;
    ensure!(walked.stacks.len() >= 4, "libzmq has an I/O thread and a reaper");
    for name in target.names.values() {
        ensure!(["receive", "send"].contains(&name.as_str()), "{name}");
    }
    let in_zmq = |frames: &[Frame]| frames.iter().any(|frame| frame.module.as_deref().is_some_and(is_zmq));
    for (tid, (frames, _)) in &walked.stacks {
        ensure!(in_zmq(frames) || target.name(*tid) == "main", "{tid}: {frames:#?}");
    }
    Ok(())
}

/// NIXL's progress thread, which spins, and UCX's, which waits. 330 MB to install: only with `cargo xtask test --all`.
#[test]
fn threads_of_nixl_and_ucx() -> Result<()> {
    if std::env::var_os("INSPECTOR_TEST_ALL").is_none() {
        return Ok(());
    }
    let python = python::pyenv("3.12").context("pyenv has no Python 3.12")?;
    let python = python::venv(&python, &["--no-deps", "nixl==1.5.1", "nixl-cu12==1.5.1", "numpy"])?;
    let (_target, walked) = compare_python(&python, "native/nixl_blocked.py")?;
    let threads_in = |library: &str| {
        let inside = |frame: &Frame| frame.module.as_deref().is_some_and(|module| module.contains(library));
        walked.stacks.values().filter(|(frames, _)| frames.iter().any(inside)).count()
    };
    ensure!(threads_in("libplugin_UCX") >= 1, "NIXL's progress thread: {:#?}", walked.stacks);
    ensure!(threads_in("libucs") >= 1, "UCX's asynchronous thread");
    Ok(())
}

fn is_zmq(module: &str) -> bool {
    module.contains("zmq")
}

/// A thread that was stopped inside of the vDSO, which is no file.
#[test]
fn a_thread_inside_the_vdso() -> Result<()> {
    let mut command = Command::new(blocked()?);
    command.arg("spin");
    let target = Target::start(command)?;
    let pid = target.process.pid();
    let tid = target.names.iter().find(|(_, name)| *name == "vdso_thread").map(|(&tid, _)| tid);
    let tid = tid.context("vdso_thread")?;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let vdso = maps.lines().find(|line| line.ends_with("[vdso]")).context("a vDSO")?;
    let (start, end) =
        vdso.split_whitespace().next().and_then(|range| range.split_once('-')).context("range")?;
    let vdso = u64::from_str_radix(start, 16)?..u64::from_str_radix(end, 16)?;

    // The thread reads the clock all the time: most stops find it in the vDSO.
    eventually("the thread stops inside of the vDSO", || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
        // In user mode: `-1 SP PC`; `running` while it is.
        let pc = text.trim().rsplit(' ').next()?.strip_prefix("0x")?;
        if vdso.contains(&u64::from_str_radix(pc, 16).ok()?) {
            return Some(());
        }
        target.process.signal(Signal::CONT).ok()?;
        target.process.signal(Signal::STOP).ok()?;
        None
    })?;
    let seen = gdb::threads(pid)?;
    let walked = Walked::new(pid, &seen, &WalkOptions::default());
    walked.assert_same(tid, "vdso_thread", &seen[&tid]);
    let innermost = walked.stacks[&tid].0.first().context("frames")?;
    assert_eq!(innermost.module.as_deref(), Some("[vdso]"));
    assert!(walked.functions(tid).contains(&"clock_spin"));
    Ok(())
}
