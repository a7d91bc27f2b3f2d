//! What all families look at: processes and threads with what knowledge says of them.

use std::collections::{BTreeMap, HashMap};

use super::{Input, weights, words};
use crate::{
    graph::WaitGraph,
    knowledge::{Knowledge, ProcessRule, ThreadRule, last_component},
    model::{
        Capture, Owner, Process, PythonThread, TaskState, Thread, Wait, WaitKind,
        report::{End, Party, PartyKind},
    },
    resolve::ResolvedThread,
};

/// One thread with everything that is known of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Actor<'a> {
    pub(super) process: &'a Process,
    pub(super) thread: &'a Thread,
    pub(super) resolved: &'a ResolvedThread,
    pub(super) rule: Option<&'a ThreadRule>,
    pub(super) idle: bool,
}

/// The whole capture, indexed.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    pub(super) capture: &'a Capture,
    pub(super) graph: &'a WaitGraph,
    pub(super) knowledge: &'a Knowledge,
    actors: BTreeMap<(u32, u32), Actor<'a>>,
}

/// What a process's main thread says of its start-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Startup {
    /// It is in its event loop.
    Over,
    /// It is somewhere else.
    Outside,
    /// Its stack could not be read to its outer end.
    NotSeen,
}

impl<'a> Scene<'a> {
    pub(super) fn new(input: &Input<'a>) -> Self {
        let Input { capture, graph, knowledge, .. } = *input;
        let threads: HashMap<(u32, u32), (&Process, &Thread)> = capture
            .processes
            .iter()
            .flat_map(|process| process.threads.iter().map(move |t| ((process.pid, t.tid), (process, t))))
            .collect();
        let actor = |resolved: &'a ResolvedThread| {
            let &(process, thread) = threads.get(&(resolved.pid, resolved.tid))?;
            let worker = process.worker.as_ref();
            let rule =
                knowledge.thread_rule(worker, python_name(process, thread), &thread.comm, &resolved.frames);
            let idle = !is_stopped(thread, resolved)
                && knowledge.is_idle(worker, rule, &resolved.wait, &resolved.frames);
            Some(((resolved.pid, resolved.tid), Actor { process, thread, resolved, rule, idle }))
        };
        let actors = input.threads.iter().filter_map(actor).collect();
        Self { capture, graph, knowledge, actors }
    }

    /// Every thread, by pid and tid.
    pub(super) fn actors(&self) -> impl Iterator<Item = Actor<'a>> {
        self.actors.values().copied()
    }

    /// The threads of one process.
    pub(super) fn of(&self, pid: u32) -> impl Iterator<Item = Actor<'a>> {
        self.actors.range((pid, 0)..=(pid, u32::MAX)).map(|(_, actor)| *actor)
    }

    /// A thread of the graph.
    pub(super) fn at(&self, end: End) -> Option<Actor<'a>> {
        self.actors.get(&(end.pid, end.tid?)).copied()
    }

    /// The main thread of a process.
    pub(super) fn main(&self, pid: u32) -> Option<Actor<'a>> {
        self.actors.get(&(pid, pid)).copied()
    }

    /// Whether its main thread is in the loop that its kind of process serves from, or its kind has none that is known.
    pub(super) fn startup(&self, process: &Process) -> Startup {
        let ready = self.rule(process).map_or(&[][..], |rule| &rule.ready);
        if ready.is_empty() {
            return Startup::Over;
        }
        let Some(main) = self.main(process.pid) else { return Startup::NotSeen };
        if main.functions().any(|function| ready.iter().any(|pattern| pattern.is_match(function))) {
            return Startup::Over;
        }
        // The loop is near the outer end of the stack: what is cut off comes from there.
        let whole = main.thread.python.as_ref().is_some_and(PythonThread::is_whole);
        if whole { Startup::Outside } else { Startup::NotSeen }
    }

    /// The rule that recognised a process.
    pub(super) fn rule(&self, process: &Process) -> Option<&'a ProcessRule> {
        self.knowledge.rule_of(process.worker.as_ref()?)
    }

    /// It is a worker of a serving engine.
    pub(super) fn serves(&self, process: &Process) -> bool {
        self.rule(process).is_some_and(|rule| !rule.plain)
    }

    /// Those who wait for `culprits`; whoever is in a known idle state waits for work from somewhere, and not for them.
    pub(super) fn victims(&self, culprits: &[End]) -> Vec<End> {
        let mut victims = self.graph.victims(culprits);
        victims.retain(|&end| self.at(end).is_none_or(|actor| !actor.idle));
        victims
    }

    /// The parties for nodes of the graph, in their order; bystanders by their process.
    pub(super) fn parties(&self, ends: &[End]) -> Vec<Party> {
        ends.iter().filter_map(|&end| self.party(end)).collect()
    }

    fn party(&self, end: End) -> Option<Party> {
        if let Some(actor) = self.at(end) {
            return Some(actor.party());
        }
        if let Some(process) = self.capture.process(end.pid) {
            return Some(process_party(
                process,
                format!("{}: {}", words::role(process), state_word(process.state)),
            ));
        }
        let beside = self.capture.bystanders.iter().find(|process| process.pid == end.pid)?;
        Some(Party {
            kind: PartyKind::Process,
            pid: Some(end.pid),
            tid: None,
            thread: None,
            role: Some(beside.comm.clone()),
            detail: format!("{}: {}", beside.comm, state_word(beside.state)),
        })
    }

    /// What to do about a family whose culprit is `actor`, or a whole process.
    pub(super) fn action(
        &self,
        family: crate::model::report::Family,
        process: Option<&Process>,
        thread_role: Option<&str>,
    ) -> String {
        let engine = process.and_then(|process| process.worker.as_ref()).map(|worker| worker.engine.as_str());
        let action = self.knowledge.action(family, engine, thread_role);
        let pid = process.map_or_else(|| "PID".to_owned(), |process| process.pid.to_string());
        action.unwrap_or("Save this report for whoever looks next.").replace("{pid}", &pid)
    }

    /// Threads of `pid`, other than `except`, that stand in a lock whose owner is not known, outside any idle state.
    pub(super) fn standing_in_ownerless_locks(&self, pid: u32, except: &[End]) -> Vec<End> {
        self.standing(pid, |wait| wait.owners.is_empty())
            .into_iter()
            .filter(|end| !except.contains(end))
            .collect()
    }

    /// The same, and those that stand in a lock of Python's whose holders stand still as well.
    pub(super) fn standing_in_locks(&self, pid: u32) -> Vec<End> {
        let still = |owner: &Owner| {
            let holder = self.at(End { pid: owner.pid, tid: owner.tid });
            holder.is_some_and(|holder| holder.has_stood() && holder.resolved.wait.kind != WaitKind::Gil)
        };
        self.standing(pid, |wait| {
            wait.owners.is_empty() || wait.kind == WaitKind::PythonLock && wait.owners.iter().all(still)
        })
    }

    fn standing(&self, pid: u32, fits: impl Fn(&Wait) -> bool) -> Vec<End> {
        self.of(pid)
            .filter(|actor| actor.stands() && fits(&actor.resolved.wait))
            .filter(|actor| {
                matches!(
                    actor.resolved.wait.kind,
                    WaitKind::PythonLock | WaitKind::Semaphore | WaitKind::Mutex
                )
            })
            .filter(|actor| !actor.resolved.wait.has_deadline)
            // Whoever waits on a condition, an event or a queue waits for work, not for a lock's owner.
            .filter(|actor| {
                let inner = actor.functions().next().unwrap_or_default();
                !matches!(inner, "wait" | "get" | "join" | "_wait_for_tstate_lock" | "result" | "_worker")
            })
            .map(|actor| actor.end())
            .collect()
    }
}

