//! `inspector ps`.

use std::time::Duration;

use super::{Outcome, console::Console, look::Look};
use crate::{
    cli::{Global, Ps},
    model::Tier,
    observe::ProbeChoice,
    report::{json, text},
};

pub(super) fn run(options: &Ps, global: &Global, console: &Console) -> anyhow::Result<Outcome> {
    let look = Look {
        targets: &options.targets,
        duration: Duration::ZERO,
        // States and ports are all that the table shows, and `/proc` has them.
        tier: Some(Tier::Proc),
        python: false,
        native: false,
        probes: ProbeChoice::Off,
    };
    let report = look.report(global, console)?.report;
    let page = if options.json { json::render(&report)? } else { text::ps(&report, console.colored()) };
    console.print(&page)?;
    Ok(Outcome::Done)
}
