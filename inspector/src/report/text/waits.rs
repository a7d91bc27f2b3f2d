//! Who waits for whom, one line a hop: the chains that lead to those who are waited for, the circles, and the ranks that
//! stand elsewhere than the others.

use super::words;
use crate::{
    model::{
        Certainty, Frame, Report,
        format::clip,
        report::{Divergence, Edge, End, Root, ThreadReport},
    },
    report::{color::Style, escape, page::Page},
};

/// What a terminal has room for; the JSON document and `--graph` hold everything.
const MOST_ROOTS: usize = 6;
const MOST_HOPS: usize = 8;
const MOST_DIVERGENCES: usize = 4;
const MOST_CLASSES: usize = 4;
const MOST_RANKS: usize = 8;
const WIDEST_NAME: usize = 48;
const WIDEST_TEXT: usize = 120;
const WIDEST_EVIDENCE: usize = 100;

/// The section of a dump: who is waited for, most first, and the ranks that differ.
pub(super) fn write(page: &mut Page, report: &Report) {
    let roots: Vec<&Root> = report.roots.iter().filter(|root| !is_one_of_many(report, root)).collect();
    for root in roots.iter().take(MOST_ROOTS) {
        root_with_chain(page, report, root);
    }
    if let Some(more) = roots.len().checked_sub(MOST_ROOTS).filter(|&more| more > 0) {
        page.line(&format!("WAITED FOR {more} more, all of them in --json and --graph"));
    }
    for divergence in report.divergences.iter().take(MOST_DIVERGENCES) {
        ranks(page, divergence);
    }
}

/// A process outside of what was looked at that is one of several who could end one wait: it says little.
fn is_one_of_many(report: &Report, root: &Root) -> bool {
    let [only] = root.chain.as_slice() else { return false };
    let waiter = report.edges.get(*only as usize).and_then(|edge| thread(report, edge.from));
    let outside = !report.workers.iter().any(|worker| worker.pid == root.end.pid);
    outside && root.waiters == 1 && waiter.is_some_and(|waiter| waiter.wait.owners.len() > 1)
}

fn root_with_chain(page: &mut Page, report: &Report, root: &Root) {
    let waiting = words::counted(root.waiters as usize, "thread waits", "threads wait");
    if let Some(cycle) = root.cycle.and_then(|index| report.cycles.get(index as usize)) {
        page.put(Style::Bad, "CIRCLE").plain(&format!("  {waiting} in it or for it")).end();
        for &index in cycle.edges.iter().take(MOST_HOPS) {
            hop(page, report, index, "    ");
        }
        more(page, cycle.edges.len(), "    ");
        page.plain("    → the first again").end();
        if let [first, ..] = root.chain.as_slice() {
            page.plain("  for it waits").end();
            hop(page, report, *first, "    ");
            more(page, root.chain.len() + MOST_HOPS - 1, "    ");
        }
    } else {
        page.put(Style::Bold, "WAITED FOR").plain(&format!("  {} · {waiting}", who(report, root.end))).end();
        chain(page, report, root, "    ");
    }
}

/// The hops from the farthest waiter on, and what the root itself does.
pub(super) fn chain(page: &mut Page, report: &Report, root: &Root, indent: &str) {
    for &index in root.chain.iter().take(MOST_HOPS) {
        hop(page, report, index, indent);
    }
    more(page, root.chain.len(), indent);
    let does = match thread(report, root.end) {
        Some(thread) => format!("{}, {}", words::wait(thread), words::age(thread)),
        None if report.workers.iter().any(|worker| worker.pid == root.end.pid) => {
            "which of its threads has to act is not known".to_owned()
        }
        None => format!("not looked at; --pid {} adds it", root.end.pid),
    };
    page.plain(&format!("{indent}→ {}: {}", who(report, root.end), clip(&does, WIDEST_TEXT))).end();
}

