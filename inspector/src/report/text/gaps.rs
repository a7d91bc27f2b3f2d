//! What could not be seen, at the end of every page: equal reasons once, with how many processes or threads they
//! concern.

use std::collections::BTreeMap;

use super::words::counted;
use crate::{
    model::{Gap, Report},
    report::{color::Style, escape, page::Page},
};

/// More lines than this drown the result; the JSON document holds them all.
const MOST_LINES: usize = 12;
/// A reason can name a path of the target's.
const WIDEST_REASON: usize = 500;

pub(super) fn write(page: &mut Page, report: &Report) {
    let mut groups: BTreeMap<(&str, &str), Vec<&Gap>> = BTreeMap::new();
    for gap in &report.gaps {
        groups.entry((&gap.source, &gap.reason)).or_default().push(gap);
    }
    for ((source, reason), gaps) in groups.iter().take(MOST_LINES) {
        page.put(Style::Warn, "NOT SEEN ").plain("  ").plain(source);
        page.put(Style::Dim, &whom(gaps)).plain(": ").plain(&escape::name(reason, WIDEST_REASON)).end();
    }
    if let Some(rest) = groups.len().checked_sub(MOST_LINES).filter(|&rest| rest > 0) {
        page.put(Style::Warn, "NOT SEEN ").plain(&format!("  {rest} more, all of them in --json")).end();
    }
}

/// The first reason and how many more there are, on one line.
pub(super) fn write_one(page: &mut Page, report: &Report) {
    let Some(first) = report.gaps.first() else { return };
    page.put(Style::Warn, "NOT SEEN ").plain("  ").plain(&first.source);
    page.put(Style::Dim, &whom(&[first])).plain(": ").plain(&escape::name(&first.reason, WIDEST_REASON));
    if let Some(more) = report.gaps.len().checked_sub(1).filter(|&more| more > 0) {
        page.plain(&format!("; {more} more in --json"));
    }
    page.end();
}

fn whom(gaps: &[&Gap]) -> String {
    match gaps {
        [gap] => match (gap.pid, gap.tid) {
            (Some(pid), Some(tid)) => format!(" (pid {pid} tid {tid})"),
            (Some(pid), None) => format!(" (pid {pid})"),
            (None, _) => String::new(),
        },
        _ if gaps.iter().any(|gap| gap.tid.is_some()) => {
            format!(" ({})", counted(gaps.len(), "thread", "threads"))
        }
        _ if gaps.iter().any(|gap| gap.pid.is_some()) => {
            format!(" ({})", counted(gaps.len(), "process", "processes"))
        }
        _ => format!(" ({} times)", gaps.len()),
    }
}
