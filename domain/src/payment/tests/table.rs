//! The table of the interface, row by row, with combinations of state and fact.

use super::OperationAction::Queue;
use super::*;
use Decision::{Allow, Block, Review};
use Label::*;
use Status::{Confirmed, Failed, Mismatched, Pending, Settled};

fn accept() -> Command {
    Command::Accept { expected_received: None }
}

#[test]
fn the_exact_amount_confirms_and_settles() {
    let story = given(terms()).when(tx(1).seen()).is(Pending, &[]).notified(&[]);
    let screen = Effect::Screen { key: tx(1).0.key, from: PAYER, amount: amount("10.00") };
    let finality = Finality::Blocks(2);
    let wait = Effect::AwaitFinality { key: tx(1).0.key, revision: 1, block_number: 100, finality };
    let story = story.asks_for(&screen).asks_for(&wait).when(tx(1).finalised()).is(Pending, &[]).notified(&[]);
    let story = story
        .when(tx(1).screened(Allow))
        .is(Confirmed, &[])
        .notified(CONFIRMED)
        .money("10.00", "0.00", "0.00", "10.00");
    let settle = Effect::Settle { operation: story.operation(), chain: Chain::Base };
    let story = story.queues(&[(Queue, "10.00")]).asks_for(&settle);
    let story = story.settled(1).is(Settled, &[]).notified(SETTLED).asks_for(&Effect::Passivate);
    let last = story.notified.last().unwrap();
    let body: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&payload(&story.payment, last, EventId::from_ulid(Ulid(5))).unwrap()).unwrap();
    let text = |key: &str| body[key].as_str().unwrap_or_else(|| panic!("{key}")).to_owned();
    assert_eq!(text("psp_amount"), "9.90");
    assert_eq!(text("treasury_fee"), "0.10");
    assert_eq!(text("tx_hash"), hash(90).to_string());
    assert_eq!((text("event"), text("status")), ("payin.settled".to_owned(), "settled".to_owned()));
    assert_eq!(text("payment_id"), story.payment.id().to_string());
    assert_eq!(body["sequence"], 4);
    assert!(!body.contains_key("customer_id") && !body.contains_key("failure_reason"));
}

#[test]
fn a_payment_only_waits_while_nothing_but_a_deadline_is_due() {
    let waits = |expected: bool| move |payment: &Payment| assert_eq!(only_waits(payment), expected, "{payment:?}");
    let outage = Command::MoveDeadline { outage: OutageId(1), from: at(100), to: at(160) };
    given(terms()).also(waits(true)).when(outage).also(waits(true)).read_to(1_260).also(waits(false));
    let seen = given(terms()).when(tx(1).of("4").seen()).also(waits(false));
    let counted = seen.when(tx(1).of("4").screened(Allow)).also(waits(false)).when(tx(1).of("4").finalised());
    // The rest of the money may still arrive.
    counted.also(waits(true)).when(tx(2).of("6").seen()).also(waits(false));
    given(terms()).when(tx(1).seen()).when(tx(1).screened(Review)).also(waits(false));
    paid().is(Confirmed, &[]).also(waits(false)).settled(1).is(Settled, &[]).also(waits(false));
}

#[test]
fn screening_can_come_before_or_after_finality() {
    given(terms())
        .when(tx(1).seen())
        .when(tx(1).screened(Allow))
        .is(Pending, &[])
        .when(tx(1).finalised())
        .is(Confirmed, &[]);
}

#[test]
fn repeated_facts_change_nothing() {
    given(terms())
        .when(tx(1).seen())
        .unchanged(&tx(1).seen())
        .when(tx(1).screened(Allow))
        .unchanged(&tx(1).screened(Allow))
        .when(tx(1).finalised())
        .unchanged(&tx(1).finalised())
        .unchanged(&tx(1).seen())
        .unchanged(&tx(1).gone().seen())
        .settled(1)
        .settled(1)
        .notified(&[CONFIRMED, SETTLED].concat());
}

