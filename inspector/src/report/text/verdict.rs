//! `inspector diagnose`: the verdict, who has to move, who waits, what it rests on, what to do.

use super::words;
use crate::{
    model::{
        Certainty, FrameKind, Report,
        report::{Edge, Evidence, Hypothesis, Party, PartyKind, Status, ThreadReport, Verdict},
    },
    report::{
        color::Style,
        duration::{humane, time_of_day},
        escape,
        page::Page,
    },
};

/// What fits into a ticket; the JSON document holds everything.
const MOST_VICTIMS: usize = 6;
const MOST_FACTS: usize = 8;
const MOST_RULED_OUT: usize = 6;
const MOST_OPEN: usize = 3;
const MOST_EVENTS: usize = 12;
/// A wait on many descriptors lists them all, and a ticket wants to be read.
const MOST_CHARACTERS: usize = 180;
/// Innermost frames of a culprit: the Python ones, since they name the code that users can change, else native ones.
const MOST_FRAMES: usize = 3;
/// Below this a hypothesis that nobody refuted is noise.
const WORTH_NAMING: f64 = 0.1;

pub(super) fn write(page: &mut Page, report: &Report, verdict: &Verdict) {
    heading(page, verdict);
    page.line(&escape::clip(&verdict.summary, 2 * MOST_CHARACTERS));
    for culprit in &verdict.culprits {
        root(page, report, culprit);
    }
    for missing in &report.missing_threads {
        entry(page, "MISSING", &format!("{} · pid {}", missing.thread, missing.pid));
        for reason in missing.because.iter().chain(&missing.effect) {
            detail(page, reason);
        }
    }
    capped(page, "VICTIM", &verdict.victims, MOST_VICTIMS, |page, victim| victim_line(page, report, victim));
    let (support, against): (Vec<&Evidence>, Vec<&Evidence>) =
        verdict.evidence.iter().partition(|fact| fact.supports);
    capped(page, "BECAUSE", &support, MOST_FACTS, |page, fact| fact_line(page, "BECAUSE", fact));
    capped(page, "AGAINST", &against, MOST_FACTS, |page, fact| fact_line(page, "AGAINST", fact));
    for claim in &report.claims {
        entry(page, "CLAIM", &format!("{}: {}: {}", claim.claim, claim.outcome, claim.evidence));
    }
    let refuted: Vec<&Hypothesis> =
        report.hypotheses.iter().filter(|hypothesis| hypothesis.refuted).collect();
    capped(page, "RULED OUT", &refuted, MOST_RULED_OUT, |page, hypothesis| {
        entry(page, "RULED OUT", &format!("{}: {}", words::family(hypothesis.family), hypothesis.summary));
    });
    open(page, report, verdict);
    let skipped = report.timeline.len().saturating_sub(MOST_EVENTS);
    for event in report.timeline.iter().skip(skipped) {
        entry(page, "TIMELINE", &format!("{}Z  {}", time_of_day(event.at_unix_ns), event.text));
    }
    if !verdict.action.is_empty() {
        label(page, "ACTION").plain(&verdict.action).end();
    }
}

fn heading(page: &mut Page, verdict: &Verdict) {
    let (word, style) = match verdict.status {
        Status::Wedged => ("WEDGED", Style::Bad),
        Status::Degraded => ("DEGRADED", Style::Bad),
        Status::Healthy => ("HEALTHY", Style::Good),
        Status::Unknown => ("UNKNOWN", Style::Warn),
    };
    let family = words::family(verdict.family);
    page.put(style, word).plain("  ");
    if !family.eq_ignore_ascii_case(word) {
        page.put(Style::Bold, &family).plain("  ");
    }
    page.plain(&format!("confidence {:.2}", verdict.confidence)).end();
}

/// A culprit: who, what it does, where in the code, what it holds.
fn root(page: &mut Page, report: &Report, party: &Party) {
    let thread = thread_of(report, party);
    entry(page, "ROOT", &who(report, party, thread));
    detail(page, &party.detail);
    let Some(thread) = thread else { return };
    if let Some(owner) = thread.wait.owners.first() {
        let text = words::wait(thread);
        if !party.detail.contains(text) {
            detail(page, text);
        }
        certain(page, &owner.evidence, owner.certainty);
    }
    frames(page, thread);
    held(page, report, thread);
}

