//! Transfers to customers: the same payment, with another end.

use super::*;
use crate::ledger::Account;

const CUSTOMER: Address = Address([0x44; 20]);

fn transfer() -> Terms {
    Terms {
        purpose: Purpose::Transfer { to: CUSTOMER },
        merchant_id: None,
        customer_id: Some(CustomerId::from_ulid(Ulid(3))),
        fee_bps: FeeBps::ZERO,
        overpayment: OverpaymentPolicy::KeepExcess,
        ..terms()
    }
}

#[test]
fn what_arrives_is_sent_on_whole() {
    let story = given(transfer()).arrives(tx(1));
    let delivery = story.last.as_ref().unwrap().operations[0];
    assert_eq!(delivery.body, OperationBody::Deliver { to: CUSTOMER, amount: amount("10.00") });
    assert_eq!(story.payment.public_status(), "pending");
    let story = story.told(&[]).settled(1).told(&["transfer.settled"]);
    assert_eq!(story.payment.public_status(), "settled");
    assert_eq!(ledger::balance(&story.posted, Account::External, story.payment.asset()), 0);
    let body = payload(&story.payment, &story.told[0], EventId::from_ulid(Ulid(1))).unwrap();
    let body: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&body).unwrap();
    assert_eq!(body["payment_id"], TransferId::of(story.payment.id()).to_string());
    assert!(!body.contains_key("psp_amount") && !body.contains_key("merchant_id"));
}

#[test]
fn a_short_transfer_waits_for_the_rest_and_a_surplus_stays_refundable() {
    let story = given(transfer()).arrives(tx(1).of("4")).told(&["transfer.underpaid"]);
    assert_eq!(story.payment.public_status(), "underpaid");
    let story =
        story.arrives(tx(2).of("9")).told(&["transfer.mismatched"]).queues(&[(OperationAction::Queue, "10.00")]);
    story.settled(1).told(&["transfer.settled"]).money("13.00", "0.00", "0.00", "3.00");
}

#[test]
fn what_never_comes_fails_and_what_comes_late_is_held() {
    let story = given(transfer()).expired().told(&["transfer.failed"]).failed(FailureReason::Expired);
    let story = story.arrives(tx(1).at(1_300)).told(&["transfer.mismatched"]).money("10.00", "0.00", "0.00", "10.00");
    assert_eq!(story.payment.public_status(), "failed");
}

#[test]
fn whatever_makes_it_fail_is_told_once() {
    let both = &["transfer.mismatched", "transfer.failed"];
    let short = given(transfer()).arrives(tx(1).of("4")).told(&["transfer.underpaid"]);
    let story = short.arrives(tx(2).of("6").at(1_300)).told(&[]).expired().told(both);
    assert_eq!(story.payment.public_status(), "failed");
    story.arrives(tx(3).of("1").at(1_400)).told(&["transfer.mismatched"]);
    let wrong = given(transfer()).arrives(tx(1).on(Chain::Polygon)).told(&["transfer.mismatched"]);
    wrong.expired().is(Status::Mismatched, &[Label::WrongChain]).told(both);
}

#[test]
fn a_delivery_that_fails_is_told_once_and_can_be_refunded() {
    let story = given(transfer()).arrives(tx(1)).settlement_fails(1).told(&["transfer.failed"]);
    assert_eq!(story.payment.public_status(), "failed");
    let id = refund_id(1);
    let back = Command::RequestRefund {
        refund_id: id,
        amount: None,
        to: Some(ELSEWHERE),
        funds: Funds::Received,
        asset: None,
        by: Requester::Psp,
    };
    let story =
        story.when(back).cleared(1).when(Command::CompleteRefund { refund_id: id, revision: 1, tx_hash: hash(91) });
    story.told(&["refund.sent"]).failed(FailureReason::SettlementFailed);
}
