//! Discovery of real processes: titles, flags of the parent, scope, and pids that are not what they seem.

use std::{
    fs,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, ensure};
use inspector::{
    discover::{DiscoverError, Scope, discover},
    knowledge::Knowledge,
    model::{Process, TaskState},
};
use inspector_tests::{Fixture, procfs, python};
use rustix::process::Signal;
use tempfile::TempDir;

/// A launcher in SGLang's manner: a module of that name, with flags; its child shows a title and nothing else.
const LAUNCHER: &str = r#"
import json, os, subprocess, threading
child = subprocess.Popen(["sglang::scheduler_DP0_TP3"], executable="/bin/cat", stdin=subprocess.PIPE)
stop = threading.Event()
thread = threading.Thread(target=stop.wait, daemon=True)
thread.start()
print("ready", json.dumps({"child": child.pid, "thread": thread.native_id}), flush=True)
try:
    input()
finally:
    child.kill()
"#;

struct Launcher {
    fixture: Fixture,
    child: u32,
    thread: u32,
    _modules: TempDir,
}

impl Launcher {
    fn start(flags: &[&str]) -> Result<Self> {
        let modules = tempfile::tempdir()?;
        fs::create_dir(modules.path().join("sglang"))?;
        fs::write(modules.path().join("sglang/__init__.py"), "")?;
        fs::write(modules.path().join("sglang/launch_server.py"), LAUNCHER)?;
        let mut command = Command::new(python::system());
        command.args(["-m", "sglang.launch_server"]).args(flags);
        command.env("PYTHONPATH", modules.path()).env("CUDA_VISIBLE_DEVICES", "2,3").env("TOKEN", "secret");
        let (fixture, ready) = Fixture::ready(command)?;
        let number = |name: &str| ready[name].as_u64().unwrap_or_default() as u32;
        Ok(Self { child: number("child"), thread: number("thread"), fixture, _modules: modules })
    }
}

fn named(pids: &[u32]) -> Result<Vec<Process>, DiscoverError> {
    let scope = Scope { pids: pids.to_vec(), ..Scope::default() };
    Ok(discover(&Knowledge::builtin(), &scope)?.processes)
}

fn unix_ns() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64)
}

#[test]
fn a_titled_child_takes_its_role_from_its_parents_flags() -> Result<()> {
    let before = unix_ns()?;
    let flags = ["--disaggregation-mode", "decode", "--disaggregation-transfer-backend=nixl"];
    let launcher = Launcher::start(&flags)?;
    let parent = launcher.fixture.pid();
    let found = named(&[launcher.child])?;
    let [process] = found.as_slice() else { anyhow::bail!("{} processes found", found.len()) };
    let worker = process.worker.as_ref().context("no worker")?;
    ensure!((worker.engine.as_str(), worker.kind.as_str()) == ("sglang", "scheduler"), "{worker:?}");
    ensure!(
        worker.role.as_deref() == Some("decode") && worker.backend.as_deref() == Some("nixl"),
        "{worker:?}"
    );
    ensure!(worker.rank.as_deref() == Some("DP0_TP3") && worker.flags_from == Some(parent), "{worker:?}");
    ensure!(worker.gpus == [2, 3], "{worker:?}");
    ensure!(
        process.ppid == parent && process.pid == launcher.child && process.ns_pids.contains(&process.pid)
    );
    ensure!(process.net_ns.is_some() && process.exe.as_deref().is_some_and(|exe| exe.ends_with("/cat")));
    // The kernel counts in hundredths of a second.
    let tick = 10_000_000;
    ensure!(
        (before - tick..=unix_ns()?).contains(&process.start_unix_ns),
        "started {}",
        process.start_unix_ns
    );
    ensure!(process.environment.contains_key("CUDA_VISIBLE_DEVICES"), "{:?}", process.environment);
    ensure!(!process.environment.contains_key("TOKEN"), "a secret was kept");
    let threads = named(&[parent])?[0].thread_count;
    ensure!(threads == 2, "{threads} threads");
    Ok(())
}

#[test]
fn the_default_scope_has_workers_and_no_plain_programs() -> Result<()> {
    let launcher = Launcher::start(&[])?;
    let mut sleeper = Command::new(python::system());
    sleeper.args(["-c", "print('ready', flush=True); input()"]);
    let (sleeper, _) = Fixture::ready(sleeper)?;
    let pids = |all_python| -> Result<Vec<u32>> {
        let found = discover(&Knowledge::builtin(), &Scope { all_python, ..Scope::default() })?;
        Ok(found.processes.iter().map(|process| process.pid).collect())
    };
    let workers = pids(false)?;
    ensure!(workers.contains(&launcher.child) && workers.contains(&launcher.fixture.pid()), "{workers:?}");
    ensure!(!workers.contains(&sleeper.pid()), "a plain program was taken");
    let all = pids(true)?;
    ensure!(all.contains(&sleeper.pid()) && all.contains(&launcher.child), "{all:?}");
    let plain = named(&[sleeper.pid()])?;
    ensure!(
        plain[0].worker.as_ref().is_some_and(|worker| worker.engine == "python"),
        "{:?}",
        plain[0].worker
    );
    let launcher_found = named(&[launcher.fixture.pid()])?;
    let worker = launcher_found[0].worker.as_ref().context("no worker")?;
    ensure!((worker.kind.as_str(), worker.role.as_deref()) == ("http", Some("unified")), "{worker:?}");
    Ok(())
}

#[test]
fn any_program_can_be_named_and_a_stop_shows() -> Result<()> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "echo ready; read line"]);
    let (shell, _) = Fixture::ready(command)?;
    shell.signal(Signal::STOP)?;
    procfs::wait_state(shell.pid(), shell.pid(), "T")?;
    let found = named(&[shell.pid()])?;
    ensure!(found[0].state == TaskState::Stopped && found[0].worker.is_none(), "{:?}", found[0]);
    ensure!(found[0].frozen != Some(true) && found[0].tracer_pid == 0);
    shell.signal(Signal::CONT)?;
    Ok(())
}

#[test]
fn pids_that_are_not_processes_are_refused_with_their_reason() -> Result<()> {
    let launcher = Launcher::start(&[])?;
    ensure!(matches!(named(&[u32::MAX - 1]), Err(DiscoverError::NoSuchProcess(_))));
    match named(&[launcher.thread]) {
        Err(DiscoverError::IsThread { pid, .. }) => ensure!(pid == launcher.fixture.pid()),
        other => anyhow::bail!("a thread was taken for a process: {other:?}"),
    }
    // kthreadd is always pid 2, where the host's PID namespace is seen.
    if fs::read_to_string("/proc/2/comm").is_ok_and(|comm| comm.trim() == "kthreadd") {
        ensure!(matches!(named(&[2]), Err(DiscoverError::KernelThread { pid: 2, .. })));
    }
    Ok(())
}

#[test]
fn a_process_that_is_gone_is_no_process() -> Result<()> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "echo ready; read line"]);
    let (mut shell, _) = Fixture::ready(command)?;
    let pid = shell.pid();
    shell.kill();
    ensure!(matches!(named(&[pid]), Err(DiscoverError::NoSuchProcess(_))));
    Ok(())
}
