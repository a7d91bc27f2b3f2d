//! Dated facts, in order.

use super::{scene::Scene, words};
use crate::model::{
    WaitKind,
    report::{Event, Verdict},
};

/// Most events.
const MAX_EVENTS: usize = 64;

/// When the workers were started, since when culprits and victims stand, when inspector looked.
pub(super) fn timeline(scene: &Scene<'_>, verdict: &Verdict) -> Vec<Event> {
    let end = scene.capture.window.ended_unix_ns();
    let mut events: Vec<Event> = scene
        .capture
        .processes
        .iter()
        .filter(|process| process.start_unix_ns > 0)
        .map(|process| Event {
            at_unix_ns: process.start_unix_ns,
            pid: Some(process.pid),
            tid: None,
            text: format!("{} was started", words::process(process)),
        })
        .collect();
    for party in verdict.culprits.iter().chain(&verdict.victims) {
        let (Some(pid), Some(tid)) = (party.pid, party.tid) else { continue };
        let Some(actor) = scene.of(pid).find(|actor| actor.thread.tid == tid) else { continue };
        // A waiter for the GIL, and whoever runs, has not stood since anything.
        let Some(blocked) = actor.blocked_ns().filter(|_| actor.resolved.wait.kind != WaitKind::Gil) else {
            continue;
        };
        events.push(Event {
            at_unix_ns: end.saturating_sub(blocked),
            pid: Some(pid),
            tid: Some(tid),
            text: format!("{} began to wait: {}", words::thread(&actor), words::waits_on(&actor)),
        });
    }
    events.sort_by_key(|event| (event.at_unix_ns, event.pid, event.tid));
    events.dedup();
    // The latest events are the ones that matter.
    let surplus = events.len().saturating_sub(MAX_EVENTS);
    events.drain(..surplus);
    events
}
