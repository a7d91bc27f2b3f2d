//! `inspector doctor`.

mod host;

use super::{Outcome, console::Console};
use crate::{
    cli::Doctor as Options,
    model::Tier,
    observe::{
        self,
        tasks::{self, Capability},
    },
    report::{
        doctor::{self, Check, Doctor},
        json,
    },
};

/// Version of the document that `--json` prints.
const SCHEMA_VERSION: &str = "1.0";

pub(super) fn run(options: &Options, console: &Console) -> anyhow::Result<Outcome> {
    console.progress("trying what this host allows");
    let probed = tasks::probe();
    let mut checks: Vec<Check> = probed.into_iter().map(check).collect();
    checks.extend(host::checks());
    checks.push(python());
    let opened = tasks::open(&[std::process::id()], Tier::Ebpf);
    let doctor = Doctor { schema_version: SCHEMA_VERSION, host: observe::host(), tier: opened.tier, checks };
    let page = if options.json { json::render(&doctor)? } else { doctor::text(&doctor, console.colored()) };
    console.print(&page)?;
    Ok(Outcome::Done)
}

/// What a thing that works would cost without it is of no interest.
fn check(capability: Capability) -> Check {
    let Capability { name, works, found, costs, remedy } = capability;
    let unless_it_works = |text: String| if works { String::new() } else { text };
    Check { name, works, found, costs: unless_it_works(costs), remedy: unless_it_works(remedy) }
}

/// Part of the binary, whatever the host allows: Python need not be installed.
fn python() -> Check {
    Check {
        name: "Python readers".into(),
        works: true,
        found: "own reader for CPython 3.8 to 3.15, the py-spy crate for what it does not know".into(),
        costs: String::new(),
        remedy: String::new(),
    }
}
