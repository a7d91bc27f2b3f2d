//! A mutex or a read-write lock whose owner is no thread any more: nobody is left to release it. The family is thread-died.

use std::collections::BTreeMap;

use super::{
    finding::{Case, Finding},
    scene::{Actor, Scene},
    weights, words,
};
use crate::model::{
    SharedObject, WaitKind,
    report::{End, Family, Party, PartyKind, Status},
};

/// One finding for each owner that is gone and the mutex that it left locked.
pub(super) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    let mut waiters: BTreeMap<(u32, Lock<'_>), Vec<Actor<'_>>> = BTreeMap::new();
    // Whoever has just come may wait for an owner that is younger than the list of threads.
    for actor in scene.actors().filter(|actor| actor.stands() && actor.thread.activity.unchanged) {
        let wait = &actor.resolved.wait;
        if let (Some(owner), Some(address)) = (wait.owner_gone, wait.address) {
            let own = Lock::Own { pid: actor.process.pid, address };
            let lock = wait.object.as_ref().map_or(own, Lock::Shared);
            waiters.entry((owner, lock)).or_default().push(actor);
        }
    }
    waiters.into_iter().filter_map(|((owner, _), waiters)| finding(scene, owner, &waiters)).collect()
}

/// A lock as those know it who wait for it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Lock<'a> {
    /// In memory of one process.
    Own { pid: u32, address: u64 },
    /// In memory that processes share.
    Shared(&'a SharedObject),
}

fn finding(scene: &Scene<'_>, owner: u32, waiters: &[Actor<'_>]) -> Option<Finding> {
    let first = waiters.first()?;
    let process = first.process;
    let wait = &first.resolved.wait;
    let lock = if wait.kind == WaitKind::Rwlock { "read-write lock" } else { "mutex" };
    let shared = wait.object.is_some();
    // In memory that is shared the owner may have been of any of the processes.
    let (whose, restart) = if shared {
        (
            " of a process that shares memory with".to_owned(),
            "every process that maps that memory, beginning with",
        )
    } else {
        (" of".to_owned(), "process")
    };
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
            "tid {owner}{whose} {} is gone and left a {lock} locked that {} for",
            words::process(process),
            if waiters.len() == 1 {
                "a thread waits".to_owned()
            } else {
                format!("{} threads wait", waiters.len())
            },
        ),
        culprits: vec![Party {
            kind: PartyKind::MissingPeer,
            pid: (!shared).then_some(process.pid),
            tid: None,
            thread: Some(format!("tid {owner}")),
            role: (!shared).then(|| words::role(process)),
            detail: format!("gone: it ended while it held the {lock}, or the process was forked meanwhile"),
        }],
        victims: scene.parties(&victim_ends),
        culprit_ends: Vec::new(),
        victim_ends,
        action: format!(
            "Save this report and restart {restart} {}: nobody can release the {lock}. The fix is to unlock on every way out of \
             the thread (or to lock nothing across fork{}).",
            process.pid,
            if shared { "; a robust mutex survives its owner" } else { "" },
        ),
        evidence: case.evidence,
        would_settle: Some("a second look in a minute: the same threads stand in the same lock".into()),
    })
}
