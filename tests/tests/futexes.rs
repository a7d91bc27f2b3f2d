//! Futex waits beyond glibc's plain locks, each made by a program that really blocks so: several words at once, shared
//! memory, owners that have ended, and locks of other runtimes.

use std::{path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};
use inspector_tests::{
    Fixture, Inspector, compile, eventually, procfs,
    waiters::{Waiters, program, program_with},
};
use serde_json::Value;

/// The same answers before and after a stop and a continue, but of those threads that a signal wakes for good.
fn same_after_stop_but(waiters: &Waiters, but: &[&str]) -> Result<()> {
    let before = waiters.dump()?;
    waiters.stop_and_continue()?;
    let after = waiters.dump()?;
    for name in waiters.named.keys().filter(|name| !but.contains(&name.as_str())) {
        let (before, after) = (before.essence(name), after.essence(name));
        ensure!(before == after, "{name} changed by a stop and a continue:\n{before:#}\n{after:#}");
    }
    Ok(())
}

#[test]
fn words_that_glibc_does_not_wait_for_alone() -> Result<()> {
    // Static, so that functions that the C library does not export have names.
    let waiters = Waiters::start(&program_with("futexes.c", &["-static"])?, &[])?;
    waiters.wait_blocked()?;
    let waits = waiters.dump()?;
    let owner = u64::from(waiters.fixture.pid());
    for (name, kind, flavour, certainty) in [
        ("waitv-one", "mutex", "normal", Some("proven")),
        ("waitv-several", "futex", "waitv", Some("likely")),
        ("waitv-timed", "futex", "waitv", Some("likely")),
        ("waitv-most", "futex", "waitv", Some("likely")),
        ("futex2", "mutex", "normal", Some("proven")),
        ("futex2-timed", "futex", "-", None),
        ("requeue", "futex", "requeue-pi", None),
        ("requeued", "futex", "requeue-pi", None),
        ("pi", "mutex", "pi", Some("proven")),
        ("barrier-1", "futex", "barrier", None),
        ("barrier-2", "futex", "barrier", None),
        ("once", "futex", "once", None),
        ("c11-mutex", "mutex", "normal", Some("proven")),
        ("c11-condvar", "condvar", "-", None),
        ("semaphore-named", "semaphore", "-", None),
    ] {
        waits.is(name, kind, flavour)?;
        match certainty {
            Some(certainty) => waits.is_owned(name, owner, certainty)?,
            None => waits.has_no_owner(name)?,
        }
        let address = waiters.number(name, "address").unwrap_or(0);
        if address != 0 && name != "requeued" {
            ensure!(
                waits.wait(name)["address"] == address,
                "{name}: {address:#x} expected: {:#}",
                waits.wait(name)
            );
        }
        ensure!(
            waits.wait(name)["has_deadline"] == name.ends_with("timed"),
            "{name}: {:#}",
            waits.wait(name)
        );
    }
    let text = |name: &str| waits.wait(name)["text"].as_str().unwrap_or_default().to_owned();
    for part in ["any of 3 futexes: mutex 0x", "; semaphore 0x"] {
        ensure!(text("waitv-several").contains(part), "{}", text("waitv-several"));
    }
    ensure!(text("waitv-most").contains("any of 128") && text("waitv-most").ends_with("124 more"));
    ensure!(text("barrier-1").contains("2 of 3 threads have arrived"), "{}", text("barrier-1"));
    let path = waits.wait("semaphore-named")["object"]["path"].as_str().unwrap_or_default().to_owned();
    ensure!(path.starts_with("/dev/shm/"), "{path}");
    same_after_stop_but(&waiters, &["requeued"])?;
    // A signal ends the call of a waiter that was moved: it asks for the mutex then.
    let after = waiters.dump()?;
    after.is("requeued", "mutex", "pi")?;
    after.is_owned("requeued", owner, "proven")
}

/// A started `shared.c`.
fn shared(folder: &Path, more: &[&Path]) -> Result<Waiters> {
    let file = folder.join("locks");
    let waiters = Waiters::start(&program("shared.c")?, &[&[file.as_path()], more].concat())?;
    waiters.wait_blocked()?;
    Ok(waiters)
}

