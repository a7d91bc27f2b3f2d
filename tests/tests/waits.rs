//! What each thread waits on, against programs that block in each way: the kind, the object, who has to act, and the
//! deadline. The answer must be the same after the program was stopped and continued: the kernel then shows
//! `restart_syscall` for some of the waits.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use inspector_tests::{
    Fixture, Inspector, eventually, paths, procfs, python,
    waiters::{Waiters, program, same_after_stop},
};
use rustix::process::Signal;
use serde_json::json;

/// Nanoseconds below the fixtures' time-outs of 1000 s that are left at most before a test has waited in vain itself.
const A_LONG_TIME: u64 = 900_000_000_000;

#[test]
fn every_glibc_lock() -> Result<()> {
    let waiters = Waiters::start(&program("locks.c")?, &[])?;
    waiters.wait_blocked()?;
    let waits = waiters.dump()?;
    for (name, flavour) in [
        ("mutex-normal", "normal"),
        ("mutex-recursive", "recursive"),
        ("mutex-errorcheck", "errorcheck"),
        ("mutex-adaptive", "adaptive"),
        ("mutex-robust", "robust"),
        ("mutex-pi", "pi"),
        ("mutex-timed", "normal"),
        ("mutex-own", "normal"),
        ("stdio", "stdio"),
    ] {
        waits.check(&waiters, name, "mutex")?;
        assert_eq!(waits.wait(name)["flavour"], flavour, "{name}");
        let owner = waits.owner(name)?;
        assert_eq!(owner["tid"], waiters.named[name]["owner"], "{name}: {owner:#}");
        assert_eq!(owner["certainty"], "proven", "{name}: {owner:#}");
    }
    for (name, flavour) in [("rwlock-reader", "reader"), ("rwlock-writer", "writer")] {
        waits.check(&waiters, name, "rwlock")?;
        assert_eq!(waits.wait(name)["flavour"], flavour, "{name}");
        assert_eq!(waits.owner(name)?["tid"], waiters.pid(), "{name}");
    }
    waits.check(&waiters, "join", "join")?;
    let joined = waits.owner("join")?;
    assert_eq!((&joined["tid"], &joined["certainty"]), (&waiters.named["signal"]["tid"], &json!("proven")));
    // Objects that keep no owner, or whose owner is gone, name nobody.
    for (name, kind) in [
        ("mutex-orphaned", "mutex"),
        ("rwlock-behind-readers", "rwlock"),
        ("condvar", "condvar"),
        ("condvar-timed", "condvar"),
        ("semaphore", "semaphore"),
        ("semaphore-shared", "semaphore"),
        ("semaphore-timed", "semaphore"),
        ("signal", "signal"),
    ] {
        waits.check(&waiters, name, kind)?;
        waits.has_no_owner(name)?;
    }
    for name in ["mutex-timed", "condvar-timed", "semaphore-timed"] {
        let remaining =
            waits.wait(name)["remaining_ns"].as_u64().context("absolute time-outs are computed")?;
        assert!((A_LONG_TIME..=1_000_000_000_000).contains(&remaining), "{name}: {remaining}");
    }
    same_after_stop(&waiters, &waits)
}

