//! Sumsub's review of an applicant, and its translation.

use payferry_domain::customer::IdentityVerdict;
use serde::Deserialize;

use super::super::provider::ProviderCheckStatus;
use crate::compliance::http::labels;

/// Reason if the provider gives none.
const REASON_UNNAMED: &str = "rejected_by_provider";

/// The two levels in use.
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
    /// Returns `true` if the applicant was never submitted for a check.
    pub(super) fn is_waiting_for_data(&self) -> bool {
        self.status.as_deref() == Some("init")
    }

    /// Translates the review. `GREEN` counts only if the review is completed, because an applicant that waits for a
    /// service also has it. A rejection that asks for better pictures does not end a verification: the person submits
    /// them under the same link. A screening involves no person, so such a rejection ends it.
    pub(super) fn check_status(&self, levels: &Levels) -> ProviderCheckStatus {
        let level = self.level_name.as_deref().unwrap_or_default();
        let is_ours = level == levels.identity || level == levels.rescreen;
        let result = self.result.as_ref().filter(|_| self.status.as_deref() == Some("completed"));
        let Some(result) = result.filter(|_| is_ours) else { return ProviderCheckStatus::InProgress };
        let may_retry = result.review_reject_type.as_deref() == Some("RETRY") && level == levels.identity;
        match result.review_answer.as_deref() {
            Some("GREEN") => ProviderCheckStatus::Decided(IdentityVerdict::Approved),
            Some("RED") if !may_retry => {
                ProviderCheckStatus::Decided(IdentityVerdict::Rejected { reasons: result.reasons() })
            }
            _ => ProviderCheckStatus::InProgress,
        }
    }
}

impl ReviewResult {
    /// Returns the labels as words. Comments are free text about a person and are not
    /// copied.
    fn reasons(&self) -> Vec<String> {
        let mut reasons = labels(self.reject_labels.iter().flatten());
        if reasons.is_empty() {
            reasons.push(REASON_UNNAMED.to_owned());
        }
        reasons
    }
}
