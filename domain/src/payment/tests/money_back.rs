//! Refunds: which funds, from which vault, and the consequences of their outcome.

use super::OperationAction::{Cancel as CancelRow, Queue};
use super::*;
use Label::*;
use Status::{Confirmed, Failed, Mismatched, Settled};

fn refund(n: u128, text: Option<&str>) -> Command {
    refund_of(n, text, Funds::Received, None, Requester::Psp)
}

fn blocked_refund(n: u128, by: Requester) -> Command {
    refund_of(n, None, Funds::Blocked, None, by)
}

impl Story {
    /// The refund is requested, and screening allows its address.
    fn refunds(self, n: u128, text: Option<&str>) -> Self {
        self.when(refund(n, text)).cleared(n)
    }
}

fn sent(n: u128) -> Command {
    Command::CompleteRefund { refund_id: refund_id(n), revision: 2, tx_hash: hash(91) }
}

fn fails(n: u128) -> Command {
    Command::FailRefund { refund_id: refund_id(n), revision: 1, reason: "screened".to_owned() }
}

/// The refund was orphaned and rejected when it was sent again.
fn fails_after_all(n: u128) -> Command {
    Command::FailRefund { refund_id: refund_id(n), revision: 4, reason: "reverted".to_owned() }
}

#[test]
fn bodies_of_refund_events_name_each_amount_and_address() {
    let sent = underpaid().refunds(1, Some("3")).when(sent(1));
    for story in [sent, underpaid().refunds(1, Some("3")).when(fails(1))] {
        let last = story.notified.last().unwrap();
        let body = payload(&story.payment, last, EventId::from_ulid(Ulid(1))).unwrap();
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!([&body["amount"], &body["payment_amount"], &body["refund_amount"]], ["10.00", "10.00", "3.00"]);
        assert_eq!(body["refund_address"], ELSEWHERE.checksummed());
        assert_eq!(body["id"], body["event_id"]);
    }
    let story = underpaid();
    let body = payload(&story.payment, story.notified.last().unwrap(), EventId::from_ulid(Ulid(1))).unwrap();
    assert!(!body.contains("payment_amount"), "{body}");
}

#[test]
fn refunds_a_mismatched_payment_completely() {
    underpaid()
        .when(refund(1, None))
        .is(Mismatched, &[Underpaid])
        .queues(&[])
        .asks_for(&Effect::ScreenRefund {
            refund_id: refund_id(1),
            to: ELSEWHERE,
            amount: amount("4.00"),
            chain: Chain::Base,
        })
        .cleared(1)
        .queues(&[(Queue, "4.00")])
        .asks_for(&Effect::Send {
            operation: OperationId::refund_of(refund_id(1)),
            refund_id: refund_id(1),
            chain: Chain::Base,
        })
        .money("4.00", "0.00", "10.00", "0.00")
        .unchanged(&refund(1, None))
        .refused(&refund(1, Some("3")), "refund_exists")
        .refused(&refund(2, None), "nothing_to_refund")
        .refused(&Command::Accept { expected_received: None }, "nothing_to_accept")
        .notified(&["payment.mismatched", "payin.underpaid", "payin.mismatched"])
        .expired()
        .when(sent(1))
        .asks_for(&Effect::Passivate)
        .unchanged(&sent(1))
        .unchanged(&fails(1))
        .is(Mismatched, &[Underpaid])
        .notified(&["refund.sent"]);
}

#[test]
fn a_failed_refund_releases_its_amount() {
    underpaid()
        .when(refund(1, Some("3")))
        .money("4.00", "0.00", "9.00", "1.00")
        .refused(&refund(2, Some("1.000001")), "refund_too_large")
        .refused(&refund(2, Some("0")), "refund_too_large")
        .when(fails(1))
        .money("4.00", "0.00", "6.00", "4.00")
        .unchanged(&fails(1));
}

#[test]
fn orphaned_then_rejected_refund_fails_and_returns_the_funds() {
    let notified = ["payment.mismatched", "payin.underpaid", "payin.mismatched", "refund.sent", "refund.failed"];
    underpaid()
        .refunds(1, None)
        .when(sent(1))
        .money("4.00", "0.00", "10.00", "0.00")
        .when(fails_after_all(1))
        .unchanged(&fails_after_all(1))
        .unchanged(&sent(1))
        .notified(&notified)
        .money("4.00", "0.00", "6.00", "4.00")
        .refunds(2, None)
        .when(sent(2));
    paid().settled(1).refunds(1, None).when(sent(1)).when(fails_after_all(1)).money("10.00", "0.00", "0.00", "10.00");
    paid()
        .settlement_fails(1)
        .refunds(1, None)
        .when(sent(1))
        .failed(FailureReason::SettlementFailed)
        .when(fails_after_all(1))
        .failed(FailureReason::SettlementFailed)
        .refunds(2, None)
        .queues(&[(Queue, "10.00")]);
}

