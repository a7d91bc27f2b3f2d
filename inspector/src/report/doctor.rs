//! What a host allows, as `inspector doctor` prints it.

use serde::Serialize;

use super::{color::Style, page::Page};
use crate::model::{Host, Tier};

/// Everything that `inspector doctor` found out.
#[derive(Clone, Debug, Serialize)]
pub struct Doctor {
    /// Version of this document's layout; names are only ever added.
    pub schema_version: &'static str,
    /// The machine.
    pub host: Host,
    /// The tier that an observation reaches now.
    pub tier: Tier,
    /// One entry for each thing that inspector can use.
    pub checks: Vec<Check>,
}

/// One thing that inspector can use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its name.
    pub name: String,
    /// It works here.
    pub works: bool,
    /// What was found.
    pub found: String,
    /// What is lost without it; empty where it works.
    pub costs: String,
    /// What to do about it; empty where it works, or where nothing can be done.
    pub remedy: String,
}

/// The page for people: what works on one line each, what does not with its cost and its remedy.
pub fn text(doctor: &Doctor, colored: bool) -> String {
    let mut page = Page::new(colored);
    let Host { hostname, kernel, arch, inspector, .. } = &doctor.host;
    page.plain(&format!("inspector {inspector} on {hostname}, kernel {kernel}, {arch}: tier "));
    page.put(Style::Bold, doctor.tier.name()).end();
    let width = doctor.checks.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
    for check in &doctor.checks {
        let (mark, style) = if check.works { ("yes", Style::Good) } else { ("no ", Style::Bad) };
        page.plain("  ").put(style, mark).plain(&format!("  {:<width$}  {}", check.name, check.found)).end();
        for (word, text) in [("costs", &check.costs), ("do", &check.remedy)] {
            if !text.is_empty() {
                page.plain(&format!("       {:width$}  {word}: {text}", "")).end();
            }
        }
    }
    page.into_text()
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::{Check, Doctor, text};
    use crate::{model::Tier, report::sample};

    #[test]
    fn what_fails_shows_its_cost_and_its_remedy() {
        let check = |name: &str, works, found: &str, costs: &str, remedy: &str| Check {
            name: name.into(),
            works,
            found: found.into(),
            costs: costs.into(),
            remedy: remedy.into(),
        };
        let doctor = Doctor {
            schema_version: "1.0",
            host: sample::wedged().host,
            tier: Tier::Memory,
            checks: vec![
                check("BTF", true, "/sys/kernel/btf/vmlinux", "", ""),
                check("CAP_BPF", false, "not held", "no kernel stacks", "run as root"),
            ],
        };
        assert_snapshot!(text(&doctor, false));
    }
}
