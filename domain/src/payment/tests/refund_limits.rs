//! Limits of refunds: none to the only sender, a daily limit elsewhere, and the operator's approval above it.

use super::OperationAction::{Cancel as CancelRow, Queue};
use super::*;
use Label::*;
use Status::{Confirmed, Mismatched, Settled};

fn order(n: u128, to: Address) -> RefundOrder {
    RefundOrder { to: Some(to), ..RefundOrder::new(refund_id(n), Requester::Psp) }
}

fn asks(order: RefundOrder) -> Command {
    Command::RequestRefund(Box::new(order))
}

/// A refund above the limit, to `ELSEWHERE`.
fn held(n: u128) -> Command {
    asks(order(n, ELSEWHERE)).held().unwrap()
}

fn decides(n: u128, approve: bool) -> Command {
    Command::DecideRefund { refund_id: refund_id(n), approve }
}

fn blocks(n: u128) -> Command {
    Command::ScreenRefund { refund_id: refund_id(n), verdict: verdict(Decision::Block) }
}

fn limit_of(story: Story) -> RefundLimit {
    story.payment.refunds.last().unwrap().limit
}

#[test]
fn only_a_refund_to_the_only_plain_sender_has_no_limit() {
    let to_sender = || RefundOrder { plain: Some(PAYER), hold: true, ..order(1, PAYER) };
    assert_eq!(limit_of(underpaid().when(asks(to_sender()))), RefundLimit::None);
    // The chain does not say that the sender is a plain account.
    let contract = RefundOrder { plain: None, hold: false, ..to_sender() };
    assert_eq!(limit_of(underpaid().when(asks(contract))), RefundLimit::Elsewhere);
    // A plain account that did not send the money.
    let other = RefundOrder { plain: Some(ELSEWHERE), ..order(1, ELSEWHERE) };
    assert_eq!(limit_of(underpaid().when(asks(other))), RefundLimit::Elsewhere);
    // One of two senders.
    let two = || given(terms()).arrives(tx(1).of("4")).arrives(tx(2).of("1").from(ELSEWHERE));
    assert_eq!(limit_of(two().when(asks(to_sender()))), RefundLimit::Approval);
    // After the settlement, from the PSP's vault.
    assert_eq!(limit_of(paid().settled(1).when(asks(to_sender()))), RefundLimit::None);
}

#[test]
fn each_token_and_chain_has_its_own_sender() {
    let polygon = Asset { chain: Chain::Polygon, address: USDC };
    let back = |n, to| RefundOrder {
        funds: Funds::Misdirected,
        asset: Some(polygon),
        plain: Some(to),
        amount: Some(amount("1")),
        ..order(n, to)
    };
    let story = || underpaid().arrives(tx(2).of("3").on(Chain::Polygon).from(ELSEWHERE));
    assert_eq!(limit_of(story().when(asks(back(1, ELSEWHERE)))), RefundLimit::None);
    assert_eq!(limit_of(story().when(asks(back(1, PAYER)))), RefundLimit::Elsewhere);
}

#[test]
fn refunds_of_the_operator_and_of_a_policy_have_no_limit() {
    let blocked = refund_of(1, None, Funds::Blocked, None, Requester::Operator);
    assert_eq!(limit_of(given(terms()).tainted(tx(1)).when(blocked)), RefundLimit::None);
    let policy = Terms { overpayment: OverpaymentPolicy::RefundExcess, refund_to_sender: true, ..terms() };
    assert_eq!(limit_of(given(policy).arrives(tx(1).of("12"))), RefundLimit::None);
}

#[test]
fn a_held_refund_keeps_its_amount_and_is_sent_after_approval_and_screening() {
    let waiting = || underpaid().when(held(1)).is(Mismatched, &[Underpaid, RefundApproval]);
    let status = |status: &'static str| {
        move |payment: &Payment| {
            assert_eq!(payment.refunds[0].public_status(), status);
            assert_eq!(payment.attention(), (status == "pending_approval").then_some(RefundApproval));
        }
    };
    let screening =
        Effect::ScreenRefund { refund_id: refund_id(1), to: ELSEWHERE, amount: amount("4.00"), chain: Chain::Base };
    let send =
        Effect::Send { operation: OperationId::refund_of(refund_id(1)), refund_id: refund_id(1), chain: Chain::Base };
    // Screened first.
    waiting()
        .asks_for(&screening)
        .money("4.00", "0.00", "10.00", "0.00")
        .refused(&asks(order(2, PAYER)), "nothing_to_refund")
        .cleared(1)
        .queues(&[])
        .also(status("pending_approval"))
        .when(decides(1, true))
        .queues(&[(Queue, "4.00")])
        .asks_for(&send)
        .also(status("pending"))
        .is(Mismatched, &[Underpaid])
        .refused(&decides(1, true), "not_awaiting_approval")
        .refused(&decides(1, false), "not_awaiting_approval")
        .notified(UNDERPAID);
    // Approved first.
    waiting().when(decides(1, true)).queues(&[]).asks_for_nothing().cleared(1).queues(&[(Queue, "4.00")]);
    waiting().when(decides(1, true)).when(blocks(1)).queues(&[]).money("4.00", "0.00", "6.00", "4.00");
    // A repeated request is the same refund.
    waiting().unchanged(&held(1)).unchanged(&asks(order(1, ELSEWHERE)));
}

