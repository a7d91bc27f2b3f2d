//! Who is waited for and waits for nobody: the roots, ranked by how much waits on each.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::{
    model::{
        Capture,
        report::{Cycle, Edge, End, Root},
    },
    resolve::ResolvedThread,
};

/// Most roots that are ranked and reported.
const MAX_ROOTS: usize = 64;
/// Most roots whose waiters are counted; those with the most direct ones.
const MAX_COUNTED: usize = 256;

/// The roots of the graph, the one that most threads wait for first.
///
/// A root is a thread or a process that somebody waits for and that waits for nobody known, or a whole cycle: its root
/// is the first thread of it.
pub(super) fn roots(
    capture: &Capture,
    threads: &[ResolvedThread],
    edges: &[Edge],
    cycles: &[Cycle],
) -> Vec<Root> {
    let graph = Reversed::of(edges);
    let ages = ages(capture, threads);
    let in_cycle: HashMap<End, usize> = cycles
        .iter()
        .enumerate()
        .flat_map(|(index, cycle)| ends_of(edges, cycle).map(move |end| (end, index)))
        .collect();
    let mut candidates: Vec<(Vec<End>, Option<usize>)> = cycles
        .iter()
        .enumerate()
        .map(|(index, cycle)| (ends_of(edges, cycle).collect(), Some(index)))
        .collect();
    // Who woke others before need not be who acts next: that alone takes nobody's place as a root.
    let waiting: BTreeSet<End> = edges.iter().filter(|edge| !edge.by_waker).map(|edge| edge.from).collect();
    let sinks = graph.into.keys().filter(|end| !waiting.contains(end) && !in_cycle.contains_key(end));
    candidates.extend(sinks.map(|&end| (vec![end], None)));
    candidates.sort_by_key(|(ends, _)| std::cmp::Reverse(graph.direct(ends)));
    candidates.truncate(MAX_COUNTED);
    let mut roots: Vec<Root> =
        candidates.into_iter().filter_map(|(ends, cycle)| root(edges, &graph, &ages, &ends, cycle)).collect();
    roots.sort_by_key(|root| {
        (std::cmp::Reverse((root.waiters, root.waited_ns)), root.cycle.is_none(), root.end)
    });
    roots.truncate(MAX_ROOTS);
    roots
}

fn ends_of<'a>(edges: &'a [Edge], cycle: &'a Cycle) -> impl Iterator<Item = End> + 'a {
    cycle.edges.iter().filter_map(|&index| Some(edges.get(index as usize)?.from))
}

/// Blocked time by thread, nanoseconds.
fn ages(capture: &Capture, threads: &[ResolvedThread]) -> HashMap<End, u64> {
    let off_cpu: HashMap<(u32, u32), u64> = capture
        .processes
        .iter()
        .flat_map(|process| process.threads.iter().map(move |thread| (process.pid, thread)))
        .filter_map(|(pid, thread)| Some(((pid, thread.tid), thread.off_cpu_ns?)))
        .collect();
    let age = |thread: &ResolvedThread| off_cpu.get(&(thread.pid, thread.tid)).copied().unwrap_or(0);
    threads.iter().map(|thread| (End { pid: thread.pid, tid: Some(thread.tid) }, age(thread))).collect()
}

/// Edges by where they end.
struct Reversed {
    into: BTreeMap<End, Vec<u32>>,
}

impl Reversed {
    fn of(edges: &[Edge]) -> Self {
        let mut into: BTreeMap<End, Vec<u32>> = BTreeMap::new();
        for (index, edge) in edges.iter().enumerate() {
            into.entry(edge.to).or_default().push(index as u32);
        }
        Self { into }
    }

    fn edges(&self, end: End) -> impl Iterator<Item = u32> + '_ {
        self.into.get(&end).into_iter().flatten().copied()
    }

    fn direct(&self, ends: &[End]) -> usize {
        ends.iter().map(|&end| self.edges(end).count()).sum()
    }
}

/// Counts those who wait for `ends`, nearest first, and keeps the longest way to them.
fn root(
    edges: &[Edge],
    graph: &Reversed,
    ages: &HashMap<End, u64>,
    ends: &[End],
    cycle: Option<usize>,
) -> Option<Root> {
    /// How a waiter was reached: the edge that leads on, and how many hops are left.
    struct Reached {
        by: u32,
        hops: u32,
    }
    let mut reached: BTreeMap<End, Reached> = BTreeMap::new();
    let mut queue: VecDeque<(End, u32)> = ends.iter().map(|&end| (end, 0)).collect();
    while let Some((end, hops)) = queue.pop_front() {
        for index in graph.edges(end) {
            let Some(edge) = edges.get(index as usize) else { continue };
            if ends.contains(&edge.from) || reached.contains_key(&edge.from) {
                continue;
            }
            reached.insert(edge.from, Reached { by: index, hops: hops + 1 });
            queue.push_back((edge.from, hops + 1));
        }
    }
    let age = |end: &End| ages.get(end).copied().unwrap_or(0);
    let farthest = reached.iter().max_by_key(|(end, way)| (way.hops, age(end), std::cmp::Reverse(**end)));
    let mut chain = Vec::new();
    let mut at = farthest.map(|(end, _)| *end);
    while let Some(way) = at.and_then(|end| reached.get(&end)) {
        chain.push(way.by);
        at = edges.get(way.by as usize).map(|edge| edge.to).filter(|to| !ends.contains(to));
    }
    let members = if cycle.is_some() { ends.len() as u32 } else { 0 };
    let waiting = reached.keys().chain(ends.iter().filter(|_| cycle.is_some()));
    Some(Root {
        end: *ends.first()?,
        cycle: cycle.map(|index| index as u32),
        waiters: reached.len() as u32 + members,
        waited_ns: waiting.map(age).fold(0, u64::saturating_add),
        chain,
    })
}
