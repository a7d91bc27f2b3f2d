//! From findings to the verdict: root causes before symptoms.

use super::{
    doubts,
    finding::{Finding, Weighed, supports},
    healthy,
    scene::Scene,
    weights,
};
use crate::model::{
    format::clip,
    report::{Family, Hypothesis, Party, Status, Verdict},
};

/// Most parties of one list: a verdict is pasted into tickets.
const MAX_PARTIES: usize = 64;

/// Most facts of a verdict.
const MAX_EVIDENCE: usize = 64;

/// Longest summary, in characters: one line of a ticket. What is cut stands in the culprits and the evidence.
const LONGEST_SUMMARY: usize = 160;

/// Which of two findings with the same culprits says more: the one nearer to the cause.
const fn precedence(family: Family) -> u8 {
    match family {
        Family::PeerStopped => 0,
        Family::DeadlockCycle => 1,
        Family::GilStarvation => 2,
        Family::BlockedSend => 3,
        Family::ThreadDied => 4,
        _ => 5,
    }
}

/// The verdict and every hypothesis: the verdict's first, then the other findings, then what is open, then what is
/// ruled out.
pub(super) fn choose(scene: &Scene<'_>, weighed: Vec<Weighed>) -> (Verdict, Vec<Hypothesis>) {
    let (mut findings, mut others) = (Vec::new(), Vec::new());
    for Weighed { findings: found, otherwise } in weighed {
        if found.is_empty() {
            others.push(otherwise);
        }
        findings.extend(found);
    }
    findings.sort_by(|a, b| {
        b.confidence.total_cmp(&a.confidence).then(precedence(a.family).cmp(&precedence(b.family)))
    });
    let strong: Vec<&Finding> =
        findings.iter().filter(|finding| finding.confidence >= weights::VERDICT).collect();
    let roots: Vec<&Finding> =
        strong.iter().copied().filter(|finding| explanation(finding, &strong).is_none()).collect();
    // In a ring of explanations nothing is left over: then the heaviest stands for it.
    let best = roots.first().or(strong.first()).copied();

    let mut hypotheses: Vec<Hypothesis> = Vec::new();
    for finding in &findings {
        let mut hypothesis = finding.hypothesis();
        if let Some(cause) = explanation(finding, &strong) {
            hypothesis.summary = format!("{} (explained by {})", hypothesis.summary, cause.family.name());
        }
        hypotheses.push(hypothesis);
    }
    // The verdict's own family goes first whatever its weight: a cause may weigh less than its symptom.
    if let Some(best) = best {
        hypotheses.sort_by_key(|hypothesis| hypothesis.family != best.family);
    }
    others.sort_by_key(|hypothesis| hypothesis.refuted);
    let verdict =
        best.map_or_else(|| healthy::verdict(scene, findings.first()), |best| wedge(scene, best, &roots));
    let verdict = Verdict { summary: clip(&verdict.summary, LONGEST_SUMMARY).into_owned(), ..verdict };
    if best.is_none() {
        let family = verdict.family;
        let evidence = verdict.evidence.clone();
        let (confidence, summary) = (verdict.confidence, verdict.summary.clone());
        let own = Hypothesis { family, confidence, refuted: false, summary, evidence, would_settle: None };
        hypotheses.insert(0, own);
    }
    hypotheses.extend(others);
    (verdict, hypotheses)
}

/// The finding that explains this one. Of two that explain each other the one nearer to the cause, then the heavier,
/// stands.
fn explanation<'a>(finding: &Finding, strong: &[&'a Finding]) -> Option<&'a Finding> {
    strong.iter().copied().find(|&other| {
        !std::ptr::eq(other, finding)
            && finding.is_explained_by(other)
            && (!other.is_explained_by(finding) || stands_before(other, finding))
    })
}

fn stands_before(a: &Finding, b: &Finding) -> bool {
    let key = |finding: &Finding| (precedence(finding.family), finding.culprit_ends.clone());
    key(a) < key(b)
}

/// The verdict of a finding, joined by the other roots of its family; other families' are mentioned.
fn wedge(scene: &Scene<'_>, best: &Finding, roots: &[&Finding]) -> Verdict {
    let same: Vec<&Finding> = roots
        .iter()
        .copied()
        .filter(|finding| finding.family == best.family && !std::ptr::eq(*finding, best))
        .collect();
    let (mut culprits, mut victims) = (best.culprits.clone(), Vec::new());
    let mut evidence = best.evidence.clone();
    let mut status = best.status;
    for finding in &same {
        culprits.extend(finding.culprits.iter().cloned());
        evidence.extend(finding.evidence.iter().cloned());
        if finding.status == Status::Wedged {
            status = Status::Wedged;
        }
    }
    for party in best.victims.iter().chain(same.iter().flat_map(|finding| &finding.victims)) {
        let known =
            |list: &[Party]| list.iter().any(|other| (other.pid, other.tid) == (party.pid, party.tid));
        let is_culprit = party.tid.is_some() && known(&culprits);
        if !is_culprit && !known(&victims) {
            victims.push(party.clone());
        }
    }
    for finding in roots.iter().filter(|finding| finding.family != best.family) {
        evidence.push(supports(finding.family.name(), format!("found as well: {}", finding.summary)));
    }
    evidence.extend(doubts::throttled(scene));
    culprits.truncate(MAX_PARTIES);
    victims.truncate(MAX_PARTIES);
    evidence.truncate(MAX_EVIDENCE);
    let more = match same.len() {
        0 => String::new(),
        number => format!(" (and {number} more)"),
    };
    Verdict {
        status,
        family: best.family,
        confidence: best.confidence,
        summary: summary(&best.summary, &more),
        culprits,
        victims,
        action: best.action.clone(),
        evidence,
    }
}

/// The summary with what stands behind it, on one line.
fn summary(text: &str, more: &str) -> String {
    format!("{}{more}", clip(text, LONGEST_SUMMARY.saturating_sub(more.len())))
}
