//! From a capture to its report: the pure rooms in a row. The same capture gives the same report on every machine.

use crate::{
    diagnose,
    graph::WaitGraph,
    knowledge::Knowledge,
    model::{Capture, Report, report::Claim},
    report::assemble,
    resolve,
};

/// What a capture means, as far as `knowledge` and the user's `claims` go.
pub fn analyse(capture: &Capture, knowledge: &Knowledge, claims: &[Claim]) -> Report {
    let threads = resolve::resolve(capture);
    let graph = WaitGraph::build(capture, &threads);
    let diagnosis =
        diagnose::diagnose(&diagnose::Input { capture, threads: &threads, graph: &graph, knowledge, claims });
    assemble::report(capture, threads, graph, diagnosis)
}
