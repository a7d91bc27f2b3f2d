//! `inspector diagnose`: the verdict, who has to move, who waits, what it rests on, what to do. Nothing is said twice: a
//! fact that a line above holds already is left to the JSON document.

use std::sync::Arc;

use super::{gaps, waits, words};
use crate::{
    model::{
        Certainty, Frame, FrameKind, Report, WaitKind,
        format::{clip, humane, time_of_day},
        report::{
            Edge, Evidence, Hypothesis, MissingThread, Party, PartyKind, Root, Status, ThreadReport, Verdict,
        },
    },
    report::{color::Style, escape, page::Page},
};

/// What fits into a ticket; the JSON document holds everything.
const MOST_ROOTS: usize = 4;
const MOST_VICTIMS: usize = 4;
const MOST_FACTS: usize = 5;
const MOST_OPEN: usize = 2;
const MOST_EVENTS: usize = 6;
const MOST_CHARACTERS: usize = 160;
/// A role or a thread's name, so that the ids behind it are seen.
const WIDEST_NAME: usize = 64;
/// Innermost frames of a culprit: the Python ones, since they name the code that users can change, else native ones.
const MOST_FRAMES: usize = 2;
/// Objects that a culprit holds while others wait for them.
const MOST_HELD: usize = 2;
/// Below this a hypothesis that nobody refuted is noise.
const WORTH_NAMING: f64 = 0.1;
/// As wide as a line's first word and the space behind it.
const INDENT: &str = "           ";

pub(super) fn write(page: &mut Page, report: &Report, verdict: &Verdict) {
    heading(page, verdict);
    if verdict.status == Status::Healthy {
        healthy(page, report, verdict);
    } else {
        page.line(&clip(&verdict.summary, MOST_CHARACTERS));
        capped(page, "ROOT", &verdict.culprits, MOST_ROOTS, |page, culprit| {
            root(page, report, verdict, culprit);
        });
        missing(page, report, verdict);
        capped(page, "VICTIM", &verdict.victims, MOST_VICTIMS, |page, party| victim(page, report, party));
        chain(page, report, verdict);
        evidence(page, report, verdict);
        hypotheses(page, report, verdict);
        let skipped = report.timeline.len().saturating_sub(MOST_EVENTS);
        for event in report.timeline.iter().skip(skipped) {
            entry(page, "TIMELINE", &format!("{}Z  {}", time_of_day(event.at_unix_ns), event.text));
        }
        if !verdict.action.is_empty() {
            label(page, "ACTION").plain(&verdict.action).end();
        }
        gaps::write(page, report);
    }
    page.plain(&words::footer(report)).end();
}

/// A verdict that nobody has to act on fits into six lines.
fn healthy(page: &mut Page, report: &Report, verdict: &Verdict) {
    let facts = |supports: bool| {
        let facts = verdict.evidence.iter().filter(move |fact| fact.supports == supports);
        facts.map(|fact| fact.fact.as_str())
    };
    let what: Vec<&str> = std::iter::once(verdict.summary.as_str()).chain(facts(true)).collect();
    page.line(&what.join(" · "));
    let against: Vec<&str> = facts(false).collect();
    if !against.is_empty() {
        label(page, "AGAINST").plain(&against.join(" · ")).end();
    }
    if !verdict.action.is_empty() {
        label(page, "ACTION").plain(&verdict.action).end();
    }
    gaps::write_one(page, report);
}

fn heading(page: &mut Page, verdict: &Verdict) {
    let (word, style) = match verdict.status {
        Status::Wedged => ("WEDGED", Style::Bad),
        Status::Degraded => ("DEGRADED", Style::Bad),
        Status::Healthy => ("HEALTHY", Style::Good),
        Status::Unknown => ("UNKNOWN", Style::Warn),
    };
    let family = verdict.family.name();
    page.put(style, word).plain("  ");
    if !family.eq_ignore_ascii_case(word) {
        page.put(Style::Bold, family).plain("  ");
    }
    page.plain(&format!("confidence {:.2}", verdict.confidence)).end();
}

/// A culprit: who, what it does, where in the code, what it holds.
fn root(page: &mut Page, report: &Report, verdict: &Verdict, party: &Party) {
    let Some(thread) = thread_of(report, party) else {
        label(page, "ROOT").plain(&who(report, party)).end();
        detail(page, &party.detail);
        for reason in of_culprit(report, party).into_iter().flat_map(|missing| &missing.because) {
            detail(page, reason);
        }
        return;
    };
    label(page, "ROOT").plain(&who(report, party)).plain(" · ").plain(&words::age(thread)).end();
    if thread.wait.kind != WaitKind::Running {
        page.plain(INDENT).plain(&clip(&words::wait(thread), MOST_CHARACTERS));
        if let Some(owner) = thread.wait.owners.first() {
            // Where several can end the wait, no single one is proven to have to.
            let (certainty, of) = match thread.wait.owners.len() {
                1 => (owner.certainty, String::new()),
                number => (Certainty::Likely, format!("one of {number}, ")),
            };
            let mark = format!("  [{}: {of}{}]", certainty.name(), owner.evidence);
            page.put(certainty_style(certainty), &mark);
        } else if let Some(waker) = words::waker(thread) {
            page.put(certainty_style(Certainty::Likely), &format!("  [likely: {waker}]"));
        }
        page.end();
    }
    frames(page, thread);
    held(page, report, verdict, thread);
}

