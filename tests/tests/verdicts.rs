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
fn two_python_threads_that_took_two_locks_in_opposite_order_are_a_deadlock() -> Result<()> {
    let script = paths::fixtures().join("verdicts/two_locks.py");
    let start = |more: &[&str]| -> Result<Fixture> {
        let mut command = Command::new(python::system());
        command.arg(&script).args(more);
        Ok(Fixture::ready(command)?.0)
    };
    let deadlocked = start(&[])?;
    // A plain lock records no owner: the holders are told by their `with` blocks, and likely.
    let document = diagnose(deadlocked.pid(), "wedged", "deadlock-cycle")?;
    let verdict = &document.json["verdict"];
    let names = |key: &str| -> Vec<&str> {
        let parties = verdict[key].as_array().map_or(&[][..], Vec::as_slice);
        parties.iter().filter_map(|party| party["thread"].as_str()).collect()
    };
    ensure!(names("culprits").len() == 2 && !names("culprits").contains(&"MainThread"), "{verdict:#}");
    ensure!(names("victims") == ["MainThread"], "{verdict:#}");
    ensure!(document.json["cycles"][0]["certainty"] == "likely", "{:#}", document.json["cycles"]);
    let text = Inspector::new(&["diagnose", &deadlocked.pid().to_string()]).run()?.stdout;
    ensure!(text.contains("(local other in take()), in a with block of Thread-"), "{text}");
    // Whoever gives up some time is not stuck for ever.
    let patient = start(&["timeout"])?;
    std::thread::sleep(std::time::Duration::from_secs(2));
    let document = Inspector::json("diagnose", &[patient.pid()]).document()?;
    ensure!(document.verdict()? == ("healthy", "healthy"), "{:#}", document.json["verdict"]);
    Ok(())
}

/// Threads that want each other's locks for milliseconds at a time, and queues whose readers wait inside `with` blocks.
#[test]
fn a_python_program_that_fights_for_its_locks_and_goes_on_is_healthy() -> Result<()> {
    let script = paths::fixtures().join("verdicts/contended.py");
    for (version, interpreter) in python::all()? {
        let mut command = Command::new(interpreter);
        command.arg(&script);
        let (target, _) = Fixture::ready(command)?;
        std::thread::sleep(std::time::Duration::from_millis(1200));
        for _look in 0..3 {
            let document = Inspector::json("diagnose", &[target.pid()]).document()?;
            let verdict = document.verdict()?;
            ensure!(verdict == ("healthy", "healthy"), "Python {version}: {:#}", document.json["verdict"]);
        }
    }
    Ok(())
}
