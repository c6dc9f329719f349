//! The body of a public event, as it is signed and sent.

use payferry_domain::payment::{Announcement, FailureReason, Label, Payment, Status};
use payferry_domain::{Chain, CustomerId, EventId, Hash32, MerchantId, PaymentId, RefundId, Token};
use serde::Serialize;

/// A flat object; what does not apply is left out. Amounts are decimal strings, times ISO 8601.
#[derive(Serialize)]
struct Body<'a> {
    event: &'static str,
    payment_id: PaymentId,
    timestamp: String,
    event_id: EventId,
    sequence: u32,
    status: Status,
    merchant_id: MerchantId,
    #[serde(skip_serializing_if = "Option::is_none")]
    customer_id: Option<CustomerId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<&'a str>,
    amount: String,
    amount_received: String,
    token: Token,
    chain: Chain,
    #[serde(skip_serializing_if = "Option::is_none")]
    tx_hash: Option<Hash32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    psp_amount: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    treasury_fee: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refund_id: Option<RefundId>,
    labels: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_reason: Option<FailureReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a serde_json::Map<String, serde_json::Value>>,
}

/// The body of `announcement`; `payment` is as the commit leaves it.
pub(super) fn payload(
    payment: &Payment,
    announcement: &Announcement,
    event_id: EventId,
) -> Result<String, serde_json::Error> {
    let terms = &payment.terms;
    // The shares are fixed from confirmation on; before it, and after it was taken back, they mean nothing.
    let fixed = matches!(announcement.status, Status::Confirmed | Status::Settled);
    let settlement = payment.settlement.as_deref().filter(|_| fixed);
    serde_json::to_string(&Body {
        event: announcement.name.as_str(),
        payment_id: terms.id,
        timestamp: announcement.at.to_string(),
        event_id,
        sequence: announcement.sequence,
        status: announcement.status,
        merchant_id: terms.merchant_id,
        customer_id: terms.customer_id,
        reference: terms.reference.as_deref(),
        amount: terms.amount.to_string(),
        amount_received: payment.amount_received().to_string(),
        token: terms.token,
        chain: terms.chain,
        tx_hash: announcement.tx_hash,
        psp_amount: settlement.map(|settlement| settlement.psp_amount.to_string()),
        treasury_fee: settlement.map(|settlement| settlement.treasury_fee.to_string()),
        refund_id: announcement.refund_id,
        labels: payment.labels.iter().map(Label::as_str).collect(),
        failure_reason: payment.failure_reason.filter(|_| announcement.status == Status::Failed),
        metadata: terms.metadata.as_ref(),
    })
}
