//! Text for people: short enough to paste into a ticket, stable enough to grep.

mod dump;
mod gaps;
mod ps;
#[cfg(test)]
mod tests;
mod verdict;
mod waits;
pub(super) mod words;

use super::page::Page;
use crate::model::Report;

/// The table of processes.
pub fn ps(report: &Report, colored: bool) -> String {
    let mut page = Page::new(colored);
    ps::write(&mut page, report);
    gaps::write(&mut page, report);
    page.into_text()
}

/// Every thread of every process.
pub fn dump(report: &Report, colored: bool) -> String {
    let mut page = Page::new(colored);
    dump::write(&mut page, report);
    gaps::write(&mut page, report);
    page.into_text()
}

/// The verdict; nothing for a report without one.
pub fn verdict(report: &Report, colored: bool) -> String {
    let mut page = Page::new(colored);
    if let Some(verdict) = &report.verdict {
        verdict::write(&mut page, report, verdict);
    }
    page.into_text()
}
