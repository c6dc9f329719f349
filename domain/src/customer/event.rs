//! Events of a customer, and how they change it.

use serde::Serialize;

use super::words::{CheckPurpose, Documents, KycStatus};
use super::{Check, Customer};
use crate::ids::CheckId;
use crate::time::Timestamp;

/// One event. Contains no personal data, because the audit log stores it unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(tag = "event", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
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
    pub fn name(&self) -> &'static str {
        self.into()
    }
}

/// Returns the customer after `event`. It never fails: it accepts every event in every state.
#[must_use]
pub fn evolve(mut customer: Customer, event: &Event) -> Customer {
    match event {
        Event::TermsAccepted { at } => customer.tos_accepted_at = Some(*at),
        Event::DocumentsAdded { documents } => customer.documents = customer.documents.and(*documents),
        Event::CheckQueued { check, purpose, revision } => {
            customer.check = Some(Check { id: *check, purpose: *purpose, revision: *revision });
        }
        Event::CheckSuperseded { check }
        | Event::CheckLapsed { check }
        | Event::CheckPassed { check }
        | Event::CheckFailed { check } => {
            customer.check = customer.check.filter(|current| current.id != *check);
        }
        Event::Reopened => settle(&mut customer, KycStatus::Pending, &[]),
        Event::Restored { kyc_status } => {
            customer.kyc_status = *kyc_status;
            customer.before_update = None;
        }
        Event::Approved => settle(&mut customer, KycStatus::Approved, &[]),
        Event::Rejected { reasons } => settle(&mut customer, KycStatus::Rejected, reasons),
        Event::PhoneChanged | Event::WalletReplaced => customer.revision += 1,
        Event::UpdateBegun => {
            customer.before_update.get_or_insert(customer.kyc_status);
            customer.kyc_status = KycStatus::PendingUpdate;
        }
        Event::DetailsSet => {}
        Event::Deactivated => customer.is_active = false,
    }
    customer
}

fn settle(customer: &mut Customer, kyc_status: KycStatus, reasons: &[String]) {
    customer.kyc_status = kyc_status;
    customer.before_update = None;
    customer.rejection_reasons = reasons.to_vec();
}