#[test]
fn every_descriptor() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let waiters = Waiters::start(&program("descriptors.c")?, &[folder.path()])?;
    waiters.wait_blocked()?;
    let waits = waiters.dump()?;
    for (name, kind) in [
        ("socket-recv", "socket-recv"),
        ("socket-send", "socket-send"),
        ("unix-recv", "socket-recv"),
        ("connect", "connect"),
        ("pipe-read", "pipe-read"),
        ("pipe-write", "pipe-write"),
        ("poll", "poll"),
        ("ppoll-out", "poll"),
        ("select", "poll"),
        ("child", "child"),
        ("any-child", "child"),
        ("flock", "file-lock"),
        ("posix-lock", "file-lock"),
    ] {
        waits.check(&waiters, name, kind)?;
        let owner = waits.owner(name)?;
        assert_eq!(owner["pid"], waiters.named[name]["owner"], "{name}: {owner:#}");
        assert_eq!(owner["certainty"], "proven", "{name}: {owner:#}");
    }
    for (name, kind) in [
        ("udp-recv", "socket-recv"),
        ("accept", "accept"),
        ("eventfd", "eventfd"),
        ("eventfd-write", "eventfd"),
        ("timerfd", "sleep"),
        ("signalfd", "signal"),
        ("fifo-open", "pipe-read"),
    ] {
        waits.check(&waiters, name, kind)?;
        waits.has_no_owner(name)?;
    }
    // One of several descriptors is all that another process can make ready.
    for (name, kind) in [("poll-timed", "poll"), ("epoll", "epoll"), ("epoll-timed", "epoll")] {
        waits.check(&waiters, name, kind)?;
        let owner = waits.owner(name)?;
        assert_eq!(owner["pid"], waiters.named["poll"]["owner"], "{name}: {owner:#}");
        assert_eq!(owner["certainty"], "likely", "{name}: {owner:#}");
    }
    let recv = waits.wait("socket-recv");
    assert_eq!(recv["socket_state"], "ESTABLISHED");
    let listener = &waits.wait("accept")["local"];
    assert_eq!(&recv["remote"], listener);
    assert!(recv["local"].as_str().is_some_and(|local| local.starts_with("127.0.0.1:")), "{recv:#}");
    assert!(waits.wait("socket-send")["send_queue"].as_u64() > Some(0));
    assert_eq!(waits.wait("connect")["socket_state"], "SYN_SENT");
    assert_eq!(waits.wait("accept")["socket_state"], "LISTEN");

    let events = |name: &str| -> BTreeMap<i64, String> {
        let targets = waits.wait(name)["targets"].as_array().into_iter().flatten();
        targets
            .map(|t| (t["fd"].as_i64().unwrap_or(-1), t["events"].as_str().unwrap_or("").to_owned()))
            .collect()
    };
    let fd = |name: &str| waiters.named[name]["fd"].as_i64().unwrap_or(-1);
    let expected = |pairs: &[(&str, &str)]| -> BTreeMap<i64, String> {
        pairs.iter().map(|(name, events)| (fd(name), (*events).to_owned())).collect()
    };
    assert_eq!(events("poll-timed"), expected(&[("poll", "in"), ("eventfd", "in|pri")]));
    assert_eq!(events("ppoll-out"), expected(&[("ppoll-out", "out")]));
    assert_eq!(events("epoll"), expected(&[("poll", "in"), ("eventfd", "in")]));
    assert_eq!(events("epoll-timed"), expected(&[("pipe-read", "in")]));
    same_after_stop(&waiters, &waits)
}

#[test]
fn sockets_of_another_network_namespace() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = Command::new("unshare");
    command.arg("--net").arg(program("descriptors.c")?).arg(folder.path());
    let waiters = Waiters::new(Fixture::ready(command)?)?;
    waiters.wait_blocked()?;
    let waits = waiters.dump()?;
    for (name, kind) in [("socket-recv", "socket-recv"), ("unix-recv", "socket-recv"), ("connect", "connect")]
    {
        waits.check(&waiters, name, kind)?;
        assert_eq!(waits.owner(name)?["pid"], waiters.named[name]["owner"], "{name}");
    }
    assert_eq!(waits.wait("accept")["socket_state"], "LISTEN");
    Ok(())
}

#[test]
fn owners_inside_a_pid_namespace_are_the_hosts_threads() -> Result<()> {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child"]).arg(program("locks.c")?);
    let (fixture, facts) = Fixture::ready(command)?;
    let pid = eventually("unshare has a child", || {
        let children = std::fs::read_dir("/proc").ok()?.flatten();
        let pids = children.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.into_iter()
            .find(|&pid| procfs::status_numbers(pid, pid, "PPid") == Some(vec![u64::from(fixture.pid())]))
    })?;
    // The fixture names its threads by their ids inside.
    let host: BTreeMap<u64, u32> = procfs::tids(pid)
        .into_iter()
        .filter_map(|tid| Some((*procfs::status_numbers(pid, tid, "NSpid")?.get(1)?, tid)))
        .collect();
    let inside = |name: &str, key: &str| facts[name][key].as_u64().and_then(|tid| host.get(&tid).copied());
    let names = ["mutex-normal", "mutex-robust", "rwlock-writer", "join"];
    for name in names {
        procfs::wait_blocked(pid, inside(name, "tid").context("its host id")?)?;
    }
    let document = Inspector::json("dump", &[pid]).document()?;
    for name in names {
        let thread = document.thread(pid, inside(name, "tid").context("its host id")?)?;
        assert_eq!(thread["ns_tid"], facts[name]["tid"], "{name}: {thread:#}");
        let owner = &thread["wait"]["owners"][0];
        assert_eq!(owner["tid"].as_u64(), inside(name, "owner").map(u64::from), "{name}: {thread:#}");
        assert_eq!(owner["certainty"], "proven", "{name}: {thread:#}");
    }
    Ok(())
}

