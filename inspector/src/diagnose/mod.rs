//! Hypotheses, each a file: what supports it, what contradicts it, what would settle it. Pure.
//!
//! Every family looks at the same [`Scene`] and answers with findings or with the reason why it is ruled out. The best
//! explanation is the finding that no other one explains: a stopped process explains those who wait for it, a cycle
//! explains the scheduler inside it ([`choose`]).
//!
//! `healthy` is a verdict like the others: it is given when no finding weighs enough, and its evidence says what was
//! looked at and what was not ([`healthy`]).

mod abandoned_lock;
mod blocked_send;
mod choose;
mod deadlock_cycle;
mod doubts;
mod finding;
mod gil_starvation;
mod healthy;
mod peer_stopped;
mod relations;
mod scene;
mod scheduler_stuck;
mod standing;
mod thread_died;
mod timeline;
mod weights;
mod words;

use std::collections::BTreeMap;

use self::{finding::Weighed, scene::Scene};
use crate::{
    graph::WaitGraph,
    knowledge::Knowledge,
    model::{
        Capture,
        report::{Claim, Event, Hypothesis, MissingThread, Verdict},
    },
    resolve::ResolvedThread,
};

/// What the verdict is made from.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// What was seen.
    pub capture: &'a Capture,
    /// What its threads wait on.
    pub threads: &'a [ResolvedThread],
    /// Who waits for whom.
    pub graph: &'a WaitGraph,
    /// What is known of the engines.
    pub knowledge: &'a Knowledge,
    /// The user's suspicions.
    pub claims: &'a [Claim],
}

/// What it means.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// The verdict.
    pub verdict: Verdict,
    /// Every family that was weighed, the verdict's first, those ruled out last.
    pub hypotheses: Vec<Hypothesis>,
    /// Threads that should be there and are not.
    pub missing_threads: Vec<MissingThread>,
    /// Dated facts, in order.
    pub timeline: Vec<Event>,
    /// What knowledge says of each thread, by pid and tid (the host's).
    pub thread_notes: BTreeMap<(u32, u32), ThreadNote>,
    /// The user's suspicions.
    pub claims: Vec<Claim>,
}

/// What knowledge says of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadNote {
    /// It is in a known healthy idle state.
    pub idle: bool,
    /// What knowledge calls it.
    pub role: Option<String>,
    /// Native libraries that it is in, innermost first.
    pub libraries: Vec<String>,
}

/// Weighs every family and gives the verdict.
pub fn diagnose(input: &Input<'_>) -> Diagnosis {
    let scene = Scene::new(input);
    let missing = thread_died::missing(&scene);
    let weighed: Vec<Weighed> = vec![
        peer_stopped::weigh(&scene),
        deadlock_cycle::weigh(&scene),
        gil_starvation::weigh(&scene),
        blocked_send::weigh(&scene),
        thread_died::weigh(&scene, &missing),
        scheduler_stuck::weigh(&scene),
    ];
    let (verdict, hypotheses) = choose::choose(&scene, weighed);
    let timeline = timeline::timeline(&scene, &verdict);
    let notes = scene.actors().map(|actor| {
        let libraries = scene.knowledge.libraries(&actor.resolved.frames);
        let note = ThreadNote {
            idle: actor.idle,
            role: actor.rule.map(|rule| rule.role.clone()),
            libraries: libraries.into_iter().map(str::to_owned).collect(),
        };
        ((actor.process.pid, actor.thread.tid), note)
    });
    Diagnosis {
        thread_notes: notes.collect(),
        missing_threads: missing.into_iter().map(|missing| missing.report).collect(),
        verdict,
        hypotheses,
        timeline,
        claims: input.claims.to_vec(),
    }
}

#[cfg(test)]
mod tests;
