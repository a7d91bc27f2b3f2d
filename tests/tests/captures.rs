//! Captures of real and demo fleets, analysed again: what was right when they were taken stays right.
//!
//! `NAME.capture` is what was seen, `NAME.expected.json` what is known to be true of that moment. A case that inspector
//! cannot tell yet says `"held": false`; it may get better, and then its expectation has to be written anew.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use inspector::{
    analyse::analyse,
    knowledge::Knowledge,
    model::{Capture, report::Status},
    report::text,
};
use inspector_tests::paths;
use serde_json::Value;

fn captures(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?.flatten()
    {
        let path = entry.path();
        if path.is_dir() {
            captures(&path, found)?;
        } else if path.extension().is_some_and(|ending| ending == "capture") {
            found.push(path);
        }
    }
    Ok(())
}

/// Whether the analysis says what is expected.
fn holds(file: &Path) -> Result<(bool, Value, Value)> {
    let capture: Capture = serde_json::from_slice(&fs::read(file)?)?;
    let expected: Value = serde_json::from_slice(&fs::read(file.with_extension("expected.json"))?)?;
    let report = serde_json::to_value(analyse(&capture, &Knowledge::builtin(), &[]))?;
    let verdict = &report["verdict"];
    let parties = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let (said, wanted) = (parties(&verdict["culprits"]), parties(&expected["culprits"]));
    let named = wanted.iter().all(|culprit| said.iter().any(|party| party["pid"] == culprit["pid"]));
    let status = if let Some(status) = expected["status"].as_str() {
        verdict["status"] == status
    } else if wanted.is_empty() {
        said.is_empty()
    } else {
        verdict["status"] == "wedged" || verdict["status"] == "degraded"
    };
    Ok((named && status, expected, verdict.clone()))
}

#[test]
fn every_capture_gets_the_verdict_that_is_known_to_be_true() -> Result<()> {
    let mut files = Vec::new();
    captures(&paths::root().join("tests/captures"), &mut files)?;
    ensure!(!files.is_empty(), "there are no captures");
    for file in files {
        let (holds, expected, verdict) = holds(&file).with_context(|| file.display().to_string())?;
        ensure!(
            expected["held"] == holds,
            "{}: held was {}, now {holds}\nexpected {expected:#}\nsaid {verdict:#}",
            file.display(),
            expected["held"]
        );
    }
    Ok(())
}

#[test]
fn a_verdict_is_short() -> Result<()> {
    let mut files = Vec::new();
    captures(&paths::root().join("tests/captures"), &mut files)?;
    for file in files {
        let capture: Capture = serde_json::from_slice(&fs::read(&file)?)?;
        let report = analyse(&capture, &Knowledge::builtin(), &[]);
        let verdict = report.verdict.as_ref().context("a verdict")?;
        ensure!(verdict.summary.chars().count() <= 160, "{}: {}", file.display(), verdict.summary);
        let page = text::verdict(&report, false);
        let most = if verdict.status == Status::Healthy { 6 } else { 30 };
        ensure!(page.lines().count() <= most, "{}: more than {most} lines\n{page}", file.display());
    }
    Ok(())
}

/// Threads alone do not prove that a link is down; whoever knows that requests hang has to be told what was seen.
#[test]
fn a_link_that_is_down_leaves_doubts_beside_the_verdict() -> Result<()> {
    for engine in ["sglang", "vllm"] {
        let file = paths::root().join(format!("tests/captures/real/{engine}/link-down.capture"));
        let capture: Capture = serde_json::from_slice(&fs::read(&file)?)?;
        let report = analyse(&capture, &Knowledge::builtin(), &[]);
        let verdict = report.verdict.context("a verdict")?;
        let doubt = |fact: &str| fact.contains("polls for its peer") || fact.contains("nobody answers");
        let told = verdict.evidence.iter().any(|evidence| !evidence.supports && doubt(&evidence.fact));
        ensure!(told || verdict.status != Status::Healthy, "{engine}: {verdict:#?}");
    }
    Ok(())
}

#[test]
fn the_same_capture_gives_the_same_report() -> Result<()> {
    let mut files = Vec::new();
    captures(&paths::root().join("tests/captures"), &mut files)?;
    let file = files.first().context("there are no captures")?;
    let capture: Capture = serde_json::from_slice(&fs::read(file)?)?;
    let report = || serde_json::to_string(&analyse(&capture, &Knowledge::builtin(), &[]));
    assert_eq!(report()?, report()?);
    Ok(())
}