#[test]
fn the_total_received_determines_the_required_finality() {
    let large = Terms { amount: amount("900"), finality: FinalityPolicy::default_for(Chain::Base), ..terms() };
    let reached =
        |tx: Tx, reached| Command::FinaliseTransfers(vec![TransferFinality { key: tx.0.key, revision: 1, reached }]);
    let (first, second) = (tx(1).of("600"), tx(2).of("600"));
    let raised =
        |tx: Tx| Effect::AwaitFinality { key: tx.0.key, revision: 1, block_number: 100, finality: Finality::Safe };
    given(large)
        .when(first.seen())
        .unchanged(&reached(first, Finality::Blocks(1)))
        .when(second.seen())
        .asks_for(&raised(first))
        .asks_for(&raised(second))
        .unchanged(&reached(first, Finality::Blocks(50)))
        .when(reached(first, Finality::Safe));
}

#[test]
fn underpayment_can_be_completed_in_time() {
    underpaid()
        .is(Mismatched, &[Underpaid])
        .notified(UNDERPAID)
        .money("4.00", "0.00", "6.00", "4.00")
        .arrives(tx(2).of("5"))
        .is(Mismatched, &[Underpaid, Multiple])
        .notified(UNDERPAID)
        .arrives(tx(3).of("1"))
        .is(Confirmed, &[Multiple])
        .notified(CONFIRMED);
}

#[test]
fn tolerance_applies_to_underpayment_only() {
    let tolerant = || Terms { tolerance: Tolerance { absolute: amount("0.5"), bps: 0 }, ..terms() };
    given(tolerant()).arrives(tx(1).of("9.5")).is(Confirmed, &[]).queues(&[(Queue, "9.50")]);
    given(tolerant()).arrives(tx(1).of("9.499999")).is(Mismatched, &[Underpaid]);
    given(tolerant()).arrives(tx(1).of("10.000001")).is(Mismatched, &[Overpaid]);
}

/// The greater of 0.01 and 10 basis points.
fn forgiving() -> Terms {
    Terms { overpayment_tolerance: Tolerance { absolute: amount("0.01"), bps: 10 }, ..terms() }
}

#[test]
fn a_surplus_within_the_tolerance_is_excess() {
    let story = given(forgiving()).arrives(tx(1).of("10.01")).is(Confirmed, &[Excess]).notified(CONFIRMED);
    let story = story.queues(&[(Queue, "10.00")]).money("10.00", "0.01", "0.00", "10.01").settled(1);
    story.is(Settled, &[Excess]).notified(SETTLED).when(refund_of(1, None, Funds::Received, None, Requester::Psp));
    given(forgiving()).arrives(tx(1).of("10.010001")).is(Mismatched, &[Overpaid]);
    let large = Terms { amount: amount("1000"), ..forgiving() };
    given(large).arrives(tx(1).of("1001")).is(Confirmed, &[Excess]).money("1000.00", "1.00", "0.00", "1001.00");
    let accepting = Terms { overpayment: OverpaymentPolicy::Accept, ..forgiving() };
    given(accepting).arrives(tx(1).of("10.01")).is(Confirmed, &[]).queues(&[(Queue, "10.01")]);
    // After a refund of everything, the orphaned surplus is gone, too.
    let failed = given(forgiving()).arrives(tx(1).of("10.01")).settlement_fails(1);
    let back = refund_of(1, None, Funds::Received, None, Requester::Psp);
    let back = failed.when(back).cleared(1);
    let sent = Command::CompleteRefund { refund_id: refund_id(1), revision: 1, tx_hash: hash(91) };
    let failed = back.when(sent).failed(FailureReason::SettlementFailed).money("10.00", "0.01", "0.00", "0.00");
    let gone = failed.when(tx(1).of("10.01").rev(2).gone().seen()).money("0.00", "0.00", "0.00", "0.00");
    gone.alarms(&[Alarm::Overdrawn { amount: amount("10.01") }]);
    let orphaned = given(forgiving()).arrives(tx(1).of("10.01")).when(tx(1).of("10.01").rev(2).gone().seen());
    orphaned.is(Pending, &[Reorged]).money("0.00", "0.00", "10.00", "0.00");
}

