//! Events of a customer.

use serde::Serialize;

use super::words::{CheckPurpose, Documents, KycStatus};
use crate::ids::CheckId;
use crate::time::Timestamp;

/// One event. Contains no personal data, because the audit log stores it unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The terms of service were accepted.
    TermsAccepted {
        /// Time of the event.
        at: Timestamp,
    },
    /// Documents were stored.
    DocumentsAdded {
        /// Stored documents.
        documents: Documents,
    },
    /// A check is queued. It supersedes the check before it.
    CheckQueued {
        /// Id of the check.
        check: CheckId,
        /// Purpose.
        purpose: CheckPurpose,
        /// Revision of the customer data that is checked.
        revision: u32,
    },
    /// A check was superseded.
    CheckSuperseded {
        /// Id of the check.
        check: CheckId,
    },
    /// A check ended without a verdict.
    CheckLapsed {
        /// Id of the check.
        check: CheckId,
    },
    /// A check passed.
    CheckPassed {
        /// Id of the check.
        check: CheckId,
    },
    /// A check failed.
    CheckFailed {
        /// Id of the check.
        check: CheckId,
    },
    /// Verification was restarted after a rejection.
    Reopened,
    /// An update passed screening, and the status before the update was restored.
    Restored {
        /// New status.
        kyc_status: KycStatus,
    },
    /// The customer was cleared.
    Approved,
    /// The customer was rejected.
    Rejected {
        /// Reason.
        reasons: Vec<String>,
    },
    /// The phone number changed.
    PhoneChanged,
    /// The wallet changed.
    WalletReplaced,
    /// Payment details were set.
    DetailsSet,
    /// Screened data changed. The status depends on the result of the screening.
    UpdateBegun,
    /// The customer was deactivated.
    Deactivated,
}

impl Event {
    /// Name, as serialised.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::TermsAccepted { .. } => "terms_accepted",
            Self::DocumentsAdded { .. } => "documents_added",
            Self::CheckQueued { .. } => "check_queued",
            Self::CheckSuperseded { .. } => "check_superseded",
            Self::CheckLapsed { .. } => "check_lapsed",
            Self::CheckPassed { .. } => "check_passed",
            Self::CheckFailed { .. } => "check_failed",
            Self::Reopened => "reopened",
            Self::Restored { .. } => "restored",
            Self::Approved => "approved",
            Self::Rejected { .. } => "rejected",
            Self::PhoneChanged => "phone_changed",
            Self::WalletReplaced => "wallet_replaced",
            Self::DetailsSet => "details_set",
            Self::UpdateBegun => "update_begun",
            Self::Deactivated => "deactivated",
        }
    }
}