impl<'a> Actor<'a> {
    /// The node of the graph.
    pub(super) fn end(&self) -> End {
        End { pid: self.process.pid, tid: Some(self.thread.tid) }
    }

    /// Its Python name, else its `comm`.
    pub(super) fn name(&self) -> &'a str {
        python_name(self.process, self.thread).unwrap_or(&self.thread.comm)
    }

    /// For how long it has been off the CPU.
    pub(super) fn blocked_ns(&self) -> Option<u64> {
        self.thread.off_cpu_ns
    }

    /// It has stood in one wait long enough to be stuck, and is not idle. Running and stopped threads do not stand.
    pub(super) fn stands(&self) -> bool {
        !self.idle && self.has_stood()
    }

    /// The same, idle or not.
    pub(super) fn has_stood(&self) -> bool {
        let wait = &self.resolved.wait;
        let blocked = !matches!(
            wait.kind,
            WaitKind::Running | WaitKind::Stopped | WaitKind::Frozen | WaitKind::Zombie | WaitKind::Throttled
        ) && self.thread.state != TaskState::Running;
        let long = match self.blocked_ns() {
            Some(ns) => ns >= weights::STANDING_NS,
            None => self.thread.activity.unchanged && self.thread.activity.sweeps > 1,
        };
        blocked && long
    }

    /// Nothing but another's act ends its wait in reasonable time.
    pub(super) fn has_no_near_deadline(&self) -> bool {
        let wait = &self.resolved.wait;
        !wait.has_deadline || wait.remaining_ns.is_some_and(|left| left >= weights::FAR_DEADLINE_NS)
    }

    /// It schedules requests.
    pub(super) fn is_scheduler(&self) -> bool {
        self.rule.is_some_and(|rule| rule.scheduler)
    }

    /// It serves others.
    pub(super) fn serves(&self) -> bool {
        self.rule.is_some_and(|rule| rule.serving || rule.scheduler)
    }

    /// The function in which it waits for the other end of a transfer, by its rule.
    pub(super) fn waits_for_peer(&self) -> Option<&'a str> {
        let patterns = &self.rule?.waits_for_peer;
        self.functions().find(|function| patterns.iter().any(|pattern| pattern.is_match(function)))
    }

    /// Its Python functions, innermost first, without their qualification.
    pub(super) fn functions(&self) -> impl Iterator<Item = &'a str> {
        let frames = self.resolved.frames.iter();
        frames
            .filter(|frame| frame.kind == crate::model::FrameKind::Python)
            .map(|frame| last_component(&frame.function))
    }

    /// It wants a CPU and got none over the whole observation (the host is overloaded), or next to nothing below a quota that
    /// is used up.
    pub(super) fn is_starved(&self) -> bool {
        let activity = &self.thread.activity;
        if self.resolved.wait.kind == WaitKind::Throttled {
            return activity.cpu_ns.is_some_and(|ns| ns < weights::NEXT_TO_NO_CPU_NS);
        }
        activity.sweeps > 1 && activity.running == activity.sweeps && activity.cpu_ns == Some(0)
    }

    /// It runs, or would if it got a CPU.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.resolved.wait.kind, WaitKind::Running | WaitKind::Throttled)
    }

    /// It is stopped or frozen.
    pub(super) fn is_stopped(&self) -> bool {
        is_stopped(self.thread, self.resolved)
    }

    /// As culprit or victim.
    pub(super) fn party(&self) -> Party {
        self.party_with(words::detail(self))
    }

    /// The same with a detail of its own.
    pub(super) fn party_with(&self, detail: String) -> Party {
        Party {
            kind: PartyKind::Thread,
            pid: Some(self.process.pid),
            tid: Some(self.thread.tid),
            thread: Some(self.name().to_owned()),
            role: Some(words::role(self.process)),
            detail,
        }
    }
}