#[test]
fn a_refund_of_misdirected_funds_does_not_block_completion() {
    let elsewhere = tx(2).on(Chain::Polygon);
    let asset = Some(Asset { chain: Chain::Polygon, address: USDC });
    let back = refund_of(1, None, Funds::Misdirected, asset, Requester::Psp);
    underpaid()
        .arrives(elsewhere)
        .when(back)
        .is(Mismatched, &[Underpaid, WrongChain])
        .arrives(tx(3).of("6"))
        .is(Confirmed, &[Multiple, WrongChain]);
}

#[test]
fn after_a_refund_only_the_psp_completes_the_payment() {
    underpaid()
        .when(refund(1, Some("1")))
        .arrives(tx(2).of("7"))
        .is(Mismatched, &[Multiple])
        .when(Command::Accept { expected_received: Some(amount("11")) })
        .is(Confirmed, &[Multiple])
        .queues(&[(Queue, "10.00")]);
}

#[test]
fn rejects_refunds_while_a_settlement_is_in_progress() {
    paid()
        .refused(&refund(1, None), "settlement_in_progress")
        .settled(1)
        .settlement_orphaned(2)
        .refused(&refund(1, None), "settlement_in_progress");
    given(terms())
        .refused(&refund(1, None), "payment_pending")
        .expired()
        .refused(&refund(1, None), "nothing_to_refund");
}

#[test]
fn settled_funds_come_from_the_psp_and_excess_from_the_wallet() {
    let source = |vault| move |payment: &Payment| assert_eq!(payment.refunds.last().unwrap().source, vault);
    paid()
        .settled(1)
        .refunds(1, None)
        .queues(&[(Queue, "10.00")])
        .also(source(Vault::Psp))
        .money("10.00", "0.00", "0.00", "0.00");
    paid()
        .settled(1)
        .arrives(tx(2).of("3"))
        .refused(&refund(1, Some("11")), "refund_spans_vaults")
        .refused(&refund(1, Some("13.1")), "refund_too_large")
        .refunds(1, None)
        .queues(&[(Queue, "3.00")])
        .also(source(Vault::Payment))
        .when(refund(2, Some("4")))
        .also(source(Vault::Psp))
        .when(sent(1))
        .is(Settled, &[Excess, Multiple])
        .money("10.00", "3.00", "0.00", "6.00");
    // Without an amount: first the whole wallet, then the vault.
    paid()
        .settled(1)
        .arrives(tx(2).of("3"))
        .when(refund(1, None))
        .when(refund(2, None))
        .also(source(Vault::Psp))
        .also(|payment| assert_eq!(payment.refunds.last().unwrap().amount, amount("10.00")))
        .refused(&refund(3, None), "nothing_to_refund");
}

#[test]
fn a_failed_settlement_is_refunded_completely_or_not_at_all() {
    let failing = || paid().arrives(tx(2).of("3")).settlement_fails(1);
    let labels = &[Multiple, Excess, SettlementFailed];
    failing()
        .refused(&refund(1, Some("4")), "refund_must_be_all")
        .refunds(1, Some("3"))
        .queues(&[(Queue, "3.00")])
        .is(Confirmed, labels);
    let withdrawn =
        || failing().when(refund(1, None)).queues(&[(CancelRow, "10.00")]).cleared(1).queues(&[(Queue, "13.00")]);
    let start =
        ["payment.confirmed", "payin.confirmed", "payment.mismatched", "payin.mismatched", "payin.settlement_failed"];
    withdrawn()
        .notified(&start)
        .refused(&Command::RetrySettlement { by: Requester::Psp }, "settlement_not_failed")
        .when(sent(1))
        .failed(FailureReason::SettlementFailed)
        .is(Failed, labels)
        .notified(&["payment.failed", "refund.sent"]);
    withdrawn()
        .when(fails(1))
        .is(Confirmed, labels)
        .when(Command::RetrySettlement { by: Requester::Psp })
        .settled(2)
        .is(Settled, &[Multiple, Excess]);
    withdrawn().settled(2).is(Settled, &[Multiple, Excess]).when(fails(1)).money("10.00", "3.00", "0.00", "13.00");
}