#[test]
fn locks_that_processes_share() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let waiters = shared(folder.path(), &[])?;
    let holder = waiters.fixture.pid();
    let waits = waiters.dump()?;
    let owned = [
        ("mutex-anonymous", "mutex", "normal"),
        ("mutex-unshared", "mutex", "normal"),
        ("mutex-memfd", "mutex", "normal"),
        ("mutex-memfd-too", "mutex", "normal"),
        ("mutex-file", "mutex", "normal"),
        ("mutex-robust", "mutex", "robust"),
        ("mutex-pi", "mutex", "pi"),
        ("rwlock-reader", "rwlock", "reader"),
        ("rwlock-writer", "rwlock", "writer"),
    ];
    for (name, kind, flavour) in owned {
        waits.is(name, kind, flavour)?;
        waits.is_owned(name, u64::from(holder), "proven")?;
        ensure!(waits.wait(name)["owners"][0]["pid"] == holder, "{name}: {:#}", waits.wait(name));
    }
    for (name, kind) in
        [("semaphore", "semaphore"), ("condvar", "condvar"), ("unmapped", "mutex"), ("orphan", "mutex")]
    {
        ensure!(waits.wait(name)["kind"] == kind, "{name}: {:#}", waits.wait(name));
        waits.has_no_owner(name)?;
        ensure!(waits.wait(name)["owner_gone"].is_null(), "{name}: {:#}", waits.wait(name));
    }
    for name in waits.threads.keys().filter(|name| *name != "orphan-woken") {
        let wait = waits.wait(name);
        ensure!(wait["address"].as_u64() == waiters.number(name, "address"), "{name}: {wait:#}");
        ensure!(wait["object"]["offset"].as_u64() == waiters.number(name, "offset"), "{name}: {wait:#}");
    }
    // One object, whatever each process calls it.
    let object = |name: &str| waits.wait(name)["object"].clone();
    assert_eq!(object("mutex-memfd"), object("mutex-memfd-too"));
    let inodes: Vec<Value> = ["mutex-memfd", "mutex-file", "mutex-anonymous"]
        .iter()
        .map(|name| object(name)["inode"].clone())
        .collect();
    ensure!(inodes[0] != inodes[1] && inodes[1] != inodes[2] && inodes[0] != inodes[2], "{inodes:?}");
    // Owners that have ended.
    for name in ["left-mutex", "left-rwlock"] {
        waits.has_no_owner(name)?;
        let gone = &waits.wait(name)["owner_gone"];
        ensure!(gone.as_u64() == waiters.number(name, "owner_pid"), "{name}: {:#}", waits.wait(name));
    }
    let text = |name: &str| waits.wait(name)["text"].as_str().unwrap_or_default().to_owned();
    ensure!(text("unmapped").contains("does not map this memory"), "{}", text("unmapped"));
    ensure!(text("orphan").contains("whose owner has ended"), "{}", text("orphan"));
    // A signal makes the waiter look again: the mutex can be had.
    same_after_stop_but(&waiters, &["orphan-woken", "orphan"])
}

#[test]
fn an_owner_that_was_not_looked_at_is_likely_and_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let waiters = shared(folder.path(), &[])?;
    let pid = waiters.pid_of("mutex-memfd");
    let waits = waiters.dump_of(&[pid])?;
    waits.is_owned("mutex-memfd", u64::from(waiters.fixture.pid()), "likely")?;
    let text = waits.wait("mutex-memfd")["text"].as_str().unwrap_or_default();
    ensure!(text.contains("which was not looked at"), "{text}");
    Ok(())
}

#[test]
fn numbers_of_another_pid_namespace_prove_nothing() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let waiters = shared(folder.path(), &[Path::new("namespace")])?;
    ensure!(waiters.named.contains_key("other-namespace"), "unshare needs root");
    let waits = waiters.dump()?;
    waits.is("other-namespace", "mutex", "normal")?;
    waits.is_owned("other-namespace", u64::from(waiters.fixture.pid()), "likely")?;
    // A process elsewhere maps the locks too: who has that number there might have taken them.
    for name in ["left-mutex", "left-rwlock"] {
        waits.has_no_owner(name)?;
        ensure!(waits.wait(name)["owner_gone"].is_null(), "{name}: {:#}", waits.wait(name));
    }
    Ok(())
}

#[test]
fn shared_locks_inside_a_pid_namespace() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.arg(program("shared.c")?).arg(folder.path().join("locks"));
    let (fixture, facts) = Fixture::ready(command)?;
    // The fixture names its processes by their numbers inside.
    let hosts = |inside: u64| {
        eventually("its processes are there", || {
            let pids = std::fs::read_dir("/proc").ok()?.flatten();
            let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
            pids.find(|&pid| {
                let namespace = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
                let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
                let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
                let inner = numbers.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
                let children =
                    std::fs::read_link(format!("/proc/{}/ns/pid_for_children", fixture.pid())).ok();
                inner == Some(inside) && namespace(pid).is_some() && namespace(pid) == children
            })
        })
    };
    let inner = |name: &str, key: &str| facts[name][key].as_u64().context("a number");
    let holder = hosts(inner("mutex-memfd", "owner")?)?;
    let names = ["mutex-memfd", "rwlock-writer", "left-mutex"];
    let pids = names.iter().map(|name| hosts(inner(name, "pid")?)).collect::<Result<Vec<u32>>>()?;
    for &pid in &pids {
        procfs::wait_blocked(pid, pid)?;
    }
    let document = Inspector::json("dump", &[pids.as_slice(), &[holder]].concat()).document()?;
    for (name, &pid) in names.iter().zip(&pids).take(2) {
        let wait = &document.thread(pid, pid)?["wait"];
        let owner = &wait["owners"][0];
        ensure!(owner["tid"] == holder && owner["certainty"] == "proven", "{name}: {wait:#}");
    }
    let wait = &document.thread(pids[2], pids[2])?["wait"];
    // A process outside whose mappings are not to be had (a sandbox's first one) may share the memory, for all that is known.
    let outside = std::fs::read("/proc/1/maps").is_ok();
    let gone = outside.then(|| inner("left-mutex", "owner_pid")).transpose()?;
    ensure!(wait["owner_gone"].as_u64() == gone, "{gone:?} expected: {wait:#}");
    Ok(())
}

