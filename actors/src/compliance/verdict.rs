//! Constructors of verdicts, so that equal findings read the same from each provider.

use payferry_domain::Timestamp;
use payferry_domain::payment::{Decision, Verdict};

/// Flag of a sender on a sanctions list.
pub(super) const FLAG_SANCTIONS: &str = "sanctions";

/// Creates a verdict with only a decision and its provider.
pub(super) fn bare(provider: &str, decision: Decision, checked_at: Timestamp) -> Verdict {
    Verdict {
        decision,
        by_operator: false,
        risk_level: None,
        score: None,
        flags: Vec::new(),
        provider: provider.to_owned(),
        provider_ref: None,
        list_version: None,
        plain_sender: None,
        checked_at,
    }
}

/// Combines two answers: the sender counts as plain only if everything that checked it says so.
pub(super) fn both_plain(one: Option<bool>, another: Option<bool>) -> Option<bool> {
    match (one, another) {
        (Some(one), Some(another)) => Some(one && another),
        (one, another) => one.or(another),
    }
}

/// Creates the verdict of a sanctions list: block listed addresses, allow the rest.
pub(super) fn of_listing(provider: &str, listed: bool, checked_at: Timestamp) -> Verdict {
    let (decision, level, score, flags) = if listed {
        (Decision::Block, "severe", 100, vec![FLAG_SANCTIONS.to_owned()])
    } else {
        (Decision::Allow, "low", 0, Vec::new())
    };
    let verdict = bare(provider, decision, checked_at);
    Verdict { risk_level: Some(level.to_owned()), score: Some(score), flags, ..verdict }
}