#[test]
fn every_sleep() -> Result<()> {
    let waiters = Waiters::start(&program("times.c")?, &[])?;
    waiters.wait_blocked()?;
    let waits = waiters.dump()?;
    for name in ["nanosleep", "sleep-until", "sleep-until-wall", "sleep-select", "sleep-poll"] {
        waits.check(&waiters, name, "sleep")?;
        let remaining = waits.wait(name)["remaining_ns"].as_u64();
        let remaining = remaining.with_context(|| format!("{name}: what remains is computed"))?;
        assert!((A_LONG_TIME..=1_000_000_000_000).contains(&remaining), "{name}: {remaining}");
    }
    let signal = waits.wait("sigtimedwait");
    assert_eq!((&signal["kind"], &signal["has_deadline"]), (&json!("signal"), &json!(true)));
    assert_eq!(waits.wait("running")["kind"], "running");
    same_after_stop(&waiters, &waits)
}

#[test]
fn stopped_threads_are_stopped_whatever_they_were_in() -> Result<()> {
    let waiters = Waiters::start(&program("locks.c")?, &[])?;
    waiters.wait_blocked()?;
    waiters.fixture.signal(Signal::STOP)?;
    for &tid in &procfs::tids(waiters.pid()) {
        procfs::wait_state(waiters.pid(), tid, "T")?;
    }
    let waits = waiters.dump()?;
    for (name, thread) in &waits.threads {
        assert_eq!(thread["wait"]["kind"], "stopped", "{name}: {thread:#}");
        assert!(thread["wait"]["owners"].is_null(), "{name}: {thread:#}");
    }
    Ok(())
}

/// A freezer cgroup of the test's own with one process in it; thawed, emptied and removed at the end.
struct Frozen {
    group: PathBuf,
    thaw: (&'static str, &'static str),
    pid: u32,
}

impl Frozen {
    fn freeze(root: &Path, unified: bool, pid: u32) -> Result<Self> {
        let group = root.join(format!("inspector-test-{pid}"));
        std::fs::create_dir(&group)?;
        let ((file, on), thaw) = if unified {
            (("cgroup.freeze", "1"), ("cgroup.freeze", "0"))
        } else {
            (("freezer.state", "FROZEN"), ("freezer.state", "THAWED"))
        };
        let frozen = Self { group, thaw, pid };
        std::fs::write(frozen.group.join("cgroup.procs"), pid.to_string())?;
        std::fs::write(frozen.group.join(file), on)?;
        eventually("the cgroup is frozen", || {
            let state = if unified { "cgroup.events" } else { "freezer.state" };
            let text = std::fs::read_to_string(frozen.group.join(state)).ok()?;
            (text.contains("frozen 1") || text.trim() == "FROZEN").then_some(())
        })?;
        Ok(frozen)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        std::fs::write(self.group.join(self.thaw.0), self.thaw.1).ok();
        let root = self.group.parent().unwrap_or(Path::new("/"));
        std::fs::write(root.join("cgroup.procs"), self.pid.to_string()).ok();
        std::fs::remove_dir(&self.group).ok();
    }
}

