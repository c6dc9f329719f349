//! Compliance of a customer: accepted terms, stored documents, clearance, and the current check.
//!
//! The module is pure, like the payment aggregate: `decide` returns the events of a command, `evolve` applies them,
//! `missing` returns the items that are still required. Not here: names, addresses, and document numbers of people. The
//! code that stores them reports only that they changed.

mod announce;
mod decide;
mod event;
mod invariants;
#[cfg(test)]
mod tests;
mod words;

pub use announce::{Announcement, announced, payload};
pub use decide::{Command, Rejection, decide, missing};
pub use event::{Event, evolve};
pub use invariants::INVARIANTS;
pub use words::{CheckPurpose, CustomerKind, DocumentKind, Documents, IdentityVerdict, KycStatus, Missing};

use serde::{Deserialize, Serialize};

use crate::command_error::TransitionError;
use crate::ids::{CheckId, CustomerId, PspId};
use crate::invariants::check;
use crate::time::Timestamp;

/// The current check. Results of other checks are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Id of the check.
    pub id: CheckId,
    /// Purpose.
    pub purpose: CheckPurpose,
    /// Revision of the customer data that is checked.
    pub revision: u32,
}

/// Compliance state of a customer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Customer {
    /// Customer id.
    pub id: CustomerId,
    /// PSP that owns it.
    pub psp_id: PspId,
    /// Person or company.
    pub kind: CustomerKind,
    /// Verification status.
    pub kyc_status: KycStatus,
    /// Status to restore when the screening of an update passes. Set only while an update is screened.
    pub before_update: Option<KycStatus>,
    /// False after deactivation, permanently. An inactive customer cannot be linked to anything new.
    pub is_active: bool,
    /// Time at which the terms of service were accepted.
    pub tos_accepted_at: Option<Timestamp>,
    /// Stored documents.
    pub documents: Documents,
    /// Current check.
    pub check: Option<Check>,
    /// Rejection reasons; empty unless the customer is rejected.
    pub rejection_reasons: Vec<String>,
    /// Revision of the screened data. Incremented by each change of phone number or wallet.
    pub revision: u32,
    /// Version of the customer. Incremented by each change, for compare-and-swap.
    pub version: i64,
}

impl Customer {
    /// Creates a customer at version 1.
    pub fn new(id: CustomerId, psp_id: PspId, kind: CustomerKind) -> Self {
        Self {
            id,
            psp_id,
            kind,
            kyc_status: KycStatus::Pending,
            before_update: None,
            is_active: true,
            tos_accepted_at: None,
            documents: Documents::NONE,
            check: None,
            rejection_reasons: Vec::new(),
            revision: 1,
            version: 1,
        }
    }

    /// Returns true if the customer may transact.
    pub fn is_cleared(&self) -> bool {
        self.is_active && self.kyc_status.is_cleared()
    }
}

/// Result of one command. All of it belongs into one database commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// Customer after the command, with the next version.
    pub customer: Customer,
    /// Events, in order.
    pub events: Vec<Event>,
}

/// Decides a command and applies its events. Returns `Ok(None)` if the command is outdated or already known.
///
/// # Errors
///
/// The command is rejected, or the customer would violate an invariant.
pub fn transition(
    customer: &Customer,
    command: &Command,
    now: Timestamp,
) -> Result<Option<Transition>, TransitionError<Rejection>> {
    let events = decide(customer, command, now).map_err(TransitionError::Rejected)?;
    if events.is_empty() {
        return Ok(None);
    }
    let mut after = events.iter().fold(customer.clone(), evolve);
    after.version += 1;
    check(INVARIANTS, &after).map_err(TransitionError::Violated)?;
    Ok(Some(Transition { customer: after, events }))
}
