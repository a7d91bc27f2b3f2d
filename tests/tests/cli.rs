//! The command line as scripts and packagers see it: formats, files, exit statuses, signals.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Stdio};

use anyhow::{Context as _, Result};
use inspector_tests::{Fixture, Inspector, compile, eventually, procfs, python};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A Python process whose main thread blocks in a read, called `idle`.
fn idle() -> Result<Fixture> {
    let program = "import sys\ndef rest():\n  sys.stdin.read()\nprint('ready', flush=True)\nrest()";
    let (fixture, _) = Fixture::program(&python::system(), &["-c", program])?;
    procfs::wait_blocked(fixture.pid(), fixture.pid())?;
    Ok(fixture)
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder)?;
    let mut names: Vec<String> =
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect::<Result<_>>()?;
    names.sort();
    Ok(names)
}

#[test]
fn every_document_keeps_to_the_published_schema() -> Result<()> {
    let schema: Value = serde_json::from_str(&Inspector::new(&["schema"]).run()?.stdout)?;
    let validator = jsonschema::validator_for(&schema)?;
    let fixture = idle()?;
    for command in ["ps", "dump", "diagnose"] {
        let document = Inspector::json(command, &[fixture.pid()]).document()?;
        let errors: Vec<String> =
            validator.iter_errors(&document.json).map(|error| error.to_string()).collect();
        assert_eq!(errors, Vec::<String>::new(), "{command}");
        assert_eq!(document.report.workers.len(), 1, "{command}");
        assert_eq!(document.report.verdict.is_some(), command == "diagnose");
        for name in ["schema_version", "host", "tier", "workers", "threads", "edges", "cycles", "gaps"] {
            assert!(!document.json[name].is_null(), "{command}: {name}");
        }
    }
    let mut damaged = Inspector::json("dump", &[fixture.pid()]).document()?.json;
    damaged["threads"][0]["tid"] = "one".into();
    assert!(!validator.is_valid(&damaged), "the schema refuses what is wrong");
    Ok(())
}

#[test]
fn an_idle_process_is_no_reason_for_an_alarm() -> Result<()> {
    let fixture = idle()?;
    let finished =
        Inspector::new(&["diagnose", "--duration", "200ms", "--pid", &fixture.pid().to_string()]).run()?;
    assert_eq!(finished.code(), Some(0), "{}{}", finished.stdout, finished.stderr);
    assert_eq!(finished.stderr, "", "no progress where stderr is not a terminal");
    assert!(!finished.stdout.contains("WEDGED") && !finished.stdout.contains('\x1b'), "{}", finished.stdout);
    Ok(())
}

#[test]
fn files_have_the_format_of_their_ending_and_are_private() -> Result<()> {
    let fixture = idle()?;
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let finished = Inspector::new(&["dump", "--pid", &fixture.pid().to_string()])
        .arg("-o")
        .arg(path("r.json"))
        .arg("-o")
        .arg(path("r.folded"))
        .arg("-o")
        .arg(path("r.txt"))
        .run()?;
    assert_eq!(finished.code(), Some(0), "{}", finished.stderr);
    assert_eq!(names(folder.path())?, ["r.folded", "r.json", "r.txt"]);
    let document: Value = serde_json::from_str(&fs::read_to_string(path("r.json"))?)?;
    assert_eq!(document["workers"][0]["pid"], fixture.pid());
    let folded = fs::read_to_string(path("r.folded"))?;
    let line = folded.lines().next().context("a thread has a stack")?;
    let (stack, count) = line.rsplit_once(' ').context("a count ends the line")?;
    assert_eq!(count, "1");
    assert!(stack.contains(";rest (<string>:3)"), "{stack}");
    assert_eq!(fs::read_to_string(path("r.txt"))?.lines().next(), finished.stdout.lines().next());
    for name in names(folder.path())? {
        assert_eq!(fs::metadata(path(&name))?.permissions().mode() & 0o777, 0o600, "{name}");
    }
    Ok(())
}

#[test]
fn wrong_usage_is_status_2_and_says_how_to_do_it() -> Result<()> {
    let cases: [&[&str]; 7] = [
        &[],
        &["dmup"],
        &["dump", "--pid", "x"],
        &["dump", "--pid", "0"],
        &["diagnose", "--duration", "5"],
        &["dump", "-o", "stacks.png"],
        &["dump", "--json", "--folded"],
    ];
    for arguments in cases {
        let finished = Inspector::new(arguments).run()?;
        assert_eq!(finished.code(), Some(2), "{arguments:?}");
        assert_eq!(finished.stdout, "", "{arguments:?}");
        assert!(
            finished.stderr.contains("Usage:") || finished.stderr.contains("--help"),
            "{}",
            finished.stderr
        );
    }
    Ok(())
}

