//! The task snapshot against what `/proc` says of the same threads.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use inspector::{
    model::{MmapLock, TaskState, Tier},
    observe::tasks::{
        Opened, Task,
        memory_walk::{self, Wanted},
        open,
    },
};
use inspector_tests::{Fixture, compile, eventually, procfs};
use rustix::{
    process::Signal,
    time::{ClockId, clock_gettime},
};

fn waits(arguments: &[&str]) -> Result<Fixture> {
    Ok(Fixture::program(&compile::c("tasks/waits.c", &[])?, arguments)?.0)
}

/// The source of a tier, which must be reached: these tests run as root.
fn reach(tier: Tier, pids: &[u32]) -> Result<Opened> {
    let opened = open(pids, tier);
    ensure!(opened.tier == tier, "tier {:?} instead of {tier:?}: {:?}", opened.tier, opened.gaps);
    ensure!(opened.gaps.is_empty(), "{:?}", opened.gaps);
    Ok(opened)
}

/// One sweep, by tid.
fn sweep(opened: &mut Opened) -> Result<BTreeMap<u32, Task>> {
    let sweep = opened.source.sweep()?;
    ensure!(sweep.at_ns <= sweep.ended_ns);
    Ok(sweep.tasks.into_iter().map(|task| (task.tid, task)).collect())
}

