//! Observing must not touch the target: no attaching, no signal, no write, no stop.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use inspector_tests::{Document, Fixture, Inspector, compile, paths, python};
use serde_json::Value;

/// A Python process with `threads` blocked threads of 25 frames, and heartbeat threads.
fn heartbeat(threads: u32) -> Result<Fixture> {
    let library = compile::c("harm/heartbeat.c", &["-shared", "-fPIC"])?;
    let script = paths::fixtures().join("harm/heartbeat.py");
    let arguments = [script.as_os_str(), library.as_os_str()].map(ToOwned::to_owned);
    let mut command = std::process::Command::new(python::system());
    command.args(arguments).args([threads.to_string(), "25".to_owned()]);
    Ok(Fixture::ready(command)?.0)
}

/// Files what its heartbeat threads recorded since the last call under `label`.
fn take(target: &mut Fixture, label: &str) -> Result<()> {
    target.tell(&format!("take {label}"))?;
    ensure!(target.line()? == "taken");
    Ok(())
}

/// System calls that could touch another process, and those that show who inspector itself is.
const TRACED: &str = "trace=ptrace,process_vm_writev,kill,tkill,tgkill,rt_sigqueueinfo,rt_tgsigqueueinfo,\
                      pidfd_send_signal,process_madvise,process_mrelease,pidfd_getfd,prlimit64,setpriority,\
                      sched_setscheduler,sched_setaffinity,sched_setattr,move_pages,migrate_pages,\
                      open,openat,openat2,creat,clone,clone3,fork,vfork";

#[test]
fn no_command_attaches_to_signals_or_writes_to_its_target() -> Result<()> {
    let target = heartbeat(20)?;
    let pid = target.pid();
    for command in ["ps", "dump", "diagnose"] {
        let directory = tempfile::tempdir()?;
        let log = directory.path().join("strace");
        let log = log.to_str().context("a temporary path is text")?;
        let finished = Inspector::json(command, &[pid])
            .under(&["strace", "-f", "-qq", "-y", "-s", "200", "-o", log, "-e", TRACED])
            .timeout(Duration::from_mins(3))
            .run()?;
        ensure!(
            matches!(finished.code(), Some(0 | 3)),
            "{command} failed: {}\n{}",
            finished.status,
            finished.stderr
        );
        let text = std::fs::read_to_string(log)?;
        ensure!(text.contains("open"), "strace recorded nothing of {command}:\n{text}");
        let harmful = harmful(&text);
        ensure!(harmful.is_empty(), "{command} made calls that could harm a target:\n{}", harmful.join("\n"));
    }
    Ok(())
}

/// Lines of an strace log that reach beyond inspector's own processes, or write anywhere below /proc.
fn harmful(log: &str) -> Vec<&str> {
    let own: HashSet<&str> = log.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let bad = |line: &&str| {
        let Some((_, call)) = line.split_once(' ') else { return false };
        let call = call.trim_start();
        let Some((name, arguments)) = call.split_once('(') else { return false };
        let first = arguments.split([',', ')']).next().unwrap_or_default().trim();
        match name {
            "ptrace" | "process_vm_writev" | "process_madvise" | "process_mrelease" | "pidfd_getfd" => true,
            "kill" | "tkill" | "tgkill" | "rt_sigqueueinfo" | "rt_tgsigqueueinfo" | "sched_setscheduler"
            | "sched_setaffinity" | "sched_setattr" | "move_pages" | "migrate_pages" | "prlimit64" => {
                first != "0" && !own.contains(first)
            }
            "pidfd_send_signal" | "setpriority" => true,
            // `/proc/self` is inspector's own: its oom score, its thread names.
            "open" | "openat" | "openat2" | "creat" => {
                let writes =
                    ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"].iter().any(|flag| call.contains(flag));
                writes && call.contains("\"/proc/") && !call.contains("\"/proc/self/")
            }
            _ => false,
        }
    };
    log.lines().filter(bad).collect()
}

#[test]
fn the_check_itself_finds_harm() {
    let log = "10 openat(AT_FDCWD</>, \"/proc/99/mem\", O_RDONLY|O_CLOEXEC) = 3\n\
               10 openat(AT_FDCWD</>, \"/proc/99/mem\", O_RDWR) = 3\n\
               10 kill(11, SIGKILL) = 0\n\
               11 kill(99, SIGSTOP) = 0\n\
               10 kill(0, SIGTERM) = 0\n\
               11 ptrace(PTRACE_SEIZE, 99) = 0\n\
               10 process_vm_writev(99, [], 0) = 0\n\
               10 openat(AT_FDCWD</>, \"/proc/self/comm\", O_WRONLY) = 3\n";
    let found: Vec<&str> =
        harmful(log).into_iter().map(|line| line.split(['(', '<']).next().unwrap_or("")).collect();
    assert_eq!(found, ["10 openat", "11 kill", "11 ptrace", "10 process_vm_writev"]);
}

/// Its `mmap_lock` is taken whenever one looks, and never for long: that is no lock that is stuck.
#[test]
fn memory_that_is_mapped_without_pause_is_read_all_the_same() -> Result<()> {
    let target = heartbeat(100)?;
    for _ in 0..15 {
        let document = Inspector::json("dump", &[target.pid()]).document()?;
        let gaps = document.json["gaps"].as_array().context("no list of gaps")?;
        ensure!(gaps.is_empty(), "{gaps:#?}");
        let of_depth = |thread: &&Value| {
            Document::functions(thread).iter().filter(|function| **function == "descend").count() == 25
        };
        let read = document.threads(target.pid()).filter(of_depth).count();
        ensure!(read == 100, "{read} of 100 stacks were read");
    }
    Ok(())
}

/// No tracer, and with `INSPECTOR_TEST_ALL` (on a machine that does nothing else) the bar: the 99.9th percentile of both
/// heartbeats stays within 5 ms of what it is without inspector.
#[test]
fn heartbeats_of_a_target_with_many_threads_go_on() -> Result<()> {
    let all = std::env::var_os("INSPECTOR_TEST_ALL").is_some();
    let mut target = heartbeat(if all { 1000 } else { 200 })?;
    let pid = target.pid();
    for _ in 0..if all { 100 } else { 2 } {
        take(&mut target, "between")?;
        std::thread::sleep(Duration::from_secs(1));
        take(&mut target, "quiet")?;
        for command in ["dump", "diagnose"] {
            Inspector::json(command, &[pid]).document()?;
        }
        take(&mut target, "observed")?;
    }
    target.tell("report")?;
    let line = target.line()?;
    let report: Value = serde_json::from_str(line.strip_prefix("report ").context("no report")?)?;
    ensure!(report["tracer_seen"] == 0, "the target saw a tracer {} times", report["tracer_seen"]);
    for series in ["beat", "map"] {
        let p999 = |label: &str| report[label][series]["p999_ns"].as_u64().context("nothing was recorded");
        let (quiet, observed) = (p999("quiet")?, p999("observed")?);
        ensure!(
            !all || observed <= quiet + 5_000_000,
            "{series}: p99.9 is {observed} ns with inspector, {quiet} ns without"
        );
    }
    Ok(())
}