#[test]
fn a_speck_of_dust_in_the_same_advance_holds_up_nothing() {
    let (whole, speck) = (tx(1).log(1), tx(2).of("0.001").log(2));
    let both = || given(terms()).when(whole.seen()).when(speck.seen()).when(speck.screened(Allow));
    let both = || both().when(whole.screened(Allow));
    let end = |story: Story| story.is(Confirmed, &[Excess, Multiple]).money("10.00", "0.001", "0.00", "10.001");
    end(both().when(whole.finalised()).when(speck.finalised()));
    end(both().when(speck.finalised()).is(Pending, &[]).notified(&[]).when(whole.finalised()));
    // The speck comes first in the chain.
    let before = Terms { overpayment_tolerance: forgiving().overpayment_tolerance, ..terms() };
    let early = tx(2).of("0.001").log(0);
    let story = given(before).when(early.seen()).when(whole.seen()).when(early.screened(Allow));
    let story = story.when(early.finalised()).is(Pending, &[]).notified(&[]).when(whole.screened(Allow));
    story.when(whole.finalised()).is(Confirmed, &[Excess, Multiple]).notified(CONFIRMED);
}

#[test]
fn underpayment_is_decided_when_no_in_time_transfer_is_on_its_way() {
    let (first, second) = (tx(1).of("4"), tx(2).of("5").log(1));
    let waiting = || given(terms()).when(first.seen()).when(second.seen()).when(first.screened(Allow));
    let waiting = || waiting().when(first.finalised()).is(Pending, &[]).notified(&[]);
    waiting().money("4.00", "0.00", "6.00", "0.00");
    let reviewed = waiting().when(second.screened(Review)).when(second.finalised()).is(Pending, &[InReview]);
    reviewed.notified(&[]).when(second.decided(Block)).is(Mismatched, &[Underpaid, FundsBlocked]).notified(UNDERPAID);
    waiting().when(second.screened(Allow)).when(second.finalised()).notified(UNDERPAID);
    // The same for a payment that is underpaid already.
    let third = tx(3).of("1").log(2);
    let short = underpaid().notified(UNDERPAID).when(second.seen()).when(third.seen()).when(second.screened(Allow));
    let short = short.when(second.finalised()).is(Mismatched, &[Underpaid, Multiple]).notified(&[]);
    short.when(third.screened(Block)).notified(&[]).when(third.finalised()).notified(UNDERPAID);
}

#[test]
fn an_undecided_transfer_holds_back_later_ones_but_a_review_does_not() {
    let (first, second) = (tx(1).of("3"), tx(2).log(1));
    let held = || given(terms()).when(first.seen()).when(first.finalised()).arrives(second).is(Pending, &[]);
    held().when(first.screened(Allow)).is(Mismatched, &[Overpaid, Multiple]);
    held()
        .when(first.screened(Review))
        .is(Confirmed, &[InReview])
        .when(first.decided(Allow))
        .is(Confirmed, &[Excess, Multiple]);
}

#[test]
fn overpayment_follows_the_policy() {
    given(terms())
        .arrives(tx(1).of("12"))
        .is(Mismatched, &[Overpaid])
        .notified(MISMATCHED)
        .money("12.00", "0.00", "0.00", "12.00");
    let policy = |overpayment| Terms { overpayment, refund_to_sender: true, ..terms() };
    let too_much_is_taken = [MISMATCHED, CONFIRMED].concat();
    given(policy(OverpaymentPolicy::Accept))
        .arrives(tx(1).of("12"))
        .is(Confirmed, &[Overpaid])
        .notified(&too_much_is_taken)
        .queues(&[(Queue, "12.00")])
        .settled(1)
        .notified(SETTLED);
    given(policy(OverpaymentPolicy::RefundExcess))
        .arrives(tx(1).of("12"))
        .is(Confirmed, &[Overpaid])
        .notified(&too_much_is_taken)
        .queues(&[(Queue, "10.00")])
        .asks_for(&Effect::ScreenRefund {
            refund_id: RefundId::automatic(terms().id, 0),
            to: PAYER,
            amount: amount("2.00"),
            chain: Chain::Base,
        })
        .money("12.00", "0.00", "0.00", "10.00")
        .also(|payment| assert_eq!(payment.refunds[0].to, PAYER))
        .settled(1)
        .is(Settled, &[Overpaid]);
    let no_sender = Terms { refund_to_sender: false, ..policy(OverpaymentPolicy::RefundExcess) };
    given(no_sender)
        .arrives(tx(1).of("12"))
        .is(Confirmed, &[Overpaid])
        .notified(&too_much_is_taken)
        .queues(&[(Queue, "10.00")])
        .settled(1)
        .money("12.00", "0.00", "0.00", "12.00");
    given(policy(OverpaymentPolicy::RefundExcess))
        .arrives(tx(1).of("6"))
        .arrives(tx(2).of("6").from(ELSEWHERE))
        .is(Confirmed, &[Overpaid, Multiple])
        .queues(&[(Queue, "10.00")]);
}

