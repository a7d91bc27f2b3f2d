//! healthy and unknown: what is said where no finding weighs enough to be the verdict.
//!
//! `healthy` says that nothing which should move stands still *among what was looked at*; it names what was not.
//! `unknown` is given only for a reason: nothing to judge, something that could not be read, or a finding that weighs
//! too much to pass over and too little to be the verdict.

use super::{
    doubts,
    finding::{Finding, contradicts, supports},
    scene::Scene,
    standing, weights, words,
};
use crate::model::{
    MmapLock, Process, TaskState, Tier, WaitKind,
    report::{Evidence, Family, Status, Verdict},
};

/// The verdict, given the heaviest finding.
pub(super) fn verdict(scene: &Scene<'_>, heaviest: Option<&Finding>) -> Verdict {
    if scene.capture.processes.is_empty() {
        let gaps = scene.capture.gaps.iter().map(|gap| contradicts(&gap.source, gap.reason.clone()));
        let facts =
            std::iter::once(contradicts("discover", "no process was captured")).chain(gaps).take(8).collect();
        return unknown(
            "there is no process to judge".into(),
            "Name one with --pid, or start the engine.",
            facts,
        );
    }
    if let Some(finding) = heaviest.filter(|finding| finding.confidence >= weights::SUSPICION) {
        let action = finding.would_settle.as_deref().map(|what| format!("What would settle it: {what}."));
        let summary = format!("not sure, but suspicious: {}", finding.summary);
        let action = action.as_deref().unwrap_or("Look again in a minute: a wedge is still there then.");
        return unknown(summary, action, finding.evidence.clone());
    }
    if let Some((summary, action, evidence)) = standing::suspicion(scene) {
        return unknown(format!("not sure, but suspicious: {summary}"), action, evidence);
    }
    let blind = blind_spots(scene);
    if !blind.is_empty() {
        let first = blind.first().map(|fact| fact.fact.clone()).unwrap_or_default();
        let ended = |process: &&Process| matches!(process.state, TaskState::Zombie | TaskState::Dead);
        let action = if scene.capture.processes.iter().any(|process| ended(&process)) {
            "Look again, at the processes that live; why one ended is in its standard error and the kernel's log."
        } else {
            "Look again, without --tier, --no-python and --no-native if they were given; `inspector doctor` says what \
             this host allows."
        };
        return unknown(format!("cannot tell: {first}"), action, blind);
    }
    healthy(scene, heaviest)
}

fn unknown(summary: String, action: &str, evidence: Vec<Evidence>) -> Verdict {
    Verdict {
        status: Status::Unknown,
        family: Family::Unknown,
        confidence: 0.0,
        summary,
        culprits: Vec::new(),
        victims: Vec::new(),
        action: action.into(),
        evidence,
    }
}

fn healthy(scene: &Scene<'_>, heaviest: Option<&Finding>) -> Verdict {
    let actors = || scene.actors();
    let number = actors().count();
    let running = actors().filter(|actor| actor.resolved.wait.kind == WaitKind::Running).count();
    let idle = actors().filter(|actor| actor.idle).count();
    let others = number.saturating_sub(running).saturating_sub(idle);
    let mut evidence = vec![
        supports(
            "threads",
            format!(
                "{} in {}: {running} running, {idle} in a known idle state, {others} in other waits",
                words::count(number, "thread"),
                words::count(scene.capture.processes.len(), "process"),
            ),
        ),
        supports("waits", format!("no circle among {}", words::count(scene.graph.edges.len(), "wait edge"))),
    ];
    if let Some(finding) = heaviest {
        evidence.push(contradicts("waits", format!("passed over as too little: {}", finding.summary)));
    }
    let doubts = doubts::doubts(scene);
    let confidence = match (doubts.is_empty(), scene.capture.gaps.is_empty()) {
        (false, _) => weights::HEALTHY_WITH_DOUBTS,
        (true, false) => weights::HEALTHY_WITH_GAPS,
        (true, true) => weights::HEALTHY,
    };
    evidence.extend(doubts);
    evidence.push(contradicts(
        "scope",
        "not looked at: request queues, metrics, logs and GPUs; a request that waits inside a scheduler which polls does not show in its threads",
    ));
    if !scene.capture.gaps.is_empty() {
        let gaps = words::count(scene.capture.gaps.len(), "thing");
        evidence.push(contradicts("gaps", format!("{gaps} could not be read")));
    }
    Verdict {
        status: Status::Healthy,
        family: Family::Healthy,
        confidence,
        summary: "no thread that should move stands still".into(),
        culprits: Vec::new(),
        victims: Vec::new(),
        action: "If requests hang all the same: compare the queues of both halves in their /metrics, and send one \
                 request through each half."
            .into(),
        evidence,
    }
}

/// Why `healthy` cannot be said.
fn blind_spots(scene: &Scene<'_>) -> Vec<Evidence> {
    let mut facts = Vec::new();
    if scene.capture.tier == Tier::Proc {
        facts.push(contradicts(
            "tier",
            "only /proc could be read: no stacks, so that an idle thread and a stuck one look alike; run as root",
        ));
    }
    for process in &scene.capture.processes {
        if let Some(why) = blind(scene, process) {
            facts.push(contradicts("processes", format!("{}: {why}", words::process(process))));
        }
    }
    facts
}

fn blind(scene: &Scene<'_>, process: &Process) -> Option<&'static str> {
    match process.state {
        TaskState::Zombie if scene.of(process.pid).all(|actor| actor.thread.state == TaskState::Zombie) => {
            return Some("it has ended, and its parent has not noticed (zombie)");
        }
        TaskState::Dead => return Some("it ended while it was observed"),
        _ => {}
    }
    if scene.of(process.pid).next().is_none() {
        return Some("none of its threads could be read");
    }
    let stackless =
        process.python.is_none() && scene.of(process.pid).all(|actor| actor.resolved.frames.is_empty());
    if stackless && process.mmap_lock == MmapLock::Contended {
        return Some("its memory map is locked (mmap_lock), so that no stack could be read");
    }
    // A stopped or frozen process was weighed by its state.
    let knows_python = scene.rule(process).is_some_and(|rule| !rule.ready.is_empty() || rule.plain);
    (knows_python && process.python.is_none()).then_some("its Python stacks could not be read")
}
