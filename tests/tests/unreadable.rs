//! Targets that hold up whoever reads them: a thread in D state, an address-space lock that is never released, a page
//! that never comes. The report comes all the same, says what is missing, and leaves nothing of ours behind.

use std::fs;

use anyhow::{Context, Result};
use inspector_tests::{Document, Fixture, Inspector, compile, eventually};
use serde_json::Value;

fn number(facts: &Value, name: &str) -> Result<u32> {
    Ok(u32::try_from(facts[name].as_u64().with_context(|| format!("no {name} in {facts}"))?)?)
}

fn gaps(document: &Document, pid: u32) -> String {
    let gaps = document.json["gaps"].as_array().into_iter().flatten();
    let reasons = gaps.filter(|gap| gap["pid"] == pid).filter_map(|gap| gap["reason"].as_str());
    reasons.collect::<Vec<_>>().join("\n")
}

/// Helper processes of inspectors that are gone: nobody's children but init's.
fn orphaned_helpers() -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // Not `cmdline`: it lies in memory, and one test makes memory that cannot be read.
        let comm = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        if comm.trim() == "inspector-help" && status.contains("PPid:\t1\n") {
            found.push(pid);
        }
    }
    Ok(found)
}

#[test]
fn a_thread_in_disk_sleep_holds_nobody_up() -> Result<()> {
    let program = compile::c("unreadable/vfork.c", &[])?;
    let (mut target, facts) = Fixture::program::<&str>(&program, &[])?;
    let (pid, stuck) = (target.pid(), number(&facts, "stuck")?);
    let mut beats = || -> Result<u64> {
        target.tell("beats")?;
        Ok(target.line()?.parse()?)
    };
    let before = beats()?;
    for command in ["dump", "diagnose"] {
        let document = Inspector::json(command, &[pid]).document()?;
        let thread = document.thread(pid, stuck)?;
        assert_eq!(thread["wait"]["kind"], "child", "{thread:#}");
        assert_eq!(thread["state"], "disk", "{thread:#}");
        let functions = Document::functions(thread);
        assert!(functions.iter().any(|function| function.contains("vfork")), "{functions:?}");
        assert_eq!(document.threads(pid).count(), 3, "{:#}", document.json["threads"]);
        assert_eq!(gaps(&document, pid), "");
    }
    assert!(beats()? > before, "the healthy thread stood still");
    Ok(())
}

#[test]
fn an_address_space_lock_that_is_never_released_is_not_waited_for() -> Result<()> {
    let program = compile::c("unreadable/lock.c", &[])?;
    let folder = tempfile::tempdir()?;
    let (_server, facts) = Fixture::program(&program, &[folder.path()])?;
    let (pid, stuck) = (number(&facts, "pid")?, number(&facts, "stuck")?);
    for command in ["dump", "diagnose"] {
        let document = Inspector::json(command, &[pid]).document()?;
        let thread = document.thread(pid, stuck)?;
        assert_eq!(thread["state"], "disk", "{thread:#}");
        let functions = Document::functions(thread);
        assert!(functions.iter().any(|function| function.contains("fuse_file_mmap")), "{functions:?}");
        assert!(gaps(&document, pid).contains("mmap_lock"), "{:#}", document.json["gaps"]);
    }
    // Without the kernel's word about the lock it is found out by waiting, and still told.
    let document = Inspector::json("dump", &[pid]).arg("--tier").arg("memory").document()?;
    assert_eq!(document.thread(pid, stuck)?["state"], "disk");
    assert!(gaps(&document, pid).contains("not read"), "{:#}", document.json["gaps"]);
    // The other process that shares this memory hangs in execve, and with it who reads most of its files in /proc.
    let execs = number(&facts, "execs")?;
    for tier in [None, Some("memory"), Some("proc")] {
        let mut command = Inspector::json("dump", &[execs]);
        if let Some(tier) = tier {
            command = command.arg("--tier").arg(tier);
        }
        let document = command.document()?;
        let thread = document.thread(execs, execs)?;
        assert_eq!(thread["state"], "disk", "{tier:?}: {thread:#}");
        let gaps = gaps(&document, execs);
        assert!(gaps.contains("execve"), "{tier:?}: {:#}", document.json["gaps"]);
        assert_eq!(gaps.contains("no system calls"), tier == Some("memory"), "{tier:?}: {gaps}");
        if tier.is_none() {
            assert_eq!(thread["wait"]["syscall"], "execve", "{thread:#}");
        }
    }
    Ok(())
}

#[test]
fn a_page_that_never_comes_costs_only_what_lies_on_it() -> Result<()> {
    let program = compile::c("unreadable/page.c", &[])?;
    let (target, facts) = Fixture::program::<&str>(&program, &[])?;
    let (pid, healthy) = (target.pid(), number(&facts, "healthy")?);
    let document = Inspector::json("dump", &[pid]).document()?;
    let thread = document.thread(pid, healthy)?;
    assert_eq!(thread["wait"]["kind"], "signal", "{thread:#}");
    let functions = Document::functions(thread);
    assert!(functions.contains(&"wait_well"), "the healthy thread's native stack is missing: {functions:?}");
    assert!(gaps(&document, pid).contains("not read"), "{:#}", document.json["gaps"]);
    // A helper that waits for a page can be ended, and is.
    eventually("every helper is gone", || orphaned_helpers().ok()?.is_empty().then_some(()))
}
