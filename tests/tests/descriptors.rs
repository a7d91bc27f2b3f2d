//! Who has to act for a wait on an object that other processes hold: file locks, queues, semaphores, sets within sets.

use std::{collections::BTreeSet, process::Command};

use anyhow::{Context as _, Result};
use inspector_tests::{
    Fixture, paths,
    waiters::{Waiters, Waits, program, same_after_stop},
};
use serde_json::json;

/// Says aloud that a part of a test cannot run here.
#[allow(clippy::print_stderr, reason = "a skipped part must be seen in the test's output")]
fn skipped(what: &str) {
    eprintln!("SKIPPED: {what}");
}

fn text<'a>(waits: &'a Waits, name: &str) -> Result<&'a str> {
    waits.wait(name)["text"].as_str().with_context(|| format!("{name} has no text"))
}

#[test]
fn every_object_that_other_processes_hold() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let waiters = Waiters::start(&program("objects.c")?, &[folder.path()])?;
    waiters.wait_blocked()?;
    let waits = waiters.dump()?;
    for (name, kind, certainty) in [
        ("ofd-lock", "file-lock", "proven"),
        ("posix-range-one", "file-lock", "proven"),
        ("posix-range-two", "file-lock", "proven"),
        ("fifo-read", "pipe-read", "proven"),
        ("pidfd", "poll", "proven"),
        ("child-group", "child", "proven"),
        ("epoll-nested", "epoll", "likely"),
        ("eventfd-shared", "eventfd", "likely"),
        ("sysv-semaphore", "semaphore", "likely"),
        ("sysv-receive", "other", "likely"),
        ("sysv-send", "other", "likely"),
        ("mqueue", "other", "likely"),
    ] {
        waits.check(&waiters, name, kind)?;
        let owner = waits.owner(name)?;
        assert_eq!(owner["pid"], waiters.named[name]["owner"], "{name}: {:#}", waits.wait(name));
        assert_eq!(owner["certainty"], certainty, "{name}: {owner:#}");
    }
    for (name, kind) in [("inotify", "other"), ("signalfd", "signal")] {
        waits.check(&waiters, name, kind)?;
        waits.has_no_owner(name)?;
    }

    // The process that took the lock has closed its descriptor: those who inherited it hold the lock.
    waits.check(&waiters, "flock-shared", "file-lock")?;
    let owners = waits.wait("flock-shared")["owners"].as_array().context("owners")?;
    let pids: BTreeSet<_> = owners.iter().filter_map(|owner| owner["pid"].as_u64()).collect();
    let two = waiters.named["child-group"]["owner"].as_u64();
    let expected: BTreeSet<_> =
        waiters.named["flock-shared"]["owner"].as_u64().into_iter().chain(two).collect();
    assert_eq!(pids, expected);
    assert!(owners.iter().all(|owner| owner["certainty"] == "likely"), "{owners:#?}");

    assert!(text(&waits, "posix-range-two")?.contains("(bytes 100 to 109)"));
    assert!(text(&waits, "posix-range-two")?.contains("posix write lock (bytes 100 to 149)"));
    assert!(text(&waits, "inotify")?.contains("2 watches"), "{:#}", waits.wait("inotify"));
    assert_eq!(text(&waits, "signalfd")?, "a signal 10,12");
    assert!(text(&waits, "sysv-semaphore")?.starts_with("System V semaphore 2 of set "));
    assert!(text(&waits, "sysv-semaphore")?.contains(" for 3, which is 1"));
    assert!(text(&waits, "sysv-receive")?.contains("of 0 messages"), "{:#}", waits.wait("sysv-receive"));
    assert_eq!(waits.wait("mqueue")["flavour"], "mqueue");

    let nested = waits.wait("epoll-nested")["targets"].as_array().context("targets")?;
    let through: Vec<_> = nested.iter().filter(|target| !target["through"].is_null()).collect();
    assert_eq!(through.len(), 1, "{nested:#?}");
    assert!(through[0]["text"].as_str().is_some_and(|text| text.starts_with("unix ")), "{nested:#?}");

    if waiters.named.contains_key("io-uring") {
        waits.check(&waiters, "io-uring", "io-uring")?;
        let expected = "an io_uring completion: 1 submitted, 0 completed; waiting for a file: read";
        assert_eq!(text(&waits, "io-uring")?, expected);
    } else {
        skipped("io_uring is not allowed here");
    }
    same_after_stop(&waiters, &waits)
}

