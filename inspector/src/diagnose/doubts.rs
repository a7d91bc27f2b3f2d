//! What was seen beside a healthy verdict that a wedge explains as well as work does. Too little to accuse anybody, and
//! too much to keep from whoever knows that requests hang.

use std::collections::BTreeSet;

use super::{
    finding::contradicts,
    scene::{Actor, Scene},
    thread_died, words,
};
use crate::model::{Process, Socket, format, report::Evidence};

/// Most facts of one kind: a fleet whose network is down has thousands of silent connections.
const MOST: usize = 4;

/// Retransmissions in a row without an answer: the third is sent more than a second after the first byte.
const SILENCE: u32 = 3;

/// Periods of a quota that are too few to say anything about it.
const FEW_PERIODS: u64 = 3;

/// The facts; none where nothing is odd.
pub(super) fn doubts(scene: &Scene<'_>) -> Vec<Evidence> {
    let mut facts: Vec<Evidence> = thread_died::uncounted(scene).into_iter().take(MOST).collect();
    facts.extend(scene.actors().filter_map(|actor| transfer(&actor)).take(MOST));
    let serving = scene.capture.processes.iter().filter(|process| scene.serves(process));
    facts.extend(serving.flat_map(|process| unanswered(scene, process)).take(MOST));
    facts.extend(throttled(scene));
    facts
}

/// Cgroups whose CPU quota is used up in most periods: whatever runs in them stands still for part of each.
pub(super) fn throttled(scene: &Scene<'_>) -> Vec<Evidence> {
    let mut told = BTreeSet::new();
    let of = |process: &Process| {
        let quotas = process.cpu_quotas.iter();
        let short = quotas.filter(|quota| quota.is_short() && quota.periods >= FEW_PERIODS);
        short.map(|quota| (words::process(process), quota.clone())).collect::<Vec<_>>()
    };
    let all = scene.capture.processes.iter().flat_map(of);
    let once = all.filter(|(_, quota)| told.insert(quota.cgroup.clone())).take(MOST);
    let fact = |(name, quota)| {
        let fact = format!(
            "{name} gets too little CPU time: the quota of cgroup {}; what it does takes longer by that, and its peers' \
             time-outs may run out",
            format::quota(&quota)
        );
        contradicts("cgroups", fact)
    };
    once.map(fact).collect()
}

/// A thread that waits for the other end of a transfer.
fn transfer(actor: &Actor<'_>) -> Option<Evidence> {
    let function = actor.waits_for_peer()?;
    let fact = format!(
        "{} polls for its peer in {function}: a transfer under way looks like that, and so does one that hangs; look \
         again in a minute",
        words::thread(actor)
    );
    Some(contradicts("threads", fact))
}

/// Connections of a process whose other end does not answer.
fn unanswered(scene: &Scene<'_>, process: &Process) -> Vec<Evidence> {
    let inodes = process.socket_inodes();
    let silent = |socket: &&Socket| {
        inodes.contains(&socket.inode) && (socket.state == "SYN_SENT" || socket.retransmits >= SILENCE)
    };
    let fact = |socket: &Socket| {
        let (local, remote, state) = (&socket.local, &socket.remote, &socket.state);
        let fact = format!("{}: nobody answers on {local} → {remote} {state}", words::process(process));
        contradicts("sockets", fact)
    };
    scene.capture.sockets.iter().filter(silent).take(MOST).map(fact).collect()
}
