//! Who cannot go on without whom, where no thread blocks: engines poll.

use super::scene::Scene;
use crate::model::{Process, report::End};

/// Most generations looked up.
const MAX_DEPTH: usize = 16;

/// Processes that cannot serve while `stopped` stands still, the nearest first, each with the reason: those of its own
/// tree that need its kind, those of other trees that exchange KV or requests with it, and those that need one of these.
pub(super) fn dependents<'a>(scene: &Scene<'a>, stopped: &Process) -> Vec<(&'a Process, String)> {
    let mut found: Vec<(&Process, String)> = Vec::new();
    let mut queue: Vec<&Process> = scene.capture.process(stopped.pid).into_iter().collect();
    let mut next = 0;
    while let Some(&cause) = queue.get(next) {
        next += 1;
        for process in &scene.capture.processes {
            let known = process.pid == stopped.pid || found.iter().any(|(known, _)| known.pid == process.pid);
            if known {
                continue;
            }
            // Peers are hurt by the stopped process itself only: one that merely waits still answers its own peers.
            if let Some(reason) = needs(scene, process, cause, cause.pid == stopped.pid) {
                found.push((process, reason));
                queue.push(process);
            }
        }
    }
    found
}

fn needs(scene: &Scene<'_>, process: &Process, cause: &Process, as_peer: bool) -> Option<String> {
    let (rule, worker) = (scene.rule(process)?, cause.worker.as_ref()?);
    let lists = |list: &[toml::Spanned<String>]| list.iter().any(|kind| *kind.get_ref() == worker.kind);
    let same_tree = root(scene, process) == root(scene, cause);
    let cause_name = super::words::process(cause);
    if same_tree && lists(&rule.waits_for) {
        return Some(format!("cannot answer without {cause_name}"));
    }
    if as_peer && !same_tree && lists(&rule.peers_with) && same_engine(process, cause) {
        return match connected(scene, process, cause) {
            Some(true) => Some(format!("polls for {cause_name}, which it is connected to")),
            Some(false) if process.worker.as_ref()?.role == worker.role => None,
            _ => Some(format!("polls for {cause_name}, the other half")),
        };
    }
    None
}

/// The other half: processes of other trees of the same engine that this one exchanges KV or requests with.
pub(super) fn peers<'a>(scene: &Scene<'a>, process: &Process) -> Vec<&'a Process> {
    let Some(rule) = scene.rule(process) else { return Vec::new() };
    let own = root(scene, process);
    let is_peer = |other: &&Process| {
        let kind = other.worker.as_ref().map(|worker| worker.kind.as_str());
        rule.peers_with.iter().any(|peer| Some(peer.get_ref().as_str()) == kind)
            && same_engine(process, other)
            && root(scene, other) != own
    };
    scene.capture.processes.iter().filter(is_peer).collect()
}

fn same_engine(a: &Process, b: &Process) -> bool {
    a.worker.as_ref().zip(b.worker.as_ref()).is_some_and(|(a, b)| a.engine == b.engine)
}

/// The topmost captured ancestor: the engine's launcher.
pub(super) fn root(scene: &Scene<'_>, process: &Process) -> u32 {
    let mut root = process.pid;
    let mut parent = process.ppid;
    for _ in 0..MAX_DEPTH {
        let Some(above) = scene.capture.process(parent).filter(|above| above.worker.is_some()) else { break };
        if above.pid == root {
            break;
        }
        (root, parent) = (above.pid, above.ppid);
    }
    // The launcher may be outside of what was asked for: then siblings share a parent that is not captured.
    if root == process.pid
        && process.ppid > 1
        && process.worker.as_ref().is_some_and(|w| w.flags_from == Some(process.ppid))
    {
        return process.ppid;
    }
    root
}

/// Whether a socket connects the two; `None`: no sockets were read.
fn connected(scene: &Scene<'_>, a: &Process, b: &Process) -> Option<bool> {
    if scene.capture.sockets.is_empty() {
        return None;
    }
    let (of_a, of_b) = (a.socket_inodes(), b.socket_inodes());
    Some(scene.capture.sockets.iter().any(|socket| {
        of_a.contains(&socket.inode) && socket.peer_inode.is_some_and(|peer| of_b.contains(&peer))
    }))
}

/// Threads that wait for the other end of a transfer, in processes that may be waiting for `stopped`.
pub(super) fn transfer_waiters(scene: &Scene<'_>, stopped: &Process) -> Vec<(End, String)> {
    let near = root(scene, stopped);
    scene
        .actors()
        .filter(|actor| actor.process.pid != stopped.pid && same_engine(actor.process, stopped))
        .filter_map(|actor| {
            let function = actor.waits_for_peer()?;
            // A thread of the same tree waits for the stopped one only if its process needs that kind.
            let same_tree = root(scene, actor.process) == near;
            let wanted = needs(scene, actor.process, stopped, true).is_some();
            (wanted || !same_tree).then(|| (actor.end(), format!("waits for its peer in {function}")))
        })
        .collect()
}
