//! Tests of the figures of payments that do not complete, or of which not everything is known.

use alloy::primitives::Address;

use super::*;
use crate::audit::record::tests::{HASH, event};
use crate::audit::stages::StageFigures;
use crate::client::CallError;
use crate::receiver::{WebhookEvent, WebhookRequest};

const WAIT: Duration = Duration::from_millis(30);
/// Places of the events of a payment that is paid exactly.
const CONFIRMED: usize = 0;
const SETTLED: usize = 2;

/// Makes a state with payments of these behaviours, all of them due.
fn state(payers: &[Behaviour]) -> RunState {
    let (state, _late) = RunState::new("0a1b2c3d", 0, 100);
    for (number, payer) in (0..).zip(payers) {
        assert_eq!(state.due(Intent::nth(number, *payer), Instant::now()), number);
    }
    state
}

/// Records an immediate response to the initiation of this payment.
fn made(state: &RunState, number: u32) -> PaymentId {
    let payment_id = PaymentId::generate();
    let made = Initiated { payment_id, intermediary_wallet: Address::ZERO, payment_methods: None };
    state.answered(number, Some(Instant::now()), Ok(made)).unwrap();
    payment_id
}

/// Receives the webhook of this event (from 0) of payment 0 now.
fn receive(state: &RunState, payment_id: PaymentId, place: usize) {
    receive_named(state, payment_id, place, Some(state.reference(0)));
}

/// Receives it with this reference.
fn receive_named(state: &RunState, payment_id: PaymentId, place: usize, reference: Option<String>) {
    let at_wall = chrono::Utc::now();
    let (payment_id, timestamp) = (payment_id.to_string(), at_wall.to_rfc3339());
    let event = WebhookEvent { payment_id, timestamp, reference, ..event(&state.read().records[0], place) };
    let body = serde_json::to_vec(&event).unwrap().into();
    state.receive(&WebhookRequest { at: Instant::now(), at_wall, webhook_id: event.event_id, body, verified: Ok(()) });
}

fn stage(state: &RunState, stage: Stage) -> Option<StageFigures> {
    state.stages.figures().into_iter().find(|figures| figures.stage == stage)
}

#[test]
fn an_unanswered_initiation_counts_with_its_wait() {
    let state = state(&[Behaviour::Exact; 4]);
    made(&state, 0);
    let begun = Some(Instant::now());
    std::thread::sleep(WAIT);
    state.answered(1, begun, Err(InitiateFailed::Unanswered(CallError::TimedOut)));
    state.answered(2, begun, Err(InitiateFailed::Unreadable));
    state.answered(3, begun, Err(InitiateFailed::Refused(503, "overloaded".to_owned())));
    let accepted = stage(&state, Stage::Accepted).unwrap();
    // Refusals and failures may be fast, and count by their kind.
    assert_eq!((accepted.from_intended.count, accepted.step.count, accepted.timed_out), (2, 2, 1), "{accepted:?}");
    assert!(accepted.from_intended.p90_ms >= 30.0 && accepted.step.p90_ms >= 30.0, "{accepted:?}");
    assert_eq!(stage(&state, Stage::Begun).unwrap().step.count, 4, "all requests left");
    assert_eq!(state.stages.take_latest(Stage::Accepted).count(), 2);
    let counted = state.tally.counted();
    assert_eq!((counted.accepted, counted.unanswered, counted.refused, counted.overloaded), (1, 2, 1, 1));
}

#[test]
fn held_payments_are_in_no_figure() {
    let state = state(&[Behaviour::Held]);
    state.answered(0, Some(Instant::now()), Err(InitiateFailed::Unanswered(CallError::TimedOut)));
    assert!(state.stages.figures().is_empty());
    assert_eq!(state.tally.counted().unanswered, 0);
}

