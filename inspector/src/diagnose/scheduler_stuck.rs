//! scheduler-stuck: the thread that schedules requests stands still, and no better family says why.

use super::{
    finding::{Case, Finding, Weighed, contradicts},
    scene::{Actor, Scene, Startup},
    weights, words,
};
use crate::model::{
    WaitKind,
    format::humane,
    report::{End, Family, Status},
};

pub(super) fn weigh(scene: &Scene<'_>) -> Weighed {
    let schedulers: Vec<Actor<'_>> = scene.actors().filter(Actor::is_scheduler).collect();
    let findings = schedulers.iter().filter_map(|actor| finding(scene, actor)).collect();
    if schedulers.is_empty() {
        let why = "no scheduler thread is known among these processes".into();
        return Weighed::or_refuted(Family::SchedulerStuck, findings, why, Vec::new());
    }
    let facts = schedulers.iter().map(|actor| {
        let how = if actor.idle { "is in a known idle state" } else { "moves" };
        contradicts("threads", format!("{} {how}: {}", words::thread(actor), words::detail(actor)))
    });
    let facts = facts.collect();
    let why = format!(
        "{} run, wait for less than a second or are idle",
        words::count(schedulers.len(), "scheduler thread")
    );
    Weighed::or_refuted(Family::SchedulerStuck, findings, why, facts)
}

fn finding(scene: &Scene<'_>, actor: &Actor<'_>) -> Option<Finding> {
    let wait = &actor.resolved.wait;
    // The GIL has a family of its own, and its waiters never stand.
    if wait.kind == WaitKind::Gil || !actor.stands() || !actor.has_no_near_deadline() {
        return None;
    }
    let mut case = Case::default();
    let explained_by_work = matches!(
        wait.kind,
        WaitKind::Futex
            | WaitKind::Condvar
            | WaitKind::Device
            | WaitKind::Child
            | WaitKind::Other
            | WaitKind::Join
    ) || waits_for_native_work(actor)
        || owner_runs(scene, actor);
    // A title proves nothing: the process may be starting up, or be another program that bears the name.
    let started = scene.startup(actor.process) == Startup::Over;
    let weight = match (started, explained_by_work) {
        (false, _) => weights::SCHEDULER_OUTSIDE_ITS_LOOP,
        (true, true) => weights::SCHEDULER_WAITS_FOR_WORK,
        (true, false) => weights::SCHEDULER_BLOCKED,
    };
    case.support(weight, "waits", format!("{} is {}", words::thread(actor), words::detail(actor)));
    if actor.thread.activity.unchanged {
        let sweeps = actor.thread.activity.sweeps;
        case.support(
            0.0,
            "threads",
            format!("it did not move in {}", words::count(sweeps as usize, "sweep")),
        );
    }
    let age = weights::for_long(actor.blocked_ns());
    if !started {
        case.contradict(
            0.0,
            "threads",
            "it is not in its event loop: starting up, or a program that only bears the name",
        );
    } else if age > 0.0 {
        case.support(age, "waits", "a healthy scheduler's waits last milliseconds");
    }
    if explained_by_work {
        case.contradict(0.0, "waits", "a long computation or compilation looks the same for a while");
    }
    let ends = vec![actor.end()];
    let mut victims = scene.victims(&ends);
    let served = super::relations::dependents(scene, actor.process);
    victims.extend(served.iter().map(|(process, _)| End { pid: process.pid, tid: Some(process.pid) }));
    let since = actor.blocked_ns().map(|ns| format!(" for {}", humane(ns))).unwrap_or_default();
    let limit = if wait.has_deadline { "" } else { " without a deadline" };
    Some(Finding {
        family: Family::SchedulerStuck,
        status: Status::Wedged,
        confidence: case.confidence(),
        summary: format!(
            "{} has stood still{since}{}{limit}: {}",
            words::thread(actor),
            words::in_place(actor),
            words::object(actor)
        ),
        culprits: vec![actor.party()],
        victims: scene.parties(&victims),
        culprit_ends: ends,
        victim_ends: victims,
        action: scene.action(
            Family::SchedulerStuck,
            Some(actor.process),
            actor.rule.map(|rule| rule.role.as_str()),
        ),
        evidence: case.evidence,
        would_settle: explained_by_work.then(|| {
            "whether it still stands there in a minute, and whether tokens are produced meanwhile".into()
        }),
    })
}

/// The owner of its lock is at work: it may be long, and it moves.
fn owner_runs(scene: &Scene<'_>, actor: &Actor<'_>) -> bool {
    let owners = scene.graph.from(actor.end()).filter(|edge| !edge.by_waker);
    let mut owners = owners.filter_map(|edge| scene.at(edge.to)).peekable();
    owners.peek().is_some() && owners.all(|owner| owner.is_running())
}

/// A synchronisation with the device or with the threads of a computation.
fn waits_for_native_work(actor: &Actor<'_>) -> bool {
    actor.resolved.frames.iter().take(24).any(|frame| {
        let name = frame.function.as_str();
        [
            "cuEvent",
            "cuStream",
            "cuCtxSync",
            "cudaEvent",
            "cudaStream",
            "cudaDevice",
            "GOMP_",
            "__kmp",
            "omp_",
        ]
        .iter()
        .any(|prefix| name.starts_with(prefix))
    }) || actor.functions().next().is_some_and(|name| name == "synchronize")
}