fn frames(page: &mut Page, thread: &ThreadReport) {
    let of_kind = |kind| thread.frames.iter().filter(move |frame| frame.kind == kind).take(MOST_FRAMES);
    let kinds = [FrameKind::Python, FrameKind::Native, FrameKind::Kernel];
    let Some(kind) = kinds.into_iter().find(|&kind| of_kind(kind).next().is_some()) else { return };
    for frame in of_kind(kind) {
        page.plain("             ");
        words::short_frame(page, frame);
    }
}

/// What others wait for until this thread acts.
fn held(page: &mut Page, report: &Report, thread: &ThreadReport) {
    let mut held: Vec<(&Edge, usize)> = Vec::new();
    for edge in &report.edges {
        if edge.to.pid != thread.pid || edge.to.tid != Some(thread.tid) {
            continue;
        }
        match held.iter_mut().find(|(known, _)| known.through == edge.through) {
            Some((_, count)) => *count += 1,
            None => held.push((edge, 1)),
        }
    }
    for (edge, waiters) in held.into_iter().take(MOST_FRAMES) {
        page.plain(&format!(
            "             {} for it: {}",
            words::counted(waiters, "thread waits", "threads wait"),
            edge.through.text
        ));
        page.put(
            certainty_style(edge.certainty),
            &format!("  [{}: {}]", words::certainty(edge.certainty), edge.evidence),
        );
        page.end();
    }
}

fn victim_line(page: &mut Page, report: &Report, party: &Party) {
    let thread = thread_of(report, party);
    label(page, "VICTIM").plain(&who(report, party, thread));
    if !party.detail.is_empty() {
        page.plain(" · ").plain(&escape::clip(&party.detail, MOST_CHARACTERS));
    }
    page.end();
}

/// The hypotheses that stay open.
fn open(page: &mut Page, report: &Report, verdict: &Verdict) {
    let open = report
        .hypotheses
        .iter()
        .filter(|other| !other.refuted && other.family != verdict.family && other.confidence >= WORTH_NAMING);
    for hypothesis in open.take(MOST_OPEN) {
        let name = words::family(hypothesis.family);
        entry(page, "OPEN", &format!("{name} {:.2}: {}", hypothesis.confidence, hypothesis.summary));
        if let Some(test) = &hypothesis.would_settle {
            detail(page, &format!("would settle it: {test}"));
        }
    }
}

fn fact_line(page: &mut Page, word: &str, fact: &Evidence) {
    label(page, word).plain(&escape::clip(&fact.fact, MOST_CHARACTERS));
    page.put(Style::Dim, &format!("  [{}]", fact.source)).end();
}

/// `prefill scheduler TP0 · Thread-4 (transfer_worker) · pid 288571 tid 288903 · blocked 2m03s, no deadline`.
fn who(report: &Report, party: &Party, thread: Option<&ThreadReport>) -> String {
    let process = party.pid.and_then(|pid| report.workers.iter().find(|worker| worker.pid == pid));
    let role = match (&party.role, process) {
        (Some(role), _) if !role.is_empty() => role.clone(),
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
    let up = match (party.tid, process) {
        (None, Some(process)) => Some(format!("{}, up {}", process.state, humane(process.up_ns))),
        _ => None,
    };
    let name = party.thread.clone().filter(|name| *name != role);
    let age = thread.map(words::age).filter(|age| !party.detail.contains(age.as_str()));
    let parts = [Some(role), name, ids, up, age];
    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ")
}

fn thread_of<'a>(report: &'a Report, party: &Party) -> Option<&'a ThreadReport> {
    let (pid, tid) = (party.pid?, party.tid?);
    report.threads.iter().find(|thread| thread.pid == pid && thread.tid == tid)
}

fn entry(page: &mut Page, word: &str, text: &str) {
    label(page, word).plain(&escape::clip(text, MOST_CHARACTERS)).end();
}

/// The word that says what a line is, as wide as the widest of them.
fn label<'a>(page: &'a mut Page, word: &str) -> &'a mut Page {
    page.put(Style::Bold, &format!("{word:<9}")).plain("  ")
}

fn detail(page: &mut Page, text: &str) {
    if !text.is_empty() {
        page.plain("             ").plain(&escape::clip(text, MOST_CHARACTERS)).end();
    }
}

fn certain(page: &mut Page, evidence: &str, certainty: Certainty) {
    page.plain("             ");
    page.put(certainty_style(certainty), &format!("[{}: {evidence}]", words::certainty(certainty))).end();
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
