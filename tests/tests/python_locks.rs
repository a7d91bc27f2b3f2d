//! Which object of Python's a thread waits on, how the program names it, and who holds it: against a program that says of
//! itself what the answer is.

use std::{collections::BTreeMap, process::Command};

use anyhow::{Context as _, Result, ensure};
use inspector_tests::{Document, Fixture, Inspector, paths, procfs, python};
use serde_json::Value;

/// The threads of a fixture and what it says of each.
fn start(interpreter: &std::path::Path, script: &str) -> Result<(Fixture, BTreeMap<String, Value>)> {
    let mut command = Command::new(interpreter);
    command.arg(paths::fixtures().join(script));
    let (fixture, facts) = Fixture::ready(command)?;
    let facts = facts.as_object().context("the fixture names its threads")?;
    let facts: BTreeMap<String, Value> =
        facts.iter().map(|(name, fact)| (name.clone(), fact.clone())).collect();
    for (name, fact) in &facts {
        procfs::wait_blocked(pid_of(&fixture, fact)?, tid_of(fact)?).with_context(|| name.clone())?;
    }
    Ok((fixture, facts))
}

fn tid_of(fact: &Value) -> Result<u32> {
    Ok(u32::try_from(fact["tid"].as_u64().context("a tid")?)?)
}

/// Its process: the fixture's, if it says no other.
fn pid_of(fixture: &Fixture, fact: &Value) -> Result<u32> {
    Ok(fact["pid"].as_u64().map_or(Ok(fixture.pid()), u32::try_from)?)
}

/// The answer about each thread is what its fixture says of it.
fn check(fixture: &Fixture, facts: &BTreeMap<String, Value>, document: &Document) -> Result<()> {
    for (name, fact) in facts.iter().filter(|(_, fact)| !fact["type"].is_null()) {
        let thread = document.thread(pid_of(fixture, fact)?, tid_of(fact)?).with_context(|| name.clone())?;
        let wait = &thread["wait"];
        ensure!(wait["kind"] == "python-lock", "{name}: {wait:#}");
        for key in ["type", "path"] {
            ensure!(
                wait["python_object"][key] == fact[key],
                "{name}: {key} {} expected, got {wait:#}",
                fact[key]
            );
        }
        let state = &fact["state"];
        ensure!(
            state.is_null() || wait["python_object"]["state"] == *state,
            "{name}: {state} expected: {wait:#}"
        );
        let tid = |owner: &Value| tid_of(&facts[owner.as_str().unwrap_or_default()]);
        let expected: Vec<u32> =
            fact["owners"].as_array().context("owners")?.iter().map(tid).collect::<Result<_>>()?;
        let owners = wait["owners"].as_array().map_or(&[][..], Vec::as_slice);
        let found: Vec<u32> = owners.iter().map(tid_of).collect::<Result<_>>()?;
        ensure!(found == expected, "{name}: owners {expected:?} expected, got {wait:#}");
        for owner in owners {
            ensure!(owner["certainty"] == fact["certainty"], "{name}: {wait:#}");
        }
    }
    Ok(())
}

#[test]
fn every_object_by_its_name_and_its_holder() -> Result<()> {
    for (version, interpreter) in python::all()? {
        let (fixture, facts) = start(&interpreter, "waits/objects.py")?;
        let document = Inspector::json("dump", &[fixture.pid()]).document()?;
        check(&fixture, &facts, &document).with_context(|| format!("Python {version}"))?;
        let text = Inspector::new(&["dump", &fixture.pid().to_string()]).run()?.stdout;
        let holder = tid_of(&facts["holder"])?;
        for line in [
            format!("(self.reentrant of Program), held by holder (tid {holder}), count 2"),
            format!("(self.plain of Program), in a with block of holder (tid {holder})"),
            "(self.taken of Program), which records no owner".to_owned(),
            "Queue.get on Queue 0x".to_owned(),
        ] {
            ensure!(text.contains(&line), "Python {version}: no {line:?} in\n{text}");
        }
    }
    Ok(())
}

#[test]
fn locks_that_processes_share() -> Result<()> {
    for (version, interpreter) in python::all()? {
        let (fixture, facts) = start(&interpreter, "waits/processes.py")?;
        let mut pids: Vec<u32> = facts.values().map(|fact| pid_of(&fixture, fact)).collect::<Result<_>>()?;
        pids.sort_unstable();
        pids.dedup();
        ensure!(pids.len() == 3, "the program and a child of each kind: {pids:?}");
        let document = Inspector::json("dump", &pids).document()?;
        check(&fixture, &facts, &document).with_context(|| format!("Python {version}"))?;
        // Without the child, who holds the lock is not known, and nobody is made up.
        let alone = Inspector::json("dump", &[fixture.pid()]).document()?;
        for name in ["fork: waiter", "spawn: waiter"] {
            let thread = alone.thread(fixture.pid(), tid_of(&facts[name])?)?;
            ensure!(thread["wait"]["owners"].is_null(), "Python {version} {name}: {thread:#}");
        }
    }
    Ok(())
}

#[test]
fn the_thread_that_works_on_a_connection_has_to_answer() -> Result<()> {
    for (version, interpreter) in python::all()? {
        let (fixture, facts) = start(&interpreter, "waits/served.py")?;
        let client = pid_of(&fixture, &facts["client of pipe"])?;
        let document = Inspector::json("dump", &[fixture.pid(), client]).document()?;
        let edges = document.json["edges"].as_array().context("edges")?;
        for (name, fact) in facts.iter().filter(|(_, fact)| !fact["answers"].is_null()) {
            let server = &facts[fact["answers"].as_str().unwrap_or_default()];
            let (from, to) = (tid_of(fact)?, tid_of(server)?);
            let edge = edges.iter().find(|edge| edge["from"]["tid"] == from && edge["to"]["tid"] == to);
            let edge =
                edge.with_context(|| format!("Python {version}: {name} → {to} is not in {edges:#?}"))?;
            ensure!(edge["certainty"] == "likely", "Python {version}: {edge:#}");
        }
    }
    Ok(())
}
