//! The wait-for graph as a drawing: DOT, Mermaid or SVG. Threads, processes and the objects between them are nodes; an
//! arrow leads from who waits to the object and from there to who has to act, dashed where that is only likely.

mod dot;
mod layout;
mod mermaid;
mod svg;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{escape, text::words};
use crate::model::{
    Certainty, FrameKind, Report,
    format::{clip, humane},
    report::{Edge, End, ThreadReport},
};

/// Most threads and processes that are drawn; those that most depends on. More cannot be looked at.
const MOST_ENDS: usize = 150;
/// Characters of a node's line.
const WIDEST: usize = 60;

/// Formats of a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Graphviz.
    Dot,
    /// Mermaid flowchart, which many issue trackers draw by themselves.
    Mermaid,
    /// A picture that any browser shows.
    Svg,
}

/// Draws who waits for whom in `report`.
pub fn render(report: &Report, format: Format) -> String {
    let drawing = Drawing::of(report);
    match format {
        Format::Dot => dot::render(&drawing),
        Format::Mermaid => mermaid::render(&drawing),
        Format::Svg => svg::render(&drawing),
    }
}

/// What a node stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Thread,
    Process,
    Object,
}

/// How a node stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Plain,
    /// The waiting ends here.
    Root,
    /// It is part of a cycle.
    Cycle,
}

#[derive(Debug)]
struct Node {
    shape: Shape,
    mark: Mark,
    /// Escaped and clipped; special characters of the format are the format's own matter.
    lines: Vec<String>,
    /// Index into [`Drawing::groups`].
    group: Option<usize>,
}

#[derive(Debug)]
struct Arrow {
    from: usize,
    to: usize,
    certainty: Certainty,
    in_cycle: bool,
    /// Where it comes from.
    evidence: String,
}

/// Nodes and arrows, by index.
#[derive(Debug, Default)]
struct Drawing {
    nodes: Vec<Node>,
    arrows: Vec<Arrow>,
    /// Labels of the processes.
    groups: Vec<String>,
    /// Threads and processes that were left out.
    left_out: usize,
}

impl Drawing {
    fn of(report: &Report) -> Self {
        let wanted = wanted(report);
        let all: BTreeSet<End> = report.edges.iter().flat_map(|edge| [edge.from, edge.to]).collect();
        let mut drawing = Self { left_out: all.len().saturating_sub(wanted.len()), ..Self::default() };
        let in_cycle: BTreeSet<u32> =
            report.cycles.iter().flat_map(|cycle| cycle.edges.iter().copied()).collect();
        let mut marks: BTreeMap<End, Mark> = report.roots.iter().map(|root| (root.end, Mark::Root)).collect();
        let turning = in_cycle.iter().filter_map(|&index| report.edges.get(index as usize));
        marks.extend(turning.map(|edge| (edge.from, Mark::Cycle)));
        let mut groups: BTreeMap<u32, usize> = BTreeMap::new();
        let mut ends: BTreeMap<End, usize> = BTreeMap::new();
        for end in wanted {
            let group = *groups.entry(end.pid).or_insert_with(|| {
                drawing.groups.push(process(report, end.pid));
                drawing.groups.len() - 1
            });
            let mark = marks.get(&end).copied().unwrap_or(Mark::Plain);
            ends.insert(end, drawing.nodes.len());
            drawing.nodes.push(node(report, end, mark, group));
        }
        let mut objects: BTreeMap<(u64, u64, String), usize> = BTreeMap::new();
        let mut leads: BTreeSet<(usize, usize)> = BTreeSet::new();
        for (index, edge) in report.edges.iter().enumerate() {
            let (Some(&from), Some(&to)) = (ends.get(&edge.from), ends.get(&edge.to)) else { continue };
            let in_cycle = in_cycle.contains(&(index as u32));
            let object = *objects.entry(identity(edge)).or_insert_with(|| {
                drawing.nodes.push(object(edge));
                drawing.nodes.len() - 1
            });
            if leads.insert((from, object)) {
                // That it waits there is what the kernel says.
                let certainty = Certainty::Proven;
                let evidence = edge.through.kind.name().to_owned();
                drawing.arrows.push(Arrow { from, to: object, certainty, in_cycle, evidence });
            }
            if leads.insert((object, to)) {
                let evidence = escape::name(&edge.evidence, WIDEST * 3);
                drawing.arrows.push(Arrow {
                    from: object,
                    to,
                    certainty: edge.certainty,
                    in_cycle,
                    evidence,
                });
            }
        }
        drawing
    }
}