#[test]
fn every_socket_whose_other_end_is_in_another_process() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let waiters = Waiters::start(&program("peers.c")?, &[folder.path()])?;
    waiters.wait_blocked()?;
    let waits = waiters.dump()?;
    for (name, kind, certainty) in [
        ("udp-connected", "socket-recv", "proven"),
        // Another socket could be bound there as well, and anybody can send to a name.
        ("udp-bound", "socket-recv", "likely"),
        ("datagram-bound", "socket-recv", "likely"),
        ("datagram", "socket-recv", "proven"),
        ("seqpacket", "socket-recv", "proven"),
        ("unix-not-accepted", "socket-recv", "proven"),
        ("tcp-not-accepted", "socket-recv", "proven"),
        ("tcp-quiet", "socket-recv", "proven"),
        ("tcp-full", "socket-send", "proven"),
    ] {
        waits.check(&waiters, name, kind)?;
        let owner = waits.owner(name)?;
        assert_eq!(owner["pid"], waiters.named[name]["owner"], "{name}: {:#}", waits.wait(name));
        assert_eq!(owner["certainty"], certainty, "{name}: {owner:#}");
        let open_ended = waits.wait(name)["open_ended"] == true;
        assert_eq!(open_ended, name.ends_with("-bound"), "{name}: {:#}", waits.wait(name));
    }
    for name in ["unix-not-accepted", "tcp-not-accepted"] {
        assert!(text(&waits, name)?.contains("the listener has not accepted it"), "{:#}", waits.wait(name));
    }
    let quiet = waits.wait("tcp-quiet");
    assert!(text(&waits, "tcp-quiet")?.contains("nothing received since it was connected"), "{quiet:#}");
    assert!(quiet["last_received_ns"].as_u64() > Some(1_000_000_000), "{quiet:#}");
    let full = waits.wait("tcp-full");
    assert_eq!(full["timer"]["kind"], "zero-window-probe", "{full:#}");
    assert!(text(&waits, "tcp-full")?.contains("receive window is closed"), "{full:#}");
    for name in ["netlink", "raw"] {
        if !waiters.named.contains_key(name) {
            skipped("raw sockets are not allowed here");
            continue;
        }
        waits.check(&waiters, name, "socket-recv")?;
        waits.has_no_owner(name)?;
        assert!(text(&waits, name)?.contains(&format!("{name} socket #")), "{:#}", waits.wait(name));
    }
    same_after_stop(&waiters, &waits)
}

#[test]
fn the_other_end_in_a_network_namespace_that_nobody_asked_for() -> Result<()> {
    if Command::new("ip").arg("-V").output().is_err() {
        skipped("there is no ip(8) to join two network namespaces with");
        return Ok(());
    }
    let mut command = Command::new("python3");
    command.arg(paths::fixtures().join("waits/namespaces.py"));
    let waiters = Waiters::new(Fixture::ready(command)?)?;
    waiters.wait_blocked()?;
    let waits = waiters.dump()?;
    for name in ["quiet", "cut"] {
        waits.check(&waiters, name, "socket-recv")?;
        let owner = waits.owner(name)?;
        assert_eq!(owner["pid"], waiters.named[name]["owner"], "{name}: {:#}", waits.wait(name));
        assert_eq!(owner["certainty"], "proven", "{name}: {owner:#}");
    }
    let (quiet, cut) = (waits.wait("quiet"), waits.wait("cut"));
    assert_eq!(quiet["retransmits"], json!(null), "{quiet:#}");
    assert!(cut["retransmits"].as_u64() >= Some(2), "{cut:#}");
    assert_eq!(cut["timer"]["kind"], "retransmission", "{cut:#}");
    assert!(text(&waits, "cut")?.contains(" retransmissions"), "{cut:#}");
    Ok(())
}

#[test]
fn ten_thousand_descriptors_and_a_thousand_sockets_are_all_read() -> Result<()> {
    let waiters = Waiters::start(&program("many.c")?, &[])?;
    waiters.wait_blocked()?;
    let waits = waiters.dump()?;
    for (name, kind) in [("socket", "socket-recv"), ("pipe", "pipe-read")] {
        waits.check(&waiters, name, kind)?;
        assert_eq!(waits.owner(name)?["pid"], waiters.named[name]["owner"], "{name}");
    }
    waits.check(&waiters, "epoll", "epoll")?;
    assert!(text(&waits, "epoll")?.contains(" descriptors"), "{:#}", waits.wait("epoll"));
    assert_eq!(waits.document.json["gaps"], json!([]));
    Ok(())
}