/// A process of `threads` waiting threads (and the main thread), all of which block.
fn many(threads: usize) -> Result<(Fixture, Vec<u32>)> {
    let target = waits(&["many", &threads.to_string()])?;
    let tids = procfs::tids(target.pid());
    ensure!(tids.len() == threads + 1);
    for &tid in &tids {
        procfs::wait_state(target.pid(), tid, "S")?;
    }
    Ok((target, tids))
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// `/proc/PID/task/TID/syscall`, as text.
fn syscall_line(pid: u32, tid: u32) -> Result<String> {
    Ok(fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall"))?.trim().to_owned())
}

/// What that file would say of a task.
fn as_line(task: &Task) -> String {
    let registers = task.registers.unwrap_or_default();
    let Some(syscall) = task.syscall else { return format!("-1 {:#x} {:#x}", registers.sp, registers.pc) };
    let arguments: Vec<String> = syscall.arguments.iter().map(|argument| format!("{argument:#x}")).collect();
    format!("{} {} {:#x} {:#x}", syscall.number, arguments.join(" "), registers.sp, registers.pc)
}

#[test]
fn every_thread_of_a_large_process_is_seen_as_proc_sees_it() -> Result<()> {
    let (target, tids) = many(300)?;
    let pid = target.pid();
    for tier in [Tier::Ebpf, Tier::Memory] {
        let mut opened = reach(tier, &[pid])?;
        let tasks = sweep(&mut opened)?;
        ensure!(tasks.keys().copied().eq(tids.iter().copied()), "{tier:?}: {:?}", tasks.keys());
        for (&tid, task) in &tasks {
            ensure!(task.pid == pid);
            ensure!(Some(task.comm.as_ref().to_owned()) == procfs::comm(pid, tid), "{tier:?}: {task:?}");
            ensure!(Some(task.state.letter()) == procfs::state(pid, tid), "{tier:?}: {task:?}");
            ensure!(as_line(task) == syscall_line(pid, tid)?, "{tier:?}: {task:?}");
            ensure!(!task.on_cpu, "{tier:?}: {task:?}");
            ensure!(task.fingerprint.switched_in > 0, "{tier:?}: {task:?}");
            let kernel = if tier == Tier::Ebpf { task.kernel_stack.len() } else { task.kernel_names.len() };
            ensure!(kernel >= 3, "{tier:?}: a blocked thread has a kernel stack: {task:?}");
        }
        let again = sweep(&mut opened)?;
        for (tid, task) in &tasks {
            ensure!(again[tid].fingerprint == task.fingerprint, "{tid} did not run in between");
        }
    }
    Ok(())
}

#[test]
fn only_ebpf_gives_thread_pointers_locks_and_times() -> Result<()> {
    let (target, _) = many(20)?;
    let tasks = sweep(&mut reach(Tier::Ebpf, &[target.pid()])?)?;
    let mut pointers: Vec<u64> = tasks.values().filter_map(|task| task.thread_pointer).collect();
    pointers.sort_unstable();
    pointers.dedup();
    ensure!(pointers.len() == tasks.len(), "each thread has its own: {pointers:x?}");
    for task in tasks.values() {
        ensure!(task.mmap_lock == MmapLock::Free, "{task:?}");
        ensure!(task.frozen == Some(false), "{task:?}");
        ensure!(task.off_cpu_ns.is_some(), "{task:?}");
    }
    let tasks = sweep(&mut reach(Tier::Memory, &[target.pid()])?)?;
    ensure!(tasks.values().all(|task| task.off_cpu_ns.is_none() && task.mmap_lock == MmapLock::Unknown));
    let tasks = sweep(&mut reach(Tier::Proc, &[target.pid()])?)?;
    ensure!(tasks.len() == 21);
    ensure!(tasks.values().all(|task| task.state == TaskState::Sleeping && task.syscall.is_none()));
    Ok(())
}

#[test]
fn a_wait_that_nobody_watched_has_its_true_beginning() -> Result<()> {
    let mut target = waits(&["block"])?;
    let pid = target.pid();
    target.tell("go")?;
    let line = target.line()?;
    let (before, lost) =
        line.strip_prefix("blocks ").and_then(|times| times.split_once(' ')).context("no times")?;
    let (before, lost): (u64, u64) = (before.parse()?, lost.parse()?);
    procfs::wait_blocked(pid, pid)?;
    let after = monotonic_ns();
    // It has been waiting for a while before anybody looks.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let mut opened = reach(Tier::Ebpf, &[pid])?;
    // What is shown is later than the truth by the lag of the best calibration. Each sweep calibrates; on a busy machine
    // many may be late.
    let (since, now) = eventually("the wait began before it was seen", || {
        let sweep = opened.source.sweep().ok()?;
        let since = sweep.ended_ns.checked_sub(sweep.tasks.first()?.off_cpu_ns?)?;
        (since <= after).then_some((since, sweep.ended_ns))
    })?;
    // It is earlier than the truth by the clocks' drift (500 ppm at most), and by what an interrupt or the hypervisor took
    // of its last slice, since that is no CPU time of the thread.
    let earliest = before - lost - (now - before) / 1000;
    ensure!(
        since >= earliest,
        "blocked {} ns before it said so, without a CPU for {lost} ns",
        before - since
    );
    Ok(())
}

#[test]
fn a_stop_and_a_continue_hide_no_system_call() -> Result<()> {
    let (target, tids) = many(20)?;
    let pid = target.pid();
    let mut sources = [reach(Tier::Ebpf, &[pid])?, reach(Tier::Memory, &[pid])?];
    let calls = |tasks: &BTreeMap<u32, Task>| -> Vec<_> {
        tasks.values().map(|task| task.syscall.map(|call| (call.number, call.arguments))).collect()
    };
    let before = sources.iter_mut().map(|source| Ok(calls(&sweep(source)?))).collect::<Result<Vec<_>>>()?;
    target.signal(Signal::STOP)?;
    for &tid in &tids {
        procfs::wait_state(pid, tid, "T")?;
    }
    for (source, before) in sources.iter_mut().zip(&before) {
        let tasks = sweep(source)?;
        ensure!(tasks.values().all(|task| task.state == TaskState::Stopped), "{tasks:?}");
        ensure!(calls(&tasks) == *before, "stopped");
    }
    target.signal(Signal::CONT)?;
    for &tid in &tids {
        procfs::wait_blocked(pid, tid)?;
    }
    for (source, before) in sources.iter_mut().zip(&before) {
        let tasks = sweep(source)?;
        let restarted = tasks.values().filter(|task| task.syscall.is_some_and(|call| call.restarted)).count();
        // Timed futex, sleep and timed poll: three in five.
        ensure!(restarted == 12, "{restarted} calls were restarted");
        for ((task, now), before) in tasks.values().zip(calls(&tasks)).zip(before) {
            ensure!(now == *before, "was {before:?}, then {task:?}");
        }
    }
    Ok(())
}

#[test]
fn a_thread_that_cannot_be_interrupted_is_seen_like_any_other() -> Result<()> {
    let target = waits(&["vfork"])?;
    let pid = target.pid();
    let tid = eventually("the thread waits for its child", || {
        procfs::tids(pid).into_iter().find(|&tid| procfs::state(pid, tid) == Some('D'))
    })?;
    for tier in [Tier::Ebpf, Tier::Memory, Tier::Proc] {
        let tasks = sweep(&mut reach(tier, &[pid])?)?;
        ensure!(tasks[&tid].state == TaskState::Disk, "{tier:?}: {:?}", tasks[&tid]);
        ensure!(&*tasks[&tid].comm == "vforked");
        ensure!(tasks[&pid].state == TaskState::Sleeping, "{tier:?}: {:?}", tasks[&pid]);
    }
    Ok(())
}

/// A control group of the test's own, thawed and removed in the end.
struct Group {
    folder: PathBuf,
    switch: &'static str,
    on: &'static str,
    off: &'static str,
}

impl Drop for Group {
    fn drop(&mut self) {
        // The process in it may be gone already, and an emptied group takes a moment to be removable.
        fs::write(self.folder.join(self.switch), self.off).ok();
        let root = self.folder.parent().map(Path::to_path_buf).unwrap_or_default().join("cgroup.procs");
        for pid in fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default().lines() {
            fs::write(&root, pid).ok();
        }
        fs::remove_dir(&self.folder).ok();
    }
}

#[test]
fn a_frozen_process_is_told_from_one_that_waits() -> Result<()> {
    let name = format!("inspector-test-{}", std::process::id());
    let hierarchies = [
        ("/sys/fs/cgroup", "cgroup.freeze", "1", "0"),
        ("/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0"),
        ("/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED"),
    ];
    let mut tried = 0;
    for (mount, switch, on, off) in hierarchies {
        let (target, tids) = many(3)?;
        let group = Group { folder: Path::new(mount).join(&name), switch, on, off };
        // The root group of version 2 has this file and no freezer; version 1 mounts a file system for each.
        let usable = Path::new(mount).join("cgroup.procs").exists() && fs::create_dir(&group.folder).is_ok();
        if !usable || !group.folder.join(switch).exists() {
            continue;
        }
        tried += 1;
        fs::write(group.folder.join("cgroup.procs"), target.pid().to_string())?;
        let mut opened = reach(Tier::Ebpf, &[target.pid()])?;
        ensure!(sweep(&mut opened)?.values().all(|task| task.frozen == Some(false)), "{mount}");
        fs::write(group.folder.join(group.switch), group.on)?;
        eventually("all threads are frozen", || {
            let tasks = sweep(&mut opened).ok()?;
            (tasks.len() == tids.len() && tasks.values().all(|task| task.frozen == Some(true))).then_some(())
        })?;
        fs::write(group.folder.join(group.switch), group.off)?;
        eventually("all threads are thawed", || {
            sweep(&mut opened).ok()?.values().all(|task| task.frozen == Some(false)).then_some(())
        })?;
    }
    ensure!(tried > 0, "no control group with a freezer below /sys/fs/cgroup");
    Ok(())
}

#[test]
fn the_wanted_processes_can_change_and_die() -> Result<()> {
    let (mut first, _) = many(3)?;
    let (second, _) = many(5)?;
    for tier in [Tier::Ebpf, Tier::Memory] {
        let mut opened = reach(tier, &[first.pid()])?;
        ensure!(sweep(&mut opened)?.len() == 4);
        opened.source.watch(&[second.pid(), first.pid()])?;
        ensure!(sweep(&mut opened)?.len() == 10);
        opened.source.watch(&[second.pid()])?;
        ensure!(sweep(&mut opened)?.values().all(|task| task.pid == second.pid()));
        opened.source.watch(&[])?;
        ensure!(sweep(&mut opened)?.is_empty());
    }
    let mut opened = reach(Tier::Ebpf, &[first.pid(), second.pid()])?;
    first.kill();
    ensure!(sweep(&mut opened)?.len() == 6);
    Ok(())
}

#[test]
fn inspector_can_look_at_itself() -> Result<()> {
    let own = std::process::id();
    let mut opened = reach(Tier::Ebpf, &[own])?;
    let reader = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    let tasks = sweep(&mut opened)?;
    ensure!(tasks[&reader].on_cpu, "{:?}", tasks[&reader]);
    ensure!(tasks[&reader].state == TaskState::Running && tasks[&reader].off_cpu_ns.is_none());
    opened.source.watch(&[])?;
    ensure!(
        sweep(&mut opened)?.is_empty(),
        "its own thread is walked for the clock's sake, and not reported"
    );
    Ok(())
}

#[test]
fn user_memory_comes_with_its_thread() -> Result<()> {
    let (target, tids) = many(100)?;
    let pid = target.pid();
    let mut opened = reach(Tier::Ebpf, &[pid])?;
    let tasks = sweep(&mut opened)?;
    let walk = opened.source.memory_walk().context("no memory walk")?;
    let read = || memory_walk::read(walk.program(), pid);
    let own = std::process::id();
    ensure!(read()?.is_empty(), "nothing was granted");
    walk.give(own, pid, &[Wanted::Futex])?;
    let stackless = read()?;
    ensure!(stackless.len() == tids.len() && stackless.values().all(|thread| thread.stack.bytes.is_empty()));
    walk.give(own, pid, &[Wanted::WHOLE_STACK])?;
    ensure!(read()?.values().all(|thread| thread.futex.is_none() && !thread.stack.bytes.is_empty()));
    walk.give(own, pid, &[Wanted::Futex, Wanted::WHOLE_STACK])?;
    let threads = read()?;
    ensure!(threads.keys().copied().collect::<BTreeSet<u32>>().iter().eq(tids.iter()));
    let image = fs::File::open(format!("/proc/{pid}/mem"))?;
    let mut futexes = 0;
    for (tid, thread) in &threads {
        let task = &tasks[tid];
        ensure!(thread.stable, "{task:?}");
        let registers = task.registers.context("no registers")?;
        ensure!(thread.stack.address == registers.sp);
        ensure!(thread.stack.bytes.len() >= 1024, "{} bytes of stack", thread.stack.bytes.len());
        let mut truth = vec![0; thread.stack.bytes.len()];
        image.read_exact_at(&mut truth, thread.stack.address)?;
        ensure!(truth == thread.stack.bytes);
        let Some(futex) = &thread.futex else { continue };
        futexes += 1;
        let word = task.syscall.context("in a futex call")?.arguments[0];
        ensure!(futex.address == word - 64 && futex.bytes.len() == 128);
        let mut truth = vec![0; 128];
        image.read_exact_at(&mut truth, futex.address)?;
        ensure!(truth == futex.bytes);
    }
    ensure!(futexes == 40, "two in five wait on a futex: {futexes}");
    walk.take(own);
    ensure!(read()?.is_empty(), "the grant was taken back");
    Ok(())
}
