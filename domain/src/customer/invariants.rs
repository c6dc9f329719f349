//! What holds of every customer, whatever happened to it.

use super::decide::missing;
use super::state::Customer;
use super::words::{CheckPurpose, KycStatus};

/// A broken invariant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation {
    /// Its number, for ever.
    pub number: u8,
    /// What should hold.
    pub text: &'static str,
}

/// The invariants that do not hold; always empty.
pub fn violations(customer: &Customer) -> Vec<Violation> {
    let status = customer.before_update.unwrap_or(customer.kyc_status);
    let rules = [
        (1, "who is cleared has accepted the terms", !status.is_cleared() || customer.tos_accepted_at.is_some()),
        (
            2,
            "an update is screened exactly while the status waits for it",
            (customer.kyc_status == KycStatus::PendingUpdate) == customer.before_update.is_some(),
        ),
        (
            3,
            "an active customer that waits for a screening has one, for what is there now",
            !customer.is_active
                || customer.kyc_status != KycStatus::PendingUpdate
                || customer.check.is_some_and(|check| {
                    check.purpose == CheckPurpose::Rescreen && check.revision == customer.revision
                }),
        ),
        (4, "nothing is checked about a deactivated customer", customer.is_active || customer.check.is_none()),
        (5, "reasons stand exactly where something was rejected", {
            (status == KycStatus::Rejected) != customer.rejection_reasons.is_empty()
        }),
        (
            6,
            "an identity is checked only when nothing is missing and nothing decided",
            customer.check.is_none_or(|check| {
                check.purpose != CheckPurpose::Identity
                    || (missing(customer).is_empty() && customer.kyc_status == KycStatus::Pending)
            }),
        ),
    ];
    rules.into_iter().filter(|(.., holds)| !holds).map(|(number, text, _)| Violation { number, text }).collect()
}
