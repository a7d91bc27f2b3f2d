//! thread-died: a thread that serves others ended while its process lives on.
//!
//! Nothing is blocked then, and every probe is green; the sign is an absence. What is missing is judged against the
//! catalog of expected threads and against siblings (processes of the same engine, kind and role). Gaps in `Thread-N`
//! numbering are named and weigh next to nothing, since short-lived threads leave them too.

use std::collections::BTreeSet;

use super::{
    abandoned_lock,
    finding::{Case, Finding, Weighed, contradicts},
    relations,
    scene::{Actor, Scene, Startup},
    weights, words,
};
use crate::{
    knowledge::{Expected, ThreadRule, last_component},
    model::{
        Process, PythonThread,
        report::{End, Evidence, Family, MissingThread, Party, PartyKind, Status},
    },
};

/// How many siblings have to have a thread that the catalog does not ask for before its absence means something.
const SIBLINGS: usize = 2;

/// A thread that should be there and is not.
#[derive(Clone, Debug)]
pub(super) struct Missing<'a> {
    pub(super) report: MissingThread,
    process: &'a Process,
    rule: &'a ThreadRule,
    present: usize,
    asked: usize,
    survivable: bool,
    case: Case,
}

/// Everything that is missing from processes whose threads could be read.
pub(super) fn missing<'a>(scene: &Scene<'a>) -> Vec<Missing<'a>> {
    scene
        .capture
        .processes
        .iter()
        .filter(|process| judged(scene, process).is_ok())
        .flat_map(|process| of(scene, process))
        .collect()
}

pub(super) fn weigh(scene: &Scene<'_>, missing: &[Missing<'_>]) -> Weighed {
    let mut findings: Vec<Finding> = missing.iter().map(|missing| finding(scene, missing)).collect();
    findings.extend(abandoned_lock::findings(scene));
    let mut facts = Vec::new();
    let mut judged_any = false;
    for process in scene.capture.processes.iter().filter(|process| scene.serves(process)) {
        match judged(scene, process) {
            Ok(()) => {
                judged_any = true;
                let asked = expectations(scene, process).map(|(_, _, count)| count as usize).sum();
                if asked > 0 {
                    facts.push(contradicts(
                        "knowledge",
                        format!(
                            "{} has {} that the catalog asks for",
                            words::process(process),
                            words::count(asked, "thread")
                        ),
                    ));
                }
            }
            Err(why) => facts.push(contradicts("python", format!("{}: {why}", words::process(process)))),
        }
    }
    if !judged_any {
        let why = "no process of a known engine whose threads could be counted".into();
        return Weighed::or_refuted(Family::ThreadDied, findings, why, facts);
    }
    Weighed::or_refuted(Family::ThreadDied, findings, "no expected thread is missing".into(), facts)
}

/// What an absence of absences does not say: the processes that should have threads which could not be counted.
pub(super) fn uncounted(scene: &Scene<'_>) -> Vec<Evidence> {
    let expects = |process: &&Process| expectations(scene, process).next().is_some();
    let processes = scene.capture.processes.iter().filter(expects);
    let why = |process: &Process| {
        let why = judged(scene, process).err()?;
        let fact = format!("whether {} lacks a thread was not judged: {why}", words::process(process));
        Some(contradicts("threads", fact))
    };
    processes.filter_map(why).collect()
}

/// Whether the threads of a process can be counted; else why not.
fn judged(scene: &Scene<'_>, process: &Process) -> Result<(), String> {
    scene.rule(process).ok_or("no engine that is known")?;
    if process.python.is_none() {
        return Err("its Python threads could not be read".into());
    }
    if scene.main(process.pid).is_none() {
        return Err("its main thread was not seen".into());
    }
    if scene.startup(process) == Startup::Outside {
        return Err(
            "its main thread is not in its event loop (yet): threads may not have been started".into()
        );
    }
    let unread =
        scene.of(process.pid).filter(|actor| actor.thread.python.as_ref().is_some_and(is_unread)).count();
    if unread > 0 {
        return Err(format!(
            "{} could be read neither by name nor by stack",
            words::count(unread, "Python thread")
        ));
    }
    Ok(())
}

fn is_unread(python: &PythonThread) -> bool {
    python.name.is_none() && python.frames.is_empty()
}

