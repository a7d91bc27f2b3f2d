//! peer-stopped: a process is stopped by a signal, a tracer or the freezer, and others wait for it.

use super::{
    finding::{Case, Finding, Weighed, contradicts},
    relations,
    scene::{Scene, process_party, state_word},
    weights, words,
};
use crate::model::{
    Process, TaskState, WaitKind,
    format::humane,
    report::{End, Family, Party, PartyKind, Status},
};

/// How a process is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Signal,
    Tracer,
    Freezer,
}

pub(super) fn weigh(scene: &Scene<'_>) -> Weighed {
    let mut findings: Vec<Finding> = scene
        .capture
        .processes
        .iter()
        .filter_map(|process| Some(finding(scene, process, held(scene, process)?)))
        .collect();
    findings.extend(bystanders(scene));
    let number = scene.capture.processes.len();
    let why = format!("none of {} is stopped or frozen", words::count(number, "process"));
    Weighed::or_refuted(Family::PeerStopped, findings, why.clone(), vec![contradicts("processes", why)])
}

/// Whether every thread of a process is held: one alone would be a debugger's single step.
fn held(scene: &Scene<'_>, process: &Process) -> Option<Held> {
    let alive = || {
        scene
            .of(process.pid)
            .filter(|actor| !matches!(actor.thread.state, TaskState::Zombie | TaskState::Dead))
    };
    if process.frozen == Some(true)
        || (alive().next().is_some() && alive().all(|actor| actor.resolved.wait.kind == WaitKind::Frozen))
    {
        return Some(Held::Freezer);
    }
    let by_state = |state| match state {
        TaskState::Stopped => Some(Held::Signal),
        TaskState::Traced => Some(Held::Tracer),
        _ => None,
    };
    let Some(first) = alive().next() else { return by_state(process.state) };
    let held = by_state(first.thread.state)?;
    let all = alive().all(|actor| by_state(actor.thread.state).is_some());
    // Stopped by a signal, and traced as well: the tracer decides when it goes on.
    let traced = alive().any(|actor| by_state(actor.thread.state) == Some(Held::Tracer));
    all.then_some(if traced { Held::Tracer } else { held })
}

fn finding(scene: &Scene<'_>, process: &Process, held: Held) -> Finding {
    let mut case = Case::default();
    let name = words::process(process);
    let how = match held {
        Held::Signal => "stopped by a signal (state T)".to_owned(),
        Held::Freezer => {
            let cgroup = process.frozen_cgroups.first().or(process.cgroup.as_ref());
            let cgroup = cgroup.map(|path| format!(" {path}")).unwrap_or_default();
            format!("frozen with its cgroup{cgroup}")
        }
        Held::Tracer if process.tracer_pid != 0 => {
            format!("stopped by its tracer, pid {}", process.tracer_pid)
        }
        Held::Tracer => "stopped by a tracer (state t)".into(),
    };
    let weight = match held {
        Held::Signal => weights::STOPPED_BY_SIGNAL,
        Held::Freezer => weights::FROZEN,
        Held::Tracer => weights::TRACED,
    };
    case.support(weight, "processes", format!("{name} is {how}"));
    let since = scene.of(process.pid).filter_map(|actor| actor.blocked_ns()).min();
    let unchanged = scene.of(process.pid).next().is_some()
        && scene
            .of(process.pid)
            .all(|actor| actor.thread.activity.unchanged && actor.thread.activity.sweeps > 1);
    if unchanged || since.is_some_and(|ns| ns >= weights::STANDING_NS) {
        let fact = match since {
            Some(ns) => format!("none of its threads has run for {}", humane(ns)),
            None => "none of its threads ran while inspector watched".into(),
        };
        case.support(weights::STOP_LASTS, "threads", fact);
    }

    let ends = vec![End { pid: process.pid, tid: None }];
    let (victims, victim_ends) = victims(scene, process);
    let is_worker = process.worker.as_ref().is_some_and(|worker| worker.engine != "python");
    if victims.is_empty() && !is_worker && scene.capture.processes.len() > 1 {
        case.contradict(
            weights::STOP_IS_NOBODYS,
            "processes",
            "it is no worker of a known engine and nobody is seen to wait for it",
        );
    }
    if !victims.is_empty() {
        case.support(
            weights::STOP_HURTS,
            "processes",
            format!("{} behind it", words::count(victims.len(), "other")),
        );
    }
    let waiting = match victims.len() {
        0 => String::new(),
        1 => "; one other waits for it".into(),
        number => format!("; {number} others wait for it"),
    };
    let since = since.map(|ns| format!(" for {}", humane(ns))).unwrap_or_default();
    let alive_twin = scene.capture.processes.iter().any(|other| {
        let same = other.worker.as_ref().zip(process.worker.as_ref()).is_some_and(|(a, b)| {
            (&a.engine, &a.kind, &a.role) == (&b.engine, &b.kind, &b.role) && a.role.is_some()
        });
        same && relations::root(scene, other) != relations::root(scene, process)
            && self::held(scene, other).is_none()
    });
    Finding {
        family: Family::PeerStopped,
        status: if alive_twin { Status::Degraded } else { Status::Wedged },
        confidence: case.confidence(),
        summary: format!("{name} has been {how}{since}{waiting}"),
        culprits: vec![process_party(process, format!("{how}{since}"))],
        victims,
        culprit_ends: ends,
        victim_ends,
        action: scene.action(Family::PeerStopped, Some(process), None),
        evidence: case.evidence,
        would_settle: (held == Held::Tracer)
            .then(|| "a second look: a profiler's stops last milliseconds".into()),
    }
}

