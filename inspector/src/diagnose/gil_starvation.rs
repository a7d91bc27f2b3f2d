//! gil-starvation: one thread keeps the GIL, the others ask for it in vain.

use super::{
    finding::{Case, Finding, Weighed, contradicts},
    scene::{Actor, Scene},
    weights, words,
};
use crate::{
    graph::frozen_holder,
    model::{
        Gil, Process, PythonRuntime, WaitKind,
        format::humane,
        report::{End, Family, Status},
    },
};

pub(super) fn weigh(scene: &Scene<'_>) -> Weighed {
    let mut findings = Vec::new();
    let (mut gils, mut sampled) = (0_usize, 0_usize);
    let mut starved = None;
    for process in &scene.capture.processes {
        for gil in process.python.iter().flat_map(PythonRuntime::gils) {
            gils += 1;
            sampled += usize::from(gil.samples.len() > 1);
            // Who would give it up, but gets no CPU to do so, is no culprit.
            if let Some(holder) = holder(scene, process, gil).filter(Actor::is_starved) {
                starved = Some(words::thread(&holder));
                continue;
            }
            findings.extend(finding(scene, process, gil));
        }
    }
    if sampled < gils {
        let why = match sampled {
            0 => "no GIL was read more than once, so that none can be told to stand still".into(),
            _ => format!("of {} only {sampled} could be read more than once", words::count(gils, "GIL")),
        };
        return Weighed::or_open(
            Family::GilStarvation,
            findings,
            why,
            "an observation of a second (--duration 1s)".into(),
        );
    }
    if let Some(thread) = starved {
        let why = format!(
            "{thread} holds a GIL and wants a CPU, and got none: the host has too few for its load, or its quota is used up"
        );
        let settle = "an observation while the host is less loaded, or a longer one".into();
        return Weighed::or_open(Family::GilStarvation, findings, why, settle);
    }
    let why = match gils {
        0 => "no GIL was seen".to_owned(),
        _ => format!("of {} none is kept from threads that ask for it", words::count(gils, "GIL")),
    };
    Weighed::or_refuted(Family::GilStarvation, findings, why.clone(), vec![contradicts("gil", why)])
}

/// The thread that held the GIL in every reading.
fn holder<'s>(scene: &'s Scene<'_>, process: &Process, gil: &Gil) -> Option<Actor<'s>> {
    scene.at(End { pid: process.pid, tid: Some(frozen_holder(&gil.samples)?) })
}

fn finding(scene: &Scene<'_>, process: &Process, gil: &Gil) -> Option<Finding> {
    let holder = holder(scene, process, gil)?;
    let tid = holder.thread.tid;
    if holder.is_stopped() {
        return None; // A stopped process keeps its GIL: the stop is the cause.
    }
    let waits = |kind| move |actor: &Actor<'_>| actor.resolved.wait.kind == kind;
    let waiters: Vec<End> = scene
        .of(process.pid)
        .filter(waits(WaitKind::Gil))
        .filter(|actor| actor.thread.tid != tid)
        // A GIL wait's object is the GIL itself, wherever inside it the futex word lies.
        .filter(|actor| actor.resolved.wait.address.is_none_or(|address| address == gil.address))
        .map(|actor| actor.end())
        .collect();
    if waiters.is_empty() {
        return None;
    }
    let (first, last) = (gil.samples.first()?, gil.samples.last()?);
    let span = last.at_ns.saturating_sub(first.at_ns);
    let mut case = Case::default();
    case.support(
        weights::GIL_UNMOVED,
        "gil",
        format!(
            "in {} over {} the holder is tid {tid} and switch_number stays {}",
            words::count(gil.samples.len(), "reading"),
            humane(span),
            first.switch_number
        ),
    );
    // A look of a tenth less than a second is a second's observation with its start-up taken off.
    if span < weights::STANDING_NS / 10 * 8 {
        let fact = format!("the readings span {} only", humane(span));
        case.contradict(weights::GIL_SHORT_LOOK, "gil", fact);
    }
    if holder.is_running() {
        case.support(
            weights::GIL_HOLDER_RUNS,
            "threads",
            "the holder runs native code and does not answer requests to drop the GIL",
        );
    } else {
        case.support(
            weights::GIL_HOLDER_BLOCKED,
            "waits",
            format!("the holder is {}", words::detail(&holder)),
        );
    }
    let ends = vec![holder.end()];
    let mut victims = waiters;
    victims.extend(scene.victims(&ends).into_iter().filter(|end| !ends.contains(end)));
    victims.sort_unstable();
    victims.dedup();
    let verb = if victims.len() == 1 { "waits" } else { "wait" };
    let summary = format!(
        "{} has kept the GIL for at least {}{}; {} {verb} for it",
        words::thread(&holder),
        humane(span),
        words::in_place(&holder),
        words::count(victims.len(), "thread"),
    );
    Some(Finding {
        family: Family::GilStarvation,
        status: Status::Wedged,
        confidence: case.confidence(),
        summary,
        culprits: vec![holder.party()],
        victims: scene.parties(&victims),
        culprit_ends: ends,
        victim_ends: victims,
        action: scene.action(
            Family::GilStarvation,
            Some(process),
            holder.rule.map(|rule| rule.role.as_str()),
        ),
        evidence: case.evidence,
        would_settle: (span < weights::STANDING_NS).then(|| "a longer observation (--duration 5s)".into()),
    })
}
