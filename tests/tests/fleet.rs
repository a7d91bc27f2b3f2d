//! The whole pipeline on the demo fleet: each wedge gets the verdict that names its true culprit, and a fleet that is well
//! is never called anything else.

use anyhow::{Result, ensure};
use inspector_tests::fleet::{Fleet, compare};
use inspector_tests::{Document, Finished, Inspector};

/// `inspector diagnose` of the whole fleet.
fn diagnose(fleet: &Fleet) -> Result<(Finished, Document)> {
    let finished = Inspector::json("diagnose", &fleet.pids()).run()?;
    ensure!(
        matches!(finished.code(), Some(0 | 3)),
        "diagnose failed: {}\n{}",
        finished.status,
        finished.stderr
    );
    let document = Document::parse(&finished.stdout)?;
    Ok((finished, document))
}

fn wedge(name: &str) -> Result<()> {
    wedge_of(&["--gentle", "--heartbeat", "1"], name)
}

fn wedge_of(options: &[&str], name: &str) -> Result<()> {
    let mut fleet = Fleet::start(options)?;
    fleet.request(8)?;
    let truth = fleet.wedge(name)?;
    let (finished, document) = diagnose(&fleet)?;
    compare(&document, &truth)?;
    ensure!(finished.code() == Some(3), "exit status is {}, not 3", finished.status);
    Ok(())
}

fn healthy(fleet: &Fleet, runs: u32) -> Result<()> {
    for run in 0..runs {
        let (finished, document) = diagnose(fleet)?;
        let verdict = &document.json["verdict"];
        ensure!(document.verdict()? == ("healthy", "healthy"), "false alarm in run {run}: {verdict:#}");
        ensure!(finished.code() == Some(0), "exit status is {}, not 0", finished.status);
    }
    Ok(())
}

/// Runs of each healthy case; `cargo xtask test --all` makes 300 in all.
fn runs() -> u32 {
    if std::env::var_os("INSPECTOR_TEST_ALL").is_some() { 75 } else { 3 }
}

#[test]
fn idle_fleet_is_healthy() -> Result<()> {
    healthy(&Fleet::start(&["--gentle"])?, runs())
}

#[test]
fn spinning_idle_fleet_is_healthy() -> Result<()> {
    healthy(&Fleet::start(&[])?, runs())
}

#[test]
fn fleet_under_load_is_healthy() -> Result<()> {
    let fleet = Fleet::start(&["--gentle"])?;
    let _load = fleet.load(4)?;
    healthy(&fleet, runs())
}

#[test]
fn mooncake_fleet_under_load_is_healthy() -> Result<()> {
    let fleet = Fleet::start(&["--gentle", "--backend", "mooncake"])?;
    let _load = fleet.load(2)?;
    healthy(&fleet, runs())
}

#[test]
fn decode_listener_died() -> Result<()> {
    wedge("thread-died")
}

#[test]
fn mooncake_decode_thread_died() -> Result<()> {
    wedge_of(&["--gentle", "--backend", "mooncake"], "thread-died")
}

#[test]
fn bootstrap_thread_died() -> Result<()> {
    wedge("thread-died-bootstrap")
}

#[test]
fn one_of_four_transfer_workers_died() -> Result<()> {
    wedge("thread-died-transfer")
}

#[test]
fn scheduler_sends_to_a_prefill_that_is_gone_and_holds_the_heartbeats_lock() -> Result<()> {
    wedge("blocked-send")
}

#[test]
fn scheduler_sends_to_a_peer_that_does_not_read() -> Result<()> {
    wedge("blocked-send-tcp")
}

#[test]
fn native_call_keeps_the_gil() -> Result<()> {
    wedge("gil-starvation")
}

#[test]
fn two_mutexes_in_opposite_order() -> Result<()> {
    wedge("deadlock-cycle")
}

#[test]
fn gil_against_a_mutex() -> Result<()> {
    wedge("deadlock-gil")
}

#[test]
fn decode_scheduler_is_stopped() -> Result<()> {
    wedge("peer-stopped")
}

#[test]
fn decode_scheduler_is_frozen() -> Result<()> {
    wedge("peer-frozen")
}

#[test]
fn scheduler_sleeps() -> Result<()> {
    wedge("scheduler-stuck")
}

#[test]
fn scheduler_wants_a_lock_that_nobody_releases() -> Result<()> {
    wedge("scheduler-stuck-lock")
}

#[test]
fn scheduler_reads_a_fifo_that_nobody_writes() -> Result<()> {
    wedge("scheduler-stuck-fifo")
}
