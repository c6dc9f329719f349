//! Transfers to customers.

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
fn forwards_the_whole_amount() {
    let story = given(transfer()).arrives(tx(1));
    let delivery = story.last.as_ref().unwrap().operations[0];
    assert_eq!(delivery.body, OperationBody::Deliver { to: CUSTOMER, amount: amount("10.00") });
    assert_eq!(story.payment.public_status(), "pending");
    let story = story.notified(&[]).settled(1).notified(&["transfer.settled"]);
    assert_eq!(story.payment.public_status(), "settled");
    assert_eq!(ledger::balance(&story.posted, Account::External, story.payment.asset()), 0);
    let body = payload(&story.payment, &story.notified[0], EventId::from_ulid(Ulid(1))).unwrap();
    let body: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&body).unwrap();
    assert_eq!(body["payment_id"], TransferId::of(story.payment.id()).to_string());
    assert!(!body.contains_key("psp_amount") && !body.contains_key("merchant_id"));
}

#[test]
fn underpaid_transfer_waits_and_surplus_stays_refundable() {
    let story = given(transfer()).arrives(tx(1).of("4")).notified(&["transfer.underpaid"]);
    assert_eq!(story.payment.public_status(), "underpaid");
    let story =
        story.arrives(tx(2).of("9")).notified(&["transfer.mismatched"]).queues(&[(OperationAction::Queue, "10.00")]);
    story.settled(1).notified(&["transfer.settled"]).money("13.00", "0.00", "0.00", "3.00");
}

#[test]
fn unpaid_transfer_fails_and_holds_late_funds() {
    let story = given(transfer()).expired().notified(&["transfer.failed"]).failed(FailureReason::Expired);
    let story =
        story.arrives(tx(1).at(1_300)).notified(&["transfer.mismatched"]).money("10.00", "0.00", "0.00", "10.00");
    assert_eq!(story.payment.public_status(), "failed");
}

#[test]
fn a_failure_is_announced_once() {
    let both = &["transfer.mismatched", "transfer.failed"];
    let short = given(transfer()).arrives(tx(1).of("4")).notified(&["transfer.underpaid"]);
    let story = short.arrives(tx(2).of("6").at(1_300)).notified(&[]).expired().notified(both);
    assert_eq!(story.payment.public_status(), "failed");
    story.arrives(tx(3).of("1").at(1_400)).notified(&["transfer.mismatched"]);
    let wrong = given(transfer()).arrives(tx(1).on(Chain::Polygon)).notified(&["transfer.mismatched"]);
    wrong.expired().is(Status::Mismatched, &[Label::WrongChain]).notified(both);
}

/// Every transfer with the public status `failed` has a reason, also one whose payment is only mismatched.
#[test]
fn a_failed_transfer_has_a_reason() {
    let paid = given(transfer()).arrives(tx(1));
    assert_eq!(paid.payment.public_failure(), None);
    for (story, expected) in [
        (given(transfer()).expired(), PublicFailure::Expired),
        (given(transfer()).arrives(tx(1).on(Chain::Polygon)).expired(), PublicFailure::Mismatched),
        (paid.settlement_fails(1), PublicFailure::SettlementFailed),
    ] {
        assert_eq!((story.payment.public_status(), story.payment.public_failure()), ("failed", Some(expected)));
        let body = payload(&story.payment, story.notified.last().unwrap(), EventId::from_ulid(Ulid(1))).unwrap();
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!((&body["failure_reason"], &body["failure"]), (&expected.as_str().into(), &expected.words().into()));
    }
}

#[test]
fn a_failed_delivery_is_announced_once_and_refundable() {
    let story = given(transfer()).arrives(tx(1)).settlement_fails(1).notified(&["transfer.failed"]);
    assert_eq!(story.payment.public_status(), "failed");
    let id = refund_id(1);
    let back = refund_of(1, None, Funds::Received, None, Requester::Psp);
    let story =
        story.when(back).cleared(1).when(Command::CompleteRefund { refund_id: id, revision: 1, tx_hash: hash(91) });
    story.notified(&["refund.sent"]).failed(FailureReason::SettlementFailed);
}