#[test]
fn only_the_operator_refunds_blocked_funds() {
    given(terms())
        .tainted(tx(1))
        .refused(&refund(1, None), "funds_blocked")
        .refused(&Command::Accept { expected_received: None }, "funds_blocked")
        .refused(&blocked_refund(1, Requester::Psp), "operator_only")
        .when(blocked_refund(1, Requester::Operator))
        .cleared(1)
        .queues(&[(Queue, "10.00")])
        .refused(&blocked_refund(2, Requester::Operator), "nothing_to_refund")
        .when(sent(1))
        .failed(FailureReason::KytBlocked);
    given(terms())
        .tainted(tx(1).of("3"))
        .refused(&refund(1, None), "funds_blocked")
        .arrives(tx(2))
        .settled(1)
        .refunds(1, None)
        .queues(&[(Queue, "10.00")]);
}

#[test]
fn a_repeated_refund_of_blocked_funds_is_sent_once() {
    let part = |n, text, to| refund_to(Some(to), n, text, Funds::Blocked, None, Requester::Operator);
    given(terms())
        .tainted(tx(1))
        .when(part(1, Some("4"), ELSEWHERE))
        .unchanged(&part(1, Some("4"), ELSEWHERE))
        .refused(&part(1, Some("5"), ELSEWHERE), "refund_exists")
        .refused(&part(1, Some("4"), Address([0xad; 20])), "refund_exists")
        .cleared(1)
        .queues(&[(Queue, "4.00")])
        .when(sent(1))
        .unchanged(&part(1, Some("4"), ELSEWHERE))
        .when(part(2, None, ELSEWHERE))
        .cleared(2)
        .queues(&[(Queue, "6.00")]);
}

#[test]
fn refunds_to_the_sender_require_a_single_plain_account() {
    let unaddressed = refund_to(None, 1, None, Funds::Received, None, Requester::Psp);
    let to_sender = || Terms { refund_to_sender: true, ..terms() };
    underpaid().refused(&unaddressed, "refund_address_required");
    given(to_sender())
        .arrives(tx(1).of("4"))
        .when(unaddressed.clone())
        .also(|payment| assert_eq!(payment.refunds[0].to, PAYER));
    let two = given(to_sender()).arrives(tx(1).of("4")).arrives(tx(2).of("1").from(ELSEWHERE));
    two.refused(&unaddressed, "refund_address_required");
    let contract = Verdict { plain_sender: None, ..verdict(Decision::Allow) };
    let small = tx(1).of("4");
    let screened = Command::ScreenTransfer { key: small.0.key, verdict: contract };
    given(to_sender())
        .when(small.seen())
        .when(screened)
        .when(small.finalised())
        .refused(&unaddressed, "refund_address_required");
    let into_itself = refund_to(Some(WALLET), 1, None, Funds::Received, None, Requester::Psp);
    given(terms()).arrives(small).refused(&into_itself, "refund_address_invalid");
}

#[test]
fn orphaned_funds_after_a_refund_raise_an_alarm() {
    let (small, gone) = (tx(1).of("4"), tx(1).of("4").rev(2).gone());
    let back = given(terms()).arrives(small).refunds(1, None).when(sent(1)).alarms(&[]);
    back.when(gone.seen()).alarms(&[Alarm::Overdrawn { amount: amount("4.00") }]);
}

#[test]
fn a_refund_that_was_sent_after_a_failure_counts_as_sent() {
    let story = underpaid().when(refund(1, None)).when(fails(1)).when(sent(1));
    story.money("4.00", "0.00", "10.00", "0.00").notified(&[UNDERPAID, &["refund.failed", "refund.sent"]].concat());
}

fn operator(decision: Decision) -> Verdict {
    Verdict { by_operator: true, ..verdict(decision) }
}

#[test]
fn a_refund_to_a_blocked_address_fails_and_releases_its_amount() {
    let blocked = Command::ScreenRefund { refund_id: refund_id(1), verdict: verdict(Decision::Block) };
    let story = underpaid().when(refund(1, None)).when(blocked).queues(&[]);
    story.money("4.00", "0.00", "6.00", "4.00").notified(&[UNDERPAID, &["refund.failed"]].concat());
}