#[test]
fn accepted_overpayment_announces_the_shares() {
    let accepting = Terms { overpayment: OverpaymentPolicy::Accept, ..terms() };
    let story = given(accepting).arrives(tx(1).of("12"));
    for (notified, sequence) in story.notified.iter().zip(1_u32..) {
        let body = payload(&story.payment, notified, EventId::from_ulid(Ulid(5))).unwrap();
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        let said =
            ["sequence", "status", "amount", "amount_received", "psp_amount", "treasury_fee", "labels", "tx_hash"]
                .map(|field| body[field].clone());
        let paid_by = hash(1).to_string();
        let expected =
            serde_json::json!([sequence, "confirmed", "10.00", "12.00", "11.88", "0.12", ["OVERPAID"], paid_by]);
        assert_eq!(serde_json::json!(said), expected, "{body}");
    }
    assert_eq!(story.notified.len(), 4);
}

#[test]
fn overpayment_is_announced_once_when_a_person_accepts_it() {
    let held = given(terms()).arrives(tx(1).of("12")).notified(MISMATCHED);
    held.when(accept()).is(Confirmed, &[Overpaid]).notified(CONFIRMED).settled(1).notified(SETTLED);
}

#[test]
fn an_underpaid_payment_can_become_overpaid() {
    underpaid()
        .arrives(tx(2).of("7"))
        .is(Mismatched, &[Overpaid, Multiple])
        .notified(&[UNDERPAID, MISMATCHED].concat());
    let accepting = Terms { overpayment: OverpaymentPolicy::Accept, ..terms() };
    given(accepting)
        .arrives(tx(1).of("4"))
        .notified(UNDERPAID)
        .arrives(tx(2).of("7"))
        .is(Confirmed, &[Overpaid, Multiple])
        .notified(&[MISMATCHED, CONFIRMED].concat());
}

#[test]
fn the_psp_accepts_the_amount_received() {
    underpaid()
        .refused(&Command::Accept { expected_received: Some(amount("5")) }, "received_moved")
        .when(Command::Accept { expected_received: Some(amount("4")) })
        .is(Confirmed, &[Underpaid])
        .notified(&[UNDERPAID, CONFIRMED].concat())
        .queues(&[(Queue, "4.00")])
        .refused(&accept(), "payment_not_mismatched");
    given(terms()).refused(&accept(), "payment_not_mismatched");
}

#[test]
fn a_blocked_full_payment_fails_the_payment() {
    given(terms()).tainted(tx(1)).failed(FailureReason::KytBlocked).is(Failed, &[FundsBlocked]).notified(FAILED);
    given(terms())
        .tainted(tx(1).of("6"))
        .is(Pending, &[FundsBlocked])
        .notified(&[])
        .tainted(tx(2).of("4"))
        .failed(FailureReason::KytBlocked)
        .arrives(tx(3))
        .failed(FailureReason::KytBlocked)
        .notified(FAILED)
        .money("10.00", "0.00", "0.00", "0.00");
}

#[test]
fn blocked_funds_always_raise_an_alarm() {
    let alarm = |tx: Tx| Alarm::FundsBlocked { key: tx.0.key };
    let blocked = |story: Story, tx: Tx| story.when(tx.seen()).alarms(&[]).when(tx.screened(Block));
    let all = blocked(given(terms()), tx(1)).alarms(&[alarm(tx(1))]).when(tx(1).finalised()).alarms(&[]);
    blocked(all.failed(FailureReason::KytBlocked), tx(2)).alarms(&[alarm(tx(2))]);
    let late = tx(2).at(EXPIRY_SECS);
    let of_expired = blocked(given(terms()).expired().alarms(&[]), late).alarms(&[alarm(late)]);
    of_expired.when(late.finalised()).alarms(&[]).failed(FailureReason::Expired).is(Failed, &[FundsBlocked]);
    let of_settled = blocked(paid().settled(1), late).alarms(&[alarm(late)]);
    of_settled.when(late.finalised()).alarms(&[]).is(Settled, &[FundsBlocked]);
    let reviewed = given(terms()).when(tx(1).seen()).when(tx(1).screened(Review)).alarms(&[]);
    reviewed.when(tx(1).decided(Block)).alarms(&[alarm(tx(1))]);
}

