//! Reorganisations, failed settlements, and moved deadlines.

use super::OperationAction::{Cancel as CancelRow, Requeue};
use super::*;
use crate::ledger::Account;
use Decision::{Allow, Block, Review};
use Label::*;
use Status::{Confirmed, Mismatched, Pending, Settled};

#[test]
fn a_permanent_failure_is_announced_once_and_retried() {
    let story = paid().notified(CONFIRMED).settlement_fails(1).is(Confirmed, &[SettlementFailed]);
    let body = payload(&story.payment, story.notified.last().unwrap(), EventId::from_ulid(Ulid(1))).unwrap();
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    let words = PublicFailure::SettlementFailed.words();
    assert_eq!((&body["failure_reason"], &body["failure"]), (&"settlement_failed".into(), &words.into()));
    let retry_at = |story: &Story, secs| {
        let at = story.now.plus_secs(secs);
        Effect::AwaitRetry { operation: story.operation(), at }
    };
    let (first, demand) = (retry_at(&story, 30), Command::RetrySettlement { by: Requester::Psp });
    let scheduled = Command::RetrySettlement { by: Requester::Schedule };
    let story = story.notified(&["payin.settlement_failed"]).asks_for(&first);
    let story = story.when(scheduled.clone()).queues(&[(Requeue, "10.00")]).is(Confirmed, &[SettlementFailed]);
    let story =
        story.unchanged(&scheduled).refused(&demand, "settlement_in_progress").settlement_fails(2).notified(&[]);
    let second = retry_at(&story, 120);
    let story = story.asks_for(&second).when(demand.clone()).settlement_fails(3).notified(&["payin.settlement_failed"]);
    story.when(demand.clone()).settled(4).is(Settled, &[]).notified(SETTLED).refused(&demand, "settlement_not_failed");
}

#[test]
fn a_deep_reorganisation_reopens_a_confirmed_payment() {
    let back = tx(1).rev(3).at(75).log(4);
    paid()
        .notified(CONFIRMED)
        .when(tx(1).rev(2).gone().seen())
        .is(Pending, &[Reorged])
        .notified(REORGED)
        .queues(&[(CancelRow, "10.00")])
        .money("0.00", "0.00", "10.00", "0.00")
        .arrives(back)
        .is(Confirmed, &[Reorged])
        .notified(CONFIRMED)
        .queues(&[(Requeue, "10.00")])
        .settled(1)
        .is(Settled, &[Reorged]);
}

#[test]
fn a_transfer_orphaned_before_it_counted_is_labelled_silently() {
    let gone = given(terms()).when(tx(1).seen()).is(Pending, &[]).when(tx(1).rev(2).gone().seen());
    let gone = gone.is(Pending, &[Reorged]).notified(&[]);
    gone.arrives(tx(1).rev(3).at(75)).is(Confirmed, &[Reorged]).notified(CONFIRMED);
}

#[test]
fn a_transfer_re_mined_after_the_deadline_is_still_in_time() {
    let gone = || paid().at(1_300).when(tx(1).rev(2).gone().seen()).is(Pending, &[Reorged]);
    let again = tx(1).at(1_310).log(9);
    gone().read_to(1_301).is(Pending, &[Reorged]).arrives(again).is(Confirmed, &[Reorged]);
    gone()
        .read_to(1_301)
        .read_to(1_902)
        .failed(FailureReason::Expired)
        .notified(&[CONFIRMED, REORGED, FAILED].concat());
    let unseen = Tx(ObservedTransfer { first_block_time: Some(at(60)), ..tx(1).at(1_300).rev(2).0 });
    given(terms()).arrives(unseen).is(Confirmed, &[]);
}

#[test]
fn a_transfer_counts_only_in_a_block_that_is_final() {
    let moved = tx(1).at(70);
    paid()
        .when(tx(1).rev(2).gone().seen())
        .when(moved.seen())
        .is(Pending, &[Reorged])
        .unchanged(&tx(1).finalised())
        .when(moved.finalised())
        .is(Confirmed, &[Reorged]);
    paid().when(tx(1).rev(3).seen()).is(Confirmed, &[]);
}

