//! Public events of a customer, and the flat body of their webhooks. They contain no personal data.

use serde::Serialize;

use super::Customer;
use super::words::KycStatus;
use crate::ids::{CustomerId, EventId};
use crate::payment::EventName;
use crate::time::Timestamp;

/// One public event of a customer, with the values of that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announcement {
    /// Name.
    pub name: EventName,
    /// Customer.
    pub customer_id: CustomerId,
    /// Position in the event feed of the customer: 1, 2, 3, ... without gaps.
    pub sequence: u32,
    /// When it happened.
    pub at: Timestamp,
    /// KYC status after the change.
    pub kyc_status: KycStatus,
    /// True if the customer is active after the change.
    pub is_active: bool,
}

/// Returns the public events of a change, in the order of delivery.
pub fn announced(before: &Customer, after: &Customer) -> Vec<EventName> {
    let changes = [
        (before.tos_accepted_at.is_none() && after.tos_accepted_at.is_some(), EventName::CustomerConsentAccepted),
        (before.kyc_status != after.kyc_status, EventName::CustomerKycUpdated),
        (before.is_active && !after.is_active, EventName::CustomerDeactivated),
    ];
    changes.into_iter().filter_map(|(happened, name)| happened.then_some(name)).collect()
}

#[derive(Serialize)]
struct Body {
    id: EventId,
    event: &'static str,
    payment_id: CustomerId,
    timestamp: String,
    created_at: String,
    updated_at: String,
    event_id: EventId,
    sequence: u32,
    customer_id: CustomerId,
    kyc_status: KycStatus,
    is_active: bool,
}

/// Returns the body of `announcement`, as it is signed and sent.
pub fn payload(announcement: &Announcement, event_id: EventId) -> Result<String, serde_json::Error> {
    let Announcement { name, customer_id, sequence, at, kyc_status, is_active } = *announcement;
    let at = at.to_string();
    serde_json::to_string(&Body {
        id: event_id,
        event: name.as_str(),
        payment_id: customer_id,
        timestamp: at.clone(),
        created_at: at.clone(),
        updated_at: at,
        event_id,
        sequence,
        customer_id,
        kyc_status,
        is_active,
    })
}
