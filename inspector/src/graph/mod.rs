//! The wait-for graph: edges with evidence, cycles, roots, victims. Pure.
//!
//! A node is a thread, or a process where only that is known. `from → to` says that `from` cannot go on before `to`
//! acts. Edges come from the owners that `resolve` found ([`edges`]), with the thread that answers where only its process
//! is known ([`responder`]); those who wait for each other and for nobody else are stuck ([`stuck`]), and a cycle among
//! them is a deadlock ([`cycles`]). Where the waiting ends are the [`roots`]; [`ranks`] compares the ranks of an engine.

mod cycles;
mod edges;
mod ranks;
mod responder;
mod roots;
mod stuck;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use edges::frozen_holder;

use crate::{
    model::{
        Capture,
        report::{Cycle, Divergence, Edge, End, Root},
    },
    resolve::ResolvedThread,
};

/// Who waits for whom.
#[derive(Clone, Debug, Default)]
pub struct WaitGraph {
    /// The edges, by their `from`.
    pub edges: Vec<Edge>,
    /// Wait cycles.
    pub cycles: Vec<Cycle>,
    /// Where the waiting ends, ranked.
    pub roots: Vec<Root>,
    /// Ranks whose stacks differ.
    pub divergences: Vec<Divergence>,
}

impl WaitGraph {
    /// Builds the graph of a capture.
    pub fn build(capture: &Capture, threads: &[ResolvedThread]) -> Self {
        let edges = edges::edges(capture, threads);
        let stuck = stuck::stuck(capture, threads, &edges);
        let cycles = cycles::cycles(&edges, &stuck);
        let roots = roots::roots(capture, threads, &edges, &cycles);
        Self { edges, cycles, roots, divergences: ranks::divergences(capture, threads) }
    }

    /// The edges that start at `end`.
    pub fn from(&self, end: End) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(move |edge| edge.from == end)
    }

    /// The edges that end at the thread `end`, or at its process.
    pub fn to(&self, end: End) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(move |edge| reaches(edge.to, end))
    }

    /// The edges of a cycle, in order.
    pub fn edges_of<'a>(&'a self, cycle: &'a Cycle) -> impl Iterator<Item = &'a Edge> {
        cycle.edges.iter().filter_map(|&index| self.edges.get(index as usize))
    }

    /// Everybody who waits for one of `culprits`, directly or through others; the nearest first, no culprit among
    /// them. A culprit without a thread stands for its process and all its threads.
    pub fn victims(&self, culprits: &[End]) -> Vec<End> {
        let mut by_target: BTreeMap<End, Vec<End>> = BTreeMap::new();
        for edge in &self.edges {
            by_target.entry(edge.to).or_default().push(edge.from);
        }
        let is_culprit = |end: End| {
            culprits
                .iter()
                .any(|culprit| *culprit == end || (culprit.tid.is_none() && culprit.pid == end.pid))
        };
        let mut queue: Vec<End> = by_target
            .keys()
            .copied()
            .filter(|&target| is_culprit(target) || culprits.iter().any(|&culprit| reaches(target, culprit)))
            .collect();
        let mut seen: BTreeSet<End> = queue.iter().copied().collect();
        let mut found = Vec::new();
        let mut next = 0;
        while let Some(&end) = queue.get(next) {
            next += 1;
            for &from in by_target.get(&end).into_iter().flatten() {
                if !is_culprit(from) && seen.insert(from) {
                    found.push(from);
                    queue.push(from);
                }
            }
        }
        found
    }
}

/// Whether an edge that ends at `to` ends at `end`: the same node, or the process of the thread.
fn reaches(to: End, end: End) -> bool {
    to == end || (to.tid.is_none() && to.pid == end.pid)
}

#[cfg(test)]
mod tests;
