//! inspector itself in a container: with the host's PID namespace it sees what it sees outside; with one of its own it says
//! so, and mixes no ids up.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use inspector_tests::{
    Document, Fixture, Inspector,
    cgroup::{Group, Hierarchy},
    compile,
    container::{Container, Image, Options},
    inspector::binary,
    waiters::{Waiters, program},
};
use serde_json::Value;

/// The namespaces that a pod with `hostPID: true` has of its own.
const AGENT: [&str; 6] = ["unshare", "--mount", "--net", "--cgroup", "--uts", "--ipc"];

/// The output of inspector with nothing around it but the host's PID namespace, `/proc` and, if `sys`, `/sys`.
fn alone(sys: bool, arguments: &[&str]) -> Result<String> {
    let image = Image::empty()?;
    image.add_program(binary()?)?;
    let options = Options { hosts_pids: true, sys, ..Options::default() };
    let (mut command, _base) = Container::command(&image, options, binary()?)?;
    let output = command.args(arguments).stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn gaps(document: &Document) -> String {
    document.json["gaps"].to_string()
}

#[test]
fn a_root_with_nothing_but_inspector_is_enough() -> Result<()> {
    let waiters = Waiters::start(&program("locks.c")?, &[])?;
    waiters.wait_blocked()?;
    let pid = waiters.pid().to_string();
    for (sys, tier) in [(true, "ebpf"), (false, "memory")] {
        let document = Document::parse(&alone(sys, &["dump", "--json", "--pid", &pid])?)?;
        assert_eq!(document.json["tier"], tier, "{}", gaps(&document));
        assert_eq!(gaps(&document).contains("where /sys is mounted"), !sys, "{}", gaps(&document));
        for name in ["mutex-normal", "rwlock-writer", "join"] {
            let thread = document.thread(waiters.pid(), waiters.tid(name)?)?;
            let owner = &thread["wait"]["owners"][0];
            assert_eq!(owner["tid"], waiters.named[name]["owner"], "{name}: {thread:#}");
            let functions = Document::functions(thread);
            assert!(
                functions.iter().any(|name| name.starts_with("lock_") || *name == "join"),
                "{functions:?}"
            );
        }
    }
    Ok(())
}

#[test]
fn an_agent_sees_sockets_and_cgroups_of_the_host() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let waiters = Waiters::start(&program("descriptors.c")?, &[folder.path()])?;
    waiters.wait_blocked()?;
    let id = "fedcba9876543210".repeat(4);
    let (hierarchy, _) = Hierarchy::of_cpu()?;
    let mut group = Group::new(hierarchy, &format!("/docker/{id}"))?;
    group.limit_cpu(&group.folder(), 1000)?;
    group.add(waiters.pid())?;
    let document = Inspector::json("dump", &[waiters.pid()]).under(&AGENT).document()?;
    for name in ["socket-recv", "unix-recv", "connect"] {
        let thread = document.thread(waiters.pid(), waiters.tid(name)?)?;
        assert_eq!(thread["wait"]["owners"][0]["pid"], waiters.named[name]["owner"], "{name}: {thread:#}");
    }
    let worker = &document.json["workers"][0];
    assert_eq!(worker["cgroup"], group.path.as_str(), "{worker:#}");
    assert_eq!(worker["container"]["id"], id.as_str(), "{worker:#}");
    assert_eq!(worker["cpu_quotas"][0]["cgroup"], group.path.as_str(), "{worker:#}");
    Ok(())
}

#[test]
fn in_a_pid_namespace_of_its_own_all_ids_are_of_that_one() -> Result<()> {
    let locks = program("locks.c")?;
    let image = Image::over_host()?;
    let script = r#"
        "$1" >/tmp/ready & pid=$!
        until grep -q ready /tmp/ready; do sleep 0.1; done
        sleep 1; cat /tmp/ready; "$2" dump --json --pid "$pid"; kill "$pid"
    "#;
    let options = Options { sys: true, ..Options::default() };
    let (mut command, _base) = Container::command(&image, options, "/bin/sh".as_ref())?;
    command.args(["-c", script, "sh"]).arg(&locks).arg(binary()?);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8(output.stdout)?;
    let (ready, report) = text.split_once('\n').context("two lines")?;
    let facts: Value = serde_json::from_str(ready.strip_prefix("ready ").context("the fixture came up")?)?;
    let document = Document::parse(report)?;
    assert_eq!(document.json["tier"], "memory");
    assert!(gaps(&document).contains("a PID namespace of its own"), "{}", gaps(&document));
    let pid = facts["mutex-normal"]["owner"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    let pid = pid.context("the main thread's tid")?;
    // A stream's owner is a thread pointer, which this tier does not know.
    for (name, fact) in facts.as_object().context("threads")?.iter().filter(|(name, _)| *name != "stdio") {
        let tid = fact["tid"].as_u64().and_then(|tid| u32::try_from(tid).ok()).context("a tid")?;
        let owners = document.thread(pid, tid)?["wait"]["owners"].as_array();
        let owner = owners.and_then(|owners| owners.first()).map(|owner| owner["tid"].clone());
        // What keeps an owner names that one, and nothing else names anybody.
        assert_eq!(owner.unwrap_or(0.into()), fact["owner"], "{name}");
    }
    Ok(())
}

#[test]
fn a_proc_of_another_pid_namespace_is_refused() -> Result<()> {
    let program = compile::c("containers/spin.c", &[])?;
    let (fixture, _) = Fixture::program::<&str>(&program, &[])?;
    for command in ["ps", "dump", "diagnose"] {
        // The host's /proc, and no part in the host's PID namespace: the pid means another process there, or none.
        let finished = Inspector::new(&[command, "--pid", &fixture.pid().to_string()])
            .under(&["unshare", "--pid", "--fork", "--kill-child"])
            .run()?;
        assert_eq!(finished.code(), Some(1), "{}", finished.stdout);
        assert_eq!(finished.stdout, "");
        assert!(finished.stderr.contains("shows another PID namespace"), "{}", finished.stderr);
    }
    Ok(())
}

#[test]
fn where_nothing_is_found_the_namespace_is_named() -> Result<()> {
    let image = Image::over_host()?;
    let (mut command, _base) = Container::command(&image, Options::default(), binary()?)?;
    let output = command.arg("ps").stdin(Stdio::null()).output()?;
    let text =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("in inspector's own PID namespace"), "{text}");
    Ok(())
}
