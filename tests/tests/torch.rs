//! A process of PyTorch: libraries of hundreds of megabytes, a pool of threads, and a collective that a rank never joins.
//! Runs with a Python that has torch, which `INSPECTOR_TORCH_PYTHON` names (`cargo xtask test --all --kit FILE` does).

use std::process::Command;

use anyhow::{Context, Result, ensure};
use inspector_tests::{Document, Fixture, Inspector, eventually, paths};

#[test]
fn a_rank_that_waits_in_a_collective() -> Result<()> {
    let Some(python) = std::env::var_os("INSPECTOR_TORCH_PYTHON") else {
        eprintln!("not run: INSPECTOR_TORCH_PYTHON names no Python that has torch");
        return Ok(());
    };
    let mut command = Command::new(python);
    command.arg(paths::fixtures().join("torch/collective.py"));
    let (target, facts) = Fixture::ready(command)?;
    let other = u32::try_from(facts["rank1"].as_u64().context("no second rank")?)?;
    let pid = target.pid();
    let (document, main) = eventually("rank 0 waits", || {
        let document = Inspector::json("dump", &[pid, other]).document().ok()?;
        let main = document.thread(pid, pid).ok()?.clone();
        let waits = main["wait"]["kind"] != "running" && Document::functions(&main).contains(&"all_reduce");
        waits.then_some((document, main))
    })?;
    let functions = Document::functions(&main);
    ensure!(
        functions.iter().any(|function| function.contains("gloo") || function.contains("c10d")),
        "no native frame of the collective: {functions:?}"
    );
    ensure!(
        main["stack_end"]["end"] == "complete" || main["stack_end"] == "complete",
        "{:#}",
        main["stack_end"]
    );
    ensure!(document.json["gaps"].as_array().is_some_and(Vec::is_empty), "{:#}", document.json["gaps"]);
    let asleep = document.thread(other, other)?;
    ensure!(asleep["wait"]["kind"] == "sleep", "{asleep:#}");
    for thread in document.threads(pid) {
        ensure!(thread["frames"].as_array().is_some_and(|frames| !frames.is_empty()), "{thread:#}");
    }
    Ok(())
}