/// One transaction pays two payments. It is mined again one place later, so each of its log indexes belongs to the other
/// transfer.
#[test]
fn a_log_index_that_shifts_names_another_transfer() {
    let (own, foreign) = (tx(1).of("4").log(1), tx(1).log(1).at(70));
    let story = given(terms()).arrives(own).is(Mismatched, &[Underpaid]).when(own.rev(2).gone().seen());
    let again = tx(1).of("4").log(2).at(70);
    story.is(Pending, &[Reorged]).arrives(again).is(Mismatched, &[Underpaid, Reorged]).also(|payment| {
        assert_eq!(payment.transfers.len(), 2);
        assert!(payment.transfer(foreign.0.key).is_none());
    });
}

#[test]
fn a_transaction_counts_in_only_one_block() {
    let (old, new) = (tx(1), tx(1).log(5).at(80));
    given(terms())
        .arrives(old)
        .arrives(new)
        .is(Confirmed, &[])
        .notified(CONFIRMED)
        .when(old.rev(2).gone().seen())
        .is(Confirmed, &[Reorged])
        .notified(&[REORGED, CONFIRMED].concat());
    let both = underpaid().arrives(tx(1).of("6").log(1));
    both.is(Confirmed, &[Multiple]);
}

#[test]
fn an_orphaned_settlement_is_settled_again() {
    let settled = || paid().settled(1).notified(&[CONFIRMED, SETTLED].concat());
    let orphaned =
        settled().settlement_orphaned(2).is(Settled, &[Reorged]).notified(REORGED).queues(&[(Requeue, "10.00")]);
    orphaned
        .settled(1)
        .notified(&[])
        .settled(3)
        .is(Settled, &[Reorged])
        .notified(SETTLED)
        .settlement_orphaned(2)
        .notified(&[]);
    settled().settlement_orphaned(2).settlement_fails(3).is(Confirmed, &[Reorged, SettlementFailed]);
    let both = settled().settlement_orphaned(2).when(tx(1).rev(2).gone().seen()).is(Pending, &[Reorged]);
    both.notified(&[REORGED, REORGED].concat())
        .queues(&[(CancelRow, "10.00")])
        .arrives(tx(1).rev(3))
        .is(Confirmed, &[Reorged])
        .settled(3)
        .is(Settled, &[Reorged]);
}

#[test]
fn orphaned_final_funds_and_settlements_raise_alarms() {
    let (confirmed, gone) = (paid(), tx(1).rev(2).gone());
    let operation = confirmed.operation();
    let lost = Alarm::ReceivedMoneyOrphaned { key: tx(1).0.key };
    let settled = confirmed.alarms(&[]).settled(1).alarms(&[]);
    let orphaned = settled.settlement_orphaned(2).alarms(&[Alarm::SettlementOrphaned { operation }]);
    orphaned.when(gone.seen()).alarms(&[lost]);
    paid().when(gone.seen()).alarms(&[lost]).arrives(tx(1).rev(3)).alarms(&[]);
    // The transfer was never announced.
    given(terms()).when(tx(1).seen()).when(gone.seen()).alarms(&[]);
}

#[test]
fn a_failed_settlement_raises_an_alarm_whenever_it_is_announced() {
    let story = paid().settlement_fails(1);
    let operation = story.operation();
    let failed = |failures| Alarm::SettlementFailed { operation, failures };
    let scheduled = Command::RetrySettlement { by: Requester::Schedule };
    let story = story.alarms(&[failed(1)]).when(scheduled).alarms(&[]).settlement_fails(2).alarms(&[]);
    let demanded = story.when(Command::RetrySettlement { by: Requester::Psp }).settlement_fails(3);
    demanded.alarms(&[failed(3)]).when(Command::RetrySettlement { by: Requester::Psp }).settled(4).alarms(&[]);
}

