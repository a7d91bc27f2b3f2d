//! Threads that stand where no family says why, and where it is not fine either.

use super::{
    finding::supports,
    scene::{Actor, Scene},
    weights, words,
};
use crate::model::{Process, TaskState, WaitKind, report::Evidence};

/// What is suspicious, what to do, the facts.
pub(super) type Suspicion = (String, &'static str, Vec<Evidence>);

/// The first such thread or process.
pub(super) fn suspicion(scene: &Scene<'_>) -> Option<Suspicion> {
    serving_thread(scene)
        .or_else(|| scene.capture.processes.iter().find_map(|process| whole_process(scene, process)))
}

/// A thread that serves others has stood in a lock, or in the kernel, for longer than patience explains.
fn serving_thread(scene: &Scene<'_>) -> Option<Suspicion> {
    let standing = scene.actors().find(|actor| {
        let long = actor.blocked_ns().is_some_and(|ns| ns >= weights::LONG_NS);
        let in_lock = || scene.standing_in_locks(actor.process.pid).contains(&actor.end());
        long && actor.serves() && actor.stands() && (actor.resolved.wait.kind == WaitKind::Disk || in_lock())
    })?;
    let fact = format!("{} is {}", words::thread(&standing), words::detail(&standing));
    let action =
        "Look again in a minute; if it still stands there, save this report and restart the process.";
    Some((fact.clone(), action, vec![supports("waits", fact)]))
}

/// Every thread of a process waits for another one of them, without a deadline, and at least one for a lock: whoever could
/// release it waits too. A signal handler still could, and a program may park its only thread like that: no verdict.
fn whole_process(scene: &Scene<'_>, process: &Process) -> Option<Suspicion> {
    let threads: Vec<Actor<'_>> =
        scene.of(process.pid).filter(|actor| actor.thread.state != TaskState::Zombie).collect();
    let inside = |actor: &Actor<'_>| {
        let wait = &actor.resolved.wait;
        let kinds =
            [WaitKind::PythonLock, WaitKind::Mutex, WaitKind::Rwlock, WaitKind::Condvar, WaitKind::Join];
        actor.stands() && !wait.has_deadline && kinds.contains(&wait.kind)
    };
    let in_lock = scene.standing_in_locks(process.pid);
    let example = threads.iter().find(|actor| in_lock.contains(&actor.end()))?;
    if !threads.iter().all(inside) {
        return None;
    }
    let summary = format!(
        "all {} of {} wait for each other without a deadline; {} is {}",
        words::count(threads.len(), "thread"),
        words::process(process),
        words::thread(example),
        words::detail(example),
    );
    let action = "Read the stacks (`inspector dump`): who took the lock and waits as well? A program that parks its \
                  threads like that on purpose is well.";
    let facts = threads
        .iter()
        .take(8)
        .map(|actor| supports("waits", format!("{} is {}", words::thread(actor), words::detail(actor))));
    Some((summary, action, facts.collect()))
}
