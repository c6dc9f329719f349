//! Stored transitions, decided and applied again.

use super::*;

/// The transitions of a payment that was paid and settled, as they are stored.
fn settled() -> Vec<StoredTransition> {
    let commands = [
        tx(1).seen(),
        tx(1).screened(Decision::Allow),
        tx(1).finalised(),
        Command::CompleteSettlement {
            operation: OperationId::settlement_of(terms().id),
            revision: 1,
            amount: amount("10"),
            tx_hash: hash(90),
            block_time: at(90),
        },
    ];
    let story = commands.iter().cloned().fold(given(terms()), Story::when);
    let commands = std::iter::once(None).chain(commands.into_iter().map(Some));
    let stored = |(version, ((events, at), command))| StoredTransition { version, at, events, command };
    (1..).zip(story.commits.into_iter().zip(commands)).map(stored).collect()
}

fn replay_all(stored: &[StoredTransition]) -> Result<Vec<Replayed>, Unreplayable> {
    let mut before = None;
    stored
        .iter()
        .map(|stored| replay(before.take(), stored).inspect(|one| before = Some(one.transition.payment.clone())))
        .collect()
}

#[test]
fn a_stored_history_leads_to_the_same_payment() {
    let replayed = replay_all(&settled()).unwrap();
    assert!(replayed.iter().all(|step| step.difference.is_none()));
    let last = &replayed.last().unwrap().transition;
    assert_eq!((last.payment.status, last.payment.version, last.announcements.len()), (Status::Settled, 5, 2));
}

#[test]
fn a_history_without_commands_is_only_applied() {
    let mut stored = settled();
    for one in &mut stored {
        one.command = None;
    }
    let replayed = replay_all(&stored).unwrap();
    assert_eq!(replayed.last().unwrap().transition.payment.status, Status::Settled);
}

#[test]
fn a_command_that_is_decided_otherwise_is_a_difference() {
    let mut stored = settled();
    // As if an earlier version had confirmed the payment only later.
    let confirmed = stored[3].events.pop().unwrap();
    assert!(matches!(confirmed, Event::Confirmed { .. }));
    stored.truncate(4);
    let last = replay_all(&stored).unwrap().pop().unwrap();
    let Some(DecisionDifference::Decided(now)) = last.difference else { panic!("{:?}", last.difference) };
    assert!(now.contains(&confirmed));
    assert_eq!(last.transition.payment.status, Status::Pending, "the stored events are applied");
    assert_eq!(last.violated.unwrap().0[0].id, "PAY-20", "an event is missing");
}

#[test]
fn a_command_that_is_rejected_now_is_a_difference() {
    let mut stored = settled();
    stored[4].command = Some(Command::Cancel);
    let last = replay_all(&stored).unwrap().pop().unwrap();
    assert_eq!(last.difference, Some(DecisionDifference::Rejected(Rejection::PaymentNotPending(Status::Confirmed))));
    assert_eq!(last.transition.payment.status, Status::Settled);
}

#[test]
fn a_history_with_a_gap_or_without_initiation_is_refused() {
    let mut stored = settled();
    let first = stored.remove(0);
    assert_eq!(replay_all(&stored), Err(Unreplayable::NoInitiation));
    stored.remove(0);
    stored.insert(0, first);
    assert_eq!(replay_all(&stored), Err(Unreplayable::Gap { expected: 2, found: 3 }));
}

#[test]
fn a_stored_command_has_no_data_of_the_psp_and_is_completed_from_its_events() {
    let metadata = serde_json::json!({ "name": "Ada" }).as_object().cloned();
    let order = RefundOrder {
        to: Some(ELSEWHERE),
        reference: Some("order 7".to_owned()),
        metadata,
        ..RefundOrder::new(refund_id(1), Requester::Psp)
    };
    let command = Command::RequestRefund(Box::new(order));
    let story = paid().settled(1).when(command.clone());
    let (events, _) = story.commits.last().unwrap();
    let stored = serde_json::to_string(&command).unwrap();
    assert!(!stored.contains("Ada") && !stored.contains("order 7"), "{stored}");
    let read: Command = serde_json::from_str(&stored).unwrap();
    assert_ne!(read, command);
    assert_eq!(read.completed_from(events), command);
}

#[test]
fn an_alarm_ends_with_its_cause() {
    use AlarmKind::{Overdrawn, ReceivedMoneyOrphaned, SettlementOrphaned};
    let ended = |story: Story, command: Command| {
        let before = story.payment.clone();
        let story = story.when(command);
        ended_alarms(&before, &story.payment, &story.last.as_ref().unwrap().events)
    };
    let orphaned = || paid().when(tx(1).rev(2).gone().seen());
    let again = tx(1).rev(3).at(75).log(4);
    let seen = || orphaned().when(again.seen()).when(again.screened(Decision::Allow));
    assert_eq!(ended(orphaned(), again.seen()), []);
    assert_eq!(ended(seen(), again.finalised()), [ReceivedMoneyOrphaned]);
    let settle = |story: &Story| Command::CompleteSettlement {
        operation: story.operation(),
        revision: 3,
        amount: amount("10"),
        tx_hash: hash(90),
        block_time: at(90),
    };
    let story = paid().settled(1).settlement_orphaned(2);
    let command = settle(&story);
    assert_eq!(ended(story, command), [SettlementOrphaned]);
    // The refund was sent, the money that it came from is orphaned, and then it is back.
    let refund = refund_of(1, Some("10"), Funds::Received, None, Requester::Psp);
    let sent = Command::CompleteRefund { refund_id: refund_id(1), revision: 1, tx_hash: hash(91) };
    let overdrawn = paid().settlement_fails(1).when(refund).cleared(1).when(sent).when(tx(1).rev(2).gone().seen());
    let overdrawn = overdrawn.also(|payment| assert!(payment.net_units() < 0));
    let back = overdrawn.when(again.seen()).when(again.screened(Decision::Allow));
    assert!(ended(back, again.finalised()).contains(&Overdrawn));
}