fn frames(page: &mut Page, thread: &ThreadReport) {
    let of_kind =
        |kind| thread.frames.iter().map(Arc::as_ref).filter(move |frame: &&Frame| frame.kind == kind);
    // The library through which it waits says less than the code that called it.
    let own = |kind| {
        let frames: Vec<&Frame> = of_kind(kind).collect();
        let first = frames.iter().position(|frame| !frame.is_plumbing()).unwrap_or(0);
        frames.get(first..).unwrap_or_default().to_vec()
    };
    let mut shown = own(FrameKind::Python);
    if shown.is_empty() {
        shown = own(FrameKind::Native);
    }
    if shown.is_empty() {
        shown = of_kind(FrameKind::Kernel).collect();
    }
    for frame in shown.into_iter().take(MOST_FRAMES) {
        page.plain(INDENT);
        words::short_frame(page, frame);
    }
}

/// What others wait for until this thread acts; in a circle each one's own wait says it.
fn held(page: &mut Page, report: &Report, verdict: &Verdict, thread: &ThreadReport) {
    let mut held: Vec<(&Edge, usize)> = Vec::new();
    for edge in &report.edges {
        let waiter_is_root = verdict
            .culprits
            .iter()
            .any(|party| (party.pid, party.tid) == (Some(edge.from.pid), edge.from.tid));
        if edge.to.pid != thread.pid || edge.to.tid != Some(thread.tid) || waiter_is_root {
            continue;
        }
        match held.iter_mut().find(|(known, _)| known.through == edge.through) {
            Some((_, count)) => *count += 1,
            None => held.push((edge, 1)),
        }
    }
    for (edge, waiters) in held.into_iter().take(MOST_HELD) {
        let waiting = words::counted(waiters, "thread waits", "threads wait");
        page.plain(&format!("{INDENT}{waiting} for it: {}", clip(&edge.through.text, MOST_CHARACTERS)));
        let certainty = edge.certainty;
        page.put(certainty_style(certainty), &format!("  [{}: {}]", certainty.name(), edge.evidence)).end();
    }
}

/// Threads that are gone and are no culprits of this verdict.
fn missing(page: &mut Page, report: &Report, verdict: &Verdict) {
    for missing in &report.missing_threads {
        if !verdict.culprits.iter().any(|party| is(missing, party)) {
            entry(page, "MISSING", &format!("{} · pid {}", missing.thread, missing.pid));
            for reason in missing.because.iter().chain(&missing.effect) {
                detail(page, reason);
            }
        }
    }
}

fn is(missing: &MissingThread, party: &Party) -> bool {
    party.kind == PartyKind::MissingPeer
        && party.pid == Some(missing.pid)
        && party.thread.as_ref() == Some(&missing.thread)
}

fn of_culprit<'a>(report: &'a Report, party: &Party) -> Option<&'a MissingThread> {
    report.missing_threads.iter().find(|missing| is(missing, party))
}

/// One line: who, and what it waits on.
fn victim(page: &mut Page, report: &Report, party: &Party) {
    label(page, "VICTIM").plain(&who(report, party));
    if !party.detail.is_empty() {
        page.plain(" · ").plain(&clip(&party.detail, MOST_CHARACTERS));
    }
    page.end();
}

/// The longest way by which somebody waits for a culprit, where it has more hops than the lines above show.
fn chain(page: &mut Page, report: &Report, verdict: &Verdict) {
    let is_culprit = |root: &&Root| {
        let end = root.end;
        let same =
            |party: &Party| party.pid == Some(end.pid) && (party.tid == end.tid || party.tid.is_none());
        root.chain.len() > 1 && root.cycle.is_none() && verdict.culprits.iter().any(same)
    };
    if let Some(root) = report.roots.iter().filter(is_culprit).max_by_key(|root| root.chain.len()) {
        let waiting = words::counted(root.waiters as usize, "thread waits", "threads wait");
        label(page, "CHAIN")
            .plain(&format!("{waiting}, the farthest through {} hops", root.chain.len()))
            .end();
        waits::chain(page, report, root, INDENT);
    }
}

/// What the verdict rests on and what speaks against it, less what the lines above said.
fn evidence(page: &mut Page, report: &Report, verdict: &Verdict) {
    let said = |fact: &Evidence| {
        let parties = || verdict.culprits.iter().chain(&verdict.victims);
        verdict.summary.ends_with(&fact.fact)
            || parties().any(|party| !party.detail.is_empty() && fact.fact.contains(&party.detail))
            || parties().any(|party| fact.supports && repeats(&party.detail, &fact.fact))
            || report.missing_threads.iter().any(|missing| missing.because.contains(&fact.fact))
    };
    let (support, against): (Vec<&Evidence>, Vec<&Evidence>) =
        verdict.evidence.iter().filter(|fact| !said(fact)).partition(|fact| fact.supports);
    capped(page, "BECAUSE", &support, MOST_FACTS, |page, fact| fact_line(page, "BECAUSE", fact));
    capped(page, "AGAINST", &against, MOST_FACTS, |page, fact| fact_line(page, "AGAINST", fact));
}

