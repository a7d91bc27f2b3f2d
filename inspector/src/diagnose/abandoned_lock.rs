//! A mutex whose owner is no thread of the process any more: nobody is left to release it. The family is thread-died.

use std::collections::BTreeMap;

use super::{
    finding::{Case, Finding},
    scene::{Actor, Scene},
    weights, words,
};
use crate::model::report::{End, Family, Party, PartyKind, Status};

/// One finding for each owner that is gone and the mutex that it left locked.
pub(super) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    let mut waiters: BTreeMap<(u32, u32, u64), Vec<Actor<'_>>> = BTreeMap::new();
    // Whoever has just come may wait for an owner that is younger than the list of threads.
    for actor in scene.actors().filter(|actor| actor.stands() && actor.thread.activity.unchanged) {
        let wait = &actor.resolved.wait;
        if let (Some(owner), Some(address)) = (wait.owner_gone, wait.address) {
            waiters.entry((actor.process.pid, owner, address)).or_default().push(actor);
        }
    }
    waiters.into_iter().filter_map(|((_, owner, _), waiters)| finding(scene, owner, &waiters)).collect()
}

fn finding(scene: &Scene<'_>, owner: u32, waiters: &[Actor<'_>]) -> Option<Finding> {
    let first = waiters.first()?;
    let process = first.process;
    let mut case = Case::default();
    case.support(
        weights::ABANDONED_LOCK,
        "waits",
        format!("{} is {}", words::thread(first), words::detail(first)),
    );
    let longest = waiters.iter().filter_map(Actor::blocked_ns).max();
    case.support(
        weights::for_long(longest),
        "threads",
        format!("{} in it", words::count(waiters.len(), "thread")),
    );
    let mut victim_ends: Vec<End> = waiters.iter().map(Actor::end).collect();
    let behind = scene.victims(&victim_ends);
    victim_ends.extend(behind);
    Some(Finding {
        family: Family::ThreadDied,
        status: Status::Wedged,
        confidence: case.confidence(),
        summary: format!(
            "tid {owner} of {} is gone and left a mutex locked that {} for",
            words::process(process),
            if waiters.len() == 1 {
                "a thread waits".to_owned()
            } else {
                format!("{} threads wait", waiters.len())
            },
        ),
        culprits: vec![Party {
            kind: PartyKind::MissingPeer,
            pid: Some(process.pid),
            tid: None,
            thread: Some(format!("tid {owner}")),
            role: Some(words::role(process)),
            detail: "gone: it ended while it held the mutex, or the process was forked meanwhile".into(),
        }],
        victims: scene.parties(&victim_ends),
        culprit_ends: Vec::new(),
        victim_ends,
        action: format!(
            "Save this report and restart process {}: nobody can release the mutex. The fix is to unlock on every way out of \
             the thread (or to lock nothing across fork).",
            process.pid
        ),
        evidence: case.evidence,
        would_settle: Some("a second look in a minute: the same threads stand in the same mutex".into()),
    })
}
