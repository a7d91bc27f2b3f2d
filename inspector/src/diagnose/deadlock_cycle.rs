//! deadlock-cycle: threads that wait in a circle, for each other's locks, or for messages that nobody else can send.

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
    let messages = edges.iter().any(|edge| is_message(edge.through.kind));
    let weight = match (proven, messages) {
        (true, false) => weights::PROVEN_CYCLE,
        (true, true) => weights::MESSAGE_CYCLE,
        (false, _) => weights::LIKELY_CYCLE,
    };
    let circle = format!("{} wait for each other in a circle", words::count(edges.len(), "thread"));
    if messages {
        let fact = format!("{circle}, and no other process or thread can send what they wait for");
        case.support(weight, "waits", fact);
        let youngest = edges.iter().filter_map(|edge| scene.at(edge.from)?.blocked_ns()).min();
        if let Some(ns) = youngest {
            let fact = format!("all of them have stood there for {}", humane(ns));
            case.support(weights::for_long(youngest), "waits", fact);
        }
    } else {
        case.support(weight, "waits", circle);
    }
    let idle = edges.iter().filter_map(|edge| scene.at(edge.from)).find(|actor| actor.idle);
    if let Some(actor) = idle.filter(|_| messages) {
        let fact = format!("{} is in a known idle state", words::thread(&actor));
        case.contradict(weights::CYCLE_IS_IDLE, "waits", fact);
    }
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
    if let Some(edge) = edges.iter().find(moved).filter(|_| !proven || messages) {
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
            places(scene, &edges),
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

/// A wait that ends with a message, not with a lock or with somebody's end.
const fn is_message(kind: WaitKind) -> bool {
    matches!(
        kind,
        WaitKind::SocketRecv
            | WaitKind::SocketSend
            | WaitKind::PipeRead
            | WaitKind::PipeWrite
            | WaitKind::Poll
    )
}

/// The processes that a circle goes through.
fn places(scene: &Scene<'_>, edges: &[&Edge]) -> String {
    let mut processes = Vec::new();
    for process in edges.iter().filter_map(|edge| scene.capture.process(edge.from.pid)) {
        let name = words::process(process);
        if !processes.contains(&name) {
            processes.push(name);
        }
    }
    processes.join(" and ")
}

fn name(scene: &Scene<'_>, end: End) -> String {
    match scene.at(end) {
        Some(actor) => format!("{} (tid {})", actor.name(), actor.thread.tid),
        None => end.tid.map_or_else(|| format!("pid {}", end.pid), |tid| format!("tid {tid}")),
    }
}