/// Whether `fact` is `… is DETAIL`, with a detail that begins as the party's does.
fn repeats(detail: &str, fact: &str) -> bool {
    fact.split_once(" is ").is_some_and(|(_, state)| detail.starts_with(state))
}

/// The user's suspicions, what is ruled out on one line, what stays open.
fn hypotheses(page: &mut Page, report: &Report, verdict: &Verdict) {
    for claim in &report.claims {
        entry(page, "CLAIM", &format!("{}: {}: {}", claim.claim, claim.outcome, claim.evidence));
    }
    let refuted = report.hypotheses.iter().filter(|hypothesis| hypothesis.refuted);
    let refuted: Vec<String> = refuted
        .map(|hypothesis| {
            format!("{}: {}", hypothesis.family.name(), clip(&hypothesis.summary, MOST_CHARACTERS / 2))
        })
        .collect();
    if !refuted.is_empty() {
        label(page, "RULED OUT").plain(&refuted.join(" · ")).end();
    }
    let is_open = |other: &&Hypothesis| {
        let explained = other.summary.ends_with(&format!("(explained by {})", verdict.family.name()));
        !other.refuted && !explained && other.family != verdict.family && other.confidence >= WORTH_NAMING
    };
    for hypothesis in report.hypotheses.iter().filter(is_open).take(MOST_OPEN) {
        let name = hypothesis.family.name();
        entry(page, "OPEN", &format!("{name} {:.2}: {}", hypothesis.confidence, hypothesis.summary));
        if let Some(test) = &hypothesis.would_settle {
            detail(page, &format!("would settle it: {test}"));
        }
    }
}

fn fact_line(page: &mut Page, word: &str, fact: &Evidence) {
    label(page, word).plain(&clip(&fact.fact, MOST_CHARACTERS));
    page.put(Style::Dim, &format!("  [{}]", fact.source)).end();
}

/// `prefill scheduler TP0 · Thread-4 (transfer_worker) · pid 288571 tid 288903`.
fn who(report: &Report, party: &Party) -> String {
    let process = party.pid.and_then(|pid| report.workers.iter().find(|worker| worker.pid == pid));
    let role = match (&party.role, process) {
        (Some(role), _) if !role.is_empty() => escape::name(role, WIDEST_NAME),
        (_, Some(process)) => words::label(process),
        (_, None) => match party.kind {
            PartyKind::Network => "network".into(),
            PartyKind::MissingPeer => "missing peer".into(),
            PartyKind::Thread => "thread".into(),
            PartyKind::Process => "process".into(),
        },
    };
    let ids = match (party.pid, party.tid) {
        (Some(pid), Some(tid)) => Some(format!("pid {pid} tid {tid}")),
        (Some(pid), None) => Some(format!("pid {pid}")),
        (None, _) => None,
    };
    let age = process.filter(|_| party.tid.is_none()).and_then(|worker| worker.up_ns);
    let up = age.map(|age| format!("up {}", humane(age)));
    let name = party.thread.as_ref().map(|name| escape::name(name, WIDEST_NAME)).filter(|name| *name != role);
    let parts = [Some(role), name, ids, up];
    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ")
}

fn thread_of<'a>(report: &'a Report, party: &Party) -> Option<&'a ThreadReport> {
    let (pid, tid) = (party.pid?, party.tid?);
    report.threads.iter().find(|thread| thread.pid == pid && thread.tid == tid)
}

fn entry(page: &mut Page, word: &str, text: &str) {
    label(page, word).plain(&clip(text, MOST_CHARACTERS)).end();
}

/// The word that says what a line is, as wide as the widest of them.
fn label<'a>(page: &'a mut Page, word: &str) -> &'a mut Page {
    page.put(Style::Bold, &format!("{word:<9}")).plain("  ")
}

fn detail(page: &mut Page, text: &str) {
    if !text.is_empty() {
        page.plain(INDENT).plain(&clip(text, MOST_CHARACTERS)).end();
    }
}

const fn certainty_style(certainty: Certainty) -> Style {
    match certainty {
        Certainty::Proven => Style::Good,
        Certainty::Likely => Style::Warn,
    }
}

/// Writes the first `most` items, and how many more there are.
fn capped<T>(page: &mut Page, word: &str, items: &[T], most: usize, mut write: impl FnMut(&mut Page, &T)) {
    for item in items.iter().take(most) {
        write(page, item);
    }
    if items.len() > most {
        entry(page, word, &format!("and {} more, all of them in --json", items.len() - most));
    }
}
