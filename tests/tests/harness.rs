//! The harness itself: what every other test relies on.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use inspector_tests::{Fixture, eventually, procfs, python};

#[test]
fn a_fixture_says_that_it_is_ready_and_dies_with_its_group_when_dropped() -> Result<()> {
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 1000 & echo noise; echo \"ready {\\\"child\\\": $!}\"; wait"]);
    let (fixture, facts) = Fixture::ready(command)?;
    let child = facts["child"].as_u64().map(|pid| pid as u32).unwrap_or_default();
    procfs::wait_blocked(child, child)?;
    assert_eq!(procfs::tids(fixture.pid()), [fixture.pid()]);
    drop(fixture);
    eventually("the child of the fixture is gone", || {
        matches!(procfs::state(child, child), None | Some('Z')).then_some(())
    })
}

#[test]
fn a_fixture_that_ends_early_is_an_error_that_says_how() {
    let mut command = Command::new("sh");
    command.args(["-c", "kill -9 $$"]);
    let error = Fixture::ready(command).expect_err("it never becomes ready");
    assert!(error.to_string().contains("by signal 9"), "{error}");
}

#[test]
fn a_virtual_environment_has_what_was_asked_for() -> Result<()> {
    let python = python::venv(&python::system(), &["pyzmq==27.1.0"])?;
    let (fixture, facts) = Fixture::program(
        &python,
        &[
            "-c",
            "import zmq, sys; print('ready', '\"' + zmq.__version__ + '\"', flush=True); sys.stdin.read()",
        ],
    )?;
    assert_eq!(facts, "27.1.0");
    assert!(Path::new(&format!("/proc/{}", fixture.pid())).exists());
    Ok(())
}
