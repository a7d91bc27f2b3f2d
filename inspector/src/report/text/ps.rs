//! `inspector ps`: one line a process.

use crate::{
    model::{Report, format::humane, report::WorkerReport},
    report::{color::Style, escape, page::Page},
};

const HEADINGS: [&str; 10] =
    ["PID", "ENGINE", "ROLE", "KIND", "RANK", "GPU", "UP", "PORTS", "STATE", "COMMAND"];
/// A cell wider than this is cut: one odd title must not push the table off the screen.
const WIDEST: usize = 28;
/// The last column is cut where a terminal line usually ends; `--json` has 200 characters of it.
const WIDEST_COMMAND: usize = 60;

pub(super) fn write(page: &mut Page, report: &Report) {
    if report.workers.is_empty() {
        return;
    }
    let rows: Vec<[String; HEADINGS.len()]> = report.workers.iter().map(cells).collect();
    let widths: Vec<usize> = HEADINGS
        .iter()
        .enumerate()
        .map(|(column, heading)| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .fold(heading.len(), usize::max)
        })
        .collect();
    line(page, Style::Bold, &HEADINGS.map(String::from), &widths);
    for row in &rows {
        line(page, Style::Plain, row, &widths);
    }
}

fn line(page: &mut Page, style: Style, cells: &[String], widths: &[usize]) {
    let last = cells.len().saturating_sub(1);
    for (column, (cell, &width)) in cells.iter().zip(widths).enumerate() {
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
        text(Some(&process.state)),
        // Escaped before it is measured, so that the columns stay where they are.
        escape::name(&process.command, WIDEST_COMMAND),
    ]
}

fn text(cell: Option<&str>) -> String {
    match cell {
        None | Some("") => "-".into(),
        Some(cell) => escape::name(cell, WIDEST),
    }
}

fn numbers<T: ToString>(numbers: &[T]) -> String {
    let joined = numbers.iter().map(T::to_string).collect::<Vec<_>>().join(",");
    text(Some(&joined))
}