#[test]
fn a_small_blocked_transfer_does_not_fail_the_payment() {
    given(terms()).tainted(tx(1).of("1")).is(Pending, &[FundsBlocked]).arrives(tx(2)).is(Confirmed, &[FundsBlocked]);
    given(terms()).tainted(tx(1).of("1")).expired().failed(FailureReason::Expired);
}

#[test]
fn blocked_funds_wait_for_pending_clean_funds() {
    given(terms())
        .when(tx(2).seen())
        .tainted(tx(1))
        .is(Pending, &[FundsBlocked])
        .arrives(tx(2))
        .is(Confirmed, &[FundsBlocked]);
    given(terms()).tainted(tx(1).of("9")).when(tx(2).seen()).when(tx(2).screened(Block)).is(Pending, &[FundsBlocked]);
}

#[test]
fn expiry_waits_for_a_review() {
    let reviewed = || {
        let story = given(terms()).when(tx(1).seen()).when(tx(1).finalised()).when(tx(1).screened(Review));
        let alarm_at = START.plus_secs(REVIEW_ALARM_SECS);
        let wait = Effect::AwaitReview { key: tx(1).0.key, alarm_at };
        story.is(Pending, &[InReview]).asks_for(&wait).expired().is(Pending, &[InReview]).notified(&[])
    };
    reviewed().when(tx(1).decided(Allow)).is(Confirmed, &[]).notified(CONFIRMED);
    reviewed().when(tx(1).decided(Block)).failed(FailureReason::KytBlocked).notified(FAILED);
    reviewed().when(tx(1).screened(Allow)).is(Confirmed, &[]);
}

#[test]
fn a_person_outranks_a_provider_and_the_stricter_provider_wins() {
    let small = tx(1).of("1");
    given(terms())
        .when(small.seen())
        .when(small.screened(Allow))
        .when(small.screened(Block))
        .is(Pending, &[FundsBlocked]);
    let blocked = given(terms()).tainted(small).unchanged(&small.screened(Allow)).unchanged(&small.screened(Review));
    blocked.when(small.decided(Allow)).is(Mismatched, &[Underpaid]).refused(&small.decided(Block), "not_in_review");
    let allowed = given(terms()).when(small.seen()).when(small.decided(Allow));
    allowed.unchanged(&small.screened(Block)).refused(&tx(9).decided(Allow), "unknown_transfer");
    let over = given(terms()).tainted(tx(1)).failed(FailureReason::KytBlocked);
    over.refused(&tx(1).decided(Allow), "not_in_review");
}

#[test]
fn a_payment_without_funds_expires() {
    given(terms())
        .unchanged(&Command::PassDeadline { chain_time: at(EXPIRY_SECS).plus_millis(-1) })
        .expired()
        .failed(FailureReason::Expired)
        .notified(FAILED);
}

#[test]
fn an_in_time_transfer_can_be_final_after_the_deadline() {
    let last = tx(1).at(1_199);
    given(terms())
        .when(last.seen())
        .expired()
        .is(Pending, &[])
        .notified(&[])
        .when(last.screened(Allow))
        .when(last.finalised())
        .is(Confirmed, &[]);
}