fn expectations<'a>(
    scene: &Scene<'a>,
    process: &'a Process,
) -> impl Iterator<Item = (&'a ThreadRule, &'a Expected, u32)> {
    let knowledge = scene.knowledge;
    process.worker.iter().flat_map(move |worker| {
        knowledge.thread_rules(worker).filter_map(move |rule| {
            let (expected, count) =
                knowledge.expectation(worker, rule, |name| process.environment.get(name).cloned())?;
            Some((rule, expected, count))
        })
    })
}

fn of<'a>(scene: &Scene<'a>, process: &'a Process) -> Vec<Missing<'a>> {
    let siblings = siblings(scene, process);
    let mut found = Vec::new();
    for (rule, expected, count) in expectations(scene, process) {
        let present = present(scene, process, rule);
        let asked = count as usize;
        if present >= asked {
            continue;
        }
        let mut case = Case::default();
        let engine = process.worker.as_ref().map(|worker| worker.engine.as_str()).unwrap_or_default();
        let fact =
            format!("{} should have {asked} × {}, {present} found", words::process(process), expected.thread);
        case.support(weights::MISSING_FROM_CATALOG, "knowledge", fact.clone());
        let mut because = vec![format!("the catalog of {engine} asks for {asked}, {present} found")];
        let having = siblings.iter().filter(|sibling| self::present(scene, sibling, rule) >= asked).count();
        if having > 0 {
            let fact = format!("{having} of {} have it", words::count(siblings.len(), "sibling"));
            case.support(weights::SIBLINGS_HAVE_IT, "threads", fact.clone());
            because.push(fact);
        } else if !siblings.is_empty() {
            case.contradict(weights::SIBLINGS_HAVE_IT, "threads", "no sibling has it either");
        }
        if scene.startup(process) == Startup::NotSeen {
            let fact =
                "its main thread's stack could not be read whole: it may not have started its threads yet";
            case.contradict(weights::STARTUP_NOT_SEEN, "python", fact);
        }
        numbering(scene, process, &mut case, &mut because);
        found.push(Missing {
            report: MissingThread {
                pid: process.pid,
                thread: expected.thread.clone(),
                because,
                effect: Some(expected.effect.clone()),
            },
            process,
            rule,
            present,
            asked,
            survivable: expected.survivable,
            case,
        });
    }
    found.extend(only_siblings_have(scene, process, &siblings));
    found
}

/// Serving threads that the catalog does not ask for and that every sibling has.
fn only_siblings_have<'a>(
    scene: &Scene<'a>,
    process: &'a Process,
    siblings: &[&'a Process],
) -> Vec<Missing<'a>> {
    let Some(worker) = process.worker.as_ref().filter(|_| siblings.len() >= SIBLINGS) else {
        return Vec::new();
    };
    let knowledge = scene.knowledge;
    let rules =
        knowledge.thread_rules(worker).filter(|rule| rule.serving && !rule.lazy && rule.expected.is_empty());
    rules
        .filter(|rule| present(scene, process, rule) == 0)
        .filter_map(|rule| {
            let example = siblings.iter().map(|sibling| actors_of(scene, sibling, rule).next());
            let example: Vec<Actor<'_>> = example.collect::<Option<_>>()?;
            let name = target(example.first()?.name()).to_owned();
            let mut case = Case::default();
            let fact = format!(
                "all {} have a thread {name}, {} has none",
                words::count(siblings.len(), "sibling"),
                words::process(process)
            );
            case.support(weights::ONLY_SIBLINGS_HAVE_IT, "threads", fact.clone());
            let mut because = vec![fact];
            numbering(scene, process, &mut case, &mut because);
            let report = MissingThread { pid: process.pid, thread: name, because, effect: None };
            Some(Missing { report, process, rule, present: 0, asked: 1, survivable: false, case })
        })
        .collect()
}

fn siblings<'a>(scene: &Scene<'a>, process: &Process) -> Vec<&'a Process> {
    let alike = |other: &&Process| {
        other.pid != process.pid
            && other.worker.as_ref().zip(process.worker.as_ref()).is_some_and(|(a, b)| {
                (&a.engine, &a.kind, &a.role, &a.backend) == (&b.engine, &b.kind, &b.role, &b.backend)
            })
    };
    scene.capture.processes.iter().filter(alike).filter(|other| judged(scene, other).is_ok()).collect()
}