/// A whole process as culprit or victim.
pub(super) fn process_party(process: &Process, detail: String) -> Party {
    Party {
        kind: PartyKind::Process,
        pid: Some(process.pid),
        tid: None,
        thread: None,
        role: Some(words::role(process)),
        detail,
    }
}

/// A thread's Python name; the main thread's where Python has a thread state for it that `threading` could not be
/// asked about.
fn python_name<'a>(process: &Process, thread: &'a Thread) -> Option<&'a str> {
    let python = thread.python.as_ref()?;
    python.name.as_deref().or_else(|| (thread.tid == process.pid).then_some("MainThread"))
}

fn is_stopped(thread: &Thread, resolved: &ResolvedThread) -> bool {
    matches!(thread.state, TaskState::Stopped | TaskState::Traced)
        || matches!(resolved.wait.kind, WaitKind::Stopped | WaitKind::Frozen)
}

/// A state in a word.
pub(super) fn state_word(state: TaskState) -> &'static str {
    match state {
        TaskState::Unknown => "state not known",
        TaskState::Running => "running",
        TaskState::Sleeping | TaskState::Idle | TaskState::Parked => "sleeping",
        TaskState::Disk => "in uninterruptible sleep",
        TaskState::Stopped => "stopped by a signal",
        TaskState::Traced => "stopped by a tracer",
        TaskState::Zombie | TaskState::Dead => "ended",
    }
}
