//! A report to stdout and to the files that were asked for.

use std::mem::ManuallyDrop;

use super::{Outcome, console::Console, look::Seen, output_file};
use crate::{
    cli::{Drawing, Format, Output},
    model::{Report, report::Status},
    report,
};

/// How a command writes its report as text.
pub(super) type TextFormat = fn(&Report, bool) -> String;

/// Says early, before anything is captured, that a file cannot be written.
pub(super) fn check(output: &Output) -> anyhow::Result<()> {
    output.files.iter().try_for_each(|file| output_file::check(&file.path))
}

/// Prints the report, as a graph if one is asked for, and writes the files. A file that cannot be written costs neither the print nor another file.
pub(super) fn emit(
    seen: Seen,
    output: &Output,
    text: TextFormat,
    graph: Option<Drawing>,
    console: &Console,
) -> anyhow::Result<Outcome> {
    // Of a thousand threads it is hundreds of thousands of strings. The process ends, which frees them at once.
    let seen = ManuallyDrop::new(seen);
    let Seen { capture, report } = &*seen;
    let render = |format, colored| match format {
        Format::Text => Ok(text(report, colored)),
        Format::Json => report::json::render(report),
        Format::Folded => Ok(report::folded::render(report)),
        Format::Graph(drawing) => Ok(report::graph::render(report, graph_format(drawing))),
        Format::Capture => report::json::render(capture),
    };
    let printed = match (graph, output.json, output.folded) {
        (Some(drawing), ..) => Format::Graph(drawing),
        (_, true, _) => Format::Json,
        (_, _, true) => Format::Folded,
        _ => Format::Text,
    };
    console.print(&render(printed, console.colored())?)?;
    let mut failed = None;
    for file in &output.files {
        let written = output_file::write(&file.path, render(file.format, false)?.as_bytes());
        if let Err(error) = written
            && let Some(earlier) = failed.replace(error)
        {
            console.complain(&format!("{earlier:#}"));
        }
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(outcome(report)),
    }
}

const fn graph_format(drawing: Drawing) -> report::graph::Format {
    match drawing {
        Drawing::Dot => report::graph::Format::Dot,
        Drawing::Mermaid => report::graph::Format::Mermaid,
        Drawing::Svg => report::graph::Format::Svg,
    }
}

fn outcome(report: &Report) -> Outcome {
    match report.verdict.as_ref().map(|verdict| verdict.status) {
        Some(Status::Wedged | Status::Degraded) => Outcome::Trouble,
        Some(Status::Healthy | Status::Unknown) | None => Outcome::Done,
    }
}
