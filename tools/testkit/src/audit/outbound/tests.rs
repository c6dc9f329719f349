//! Tests of the comparison of outbound transfers with their requests.

use std::collections::HashMap;
use std::time::Duration;

use alloy::primitives::B256;
use serde_json::{Value, json};

use super::check::Listed;
use super::*;
use crate::audit::behaviour::Behaviour;
use crate::audit::record::Novelty;
use crate::audit::record::tests::{HASH, RECIPIENT, REFUND, event, record};
use crate::audit::state::{Inner, RunState};
use crate::movements::SentTransfer;

/// Place of the event of the refund.
const SENT: usize = 4;

/// Makes a refunded payment all of whose events arrived, the last one with this change.
fn refunded(change: impl FnOnce(&mut WebhookEvent)) -> Record {
    let mut record = record(Behaviour::Refunded);
    for place in 0..SENT {
        let event = event(&record, place);
        record.receive(&event, &event.event_id);
    }
    let mut sent = event(&record, SENT);
    change(&mut sent);
    assert!(!matches!(record.receive(&sent, &sent.event_id), Novelty::Repeated));
    record.outbound_announced(EventName::RefundSent, Instant::now(), Instant::now());
    record
}

/// Returns the state of a run with this payment.
fn run_of(record: Record) -> RunState {
    let (state, _next) = RunState::new("0a1b2c3d", 0, 100);
    state.read().records.push(record);
    state
}

fn listed(record: &Record, change: &Value) -> Listed {
    let mut listed = json!({
        "id": REFUND, "status": "sent", "payment_id": record.id().unwrap().to_string(), "reference": "r",
        "amount": record.intent.outbound_amount().unwrap().to_string(), "currency": record.intent.token.as_str(),
        "chain": record.intent.chain.as_str(), "address": RECIPIENT, "tx_hash": HASH.to_string(), "failure": null,
    });
    for (name, value) in change.as_object().unwrap() {
        listed[name] = value.clone();
    }
    serde_json::from_value(listed).unwrap()
}

#[test]
fn events_that_differ_from_the_request_are_faults() {
    assert_eq!(refunded(|_| {}).faults, Vec::<String>::new());
    let other = |change: fn(&mut WebhookEvent), says: &str| {
        let record = refunded(change);
        assert!(record.faults.iter().any(|fault| fault.contains(says)), "{says}: {:?}", record.faults);
    };
    other(|event| event.refund_amount = Some("1.00".to_owned()), "refund.sent: 1.00 to 0x");
    other(|event| event.refund_address = Some(Address::ZERO), ", not 5.00 to 0x");
    other(|event| event.refund_id = Some("rf_2".to_owned()), "webhooks report the refund rf_2, not rf_1");
    other(|event| event.tx_hash = None, "has no tx_hash");
    other(|event| event.event = "refund.failed".to_owned(), "event 5 is refund.failed, not refund.sent");
}

/// Changes an event under the id of a payout, by its `sequence`.
type Change = (u32, fn(&mut WebhookEvent));

#[test]
fn events_of_a_payout_have_a_sequence_of_their_own() {
    let received = |changes: &[Change]| {
        let mut record = record(Behaviour::PaidOut);
        for place in 0..record.events.len() {
            let event = event(&record, place);
            record.receive(&event, &event.event_id);
        }
        assert!(!record.is_complete());
        for (sequence, change) in changes {
            let mut of = WebhookEvent {
                event: ["payout.pending", "payout.sent"][*sequence as usize - 1].to_owned(),
                payment_id: REFUND.to_owned(),
                sequence: *sequence,
                amount: record.intent.outbound_amount().unwrap().to_string(),
                address: Some(RECIPIENT),
                ..event(&record, 3)
            };
            change(&mut of);
            if !matches!(record.receive_outbound(&of, &of.event_id), Novelty::Wrong) {
                assert_eq!(record.receive_outbound(&of, &of.event_id), Novelty::Repeated);
            }
        }
        record
    };
    let right = received(&[(2, |_| {}), (1, |_| {})]);
    assert!(right.is_complete() && right.faults.is_empty(), "{:?}", right.faults);
    let half = received(&[(2, |_| {})]);
    assert_eq!(half.missing_outbound(), [("payout.pending", 1)]);
    assert!(half.lacks_outbound_before(2) && !half.is_complete());
    let cases: [(&[Change], &str); 5] = [
        (&[(1, |event| event.amount = "9.00".to_owned())], "payout.pending: 9.00 to 0x"),
        (&[(2, |event| event.event = "payout.failed".to_owned())], "payout.failed arrived as event 2 of the payout"),
        (&[(1, |_| {}), (1, |_| {})], "payout.pending arrived as event 1 of the payout"),
        (&[(1, |_| {}), (2, |event| event.payment_id = "po_2".to_owned())], "another payout with the id `po_2`"),
        (&[(1, |event| event.chain = "moon".to_owned())], "USDC on moon, not USDC on base"),
    ];
    for (changes, says) in cases {
        let faults = received(changes).faults.join("; ");
        assert!(faults.contains(says), "{says}: {faults}");
    }
}

