//! blocked-send: a send waits for a reader that does not read or is not there.

use super::{
    finding::{Case, Finding, Weighed, contradicts},
    scene::{Actor, Scene},
    weights, words,
};
use crate::model::{
    Process, SocketFamily, Wait, WaitKind,
    format::humane,
    report::{End, Family, Status},
};

/// The kernel tells a process's start in hundredths of a second.
const START_TICK_NS: u64 = 10_000_000;
/// Most peers named.
const MOST_PEERS: usize = 3;

pub(super) fn weigh(scene: &Scene<'_>) -> Weighed {
    let senders: Vec<Actor<'_>> =
        scene.actors().filter(|actor| actor.resolved.wait.kind == WaitKind::SocketSend).collect();
    let findings = senders.iter().filter_map(|sender| finding(scene, sender)).collect();
    let why = match senders.len() {
        0 => "no thread waits in a send".to_owned(),
        number => {
            format!("{} in a send, none stands there without a deadline", words::count(number, "thread"))
        }
    };
    Weighed::or_refuted(Family::BlockedSend, findings, why.clone(), vec![contradicts("waits", why)])
}

fn finding(scene: &Scene<'_>, sender: &Actor<'_>) -> Option<Finding> {
    let wait = &sender.resolved.wait;
    if !sender.stands() || !sender.has_no_near_deadline() {
        return None;
    }
    let mut case = Case::default();
    case.support(
        weights::SEND_STANDS,
        "waits",
        format!("{} is {}", words::thread(sender), words::detail(sender)),
    );
    if sender.serves() {
        let role = sender.rule.map(|rule| rule.role.as_str()).unwrap_or_default();
        case.support(
            weights::SENDER_SERVES,
            "knowledge",
            format!("it is the {role} thread: while it stands, others are not served"),
        );
    }
    if let Some(fact) = no_reader(scene, sender, wait) {
        case.support(weights::NO_READER, "sockets", fact);
    }
    if let Some(bytes) = wait.send_queue.filter(|&bytes| bytes > 0) {
        case.support(weights::SEND_QUEUE_FULL, "sockets", format!("{bytes} bytes wait in its send queue"));
    }
    for fact in younger_peers(scene, sender) {
        case.support(0.0, "processes", fact);
    }
    let age = weights::for_long(sender.blocked_ns());
    if age > 0.0 {
        case.support(age, "waits", "it has stood there for longer than a slow reader needs");
    }
    let ends = vec![sender.end()];
    let mut victims = scene.victims(&ends);
    let likely = scene.standing_in_ownerless_locks(sender.process.pid, &ends);
    let holds = likely.iter().filter(|end| !victims.contains(end)).count();
    victims.extend(likely.into_iter().filter(|end| !victims.contains(end)).collect::<Vec<_>>());
    if !victims.is_empty() {
        let inferred = match holds {
            0 => String::new(),
            number => format!("; {number} in a lock without a known owner, which it may hold [likely]"),
        };
        let fact = format!("{} behind it{inferred}", words::count(victims.len(), "waiting thread"));
        case.support(weights::SENDER_BLOCKS_OTHERS, "waits", fact);
    }
    let since = sender.blocked_ns().map(|ns| format!(" for {}", humane(ns))).unwrap_or_default();
    let summary = format!(
        "{} has stood{since}{} without a deadline: {}",
        words::thread(sender),
        words::in_place(sender),
        words::object(sender)
    );
    Some(Finding {
        family: Family::BlockedSend,
        status: Status::Wedged,
        confidence: case.confidence(),
        summary,
        culprits: vec![sender.party()],
        victims: scene.parties(&victims),
        culprit_ends: ends,
        victim_ends: victims,
        action: scene.action(
            Family::BlockedSend,
            Some(sender.process),
            sender.rule.map(|rule| rule.role.as_str()),
        ),
        evidence: case.evidence,
        would_settle: None,
    })
}

/// Peers that were started after the send began: it waits for what was there before them.
fn younger_peers(scene: &Scene<'_>, sender: &Actor<'_>) -> Vec<String> {
    // Where the other end is known, it is there.
    let Some(blocked) = sender.blocked_ns().filter(|_| sender.resolved.wait.owners.is_empty()) else {
        return Vec::new();
    };
    let began = scene.capture.window.ended_unix_ns().saturating_sub(blocked);
    let after = |process: &&Process| process.start_unix_ns >= began.saturating_add(START_TICK_NS);
    let peers = super::relations::peers(scene, sender.process);
    let younger = peers.into_iter().filter(after).take(MOST_PEERS);
    younger
        .map(|process| {
            format!(
                "{} was started {} after the send began: it waits for the one before it [likely]",
                words::process(process),
                humane(process.start_unix_ns - began)
            )
        })
        .collect()
}

/// Why nobody reads, where that can be seen.
fn no_reader(scene: &Scene<'_>, sender: &Actor<'_>, wait: &Wait) -> Option<String> {
    if let Some(state) = wait.socket_state.as_deref().filter(|state| *state != "ESTABLISHED") {
        return Some(format!("the connection is {state}"));
    }
    let peers: Vec<End> = scene.graph.from(sender.end()).map(|edge| edge.to).collect();
    let stopped =
        |end: &&End| scene.of(end.pid).next().is_some() && scene.of(end.pid).all(|actor| actor.is_stopped());
    if let Some(end) = peers.iter().find(stopped) {
        return Some(format!("{} at the other end is stopped", process_name(scene, *end)));
    }
    if wait.inode.is_some() && wait.socket_state.is_some() {
        return None;
    }
    // ZeroMQ waits on an eventfd of its own, and with a high-water mark of 0 it waits only while no peer is connected.
    (wait.inode.is_none() && !has_connection(scene, sender.process)).then(|| {
        "no TCP connection of its process is established: a message socket whose peer is gone has none to send on".into()
    })
}

/// Whether the process has an established TCP connection; true where no sockets were read.
fn has_connection(scene: &Scene<'_>, process: &Process) -> bool {
    let own = process.socket_inodes();
    let mut sockets = scene.capture.sockets.iter().filter(|socket| own.contains(&socket.inode)).peekable();
    sockets.peek().is_none()
        || sockets.any(|socket| {
            socket.state == "ESTABLISHED" && matches!(socket.family, SocketFamily::Inet | SocketFamily::Inet6)
        })
}

fn process_name(scene: &Scene<'_>, end: End) -> String {
    match (
        scene.capture.process(end.pid),
        scene.capture.bystanders.iter().find(|beside| beside.pid == end.pid),
    ) {
        (Some(process), _) => words::process(process),
        (None, Some(beside)) => format!("{} (pid {})", beside.comm, beside.pid),
        (None, None) => format!("pid {}", end.pid),
    }
}