#[test]
fn packagers_get_completions_and_man_pages() -> Result<()> {
    for shell in ["bash", "zsh", "fish"] {
        let finished = Inspector::new(&["completions", shell]).run()?;
        assert_eq!(finished.code(), Some(0));
        assert!(finished.stdout.contains("diagnose"), "{shell}");
    }
    assert!(Inspector::new(&["man"]).run()?.stdout.contains(".TH inspector 1"));
    assert!(Inspector::new(&["man", "dump"]).run()?.stdout.contains(".TH inspector-dump 1"));
    assert_eq!(Inspector::new(&["man", "dmup"]).run()?.code(), Some(1));
    Ok(())
}

#[test]
fn a_reader_that_goes_away_is_no_failure() -> Result<()> {
    let fixture = idle()?;
    let mut command = Inspector::new(&["dump", "--pid", &fixture.pid().to_string()]).command()?;
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    drop(child.stdout.take());
    let finished = child.wait_with_output()?;
    assert_eq!(finished.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&finished.stderr), "");
    Ok(())
}

#[test]
fn a_signal_ends_it_and_leaves_nothing_behind() -> Result<()> {
    let fixture = idle()?;
    ends_by(&fixture, Signal::TERM, 143)?;
    // A shell starts background jobs with SIGINT ignored, and inspector leaves that as it is.
    if !ignores(Signal::INT)? {
        ends_by(&fixture, Signal::INT, 130)?;
    }
    Ok(())
}

fn ends_by(fixture: &Fixture, signal: Signal, status: i32) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = Inspector::new(&["diagnose", "--duration", "10m", "--pid", &fixture.pid().to_string()])
        .arg("-o")
        .arg(folder.path().join("r.json"))
        .command()?;
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let pid = child.id();
    let started = eventually("a helper process reads", || {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        let helpers: Vec<u32> = children.split_whitespace().filter_map(|child| child.parse().ok()).collect();
        Some(helpers).filter(|helpers| !helpers.is_empty())
    })?;
    kill_process(Pid::from_raw(pid.cast_signed()).context("a pid is never 0")?, signal)?;
    let ended = eventually("it ends", || child.try_wait().ok().flatten())?;
    assert_eq!(ended.code(), Some(status));
    assert_eq!(names(folder.path())?, Vec::<String>::new());
    for helper in started {
        eventually("the helper process is gone", || procfs::state(helper, helper).is_none().then_some(()))?;
    }
    Ok(())
}

fn ignores(signal: Signal) -> Result<bool> {
    let own = fs::read_to_string("/proc/self/status")?;
    let mask = own.lines().find_map(|line| line.strip_prefix("SigIgn:")).context("SigIgn")?;
    Ok(u64::from_str_radix(mask.trim(), 16)? & (1 << (signal.as_raw() - 1)) != 0)
}

#[test]
fn colour_is_for_terminals_unless_it_is_asked_for() -> Result<()> {
    let fixture = idle()?;
    let pid = fixture.pid().to_string();
    let plain = Inspector::new(&["dump", "--pid", &pid]).run()?.stdout;
    assert!(!plain.contains('\x1b'));
    let colored =
        Inspector::new(&["dump", "--color", "always", "--pid", &pid]).env("NO_COLOR", "1").run()?.stdout;
    assert!(colored.contains("\x1b["));
    Ok(())
}

#[test]
fn a_wedge_is_status_3() -> Result<()> {
    let (fixture, facts) = Fixture::program::<&str>(&compile::c("cli/abba.c", &[])?, &[])?;
    let tids: Vec<u32> = facts["tids"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_u64)
        .map(|tid| tid as u32)
        .collect();
    for &tid in &tids {
        procfs::wait_blocked(fixture.pid(), tid)?;
    }
    let pid = fixture.pid().to_string();
    let finished = Inspector::new(&["diagnose", "--duration", "200ms", "--pid", &pid]).run()?;
    assert_eq!(finished.code(), Some(3), "{}{}", finished.stdout, finished.stderr);
    assert!(finished.stdout.starts_with("WEDGED  deadlock-cycle  confidence "), "{}", finished.stdout);
    for tid in tids {
        assert!(finished.stdout.contains(&format!("tid {tid}")), "{}", finished.stdout);
    }
    assert_eq!(Inspector::new(&["dump", "--pid", &pid]).run()?.code(), Some(0), "a dump judges nothing");
    Ok(())
}
