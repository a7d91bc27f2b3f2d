//! The wait-for graph: edges with evidence, cycles, roots, victims. Pure.

use crate::{
    model::{
        Capture,
        report::{Cycle, Edge},
    },
    resolve::ResolvedThread,
};

/// Who waits for whom.
#[derive(Clone, Debug, Default)]
pub struct WaitGraph {
    /// The edges.
    pub edges: Vec<Edge>,
    /// Wait cycles.
    pub cycles: Vec<Cycle>,
}

impl WaitGraph {
    /// Builds the graph of a capture.
    pub fn build(_capture: &Capture, _threads: &[ResolvedThread]) -> Self {
        Self::default()
    }
}