#[test]
fn a_frozen_cgroup_in_either_hierarchy() -> Result<()> {
    let mounts = std::fs::read_to_string("/proc/mounts")?;
    let mount = |kind: &str, option: &str| {
        let mut lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let found = lines
            .find(|words| words.get(2) == Some(&kind) && words.get(3).is_some_and(|o| o.contains(option)));
        found.and_then(|words| words.get(1).map(PathBuf::from))
    };
    let roots = [(mount("cgroup", "freezer"), false), (mount("cgroup2", ""), true)];
    let roots: Vec<(PathBuf, bool)> =
        roots.into_iter().filter_map(|(root, unified)| Some((root?, unified))).collect();
    ensure!(!roots.is_empty(), "this host has neither a freezer hierarchy nor cgroup2 mounted");
    for (root, unified) in roots {
        let waiters = Waiters::start(&program("locks.c")?, &[])?;
        waiters.wait_blocked()?;
        let before = waiters.dump()?;
        let frozen = Frozen::freeze(&root, unified, waiters.pid())?;
        let during = waiters.dump()?;
        drop(frozen);
        for (name, thread) in &during.threads {
            assert_eq!(thread["wait"]["kind"], "frozen", "{name} in {}: {thread:#}", root.display());
        }
        waiters.wait_blocked()?;
        let after = waiters.dump()?;
        for name in waiters.named.keys() {
            assert_eq!(before.essence(name), after.essence(name), "{name}");
        }
    }
    Ok(())
}

#[test]
fn a_vfork_parent_waits_for_its_child() -> Result<()> {
    let waiters = Waiters::start(&program("vfork.c")?, &[])?;
    procfs::wait_state(waiters.pid(), waiters.tid("vfork")?, "D")?;
    let waits = waiters.dump()?;
    waits.check(&waiters, "vfork", "child")?;
    assert_eq!(waits.owner("vfork")?["pid"], waiters.named["vfork"]["owner"]);
    Ok(())
}

#[test]
fn every_driver_of_a_character_device() -> Result<()> {
    let waiters = Waiters::start(&program("devices.c")?, &[])?;
    waiters.wait_blocked()?;
    let waits = waiters.dump()?;
    for (name, text, function) in [
        ("terminal-master", "read of /dev/", "n_tty_read"),
        ("terminal", "read of /dev/pts/", "n_tty_read"),
        ("terminal-write", "write of /dev/pts/", "n_tty_write"),
        ("kernel-log", "read of /dev/kmsg", "devkmsg_read"),
        ("tunnel", "read of /dev/net/tun", "tun_do_read"),
    ] {
        waits.check(&waiters, name, "device")?;
        waits.has_no_owner(name)?;
        let wait = waits.wait(name);
        assert!(wait["text"].as_str().is_some_and(|found| found.starts_with(text)), "{name}: {wait:#}");
        assert_eq!(wait["kernel_function"], function, "{name}: {wait:#}");
    }
    Ok(())
}

#[test]
fn what_the_kernel_waits_for_is_not_what_the_call_is_about() -> Result<()> {
    let waiters = Waiters::start(&program("kernel.c")?, &[])?;
    procfs::wait_state(waiters.pid(), waiters.tid("kernel-lock")?, "D")?;
    procfs::wait_blocked(waiters.pid(), waiters.tid("aio")?)?;
    let waits = waiters.dump()?;
    for (name, kind, text) in [
        ("page", "disk", "a page that userfaultfd must supply"),
        // The pipe has a byte: whoever holds its other end need not act.
        ("copy", "disk", "a page that userfaultfd must supply, called by read"),
        ("kernel-lock", "disk", "the kernel, in "),
        ("aio", "other", "io_getevents in "),
    ] {
        waits.check(&waiters, name, kind)?;
        waits.has_no_owner(name)?;
        let wait = waits.wait(name);
        assert!(wait["text"].as_str().is_some_and(|found| found.starts_with(text)), "{name}: {wait:#}");
    }
    Ok(())
}

#[test]
fn a_zombie_leader_is_a_zombie() -> Result<()> {
    let waiters = Waiters::start(&program("leader.c")?, &[])?;
    procfs::wait_state(waiters.pid(), waiters.pid(), "Z")?;
    let waits = waiters.dump()?;
    let leader = waits.document.thread(waiters.pid(), waiters.pid())?;
    assert_eq!(leader["wait"]["kind"], "zombie");
    waits.check(&waiters, "survivor", "signal")
}

