//! What a family answers.

use super::weights;
use crate::model::report::{End, Evidence, Family, Hypothesis, Party, Status};

/// One culprit, or one set of them that belongs together, with what speaks for it.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) family: Family,
    pub(super) status: Status,
    pub(super) confidence: f64,
    /// One sentence.
    pub(super) summary: String,
    /// The culprits as nodes of the graph, for telling which finding explains which.
    pub(super) culprit_ends: Vec<End>,
    /// The victims as nodes of the graph.
    pub(super) victim_ends: Vec<End>,
    pub(super) culprits: Vec<Party>,
    pub(super) victims: Vec<Party>,
    pub(super) action: String,
    pub(super) evidence: Vec<Evidence>,
    pub(super) would_settle: Option<String>,
}

impl Finding {
    /// The finding as a hypothesis that is open or taken.
    pub(super) fn hypothesis(&self) -> Hypothesis {
        Hypothesis {
            family: self.family,
            confidence: self.confidence,
            refuted: false,
            summary: self.summary.clone(),
            evidence: self.evidence.clone(),
            would_settle: self.would_settle.clone(),
        }
    }

    /// Whether this one's culprits are stuck because of `other`'s.
    pub(super) fn is_explained_by(&self, other: &Self) -> bool {
        let hit = |end: &End| {
            let inside = |list: &[End]| {
                list.iter().any(|entry| entry == end || (entry.tid.is_none() && entry.pid == end.pid))
            };
            inside(&other.victim_ends) || inside(&other.culprit_ends)
        };
        !self.culprit_ends.is_empty() && self.culprit_ends.iter().all(hit)
    }
}

/// What a family found, or why there is nothing.
#[derive(Clone, Debug)]
pub(super) struct Weighed {
    pub(super) findings: Vec<Finding>,
    /// The hypothesis to print where nothing was found.
    pub(super) otherwise: Hypothesis,
}

impl Weighed {
    /// A family with findings, or ruled out because of `facts`.
    pub(super) fn or_refuted(
        family: Family,
        findings: Vec<Finding>,
        why: String,
        facts: Vec<Evidence>,
    ) -> Self {
        let otherwise = Hypothesis {
            family,
            confidence: 0.0,
            refuted: true,
            summary: why,
            evidence: facts,
            would_settle: None,
        };
        Self { findings, otherwise }
    }

    /// A family with findings, or one that could not be judged.
    pub(super) fn or_open(family: Family, findings: Vec<Finding>, why: String, would_settle: String) -> Self {
        let mut weighed = Self::or_refuted(family, findings, why, Vec::new());
        weighed.otherwise.refuted = false;
        weighed.otherwise.would_settle = Some(would_settle);
        weighed
    }
}

/// A fact that supports.
pub(super) fn supports(source: &str, fact: impl Into<String>) -> Evidence {
    Evidence { source: source.into(), fact: fact.into(), supports: true }
}

/// A fact that contradicts.
pub(super) fn contradicts(source: &str, fact: impl Into<String>) -> Evidence {
    Evidence { source: source.into(), fact: fact.into(), supports: false }
}

/// Weights and the facts that they stand for, collected side by side.
#[derive(Clone, Debug, Default)]
pub(super) struct Case {
    weights: Vec<f64>,
    pub(super) evidence: Vec<Evidence>,
}

impl Case {
    /// A fact for the family and what it weighs.
    pub(super) fn support(&mut self, weight: f64, source: &str, fact: impl Into<String>) {
        self.weights.push(weight);
        self.evidence.push(supports(source, fact));
    }

    /// A fact against it and what it takes away.
    pub(super) fn contradict(&mut self, weight: f64, source: &str, fact: impl Into<String>) {
        self.weights.push(-weight);
        self.evidence.push(contradicts(source, fact));
    }

    /// The confidence.
    pub(super) fn confidence(&self) -> f64 {
        weights::sum(&self.weights)
    }
}
