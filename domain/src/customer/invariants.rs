//! Invariants of every customer.

use super::decide::missing;
use super::state::Customer;
use super::words::{CheckPurpose, KycStatus};

/// A violated invariant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation {
    /// Number of the invariant. Numbers never change.
    pub number: u8,
    /// Condition that must hold.
    pub text: &'static str,
}

/// Returns the invariants that are violated. The result is always empty, unless the code has a defect.
pub fn violations(customer: &Customer) -> Vec<Violation> {
    let status = customer.before_update.unwrap_or(customer.kyc_status);
    let rules = [
        (1, "a cleared customer has accepted the terms", !status.is_cleared() || customer.tos_accepted_at.is_some()),
        (
            2,
            "an update is screened exactly while the status is pending_update",
            (customer.kyc_status == KycStatus::PendingUpdate) == customer.before_update.is_some(),
        ),
        (
            3,
            "an active customer in pending_update has a screening of its current data",
            !customer.is_active
                || customer.kyc_status != KycStatus::PendingUpdate
                || customer.check.is_some_and(|check| {
                    check.purpose == CheckPurpose::Rescreen && check.revision == customer.revision
                }),
        ),
        (4, "a deactivated customer has no check", customer.is_active || customer.check.is_none()),
        (5, "rejection reasons exist exactly while the customer is rejected", {
            (status == KycStatus::Rejected) != customer.rejection_reasons.is_empty()
        }),
        (
            6,
            "an identity check requires complete documents and no decision",
            customer.check.is_none_or(|check| {
                check.purpose != CheckPurpose::Identity
                    || (missing(customer).is_empty() && customer.kyc_status == KycStatus::Pending)
            }),
        ),
    ];
    rules.into_iter().filter(|(.., holds)| !holds).map(|(number, text, _)| Violation { number, text }).collect()
}
