//! Dated facts, in order: when processes were started, since when something stands.

use std::collections::BTreeMap;

use super::{
    scene::{Actor, Scene},
    words,
};
use crate::model::{
    Process, WaitKind,
    probes::ThreadExit,
    report::{Event, Party, Verdict},
};

/// Most events.
const MAX_EVENTS: usize = 64;
/// Most names in one event.
const MAX_NAMES: usize = 4;
/// Processes that were started within this of each other were started together, nanoseconds: loading a model takes minutes,
/// its processes start one after the other.
const TOGETHER_NS: u64 = 60_000_000_000;

/// What was started when, and since when culprits, and the victims that stand still, do so. Victims that poll stand since
/// nothing.
pub(super) fn timeline(scene: &Scene<'_>, verdict: &Verdict) -> Vec<Event> {
    let mut events: Vec<Event> =
        verdict.culprits.iter().filter_map(|party| stall(scene, party, true)).collect();
    events.extend(starts(scene, &events));
    events.extend(verdict.victims.iter().filter_map(|party| stall(scene, party, false)));
    events.extend(ends(scene));
    events.sort_by_key(|event| (event.at_unix_ns, event.pid, event.tid));
    events.dedup();
    // The latest events are the ones that matter.
    let surplus = events.len().saturating_sub(MAX_EVENTS);
    events.drain(..surplus);
    events
}

/// Threads that ended while they were watched: each by itself, or of a process that ends many of them, all in one event.
fn ends(scene: &Scene<'_>) -> Vec<Event> {
    let Some(probes) = &scene.capture.probes else { return Vec::new() };
    let mut by_process: BTreeMap<u32, Vec<&ThreadExit>> = BTreeMap::new();
    for exit in &probes.exits {
        by_process.entry(exit.pid).or_default().push(exit);
    }
    let mut events = Vec::new();
    for (pid, exits) in by_process {
        let Some(process) = scene.capture.process(pid) else { continue };
        let name = words::process(process);
        let event = |exit: &ThreadExit, tid, text| Event {
            at_unix_ns: scene.capture.window.started_unix_ns.saturating_add(exit.at_ns),
            pid: Some(pid),
            tid,
            text,
        };
        if exits.len() <= MAX_NAMES {
            events.extend(exits.iter().map(|exit| event(exit, Some(exit.tid), ended(exit, &name))));
        } else if let Some(last) = exits.last() {
            events.push(event(last, None, format!("{} threads of {name} ended", exits.len())));
        }
    }
    events
}

fn ended(exit: &ThreadExit, process: &str) -> String {
    let signal = exit.signal.map(|signal| format!(" by signal {signal}")).unwrap_or_default();
    format!("thread {} (tid {}) of {process} ended{signal}", exit.comm, exit.tid)
}

/// One event for processes that were started together, with no stall between them: what tells is who was started apart
/// from the others.
fn starts(scene: &Scene<'_>, stalls: &[Event]) -> Vec<Event> {
    let mut processes: Vec<&Process> =
        scene.capture.processes.iter().filter(|process| process.start_unix_ns > 0).collect();
    processes.sort_by_key(|process| (process.start_unix_ns, process.pid));
    let together = |a: &&Process, b: &&Process| {
        let between = |stall: &Event| (a.start_unix_ns..b.start_unix_ns).contains(&stall.at_unix_ns);
        b.start_unix_ns - a.start_unix_ns <= TOGETHER_NS && !stalls.iter().any(between)
    };
    processes.chunk_by(together).filter_map(started).collect()
}

fn started(group: &[&Process]) -> Option<Event> {
    let last = group.last()?;
    let names: Vec<String> = group.iter().take(MAX_NAMES).map(|process| words::process(process)).collect();
    let more = match group.len().saturating_sub(MAX_NAMES) {
        0 => String::new(),
        number => format!(" and {number} more"),
    };
    Some(Event {
        at_unix_ns: last.start_unix_ns,
        pid: (group.len() == 1).then_some(last.pid),
        tid: None,
        text: format!("started: {}{more}", names.join(", ")),
    })
}

/// Since when a party stands: a thread since it blocked, a stopped process since the last of its threads ran.
fn stall(scene: &Scene<'_>, party: &Party, culprit: bool) -> Option<Event> {
    let end = scene.capture.window.ended_unix_ns();
    let pid = party.pid?;
    let (since, text) = match party.tid {
        Some(tid) => {
            let actor = scene.of(pid).find(|actor| actor.thread.tid == tid)?;
            (
                standing(&actor, culprit)?,
                format!("STALL {}: {}", words::thread(&actor), words::object(&actor)),
            )
        }
        None if culprit && scene.of(pid).next().is_some_and(|actor| actor.is_stopped()) => {
            let since = scene.of(pid).filter_map(|actor| actor.blocked_ns()).min()?;
            (since, format!("STALL {} ran for the last time", words::process(scene.capture.process(pid)?)))
        }
        None => return None,
    };
    Some(Event { at_unix_ns: end.saturating_sub(since), pid: Some(pid), tid: party.tid, text })
}

/// A waiter for the GIL, and whoever runs, has not stood since anything.
fn standing(actor: &Actor<'_>, culprit: bool) -> Option<u64> {
    let moves = matches!(actor.resolved.wait.kind, WaitKind::Gil | WaitKind::Running | WaitKind::Throttled);
    actor.blocked_ns().filter(|_| !moves && (culprit || actor.stands()))
}