fn actors_of<'a>(scene: &Scene<'a>, process: &Process, rule: &ThreadRule) -> impl Iterator<Item = Actor<'a>> {
    scene.of(process.pid).filter(move |actor| actor.rule.is_some_and(|of| of.role == rule.role))
}

/// Threads of a rule, those included that could not be matched with a thread of the kernel's.
fn present(scene: &Scene<'_>, process: &Process, rule: &ThreadRule) -> usize {
    let matched = actors_of(scene, process, rule).count();
    let unmatched = process.python.iter().flat_map(|python| &python.unmatched);
    let is_it = |thread: &&PythonThread| {
        let by_name = rule
            .name
            .as_ref()
            .zip(thread.name.as_ref())
            .is_some_and(|(pattern, name)| pattern.is_match(name));
        let by_function = || {
            let indices: Vec<u32> = thread.frames.iter().map(|frame| frame.frame).collect();
            let pattern = rule.function.as_ref();
            pattern.is_some_and(|pattern| {
                process.frames_of(&indices).any(|frame| pattern.is_match(last_component(&frame.function)))
            })
        };
        by_name || by_function() || is_unread(thread)
    };
    matched + unmatched.filter(is_it).count()
}

/// Names the gaps in `Thread-N` numbering.
fn numbering(scene: &Scene<'_>, process: &Process, case: &mut Case, because: &mut Vec<String>) {
    let numbers: BTreeSet<u32> = scene
        .of(process.pid)
        .filter_map(|actor| {
            let digits = actor.name().strip_prefix("Thread-")?;
            digits.split(' ').next()?.parse().ok()
        })
        .filter(|&number: &u32| number < 10_000)
        .collect();
    let last = numbers.last().copied().unwrap_or(0);
    let gaps: Vec<String> = (1..last)
        .filter(|number| !numbers.contains(number))
        .take(8)
        .map(|number| format!("Thread-{number}"))
        .collect();
    if !gaps.is_empty() {
        let fact = format!(
            "the numbering lacks {} (weak: threads that end as they should leave gaps too)",
            gaps.join(", ")
        );
        case.support(weights::NUMBER_GAP, "threads", fact.clone());
        because.push(fact);
    }
}

/// `transfer_worker` of `Thread-4 (transfer_worker)`.
fn target(name: &str) -> &str {
    name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name)
}

fn finding(scene: &Scene<'_>, missing: &Missing<'_>) -> Finding {
    let Missing { report, process, rule, present, asked, survivable, case } = missing;
    let name = words::process(process);
    let gone = asked.saturating_sub(*present);
    let effect = report.effect.clone().unwrap_or_else(|| "whatever it serves waits".into());
    let detail = format!("gone ({present} of {asked} there): {effect}");
    let party = |_| Party {
        kind: PartyKind::MissingPeer,
        pid: Some(process.pid),
        tid: None,
        thread: Some(report.thread.clone()),
        role: Some(words::role(process)),
        detail: detail.clone(),
    };
    let served = relations::dependents(scene, process);
    let victim_ends: Vec<End> =
        served.iter().map(|(process, _)| End { pid: process.pid, tid: Some(process.pid) }).collect();
    let which = if *present > 0 {
        format!("{gone} of {asked} threads {}", report.thread)
    } else {
        format!("the thread {}", report.thread)
    };
    let verb = if gone > 1 { "are" } else { "is" };
    Finding {
        family: Family::ThreadDied,
        status: if *present > 0 || *survivable { Status::Degraded } else { Status::Wedged },
        confidence: case.confidence(),
        summary: format!("{which} of {name} {verb} gone: {effect}"),
        culprits: (0..gone.min(8)).map(party).collect(),
        victims: scene.parties(&victim_ends),
        // The absent has no node; its process is not at fault as a whole.
        culprit_ends: Vec::new(),
        victim_ends,
        action: scene.action(Family::ThreadDied, Some(process), Some(&rule.role)),
        evidence: case.evidence.clone(),
        would_settle: Some(
            "the process's standard error: \"Exception in thread\" with the thread's name".into(),
        ),
    }
}