#[test]
fn a_step_with_an_unknown_beginning_is_not_counted() {
    let state = state(&[Behaviour::Exact]);
    let id = made(&state, 0);
    // No block and no confirmation was seen yet.
    receive(&state, id, SETTLED);
    receive(&state, id, CONFIRMED);
    for reached in [Stage::Settled, Stage::Confirmed] {
        let figures = stage(&state, reached).unwrap();
        assert_eq!((figures.from_intended.count, figures.step.count), (1, 0), "{figures:?}");
    }
    assert_eq!(state.read().records[0].faults, Vec::<String>::new());
}

#[test]
fn a_step_with_a_known_beginning_is_counted() {
    let state = state(&[Behaviour::Exact]);
    let id = made(&state, 0);
    let now = Instant::now();
    state.paid(0, now, Ok(Sent { from: Address::ZERO, tx_hash: HASH, at: now }));
    assert_eq!(state.mined(HASH, now), Some(0));
    std::thread::sleep(WAIT);
    receive(&state, id, CONFIRMED);
    std::thread::sleep(WAIT);
    receive(&state, id, SETTLED);
    for reached in [Stage::Confirmed, Stage::Settled] {
        let figures = stage(&state, reached).unwrap();
        assert_eq!((figures.from_intended.count, figures.step.count), (1, 1), "{figures:?}");
        assert!(figures.step.min_ms >= 20.0, "{figures:?}");
    }
}

#[test]
fn a_webhook_before_the_payers_response_is_compared_later() {
    for (sent, faults) in [(HASH, 0), (B256::repeat_byte(8), 1)] {
        let state = state(&[Behaviour::Exact]);
        let id = made(&state, 0);
        receive(&state, id, CONFIRMED);
        assert!(state.read().records[0].faults.is_empty());
        let now = Instant::now();
        state.paid(0, now, Ok(Sent { from: Address::ZERO, tx_hash: sent, at: now }));
        assert_eq!(state.read().records[0].faults.len(), faults);
    }
}

#[test]
fn a_transfer_that_is_not_shown_counts_with_its_wait() {
    let state = state(&[Behaviour::Exact]);
    made(&state, 0);
    let now = Instant::now();
    state.paid(0, now, Ok(Sent { from: Address::ZERO, tx_hash: HASH, at: now }));
    state.mined(HASH, now);
    state.unseen(0, now + Duration::from_secs(5));
    let seen = stage(&state, Stage::Seen).unwrap();
    assert_eq!((seen.step.count, seen.timed_out), (1, 1));
    assert!(seen.step.max_ms >= 5_000.0, "{seen:?}");
    assert_eq!(state.tally.errors()[UNSEEN], 1);
}

#[test]
fn the_wait_for_a_connection_is_not_the_services() {
    let state = state(&[Behaviour::Exact; 2]);
    std::thread::sleep(WAIT);
    // It got its connection only now, and the response came at once.
    made(&state, 0);
    let (begun, accepted) = (stage(&state, Stage::Begun).unwrap(), stage(&state, Stage::Accepted).unwrap());
    assert!(begun.step.min_ms >= 30.0 && accepted.step.max_ms < 30.0, "{begun:?} {accepted:?}");
    // This one never got a connection.
    state.answered(1, None, Err(InitiateFailed::Unanswered(CallError::NotSent)));
    let (begun, accepted) = (stage(&state, Stage::Begun).unwrap(), stage(&state, Stage::Accepted).unwrap());
    assert_eq!((begun.step.count, begun.timed_out), (2, 1), "{begun:?}");
    assert_eq!((accepted.from_intended.count, accepted.step.count, accepted.timed_out), (2, 1, 1), "{accepted:?}");
    assert_eq!(state.tally.errors()["initiate: no connection in time"], 1);
    let not_made = state.read().records[1].not_made.clone().unwrap();
    assert!(!not_made.may_be_there, "{not_made:?}");
}

