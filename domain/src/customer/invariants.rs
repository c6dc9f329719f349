//! Numbered invariants of a customer.

use super::{Check, CheckPurpose, Customer, KycStatus, missing};
use crate::invariants::Invariant;

/// Every invariant of a customer, in the order of the numbers.
pub const INVARIANTS: &[Invariant<Customer>] = &[
    Invariant { id: "CUS-1", name: "a cleared customer has accepted the terms", holds: cleared_accepted_terms },
    Invariant {
        id: "CUS-2",
        name: "an update is screened exactly while the status is pending_update",
        holds: update_is_pending,
    },
    Invariant {
        id: "CUS-3",
        name: "an active customer in pending_update has a screening of its current data",
        holds: update_is_screened,
    },
    Invariant { id: "CUS-4", name: "a deactivated customer has no check", holds: inactive_has_no_check },
    Invariant {
        id: "CUS-5",
        name: "rejection reasons exist exactly while the customer is rejected",
        holds: rejection_has_reasons,
    },
    Invariant {
        id: "CUS-6",
        name: "an identity check requires complete documents and no decision",
        holds: check_is_due,
    },
    Invariant { id: "CUS-7", name: "the check is about the current data", holds: check_is_current },
    Invariant {
        id: "CUS-8",
        name: "a screening runs only while the status is pending_update",
        holds: screening_is_due,
    },
    Invariant { id: "CUS-9", name: "documents match the kind of the customer", holds: documents_match },
];

/// Status without regard to an update that is being screened.
fn lasting_status(customer: &Customer) -> KycStatus {
    customer.before_update.unwrap_or(customer.kyc_status)
}

fn cleared_accepted_terms(customer: &Customer) -> bool {
    !lasting_status(customer).is_cleared() || customer.tos_accepted_at.is_some()
}

fn update_is_pending(customer: &Customer) -> bool {
    (customer.kyc_status == KycStatus::PendingUpdate) == customer.before_update.is_some()
}

fn is_current(customer: &Customer, check: Check) -> bool {
    check.revision == customer.revision
}

fn update_is_screened(customer: &Customer) -> bool {
    !customer.is_active
        || customer.kyc_status != KycStatus::PendingUpdate
        || customer.check.is_some_and(|check| check.purpose == CheckPurpose::Rescreen && is_current(customer, check))
}

fn inactive_has_no_check(customer: &Customer) -> bool {
    customer.is_active || customer.check.is_none()
}

fn rejection_has_reasons(customer: &Customer) -> bool {
    (lasting_status(customer) == KycStatus::Rejected) != customer.rejection_reasons.is_empty()
}

fn check_is_due(customer: &Customer) -> bool {
    customer.check.is_none_or(|check| {
        check.purpose != CheckPurpose::Identity
            || (missing(customer).is_empty() && customer.kyc_status == KycStatus::Pending)
    })
}

fn check_is_current(customer: &Customer) -> bool {
    customer.check.is_none_or(|check| is_current(customer, check))
}

fn screening_is_due(customer: &Customer) -> bool {
    customer.kyc_status == KycStatus::PendingUpdate
        || customer.check.is_none_or(|check| check.purpose != CheckPurpose::Rescreen)
}

fn documents_match(customer: &Customer) -> bool {
    customer.documents.iter().all(|document| customer.kind.takes(document))
}
