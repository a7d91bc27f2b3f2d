//! Reads inspector's JSON as other tools would: by the promised names.

use anyhow::{Context, Result};
use inspector::model::Report;
use serde::Deserialize as _;
use serde_json::Value;

/// A parsed `--json` document: as plain JSON and as the library's own type.
#[derive(Debug)]
pub struct Document {
    /// The document as it was printed.
    pub json: Value,
    /// The same, typed.
    pub report: Report,
}

impl Document {
    /// Parses a document.
    pub fn parse(text: &str) -> Result<Self> {
        let json: Value = serde_json::from_str(text).context("not JSON")?;
        let report = Report::deserialize(&json).context("not a report")?;
        Ok(Self { json, report })
    }

    /// The entry of `threads` for a thread.
    pub fn thread(&self, pid: u32, tid: u32) -> Result<&Value> {
        self.threads(pid)
            .find(|thread| thread["tid"] == tid)
            .with_context(|| format!("the report has no thread {tid} of process {pid}"))
    }

    /// The entries of `threads` for a process.
    pub fn threads(&self, pid: u32) -> impl Iterator<Item = &Value> {
        self.json["threads"].as_array().into_iter().flatten().filter(move |thread| thread["pid"] == pid)
    }

    /// The entry of `threads` whose `name` contains `name`.
    pub fn named(&self, pid: u32, name: &str) -> Result<&Value> {
        self.threads(pid)
            .find(|thread| thread["name"].as_str().is_some_and(|found| found.contains(name)))
            .with_context(|| format!("the report has no thread named {name} of process {pid}"))
    }

    /// `verdict.status`, `verdict.family`.
    pub fn verdict(&self) -> Result<(&str, &str)> {
        let text = |name: &str| self.json["verdict"][name].as_str();
        Ok((text("status").context("no verdict.status")?, text("family").context("no verdict.family")?))
    }

    /// Function names of a thread's frames, innermost first.
    pub fn functions(thread: &Value) -> Vec<&str> {
        let frames = thread["frames"].as_array().into_iter().flatten();
        frames.filter_map(|frame| frame["function"].as_str()).collect()
    }
}