#[test]
fn every_python_lock() -> Result<()> {
    for (version, interpreter) in python::all()? {
        let waiters = Waiters::start(&interpreter, &[&paths::fixtures().join("waits/locks.py")])?;
        waiters.wait_blocked()?;
        let waits = waiters.dump()?;
        for name in waiters.named.keys().filter(|name| *name != "sleep") {
            let call = name.split('/').next().unwrap_or(name);
            let wait = waits.wait(name);
            assert_eq!(wait["kind"], "python-lock", "{version} {name}: {wait:#}");
            assert_eq!(wait["flavour"], call, "{version} {name}: {wait:#}");
            assert_eq!(wait["has_deadline"], name.ends_with("/timed"), "{version} {name}: {wait:#}");
        }
        // Those who wait for one lock show one address, even where each sleeps on a word of its own.
        for (one, other) in [("Lock.acquire", "Lock.acquire/with"), ("Thread.join", "Thread.join/timed")] {
            let addresses = (&waits.wait(one)["address"], &waits.wait(other)["address"]);
            assert!(addresses.0.is_u64() && addresses.0 == addresses.1, "{version} {one}: {addresses:?}");
        }
        assert_eq!(waits.wait("sleep")["kind"], "sleep", "{version}");
        same_after_stop(&waiters, &waits).with_context(|| format!("Python {version}"))?;
    }
    Ok(())
}

#[test]
fn the_gil_and_its_holder() -> Result<()> {
    for (version, interpreter) in python::all()? {
        let waiters = Waiters::start(&interpreter, &[&paths::fixtures().join("waits/gil.py")])?;
        // The waiters wake every 5 ms to ask for the GIL, so they are told by their system call.
        let call = |name: &str, wanted: u64| -> Result<()> {
            let tid = waiters.tid(name)?;
            eventually(name, || (procfs::syscall(waiters.pid(), tid)? == wanted).then_some(()))
        };
        #[cfg(target_arch = "x86_64")]
        let (pause, futex) = (34, 202);
        // aarch64 has no pause: glibc calls ppoll.
        #[cfg(target_arch = "aarch64")]
        let (pause, futex) = (73, 98);
        call("holder", pause)?;
        call("waiter-1", futex)?;
        call("waiter-2", futex)?;
        let waits = waiters.dump()?;
        for name in ["waiter-1", "waiter-2"] {
            let wait = waits.wait(name);
            assert_eq!(wait["kind"], "gil", "{version} {name}: {wait:#}");
            assert_eq!(wait["has_deadline"], false, "{version}: nothing ends this wait but the holder");
            let owner = waits.owner(name)?;
            assert_eq!(owner["tid"], waiters.tid("holder")?, "{version} {name}: {wait:#}");
            // The holder stands still in its C call, so it held the GIL while its waiters asked for it.
            assert_eq!(owner["certainty"], "proven", "{version} {name}: {wait:#}");
        }
        assert_eq!(waits.threads["holder"]["holds_gil"], true, "{version}");
        assert_eq!(waits.wait("waiter-1")["address"], waits.wait("waiter-2")["address"], "{version}");
    }
    Ok(())
}

#[test]
fn a_zmq_send_to_nobody_and_a_receive() -> Result<()> {
    let venv = python::venv(&python::system(), &["pyzmq==27.1.0"])?;
    let mut command = Command::new(venv);
    command.arg(paths::fixtures().join("waits/zmq_waits.py"));
    let waiters = Waiters::new(Fixture::ready(command)?)?;
    waiters.wait_blocked()?;
    let waits = waiters.dump()?;
    let (send, receive, poll) = (waits.wait("send"), waits.wait("recv"), waits.wait("poll"));
    assert_eq!(send["kind"], "socket-send", "{send:#}");
    assert!(send["text"].as_str().is_some_and(|text| text.starts_with("zmq send")), "{send:#}");
    assert_eq!(receive["kind"], "socket-recv", "{receive:#}");
    assert!(receive["text"].as_str().is_some_and(|text| text.starts_with("zmq recv")), "{receive:#}");
    // The process's endpoints are named: the listener that `recv` is bound to.
    let port = waiters.named["recv"]["port"].as_u64().context("a port")?;
    assert!(receive["text"].as_str().is_some_and(|text| text.contains(&format!(":{port}"))), "{receive:#}");
    assert_eq!((&poll["kind"], &poll["has_deadline"]), (&json!("poll"), &json!(true)), "{poll:#}");
    Ok(())
}