#[test]
fn a_settlement_can_complete_before_its_funds_are_final_again() {
    let gone = paid().when(tx(1).rev(2).gone().seen()).notified(&[CONFIRMED, REORGED].concat());
    gone.settled(1)
        .is(Pending, &[Reorged])
        .notified(&[])
        .arrives(tx(1).rev(3))
        .is(Settled, &[Reorged])
        .notified(&[CONFIRMED, SETTLED].concat());
}

#[test]
fn an_old_settlement_transaction_settles_the_amount_it_moved() {
    let accept = Terms { overpayment: OverpaymentPolicy::Accept, ..terms() };
    let story = given(accept).arrives(tx(1)).when(tx(1).rev(2).gone().seen()).arrives(tx(2).of("15"));
    let story = story.is(Confirmed, &[Overpaid, Reorged]).settled_with(1, "10").is(Settled, &[Overpaid, Reorged]);
    let on = |account| Amount::from_units(story.posted.iter().map(|posting| posting.change_of(account)).sum());
    assert_eq!((on(Account::Psp), on(Account::Treasury)), (amount("9.90"), amount("0.10")));
    assert_eq!((on(Account::Payment), story.payment.in_wallet()), (amount("5"), amount("5")));
    // The rest can be refunded from the wallet.
    story.money("15.00", "0.00", "0.00", "15.00");
}

#[test]
fn a_failed_settlement_of_orphaned_funds_is_not_retried() {
    let gone = paid().when(tx(1).rev(2).gone().seen()).queues(&[(CancelRow, "10.00")]);
    gone.settlement_fails(1).is(Pending, &[Reorged]).queues(&[(CancelRow, "10.00")]).settlement_fails(2);
}

#[test]
fn an_underpaid_payment_waits_again_after_a_reorganisation() {
    underpaid()
        .when(tx(1).of("4").rev(2).gone().seen())
        .is(Pending, &[Reorged])
        .notified(&[UNDERPAID, REORGED].concat());
}

#[test]
fn an_outage_moves_the_deadline_once_by_its_length() {
    let outage = |id, from, to| Command::MoveDeadline { outage: OutageId(id), from: at(from), to: at(to) };
    given(terms())
        .when(outage(1, 100, 160))
        .asks_for(&Effect::AwaitDeadline { chain: Chain::Base, at: at(1_260) })
        .unchanged(&outage(1, 100, 160))
        .unchanged(&outage(2, 1_260, 2_000))
        .when(outage(1, 100, 200))
        .also(|payment| assert_eq!(payment.expires_at, at(1_300)))
        .when(outage(3, 1_290, 4_000))
        .also(|payment| assert_eq!(payment.expires_at, at(1_300 + 2_710)))
        .read_to(4_009)
        .is(Pending, &[])
        .read_to(4_010)
        .failed(FailureReason::Expired)
        .unchanged(&outage(4, 100, 9_000));
    given(terms()).when(outage(1, -500, 60)).also(|payment| assert_eq!(payment.expires_at, at(1_260)));
}

#[test]
fn a_verdict_stands_when_the_same_money_is_mined_again() {
    let moved = |again: Tx, decision| {
        let story = given(terms()).when(tx(1).seen()).when(tx(1).screened(decision));
        story.when(tx(1).rev(2).gone().seen()).when(again.seen()).when(again.finalised())
    };
    let again = tx(1).at(70).log(3);
    moved(again, Allow).is(Confirmed, &[Reorged]);
    moved(again, Review).is(Pending, &[InReview, Reorged]).when(again.decided(Allow)).is(Confirmed, &[Reorged]);
    moved(again, Block).failed(FailureReason::KytBlocked);
    // Other money of the same transaction is screened.
    for other in [again.from(ELSEWHERE), again.of("11")] {
        moved(other, Allow).is(Pending, &[Reorged]);
    }
    // The decision of a person about one transfer does not release another one in the same block.
    let twin = tx(1).log(1);
    let both = given(terms()).when(tx(1).seen()).when(tx(1).decided(Allow)).when(twin.seen());
    both.also(|payment| assert_eq!(payment.transfer(twin.0.key).unwrap().decision(), None));
}
