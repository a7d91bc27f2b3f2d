//! deadlock-cycle: threads that wait for each other's locks in a circle.

use super::{
    finding::{Case, Finding, Weighed, contradicts},
    scene::Scene,
    weights, words,
};
use crate::model::{
    Certainty, WaitKind,
    format::humane,
    report::{Cycle, Edge, End, Family, Status},
};

pub(super) fn weigh(scene: &Scene<'_>) -> Weighed {
    let findings = scene.graph.cycles.iter().filter_map(|cycle| finding(scene, cycle)).collect();
    let edges = scene.graph.edges.len();
    let why = format!("no circle among {}", words::count(edges, "wait edge"));
    Weighed::or_refuted(Family::DeadlockCycle, findings, why.clone(), vec![contradicts("waits", why)])
}

fn finding(scene: &Scene<'_>, cycle: &Cycle) -> Option<Finding> {
    let edges: Vec<&Edge> = scene.graph.edges_of(cycle).collect();
    let first = scene.at(edges.first()?.from)?;
    let mut case = Case::default();
    let proven = cycle.certainty == Certainty::Proven;
    case.support(
        if proven { weights::PROVEN_CYCLE } else { weights::LIKELY_CYCLE },
        "waits",
        format!("{} wait for each other in a circle", words::count(edges.len(), "thread")),
    );
    // The five-millisecond slices of a GIL waiter are no deadline: it asks again and again.
    let bounded = edges
        .iter()
        .filter_map(|edge| scene.at(edge.from))
        .find(|actor| actor.resolved.wait.has_deadline && actor.resolved.wait.kind != WaitKind::Gil);
    if let Some(actor) = bounded {
        let fact = format!("{}'s wait has a deadline, which will break the circle", words::thread(&actor));
        case.contradict(weights::CYCLE_ENDS_ITSELF, "waits", fact);
    }
    // Threads are read one after the other. Where an edge is only likely, a lock that changed hands meanwhile can close a
    // circle that never was; one that has stood does not.
    let moved = |edge: &&&Edge| match edge.through.kind {
        WaitKind::Gil => edge.certainty != Certainty::Proven,
        _ => !scene.at(edge.from).is_some_and(|actor| actor.has_stood()),
    };
    if let Some(edge) = edges.iter().find(moved).filter(|_| !proven) {
        let fact = format!("{} may have moved on while the others were read", name(scene, edge.from));
        case.contradict(weights::CYCLE_MAY_HAVE_MOVED, "waits", fact);
    }
    let mut ends: Vec<End> = edges.iter().map(|edge| edge.from).collect();
    ends.dedup();
    let victims = scene.victims(&ends);
    let circle: Vec<String> = edges.iter().map(|edge| name(scene, edge.from)).collect();
    let since = edges.iter().filter_map(|edge| scene.at(edge.from)?.blocked_ns()).max();
    let since = since.map(|ns| format!(" for {}", humane(ns))).unwrap_or_default();
    let summary = if let [edge] = edges.as_slice() {
        format!(
            "{} waits{since} for a lock that it holds itself: {}",
            name(scene, edge.from),
            edge.through.text
        )
    } else {
        format!(
            "deadlock{since} in {}: {} → {} → the first again",
            words::process(first.process),
            circle.first().map(String::as_str).unwrap_or_default(),
            circle.get(1..).unwrap_or_default().join(" → ")
        )
    };
    Some(Finding {
        family: Family::DeadlockCycle,
        status: Status::Wedged,
        confidence: case.confidence(),
        summary,
        culprits: scene.parties(&ends),
        victims: scene.parties(&victims),
        culprit_ends: ends,
        victim_ends: victims,
        action: scene.action(
            Family::DeadlockCycle,
            Some(first.process),
            first.rule.map(|rule| rule.role.as_str()),
        ),
        evidence: case.evidence,
        would_settle: (!proven).then(|| "a second look at the edges that are only likely".into()),
    })
}

fn name(scene: &Scene<'_>, end: End) -> String {
    match scene.at(end) {
        Some(actor) => format!("{} (tid {})", actor.name(), actor.thread.tid),
        None => end.tid.map_or_else(|| format!("pid {}", end.pid), |tid| format!("tid {tid}")),
    }
}