#[test]
fn a_rejected_refund_fails_and_returns_its_amount() {
    let failed = |reason: RefundFailure| {
        move |payment: &Payment| {
            assert_eq!((payment.refunds[0].public_status(), payment.attention()), ("failed", None));
            assert_eq!(payment.refunds[0].failure_reason(), Some(reason));
        }
    };
    let rejected = |story: Story| story.when(held(1)).when(decides(1, false)).queues(&[]);
    let story = rejected(underpaid())
        .also(failed(RefundFailure::NotApproved))
        .money("4.00", "0.00", "6.00", "4.00")
        .notified(&[UNDERPAID, &["refund.failed"]].concat())
        .refused(&decides(1, true), "not_awaiting_approval");
    let body = payload(&story.payment, story.notified.last().unwrap(), EventId::from_ulid(Ulid(1))).unwrap();
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["refund_failure_reason"], "not_approved");
    assert_eq!(body["refund_failure"], "the operator did not approve the refund");
    assert_eq!((&body["failure_reason"], &body["failure"]), (&body["refund_failure_reason"], &body["refund_failure"]));
    // The address may be blocked while the refund is held.
    underpaid().when(held(1)).when(blocks(1)).also(failed(RefundFailure::AddressBlocked));
    rejected(paid().settled(1)).is(Settled, &[]).money("10.00", "0.00", "0.00", "10.00");
}

#[test]
fn a_held_refund_of_a_failed_settlement_holds_the_settlement_back() {
    let waiting = || {
        let story = paid().settlement_fails(1).when(held(1)).queues(&[(CancelRow, "10.00")]);
        story.is(Confirmed, &[SettlementFailed, RefundApproval])
    };
    waiting().cleared(1).when(decides(1, true)).queues(&[(Queue, "10.00")]).is(Confirmed, &[SettlementFailed]);
    let story = waiting().when(decides(1, false)).is(Confirmed, &[SettlementFailed]);
    assert_eq!(story.payment.settlement.as_deref().unwrap().state, SettlementState::Failed);
    story.when(Command::RetrySettlement { by: Requester::Psp }).settled(2).is(Settled, &[]);
}

#[test]
fn only_held_refunds_can_be_decided() {
    let asked = underpaid().when(asks(order(1, ELSEWHERE)));
    asked.refused(&decides(1, true), "not_awaiting_approval").refused(&decides(2, true), "not_awaiting_approval");
    assert_eq!(held(1).held(), None);
    assert_eq!(Command::Cancel.held(), None);
}

#[test]
fn a_restart_keeps_a_refund_held() {
    let held_back = underpaid().expired().when(held(1)).cleared(1).payment;
    assert!(held_back.is_live());
    let sends = |payment: &Payment| resume(payment).iter().any(|effect| matches!(effect, Effect::Send { .. }));
    assert!(!sends(&held_back));
    let stored = serde_json::to_string(&held_back).unwrap();
    let read: Payment = serde_json::from_str(&stored).unwrap();
    assert_eq!(read, held_back);
    let approved = transition(&read, &decides(1, true), at(9_000)).unwrap().unwrap().payment;
    assert!(sends(&approved));
}

#[test]
fn reads_refunds_of_older_versions() {
    let refund = underpaid().when(asks(order(1, ELSEWHERE))).payment.refunds.remove(0);
    let mut row = serde_json::to_value(&refund).unwrap();
    row.as_object_mut().unwrap().remove("limit");
    let read: Refund = serde_json::from_value(row).unwrap();
    assert_eq!((read.limit, read.awaits_approval()), (RefundLimit::None, false));
}
