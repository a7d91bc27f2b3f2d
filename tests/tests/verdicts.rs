//! Verdicts about programs of no engine: what a first user tries on any process.

use std::process::Command;

use anyhow::{Result, ensure};
use inspector_tests::{Document, Fixture, Inspector, compile, eventually, paths, python};

/// Diagnoses until the verdict is as asked for: a wait has to be a second old before it counts.
fn diagnose(pid: u32, status: &str, family: &str) -> Result<Document> {
    let mut last = String::new();
    let found = eventually("the verdict", || {
        let document = Inspector::json("diagnose", &[pid]).document().ok()?;
        last = format!("{:#}", document.json["verdict"]);
        (document.verdict().ok()? == (status, family)).then_some(document)
    });
    ensure!(found.is_ok(), "no {status} {family}, but {last}");
    found
}

#[test]
fn a_mutex_that_its_owner_left_locked_is_a_wedge_and_plain_names_stay_plain() -> Result<()> {
    let program = compile::c("verdicts/abandoned.c", &["-O1"])?;
    let (target, _) = Fixture::program::<&str>(&program, &[])?;
    let document = diagnose(target.pid(), "wedged", "thread-died")?;
    let waiter = document
        .threads(target.pid())
        .find(|thread| thread["wait"]["kind"] == "mutex")
        .map(Document::functions)
        .unwrap_or_default();
    ensure!(waiter.contains(&"i"), "{waiter:?}");
    let text = Inspector::new(&["diagnose", &target.pid().to_string()]).run()?;
    ensure!(text.code() == Some(3), "exit status {}", text.status);
    ensure!(text.stdout.contains("left a mutex locked"), "{}", text.stdout);
    Ok(())
}

#[test]
fn a_python_program_whose_threads_all_wait_for_each_other_is_suspicious() -> Result<()> {
    let script = paths::fixtures().join("verdicts/two_locks.py");
    let start = |more: &[&str]| -> Result<Fixture> {
        let mut command = Command::new(python::system());
        command.arg(&script).args(more);
        Ok(Fixture::ready(command)?.0)
    };
    let deadlocked = start(&[])?;
    let document = diagnose(deadlocked.pid(), "unknown", "unknown")?;
    let summary = document.json["verdict"]["summary"].as_str().unwrap_or_default();
    ensure!(summary.contains("all 3 threads"), "{summary}");
    // Whoever gives up some time is not stuck for ever.
    let patient = start(&["timeout"])?;
    std::thread::sleep(std::time::Duration::from_secs(2));
    let document = Inspector::json("diagnose", &[patient.pid()]).document()?;
    ensure!(document.verdict()? == ("healthy", "healthy"), "{:#}", document.json["verdict"]);
    Ok(())
}