fn more(page: &mut Page, hops: usize, indent: &str) {
    if let Some(more) = hops.checked_sub(MOST_HOPS).filter(|&more| more > 0) {
        page.plain(&format!("{indent}… {more} more")).end();
    }
}

/// `worker (pid 1 tid 12) · mutex 0x7f… held by sender (tid 13) · for 2m03s  [proven: owner word at 0x…]`.
fn hop(page: &mut Page, report: &Report, index: u32, indent: &str) {
    let Some(edge) = report.edges.get(index as usize) else { return };
    let text = escape::name(&edge.through.text, WIDEST_TEXT);
    page.plain(&format!("{indent}{} · {text}", who(report, edge.from)));
    if let Some(thread) = thread(report, edge.from) {
        page.plain(&format!(" · {}", words::age(thread)));
    }
    mark(page, edge);
    page.end();
}

fn mark(page: &mut Page, edge: &Edge) {
    let style = match edge.certainty {
        Certainty::Proven => Style::Good,
        Certainty::Likely => Style::Warn,
    };
    let evidence = escape::name(&edge.evidence, WIDEST_EVIDENCE);
    page.put(style, &format!("  [{}: {evidence}]", edge.certainty.name()));
}

/// `sender (pid 1 tid 13)`, `decode scheduler TP0 (pid 20)`.
fn who(report: &Report, end: End) -> String {
    let process = report.workers.iter().find(|worker| worker.pid == end.pid);
    let ids = match end.tid {
        Some(tid) => format!("(pid {} tid {tid})", end.pid),
        None => format!("(pid {})", end.pid),
    };
    match (thread(report, end), process) {
        (Some(thread), _) => format!("{} {ids}", escape::name(&thread.name, WIDEST_NAME)),
        (None, Some(process)) => format!("{} {ids}", words::label(process)),
        (None, None) => format!("process {ids}"),
    }
}

fn thread(report: &Report, end: End) -> Option<&ThreadReport> {
    report.threads.iter().find(|thread| thread.pid == end.pid && Some(thread.tid) == end.tid)
}

/// `RANKS  sglang decode scheduler, main thread: TP0, TP1 (2) differ from TP2 (1) below run_batch`.
fn ranks(page: &mut Page, divergence: &Divergence) {
    let thread = escape::name(&divergence.thread, WIDEST_NAME);
    let group = escape::name(&divergence.group, WIDEST_NAME);
    page.put(Style::Bold, "RANKS").plain(&format!("  {group} · {thread}: the stacks differ"));
    match &divergence.after {
        Some(frame) => page.plain(&format!(" below {}", place(frame))),
        None => page.plain(" from the outermost frame on"),
    };
    page.end();
    for class in divergence.classes.iter().take(MOST_CLASSES) {
        let ranks: Vec<String> =
            class.ranks.iter().take(MOST_RANKS).map(|rank| escape::name(rank, 16)).collect();
        let rest = class.ranks.len().saturating_sub(MOST_RANKS);
        let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        page.plain(&format!("    {}{rest}: ", ranks.join(", ")));
        let next = class.next.as_ref().map_or_else(|| "no further frame".to_owned(), place);
        page.plain(&next);
        if let Some(frame) = class.innermost.as_ref().filter(|frame| class.next.as_ref() != Some(frame)) {
            page.plain(&format!(" … {}", place(frame)));
        }
        page.end();
    }
    if let Some(more) = divergence.classes.len().checked_sub(MOST_CLASSES).filter(|&more| more > 0) {
        page.plain(&format!("    {more} more, all of them in --json")).end();
    }
}

/// `run_batch scheduler.py:120`.
fn place(frame: &Frame) -> String {
    let function = escape::name(&frame.function, WIDEST_NAME);
    let file = frame.file.as_deref().map(|file| file.rsplit('/').next().unwrap_or(file));
    match (file, frame.line) {
        (Some(file), Some(line)) => format!("{function} {}:{line}", escape::path(file, WIDEST_NAME)),
        _ => function,
    }
}