/// The ends that are drawn: the roots in their order, each with those who wait for it, the nearest first.
fn wanted(report: &Report) -> Vec<End> {
    let mut into: BTreeMap<End, Vec<End>> = BTreeMap::new();
    for edge in &report.edges {
        into.entry(edge.to).or_default().push(edge.from);
    }
    let of_cycle = |root: &crate::model::report::Root| -> Vec<End> {
        let cycle = root.cycle.and_then(|index| report.cycles.get(index as usize));
        let edges = cycle.into_iter().flat_map(|cycle| &cycle.edges);
        let ends = edges.filter_map(|&index| Some(report.edges.get(index as usize)?.from));
        std::iter::once(root.end).chain(ends).collect()
    };
    let mut seen: BTreeSet<End> = BTreeSet::new();
    let mut wanted = Vec::new();
    for root in &report.roots {
        let mut queue: VecDeque<End> = of_cycle(root).into();
        while let Some(end) = queue.pop_front() {
            if wanted.len() >= MOST_ENDS {
                return wanted;
            }
            if seen.insert(end) {
                wanted.push(end);
                queue.extend(into.get(&end).into_iter().flatten());
            }
        }
    }
    wanted
}

/// Two waits are for the same object if these are the same; an address means something inside its process only.
fn identity(edge: &Edge) -> (u64, u64, String) {
    match (edge.through.inode, edge.through.address) {
        (Some(inode), _) => (0, inode, String::new()),
        (None, Some(address)) => (u64::from(edge.from.pid), address, String::new()),
        (None, None) => (u64::from(edge.from.pid), 0, format!("{} {:?}", edge.through.text, edge.from.tid)),
    }
}

fn object(edge: &Edge) -> Node {
    // Who holds it is what the arrow says.
    let text = edge.through.text.split(" held by ").next().unwrap_or_default();
    let text = if text.is_empty() { edge.through.kind.name() } else { text };
    let lines = vec![escape::name(text, WIDEST)];
    Node { shape: Shape::Object, mark: Mark::Plain, lines, group: None }
}

fn process(report: &Report, pid: u32) -> String {
    match report.workers.iter().find(|worker| worker.pid == pid) {
        Some(worker) => format!("{} · pid {pid}", words::label(worker)),
        None => format!("pid {pid}, not looked at"),
    }
}

fn node(report: &Report, end: End, mark: Mark, group: usize) -> Node {
    let found = report.threads.iter().find(|thread| thread.pid == end.pid && Some(thread.tid) == end.tid);
    let (shape, lines) = match (found, end.tid) {
        (Some(thread), _) => (Shape::Thread, about(thread)),
        (None, Some(tid)) => (Shape::Thread, vec![format!("tid {tid}")]),
        (None, None) => (Shape::Process, vec![clip(&process(report, end.pid), WIDEST).into_owned()]),
    };
    Node { shape, mark, lines, group: Some(group) }
}

/// Name, ids and age, what it does if it waits for nobody, and where in the code.
fn about(thread: &ThreadReport) -> Vec<String> {
    let age = thread.blocked_for_ns.map(|ns| format!(" · {}", humane(ns))).unwrap_or_default();
    let mut lines = vec![escape::name(&thread.name, WIDEST), format!("tid {}{age}", thread.tid)];
    if thread.wait.owners.is_empty() {
        lines.push(clip(&words::wait(thread), WIDEST).into_owned());
    }
    let of = |kind| thread.frames.iter().filter(move |frame| frame.kind == kind && !frame.is_plumbing());
    let frame = of(FrameKind::Python).next().or_else(|| of(FrameKind::Native).next());
    lines.extend(frame.map(|frame| format!("in {}", escape::name(&frame.function, WIDEST - 3))));
    lines
}

#[cfg(test)]
mod tests;
