//! `inspector ps`: one line a process.

use crate::{
    model::{Report, format::humane, report::WorkerReport},
    report::{color::Style, escape, page::Page},
};

const HEADINGS: [&str; 11] =
    ["PID", "ENGINE", "ROLE", "KIND", "RANK", "GPU", "UP", "PORTS", "CONTAINER", "STATE", "COMMAND"];
/// Shown only where a process is in one.
const CONTAINER: usize = 8;
const NOTHING: &str = "-";
/// A cell wider than this is cut: one odd title must not push the table off the screen.
const WIDEST: usize = 28;
/// The last column is cut where a terminal line usually ends; `--json` has 200 characters of it.
const WIDEST_COMMAND: usize = 60;

pub(super) fn write(page: &mut Page, report: &Report) {
    if report.workers.is_empty() {
        return;
    }
    let rows: Vec<[String; HEADINGS.len()]> = report.workers.iter().map(cells).collect();
    let contained = rows.iter().any(|row| row[CONTAINER] != NOTHING);
    let width = |column: usize, heading: &str| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).fold(heading.len(), usize::max)
    };
    let width = |(column, heading): (usize, &&str)| {
        (column != CONTAINER || contained).then(|| width(column, heading))
    };
    let widths: Vec<Option<usize>> = HEADINGS.iter().enumerate().map(width).collect();
    line(page, Style::Bold, &HEADINGS.map(String::from), &widths);
    for row in &rows {
        line(page, Style::Plain, row, &widths);
    }
}

/// A column without a width is left out.
fn line(page: &mut Page, style: Style, cells: &[String], widths: &[Option<usize>]) {
    let last = cells.len().saturating_sub(1);
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let &Some(width) = width else { continue };
        let padded = match column {
            0 => format!("{cell:>width$}"),
            _ if column == last => cell.clone(),
            _ => format!("{cell:<width$}"),
        };
        page.put(style, &padded).plain(if column == last { "" } else { "  " });
    }
    page.end();
}

fn cells(process: &WorkerReport) -> [String; HEADINGS.len()] {
    [
        process.pid.to_string(),
        text(process.engine.as_deref()),
        text(process.role.as_deref()),
        text(process.kind.as_deref()),
        text(process.rank.as_deref()),
        numbers(&process.gpus),
        text(process.up_ns.map(humane).as_deref()),
        numbers(&process.ports),
        text(container(process)),
        text(Some(&process.state)),
        // Escaped before it is measured, so that the columns stay where they are.
        escape::name(&process.command, WIDEST_COMMAND),
    ]
}

fn text(cell: Option<&str>) -> String {
    match cell {
        None | Some("") => NOTHING.into(),
        Some(cell) => escape::name(cell, WIDEST),
    }
}

/// What `kubectl` and `docker` call it.
fn container(process: &WorkerReport) -> Option<&str> {
    let container = process.container.as_ref()?;
    let name = container.hostname.as_deref();
    let pod = container.pod_uid.as_ref().map(|uid| name.unwrap_or(uid));
    pod.or_else(|| container.short_id()).or(name)
}

fn numbers<T: ToString>(numbers: &[T]) -> String {
    let joined = numbers.iter().map(T::to_string).collect::<Vec<_>>().join(",");
    text(Some(&joined))
}
