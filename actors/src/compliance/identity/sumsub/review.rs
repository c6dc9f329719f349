//! What Sumsub says about an applicant, in its own words and in ours.

use payferry_domain::customer::Verdict;
use serde::Deserialize;

use super::super::provider::Look;

/// Most labels that are kept as reasons.
const REASONS_MAX: usize = 16;
/// Longest reason.
const REASON_CHARS_MAX: usize = 48;
/// The reason where the provider names none.
const REASON_UNNAMED: &str = "rejected_by_provider";

/// The two levels that are used here.
#[derive(Debug, Clone)]
pub(super) struct Levels {
    pub(super) identity: String,
    pub(super) rescreen: String,
}

/// `GET /resources/applicants/{id}/status`, and the same fields of a callback.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Review {
    level_name: Option<String>,
    #[serde(rename = "reviewStatus")]
    status: Option<String>,
    #[serde(rename = "reviewResult")]
    result: Option<ReviewResult>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewResult {
    review_answer: Option<String>,
    review_reject_type: Option<String>,
    reject_labels: Option<Vec<String>>,
}

impl Review {
    /// Whether the applicant was never sent to be checked.
    pub(super) fn is_waiting_for_data(&self) -> bool {
        self.status.as_deref() == Some("init")
    }

    /// How it stands. `GREEN` counts only where the review is completed: an applicant that waits for a service carries
    /// it, too. A rejection that asks for better pictures is not the end of a verification: the person hands them in
    /// under the same link. In a screening there is no person, so it is one.
    pub(super) fn look(&self, levels: &Levels) -> Look {
        let level = self.level_name.as_deref().unwrap_or_default();
        let is_ours = level == levels.identity || level == levels.rescreen;
        let result = self.result.as_ref().filter(|_| self.status.as_deref() == Some("completed"));
        let Some(result) = result.filter(|_| is_ours) else { return Look::UnderWay };
        let may_retry = result.review_reject_type.as_deref() == Some("RETRY") && level == levels.identity;
        match result.review_answer.as_deref() {
            Some("GREEN") => Look::Decided(Verdict::Approved),
            Some("RED") if !may_retry => Look::Decided(Verdict::Rejected { reasons: result.reasons() }),
            _ => Look::UnderWay,
        }
    }
}

impl ReviewResult {
    /// The labels as words: `FORGERY` is `forgery`. Comments are free text about a person, and stay where they are.
    fn reasons(&self) -> Vec<String> {
        let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
        let mut reasons: Vec<String> = Vec::new();
        for label in self.reject_labels.iter().flatten() {
            let reason: String = label.trim().chars().take(REASON_CHARS_MAX).map(word).collect();
            if !reason.is_empty() && !reasons.contains(&reason) && reasons.len() < REASONS_MAX {
                reasons.push(reason);
            }
        }
        if reasons.is_empty() {
            reasons.push(REASON_UNNAMED.to_owned());
        }
        reasons
    }
}
