//! What has happened to a customer.

use serde::Serialize;

use super::words::{CheckPurpose, Documents, KycStatus};
use crate::ids::CheckId;
use crate::time::Timestamp;

/// One happening. Holds no personal data: it stands in the audit log as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The terms of service were accepted.
    TermsAccepted {
        /// When.
        at: Timestamp,
    },
    /// Documents were stored.
    DocumentsAdded {
        /// Which.
        documents: Documents,
    },
    /// A check is to be made; the one before it no longer counts.
    CheckQueued {
        /// Which.
        check: CheckId,
        /// What for.
        purpose: CheckPurpose,
        /// The revision that it is asked for.
        revision: u32,
    },
    /// A check no longer counts.
    CheckSuperseded {
        /// Which.
        check: CheckId,
    },
    /// A check ended without a verdict.
    CheckLapsed {
        /// Which.
        check: CheckId,
    },
    /// A check ended: nothing speaks against the customer.
    CheckPassed {
        /// Which.
        check: CheckId,
    },
    /// A check ended: something speaks against the customer.
    CheckFailed {
        /// Which.
        check: CheckId,
    },
    /// Verification begins anew after a rejection.
    Reopened,
    /// The customer is cleared, or as it was before the update.
    Restored {
        /// The status from now on.
        kyc_status: KycStatus,
    },
    /// The customer is cleared.
    Approved,
    /// The customer is not accepted.
    Rejected {
        /// Why.
        reasons: Vec<String>,
    },
    /// The phone number is another.
    PhoneChanged,
    /// The wallet is another.
    WalletReplaced,
    /// Payment details were set.
    DetailsSet,
    /// What is screened has changed: the status waits for the screening.
    UpdateBegun,
    /// The customer was deactivated.
    Deactivated,
}

impl Event {
    /// Its name, as it is serialised.
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
