//! Payments that are behind at the end of a run, and not wrong: the service has not finished them yet.
//!
//! Pure. A late payment is a finding all the same. The search for the highest rate treats it as a rate that is too high,
//! and everything else as a defect.

use super::expect;
use super::record::Record;
use super::{AuditedPayment, AuditedTransfer, ORPHANED};
use crate::wire::{Amount, Status};

/// Returns true if the payment is only behind: webhooks are missing, those that arrived have no fault, and it shows a
/// state on the way to the expected one, with amounts that are right so far.
pub(super) fn is_behind(record: &Record, shown: &AuditedPayment) -> bool {
    let intent = &record.intent;
    let Some(made) = record.made.filter(|_| record.faults.is_empty() && !record.is_complete()) else {
        return false;
    };
    let is_same = shown.payment_id == made.id
        && shown.intermediary_wallet == made.wallet
        && shown.amount == intent.amount.to_string()
        && shown.currency == intent.token.as_str()
        && shown.chain == intent.chain.as_str();
    let on_the_way = expect::events(intent.behaviour).iter().map(|event| event.status);
    let is_on_the_way =
        std::iter::once(Status::Pending).chain(on_the_way).any(|status| status.as_str() == shown.status);
    let paid = intent.paid_amount().unwrap_or_default();
    let is_received = [Amount::ZERO, paid].iter().any(|amount| amount.to_string() == shown.amount_received);
    let is_right = |transfer: &AuditedTransfer| {
        let is_payers = record.sent.is_none_or(|(hash, _)| hash.to_string() == transfer.tx_hash);
        is_payers && transfer.amount == paid.to_string()
    };
    let present = shown.transfers.iter().filter(|transfer| transfer.status != ORPHANED).count();
    let are_right = present <= 1 && shown.transfers.iter().all(is_right);
    let settles = expect::ends(intent.behaviour).status == Status::Settled;
    let is_split = shown.settlement.as_ref().is_none_or(|settlement| {
        let split = format!("{} and {}", settlement.psp_amount, settlement.treasury_fee);
        settles && split == expect::split(paid, record.fee_bps)
    });
    let reason = shown.failure_reason.as_deref();
    let has_failed = shown.status == Status::Failed.as_str();
    let is_reason = reason.is_none() || (has_failed && reason == Some(expect::EXPIRED_REASON));
    let ends_with = expect::ends(intent.behaviour).labels;
    let may_have = |label: &str| ends_with.iter().any(|wanted| wanted.as_str() == label);
    let are_labels = record.own_labels(&shown.labels).split_whitespace().all(may_have);
    let has_excess = shown.excess_received != Amount::ZERO.to_string();
    is_same && is_on_the_way && is_received && is_reason && are_labels && !has_excess && are_right && is_split
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::audit::behaviour::Behaviour;
    use crate::audit::record::tests::{HASH, event, record};

    /// Returns true if this payment with the first two webhooks, as it is shown with a change, is only behind.
    fn behind(change: &Value, fault: Option<&str>) -> bool {
        let mut record = record(Behaviour::Exact);
        for place in 0..2 {
            let event = event(&record, place);
            record.receive(&event, &event.event_id);
        }
        record.faults.extend(fault.map(str::to_owned));
        let (made, paid) = (record.made.unwrap(), record.intent.amount.to_string());
        let mut shown = json!({
            "payment_id": made.id.to_string(), "status": "confirmed", "reference": "r", "amount": paid,
            "amount_received": paid, "excess_received": "0.00", "currency": "USDC", "chain": "base",
            "intermediary_wallet": made.wallet, "labels": [], "failure_reason": null, "settlement": null,
            "transfers": [{"tx_hash": HASH.to_string(), "amount": paid, "status": "final", "counted": true}],
        });
        for (name, value) in change.as_object().unwrap() {
            shown[name] = value.clone();
        }
        is_behind(&record, &serde_json::from_value(shown).unwrap())
    }

    #[test]
    fn a_payment_that_is_wrong_is_not_only_behind() {
        let settlement = |psp_amount: &str| {
            json!({"settlement": {"status": "submitted", "amount": "5.00", "psp_amount": psp_amount,
                "treasury_fee": "0.0165", "tx_hash": null}})
        };
        let transfer = |amount: &str| json!({"transfers": [{"tx_hash": HASH.to_string(), "amount": amount, "status": "seen", "counted": false}]});
        let pending = json!({"status": "pending", "amount_received": "0.00", "transfers": []});
        for late in [json!({}), json!({"status": "settled"}), pending, settlement("4.9835"), transfer("5.00")] {
            assert!(behind(&late, None), "{late}");
        }
        for wrong in [
            json!({"status": "failed"}),
            json!({"amount_received": "10.00"}),
            json!({"amount": "6.00"}),
            json!({"excess_received": "1.00"}),
            json!({"labels": ["UNDERPAID"]}),
            json!({"failure_reason": "expired"}),
            json!({"chain": "polygon"}),
            settlement("4.99"),
            transfer("6.00"),
        ] {
            assert!(!behind(&wrong, None), "{wrong}");
        }
        assert!(!behind(&json!({}), Some("a webhook was wrong")));
    }
}