#[test]
fn missing_events_count_with_their_wait_at_the_end() {
    let payers =
        [Behaviour::Exact, Behaviour::Over, Behaviour::Exact, Behaviour::Late, Behaviour::Held, Behaviour::Exact];
    let state = state(&payers);
    let id = made(&state, 0);
    for number in 1..5 {
        made(&state, number);
    }
    state.answered(5, Some(Instant::now()), Err(InitiateFailed::Refused(503, "overloaded".to_owned())));
    let now = Instant::now();
    // The first payment lacks settlement and last webhooks. The transfer of the second is in no block. The third could
    // not be paid.
    state.paid(0, now, Ok(Sent { from: Address::ZERO, tx_hash: HASH, at: now }));
    state.mined(HASH, now);
    receive(&state, id, CONFIRMED);
    receive(&state, id, CONFIRMED + 1);
    state.paid(1, now, Ok(Sent { from: Address::ZERO, tx_hash: B256::repeat_byte(8), at: now }));
    state.paid(2, now, Err(Unsent::Ended));
    std::thread::sleep(WAIT);
    state.end();
    let figures =
        |stage_of| stage(&state, stage_of).map(|found| (found.from_intended.count, found.step.count, found.timed_out));
    for (of, wanted) in [
        (Stage::Accepted, Some((5 - 1, 5 - 1, 0))),
        (Stage::Sent, Some((2, 2, 0))),
        (Stage::Mined, Some((2, 2, 1))),
        (Stage::Confirmed, Some((1, 1, 0))),
        (Stage::Settled, Some((1, 1, 1))),
        (Stage::Webhook, Some((2 + 2 + 2, 2, 2 + 2))),
        (Stage::Complete, Some((2, 2, 2))),
    ] {
        assert_eq!(figures(of), wanted, "{of:?}");
    }
    let (settled, complete) = (stage(&state, Stage::Settled).unwrap(), stage(&state, Stage::Complete).unwrap());
    assert!(settled.step.min_ms >= 30.0 && complete.from_intended.min_ms >= 30.0, "{settled:?} {complete:?}");
    // A late event counts, but does not change the figures.
    receive(&state, id, SETTLED);
    assert_eq!(state.tally.counted().settled, 1);
    assert_eq!(figures(Stage::Settled), Some((1, 1, 1)));
}

#[test]
fn a_collection_is_mined_when_a_webhook_names_it() {
    let state = state(&[Behaviour::Authorized]);
    let id = made(&state, 0);
    let now = Instant::now();
    state.authorized(0, now, Ok(now));
    assert_eq!(state.mined(HASH, now + WAIT), None, "the payer does not know the collection");
    std::thread::sleep(WAIT * 2);
    for place in 0..4 {
        receive(&state, id, place);
    }
    let steps = |of| stage(&state, of).map(|found| (found.from_intended.count, found.step.count));
    for (of, wanted) in
        [(Stage::Sent, (1, 1)), (Stage::Mined, (1, 1)), (Stage::Confirmed, (1, 1)), (Stage::Settled, (1, 0))]
    {
        assert_eq!(steps(of), Some(wanted), "{of:?}");
    }
    assert!(stage(&state, Stage::Mined).unwrap().step.min_ms >= 29.0);
    assert_eq!((state.tally.counted().mined, state.open()), (1, 0));
    state.end();
    assert!(state.stages.figures().iter().all(|figures| figures.timed_out == 0));
}

#[test]
fn a_webhook_with_a_wrong_reference_is_found_by_its_id() {
    for reference in [None, Some("order-1".to_owned()), Some("load-0a1b2c3d-7".to_owned())] {
        let state = state(&[Behaviour::Exact]);
        let id = made(&state, 0);
        receive_named(&state, id, CONFIRMED, reference.clone());
        let found = reference.as_deref().unwrap_or("-");
        let says = format!("payment.confirmed (event 1): reference is `{found}`, not `load-0a1b2c3d-0`");
        assert_eq!(state.read().records[0].faults, [says]);
        assert_eq!(state.tally.counted().foreign, 0);
        // Unknown id and reference.
        receive_named(&state, PaymentId::generate(), CONFIRMED, reference);
        assert_eq!((state.tally.counted().foreign, state.read().foreign.len()), (1, 1));
    }
}