#[test]
fn late_funds_make_a_failed_payment_mismatched() {
    let late = tx(1).at(EXPIRY_SECS);
    given(terms())
        .expired()
        .notified(FAILED)
        .arrives(late)
        .is(Mismatched, &[Late])
        .notified(MISMATCHED)
        .when(accept())
        .is(Confirmed, &[Late])
        .settled(1)
        .is(Settled, &[Late]);
    let early = given(terms()).arrives(late).is(Pending, &[]).notified(&[]).expired().is(Mismatched, &[Late]);
    let early = early.notified(&[FAILED, MISMATCHED].concat()).money("10.00", "0.00", "0.00", "10.00");
    // The payment is late, not failed, when the commit ends. The failure event must still have its reason.
    for notified in &early.notified {
        let body = payload(&early.payment, notified, EventId::from_ulid(Ulid(1))).unwrap();
        let is_failed = notified.name.as_str().ends_with(".failed");
        assert_eq!(body.contains(r#""failure_reason":"expired""#), is_failed, "{body}");
    }
}

#[test]
fn late_funds_neither_complete_nor_spoil() {
    let (first, late) = (tx(1).of("4"), tx(2).of("6").at(EXPIRY_SECS));
    given(terms())
        .arrives(first)
        .notified(UNDERPAID)
        .arrives(late)
        .is(Mismatched, &[Underpaid])
        .notified(&[])
        .expired()
        .is(Mismatched, &[Late, Multiple])
        .notified(MISMATCHED);
    given(terms())
        .arrives(late)
        .arrives(tx(1))
        .is(Confirmed, &[Excess, Multiple])
        .notified(&[CONFIRMED, MISMATCHED].concat())
        .money("10.00", "6.00", "0.00", "16.00");
    given(terms())
        .arrives(first)
        .expired()
        .is(Mismatched, &[Underpaid])
        .arrives(late.of("1"))
        .is(Mismatched, &[Underpaid, Late, Multiple]);
}

#[test]
fn in_time_funds_that_are_reported_late_still_complete() {
    underpaid().expired().arrives(tx(2).of("6")).is(Confirmed, &[Multiple]);
}

#[test]
fn only_a_payment_without_transfers_can_be_cancelled() {
    given(terms())
        .when(Command::Cancel)
        .failed(FailureReason::Cancelled)
        .notified(FAILED)
        .refused(&Command::Cancel, "payment_not_pending")
        .arrives(tx(1))
        .is(Mismatched, &[Late])
        .notified(MISMATCHED);
    given(terms()).when(tx(1).seen()).refused(&Command::Cancel, "transfer_recorded");
    given(terms()).when(tx(1).of("0").seen()).when(Command::Cancel).failed(FailureReason::Cancelled);
}

#[test]
fn funds_after_confirmation_are_excess() {
    paid()
        .notified(CONFIRMED)
        .arrives(tx(2).of("3"))
        .is(Confirmed, &[Excess, Multiple])
        .notified(MISMATCHED)
        .money("10.00", "3.00", "0.00", "13.00")
        .settled(1)
        .notified(SETTLED)
        .arrives(tx(3).of("2").at(5_000))
        .is(Settled, &[Excess, Multiple])
        .notified(MISMATCHED)
        .money("10.00", "5.00", "0.00", "15.00");
}

#[test]
fn misdirected_funds_are_labelled_and_do_not_count() {
    given(terms())
        .when(tx(1).look_alike().seen())
        .is(Pending, &[])
        .when(tx(1).finalised())
        .is(Pending, &[WrongToken])
        .notified(&["payment.mismatched"])
        .money("0.00", "0.00", "10.00", "0.00")
        .expired()
        .is(Mismatched, &[WrongToken])
        .notified(MISMATCHED)
        .refused(&accept(), "nothing_to_accept")
        .arrives(tx(2).at(2_000))
        .is(Mismatched, &[Late, WrongToken]);
    let elsewhere = tx(3).on(Chain::Polygon);
    given(terms())
        .when(elsewhere.seen())
        .when(elsewhere.finalised())
        .is(Pending, &[WrongChain])
        .arrives(tx(1))
        .is(Confirmed, &[WrongChain]);
    given(terms())
        .expired()
        .when(elsewhere.seen())
        .when(elsewhere.finalised())
        .failed(FailureReason::Expired)
        .is(Failed, &[WrongChain])
        .notified(&[FAILED, &["payment.mismatched"]].concat());
}

#[test]
fn expiry_waits_until_misdirected_funds_are_final() {
    let wrong = tx(1).look_alike();
    given(terms()).when(wrong.seen()).expired().is(Pending, &[]).when(wrong.finalised()).is(Mismatched, &[WrongToken]);
}

#[test]
fn dust_is_ignored_except_for_small_payments() {
    given(terms()).when(tx(1).of("0.000999").seen()).is(Pending, &[]).expired().failed(FailureReason::Expired);
    given(terms()).arrives(tx(1).of("0.001")).is(Mismatched, &[Underpaid]);
    let tiny = Terms { amount: amount("0.01"), dust_floor: amount("1"), ..terms() };
    given(tiny).arrives(tx(1).of("0.01")).is(Confirmed, &[]);
}