/// Who waits for a stopped process: by edges of the graph, by its place in the engine, in the middle of a transfer.
fn victims(scene: &Scene<'_>, process: &Process) -> (Vec<Party>, Vec<End>) {
    let mut parties: Vec<Party> = Vec::new();
    let mut ends: Vec<End> = Vec::new();
    let mut add = |end: End, party: Option<Party>| {
        if !ends.contains(&end) {
            ends.push(end);
            parties.extend(party);
        }
    };
    for (end, why) in relations::transfer_waiters(scene, process) {
        add(end, scene.at(end).map(|actor| actor.party_with(format!("{why}; {}", words::detail(&actor)))));
    }
    for end in scene.graph.victims(&[End { pid: process.pid, tid: None }]) {
        if end.pid != process.pid && scene.at(end).is_some_and(|actor| !actor.idle) {
            add(end, scene.at(end).map(|actor| actor.party()));
        }
    }
    for (other, why) in relations::dependents(scene, process) {
        let end = End { pid: other.pid, tid: Some(other.pid) };
        let party = scene
            .main(other.pid)
            .map_or_else(|| process_party(other, why.clone()), |main| main.party_with(why.clone()));
        add(end, Some(party));
    }
    (parties, ends)
}

/// Processes outside the scope that are stopped while a thread inside it stands waiting for them.
fn bystanders(scene: &Scene<'_>) -> Vec<Finding> {
    let stopped = scene
        .capture
        .bystanders
        .iter()
        .filter(|beside| matches!(beside.state, TaskState::Stopped | TaskState::Traced));
    stopped
        .filter_map(|beside| {
            let end = End { pid: beside.pid, tid: None };
            let victims: Vec<End> = scene
                .graph
                .victims(&[end])
                .into_iter()
                .filter(|&victim| {
                    scene.at(victim).is_some_and(|actor| actor.stands() && actor.has_no_near_deadline())
                })
                .collect();
            let first = scene.at(*victims.first()?)?;
            let mut case = Case::default();
            let (how, weight) = match beside.state {
                TaskState::Stopped => (state_word(TaskState::Stopped), weights::STOPPED_BY_SIGNAL),
                other => (state_word(other), weights::TRACED),
            };
            case.support(weight, "processes", format!("{} (pid {}) is {how}", beside.comm, beside.pid));
            case.support(
                weights::STOP_HURTS,
                "waits",
                format!("{} is {}", words::thread(&first), words::detail(&first)),
            );
            Some(Finding {
                family: Family::PeerStopped,
                status: Status::Wedged,
                confidence: case.confidence(),
                summary: format!(
                    "{} (pid {}) is {how}; {} waits for it",
                    beside.comm,
                    beside.pid,
                    words::thread(&first)
                ),
                culprits: vec![Party {
                    kind: PartyKind::Process,
                    pid: Some(beside.pid),
                    tid: None,
                    thread: None,
                    role: Some(beside.comm.clone()),
                    detail: how.to_owned(),
                }],
                victims: scene.parties(&victims),
                culprit_ends: vec![end],
                victim_ends: victims,
                action: scene.action(Family::PeerStopped, None, None),
                evidence: case.evidence,
                would_settle: None,
            })
        })
        .collect()
}