#[test]
fn a_shared_lock_that_its_owner_left_is_a_wedge() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let waiters = shared(folder.path(), &[])?;
    let pid = waiters.pid_of("left-rwlock");
    let mut last = String::new();
    let found = eventually("the verdict", || {
        let document = Inspector::json("diagnose", &[pid]).document().ok()?;
        last = format!("{:#}", document.json["verdict"]);
        (document.verdict().ok()? == ("wedged", "thread-died") && last.contains("read-write lock"))
            .then_some(())
    });
    ensure!(found.is_ok(), "no verdict, but {last}");
    Ok(())
}

/// Every row: its kind and flavour, no owner.
fn runtime(waiters: &Waiters, rows: &[(&str, &str, &str)]) -> Result<()> {
    waiters.wait_blocked()?;
    let waits = waiters.dump()?;
    for (name, kind, flavour) in rows {
        waits.is(name, kind, flavour)?;
        match waiters.number(name, "owner").filter(|&owner| owner != 0) {
            Some(owner) => waits.is_owned(name, owner, "proven")?,
            None => waits.has_no_owner(name)?,
        }
        if let Some(address) = waiters.number(name, "address").filter(|&address| address != 0) {
            ensure!(waits.wait(name)["address"] == address, "{name}: {:#}", waits.wait(name));
        }
        ensure!(waits.wait(name)["has_deadline"] == name.contains("timed"), "{name}: {:#}", waits.wait(name));
    }
    same_after_stop_but(waiters, &[])
}

#[test]
fn locks_of_rust() -> Result<()> {
    let waiters = Waiters::start(Path::new(env!("CARGO_BIN_EXE_rust-waits")), &[])?;
    runtime(
        &waiters,
        &[
            ("rust-mutex", "mutex", "rust std::sync::Mutex"),
            ("rust-rwlock-reader", "rwlock", "rust std::sync::RwLock (read)"),
            ("rust-rwlock-writer", "rwlock", "rust std::sync::RwLock (write)"),
            ("rust-condvar", "condvar", "rust std::sync::Condvar"),
            ("rust-barrier", "condvar", "rust std::sync::Barrier"),
            ("rust-once", "futex", "rust std::sync::Once"),
            ("rust-park", "futex", "rust thread::park"),
            ("rust-park-timed", "futex", "rust thread::park"),
            ("rust-mpsc", "condvar", "rust std::sync::mpsc"),
            ("parking-mutex", "mutex", "parking_lot::Mutex"),
            ("parking-rwlock-reader", "rwlock", "parking_lot::RwLock (read)"),
            ("parking-rwlock-writer", "rwlock", "parking_lot::RwLock (write)"),
            ("parking-condvar", "condvar", "parking_lot::Condvar"),
        ],
    )?;
    let waits = waiters.dump()?;
    ensure!(waits.wait("rust-join")["kind"] == "join", "{:#}", waits.wait("rust-join"));
    Ok(())
}

#[test]
fn locks_of_cpp() -> Result<()> {
    let Some(program) = compile::cpp("runtimes/cpp.cc", &[])? else { return Ok(()) };
    runtime(
        &Waiters::start(&program, &[])?,
        &[
            ("cpp-mutex", "mutex", "normal"),
            ("cpp-recursive-mutex", "mutex", "recursive"),
            ("cpp-timed-mutex", "mutex", "normal"),
            ("cpp-shared-mutex", "rwlock", "reader"),
            ("cpp-condvar", "condvar", "-"),
            ("cpp-condvar-any", "condvar", "-"),
            ("cpp-future", "futex", "c++ std::future"),
            ("cpp-latch", "futex", "c++ std::latch"),
            ("cpp-barrier", "futex", "c++ std::barrier"),
            ("cpp-semaphore", "semaphore", "c++ std::counting_semaphore"),
            ("cpp-atomic", "futex", "c++ std::atomic::wait"),
            ("cpp-atomic-wide", "futex", "c++ std::atomic::wait"),
            ("cpp-once", "futex", "once"),
            ("cpp-static", "futex", "c++ static initialisation"),
        ],
    )
}

#[test]
fn locks_of_openmp() -> Result<()> {
    let mut command = Command::new(compile::c("runtimes/openmp.c", &["-fopenmp"])?);
    command.env("OMP_WAIT_POLICY", "passive");
    let rows = ["omp-barrier", "omp-critical", "omp-lock"].map(|name| (name, "futex", "openmp (libgomp)"));
    runtime(&Waiters::new(Fixture::ready(command)?)?, &rows)
}
