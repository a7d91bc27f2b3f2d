//! The rooms in a row: discover, observe, resolve, graph, diagnose, report. `ps`, `dump` and `diagnose` differ only in how
//! deep they look and in what they print of it.

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;

use super::console::Console;
use crate::{
    analyse::analyse,
    cli::{Depth, Global, LowerTier, Probes, Targets},
    discover::{self, Scope},
    knowledge::Knowledge,
    model::{Capture, ProbeWay, Report, Tier},
    observe::{self, Plan, Prepared, ProbeChoice},
};

/// What to look at, and how deep.
pub(super) struct Look<'a> {
    pub(super) targets: &'a Targets,
    /// Zero: one look.
    pub(super) duration: Duration,
    pub(super) tier: Option<Tier>,
    pub(super) python: bool,
    pub(super) native: bool,
    pub(super) probes: ProbeChoice,
}

/// What a look gave.
pub(super) struct Seen {
    /// What was seen.
    pub(super) capture: Capture,
    /// What it means.
    pub(super) report: Report,
}

impl<'a> Look<'a> {
    /// As deep as the options say.
    pub(super) fn new(targets: &'a Targets, depth: &Depth, duration: Duration) -> Self {
        let tier = depth.tier.map(|tier| match tier {
            LowerTier::Memory => Tier::Memory,
            LowerTier::Proc => Tier::Proc,
        });
        Self {
            targets,
            duration,
            tier,
            python: !depth.no_python,
            native: !depth.no_native,
            probes: ProbeChoice::Auto,
        }
    }

    /// With these probes.
    pub(super) fn probed(self, probes: Probes) -> Self {
        let probes = match probes {
            Probes::Auto => ProbeChoice::Auto,
            Probes::Fentry => ProbeChoice::Only(ProbeWay::Fentry),
            Probes::Tracepoint => ProbeChoice::Only(ProbeWay::Tracepoint),
            Probes::Off => ProbeChoice::Off,
        };
        Self { probes, ..self }
    }

    /// Looks, and says what was seen, without a verdict.
    pub(super) fn report(&self, global: &Global, console: &Console) -> anyhow::Result<Seen> {
        let mut seen = self.diagnosed(global, console)?;
        seen.report.verdict = None;
        seen.report.hypotheses.clear();
        Ok(seen)
    }

    /// Looks, and says what was seen and what it means.
    pub(super) fn diagnosed(&self, global: &Global, console: &Console) -> anyhow::Result<Seen> {
        let prepared = Prepared::start(self.tier);
        let knowledge = knowledge(global)?;
        console.progress("looking for workers");
        let Targets { pids, more_pids, all } = self.targets;
        let scope = Scope { pids: [pids.as_slice(), more_pids].concat(), all_python: *all };
        let discovery = discover::discover(&knowledge, &scope)?;
        let plan = Plan {
            duration: self.duration,
            python: self.python,
            native: self.native,
            probes: self.probes,
            // The link names the running program even after its file was replaced by an upgrade.
            helper: PathBuf::from("/proc/self/exe"),
            progress: &|what| console.progress(what),
        };
        let capture = observe::observe(&plan, prepared, discovery).context("cannot observe")?;
        console.progress("analysing");
        let report = analyse(&capture, &knowledge, &[]);
        Ok(Seen { capture, report })
    }
}

/// The built-in knowledge, and the user's.
pub(super) fn knowledge(global: &Global) -> anyhow::Result<Knowledge> {
    match &global.knowledge {
        None => Ok(Knowledge::builtin()),
        Some(folder) => Ok(Knowledge::load(folder)?),
    }
}