#[test]
fn a_refund_address_in_review_waits_for_the_operator() {
    let by_provider = |decision| Command::ScreenRefund { refund_id: refund_id(1), verdict: verdict(decision) };
    let by_operator = |decision| Command::ScreenRefund { refund_id: refund_id(1), verdict: operator(decision) };
    let waiting = || {
        underpaid()
            .when(refund(1, None))
            .refused(&by_operator(Decision::Allow), "not_in_review")
            .when(by_provider(Decision::Review))
            .is(Mismatched, &[Underpaid, InReview])
            .unchanged(&by_provider(Decision::Review))
    };
    waiting().when(by_operator(Decision::Allow)).queues(&[(Queue, "4.00")]).is(Mismatched, &[Underpaid]);
    waiting().when(by_provider(Decision::Allow)).queues(&[(Queue, "4.00")]);
    waiting()
        .when(by_operator(Decision::Block))
        .queues(&[])
        .money("4.00", "0.00", "6.00", "4.00")
        .refused(&by_operator(Decision::Allow), "not_in_review");
}

fn recover(n: u128, text: Option<&str>, asset: Asset) -> Command {
    refund_of(n, text, Funds::Misdirected, Some(asset), Requester::Psp)
}

#[test]
fn misdirected_funds_are_refunded_on_their_chain() {
    let polygon = Asset { chain: Chain::Polygon, address: USDC };
    let look_alike = Asset { chain: Chain::Base, address: Address([0xbb; 20]) };
    let story = given(terms())
        .arrives(tx(1).of("3").on(Chain::Polygon))
        .arrives(tx(2).of("5").look_alike())
        .is(Status::Pending, &[WrongToken, WrongChain])
        .refused(&recover(1, Some("3.01"), polygon), "refund_too_large")
        .refused(&recover(1, None, Asset { chain: Chain::Arbitrum, ..polygon }), "nothing_to_refund")
        .when(recover(1, Some("1"), polygon))
        .cleared(1);
    let operation = story.last.as_ref().unwrap().operations[0];
    assert_eq!((operation.chain, operation.token_address), (Chain::Polygon, USDC));
    story
        .when(sent(1))
        .refused(&recover(2, Some("2.01"), polygon), "refund_too_large")
        .when(recover(2, None, look_alike))
        .cleared(2)
        .queues(&[(Queue, "5.00")])
        .arrives(tx(3))
        .is(Confirmed, &[WrongToken, WrongChain]);
}

#[test]
fn tainted_misdirected_funds_are_not_refunded() {
    let polygon = Asset { chain: Chain::Polygon, address: USDC };
    let story = given(terms()).tainted(tx(1).of("3").on(Chain::Polygon));
    let story = story.refused(&recover(1, None, polygon), "funds_blocked");
    assert_eq!(story.payment.attention(), Some(FundsBlocked));
    let by_operator = |n, asset| refund_of(n, None, Funds::Blocked, asset, Requester::Operator);
    let story = story
        .refused(&by_operator(1, None), "nothing_to_refund")
        .when(by_operator(2, Some(polygon)))
        .cleared(2)
        .queues(&[(Queue, "3.00")])
        .when(sent(2))
        .refused(&by_operator(3, Some(polygon)), "nothing_to_refund");
    assert_eq!(story.payment.attention(), None);
}

#[test]
fn refunds_of_tainted_funds_do_not_reduce_clean_funds() {
    let polygon = Asset { chain: Chain::Polygon, address: USDC };
    let story = given(terms()).tainted(tx(1).of("3").on(Chain::Polygon)).arrives(tx(2).of("2").on(Chain::Polygon));
    let by_operator = refund_of(1, None, Funds::Blocked, Some(polygon), Requester::Operator);
    let story = story.when(by_operator).cleared(1).when(sent(1));
    assert_eq!(story.payment.misdirected(polygon), amount("2.00"));
    story.when(recover(2, None, polygon)).cleared(2).queues(&[(Queue, "2.00")]);
}

#[test]
fn a_late_then_orphaned_settlement_keeps_the_accepted_refund() {
    let story = paid().settlement_fails(1).refunds(1, None);
    let story = story.settled(2).settlement_fails(3);
    let settlement = story.payment.settlement.as_deref().unwrap();
    assert_eq!((settlement.state, settlement.tx_hash), (SettlementState::Withdrawn, None));
    assert_eq!(story.payment.attention(), Some(SettlementFailed));
    story.when(sent(1)).failed(FailureReason::SettlementFailed);
}