#[test]
fn lists_that_differ_from_the_request_are_faults() {
    let compared = |changes: &[Value]| {
        let record = refunded(|_| {});
        let lists = HashMap::from([(0, changes.iter().map(|change| listed(&record, change)).collect())]);
        let state = run_of(record);
        compare_listed(&mut state.read(), &lists);
        let inner = state.read();
        (inner.records[0].faults.join("; "), inner.records[0].outbound.as_ref().unwrap().is_lost)
    };
    assert_eq!(compared(&[json!({})]), (String::new(), false));
    assert_eq!(compared(&[]), (String::new(), true));
    for (change, says) in [
        (json!({"amount": "1.00"}), "its refund shows amount `1.00`, not `5.00`"),
        (json!({"address": Address::ZERO}), "its refund shows address `0x0000"),
        (json!({"status": "failed", "failure": "reverted"}), "shows status `failed (reverted)`, not `sent`"),
        (json!({"status": "pending"}), "shows status `pending`, not `sent`"),
        (json!({"tx_hash": B256::ZERO}), "shows tx_hash `0x0000"),
        (json!({"payment_id": "pay_other"}), "shows payment_id `pay_other`"),
    ] {
        let (faults, _) = compared(&[change]);
        assert!(faults.contains(says), "{says}: {faults}");
    }
    let (faults, _) = compared(&[json!({}), json!({"id": "rf_2"})]);
    assert!(faults.starts_with("rf_2 of 5.00 to 0x") && faults.ends_with("exists besides"), "{faults}");
}

#[test]
fn transfers_match_the_requests_one_to_one() {
    let assigned = |hashes: &[B256], to: Address| {
        let record = refunded(|_| {});
        let (chain, token, amount) =
            (record.intent.chain, record.intent.token, record.intent.outbound_amount().unwrap());
        let sent: Vec<SentTransfer> =
            hashes.iter().map(|tx_hash| SentTransfer { token, to, amount, tx_hash: *tx_hash }).collect();
        let state = run_of(record);
        let others = SentTransfers::of(&sent).assign(&mut state.read(), chain);
        let faults = Inner::record(&mut state.read(), 0).unwrap().faults.join("; ");
        (faults, others.join("; "))
    };
    assert_eq!(assigned(&[HASH], RECIPIENT), (String::new(), String::new()));
    let (missing, _) = assigned(&[], RECIPIENT);
    assert!(missing.starts_with("its refund of 5.00 to 0x") && missing.ends_with("is not on-chain"), "{missing}");
    let (doubled, others) = assigned(&[HASH, B256::repeat_byte(8)], RECIPIENT);
    assert!(doubled.contains("which no webhook and no list reports") && others.is_empty(), "{doubled} {others}");
    let (elsewhere, others) = assigned(&[HASH], Address::ZERO);
    assert!(elsewhere.contains("is not on-chain") && others.contains("left the vault for 0x0000"), "{others}");
}

#[test]
fn figures_count_waits_as_lower_bounds() {
    let complete = refunded(|_| {});
    let waiting = record(Behaviour::Refunded);
    let mut refused = record(Behaviour::Refunded);
    let refusal = InitiationFailure { kind: "send: 409 nothing_to_refund".to_owned(), may_be_there: false };
    let order = refused.outbound.as_ref().unwrap().order;
    refused.request_outbound(order, Instant::now());
    refused.outbound_answered(Err(refusal), Instant::now());
    assert!(refused.missing().iter().all(|(name, _)| *name != "refund.sent"));
    let all = [complete, waiting, refused];
    let [of] = figures(all.iter(), Instant::now() + Duration::from_secs(5)).try_into().expect("one kind");
    let OutboundFigures { kind, requested, not_accepted, complete, stages } = of;
    assert_eq!((kind, requested, not_accepted, complete), (OutboundKind::Refund, 3, 1, 1));
    let counts: Vec<_> = stages.iter().map(|of| (of.stage.as_str(), of.from_request.count, of.timed_out)).collect();
    assert_eq!(counts, [("accepted", 2, 0), ("sent", 2, 1), ("complete", 2, 1)]);
    assert!(stages[2].from_request.max_ms >= 5_000.0, "{stages:?}");
}

#[test]
fn refunds_of_the_fee_need_money_in_the_vault() {
    let whole = (0..100).map(|number| Intent::nth(number, Behaviour::Refunded));
    let whole = whole.filter(|intent| intent.outbound_amount() == Some(intent.amount)).take(2);
    let fees: i64 = whole.clone().map(|intent| intent.amount.units() / 100).sum();
    let needs = OutboundNeeds::of(whole, 100);
    assert!(needs.has(OutboundKind::Refund) && !needs.has(OutboundKind::Payout));
    assert_eq!(needs.shortfalls.values().map(|amount| amount.units()).sum::<i64>(), fees);
    for behaviour in [Behaviour::Exact, Behaviour::PaidOut] {
        let needs = OutboundNeeds::of((0..9).map(|number| Intent::nth(number, behaviour)), 100);
        assert!(needs.shortfalls.is_empty(), "{behaviour}");
    }
}
