//! `inspector dump`: a block a process, a paragraph a thread.

use std::{collections::HashMap, ops::Range, sync::Arc};

use super::{waits, words};
use crate::{
    model::{
        Frame, Report, StackEnd,
        format::humane,
        report::{ThreadReport, WorkerReport},
    },
    report::{color::Style, escape, page::Page},
};

/// Names are cut here in the aligned column; Linux's own are 15 bytes, Python's can be anything.
const WIDEST_NAME: usize = 48;
const WIDEST_COMMAND: usize = 300;
/// Why a stack was left: it can name a path of the target's.
const WIDEST_REASON: usize = 300;

/// Where each frame's line stands on the page: the threads of a process share most of their frames.
type Written = HashMap<*const Frame, Range<usize>>;

pub(super) fn write(page: &mut Page, report: &Report) {
    for process in &report.workers {
        let threads: Vec<&ThreadReport> =
            report.threads.iter().filter(|thread| thread.pid == process.pid).collect();
        heading(page, process);
        let ids = widest(&threads, id);
        let names = widest(&threads, name);
        let mut written = Written::new();
        for thread in threads {
            paragraph(page, thread, ids, names, &mut written);
        }
        page.end();
    }
    waits::write(page, report);
    if !report.workers.is_empty() {
        page.line(&words::footer(report));
    }
}

fn heading(page: &mut Page, process: &WorkerReport) {
    page.put(Style::Bold, &words::label(process)).plain(&format!(" · pid {}", process.pid));
    if let Some(pid) = process.ns_pid {
        page.plain(&format!(" ({pid} in its container)"));
    }
    if let Some(container) = words::container(process) {
        page.plain(&format!(" · container {container}"));
    }
    if let Some(engine) = process.engine.as_ref().filter(|engine| process.kind.as_ref() != Some(engine)) {
        page.plain(&format!(" · {engine}"));
    }
    if let Some(age) = process.up_ns {
        page.plain(&format!(" · up {}", humane(age)));
    }
    page.plain(&format!(" · {}", process.state));
    if let Some(version) = &process.python {
        page.plain(&format!(" · python {}", escape::name(version, WIDEST_NAME)));
    }
    page.plain(&format!(" · {}", words::counted(process.thread_count as usize, "thread", "threads")));
    if !process.ports.is_empty() {
        let ports = process.ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
        page.plain(&format!(" · listens on {ports}"));
    }
    page.end();
    if !process.command.is_empty() {
        page.put(Style::Dim, &format!("  {}", escape::name(&process.command, WIDEST_COMMAND))).end();
    }
}

fn paragraph(page: &mut Page, thread: &ThreadReport, ids: usize, names: usize, written: &mut Written) {
    page.plain(&format!("  {:<ids$}  ", id(thread))).put(Style::Name, &format!("{:<names$}", name(thread)));
    page.plain(&format!("  {}  ", thread.state.letter()));
    page.put(if thread.idle { Style::Dim } else { Style::Plain }, &words::wait(thread));
    if let Some(ns) = thread.blocked_for_ns {
        page.plain(&format!(" · for {}", humane(ns)));
    }
    if let Some(deadline) = words::deadline(thread) {
        page.plain(&format!(", {deadline}"));
    }
    if let Some(owner) = thread.wait.owners.first() {
        page.put(Style::Warn, &format!(" [{}]", owner.certainty.name()));
    }
    if !thread.libraries.is_empty() {
        let libraries = escape::name(&thread.libraries.join(" of "), WIDEST_NAME);
        page.put(Style::Dim, &format!(" [in {libraries}]"));
    }
    for remark in words::remarks(thread) {
        page.put(Style::Dim, &format!(" [{remark}]"));
    }
    page.end();
    for frame in &thread.frames {
        if let Some(line) = written.get(&Arc::as_ptr(frame)) {
            page.repeat(line.clone());
            continue;
        }
        let start = page.position();
        page.plain("      ");
        words::frame(page, frame);
        written.insert(Arc::as_ptr(frame), start..page.position());
    }
    match &thread.stack_end {
        StackEnd::Stopped(why) => {
            let why = escape::name(why, WIDEST_REASON);
            page.put(Style::Warn, &format!("      unwind stopped: {why}")).end();
        }
        StackEnd::Limit => {
            page.put(Style::Warn, "      unwind stopped: the limit of frames was reached").end();
        }
        StackEnd::NotWalked | StackEnd::Complete => {}
    }
}

fn widest(threads: &[&ThreadReport], cell: fn(&ThreadReport) -> String) -> usize {
    threads.iter().map(|thread| cell(thread).chars().count()).max().unwrap_or(0)
}

/// The host's tid, and in brackets the one that the target sees.
fn id(thread: &ThreadReport) -> String {
    match thread.ns_tid {
        Some(tid) => format!("{} ({tid})", thread.tid),
        None => thread.tid.to_string(),
    }
}

/// The name, escaped before it is measured.
fn name(thread: &ThreadReport) -> String {
    escape::name(&thread.name, WIDEST_NAME)
}
