//! What is measured of payments that do not go the whole way, or of which not everything is known.

use alloy::primitives::Address;
use payferry_domain::payment::{EventName, Status};
use payferry_domain::{Amount, EventId};

use super::*;
use crate::load::client::CallError;
use crate::load::receiver::{Arrived, Event, Heard};
use crate::load::stages::StageFigures;

const WAIT: Duration = Duration::from_millis(30);
const HASH: B256 = B256::repeat_byte(7);

/// A book with payments of these payers, all of them due.
fn book(payers: &[Behaviour]) -> Book {
    let (book, _late) = Book::new("0a1b2c3d", 0, 100);
    for (number, payer) in (0..).zip(payers) {
        assert_eq!(book.due(Intent::nth(number, *payer), Instant::now()), number);
    }
    book
}

/// The initiation of this number was answered at once.
fn made(book: &Book, number: u32) -> PaymentId {
    let payment_id = PaymentId::generate();
    let made = Made { payment_id, intermediary_wallet: Address::ZERO };
    book.answered(number, Some(Instant::now()), Ok(made)).unwrap();
    payment_id
}

/// A webhook of payment 0, which pays exactly, comes now.
fn hear(book: &Book, payment_id: PaymentId, name: EventName, sequence: u32, status: Status) {
    hear_named(book, payment_id, name, sequence, status, Some(book.reference(0)));
}

/// The same under this reference.
fn hear_named(
    book: &Book,
    payment_id: PaymentId,
    name: EventName,
    sequence: u32,
    status: Status,
    reference: Option<String>,
) {
    let Intent { amount, token, chain, .. } = Intent::nth(0, Behaviour::Exact);
    let event_id = EventId::generate().to_string();
    let at_wall = Timestamp::from(chrono::Utc::now());
    let fee = amount.units() / 100;
    let event = Event {
        event: name.to_string(),
        payment_id: payment_id.to_string(),
        event_id: event_id.clone(),
        timestamp: at_wall.to_string(),
        sequence,
        status: status.to_string(),
        reference,
        amount: amount.to_string(),
        amount_received: amount.to_string(),
        token: token.to_string(),
        chain: chain.to_string(),
        tx_hash: Some(HASH.to_string()),
        psp_amount: Some(Amount(amount.units() - fee).to_string()),
        treasury_fee: Some(Amount(fee).to_string()),
        failure_reason: None,
        labels: Vec::new(),
    };
    book.hear(Heard::Webhook(Box::new(Arrived { at: Instant::now(), at_wall, webhook_id: event_id, event })));
}

fn stage(book: &Book, stage: Stage) -> Option<StageFigures> {
    book.stages.figures().into_iter().find(|figures| figures.stage == stage)
}

#[test]
fn an_initiation_without_an_answer_has_its_wait_in_the_figures() {
    let book = book(&[Behaviour::Exact; 4]);
    made(&book, 0);
    let begun = Some(Instant::now());
    std::thread::sleep(WAIT);
    book.answered(1, begun, Err(NotMade::Unanswered(CallError::TimedOut)));
    book.answered(2, begun, Err(NotMade::Unreadable));
    book.answered(3, begun, Err(NotMade::Refused(503, "overloaded".to_owned())));
    let accepted = stage(&book, Stage::Accepted).unwrap();
    // Who is refused was not waiting for long, and is counted by kind.
    assert_eq!((accepted.from_intended.count, accepted.step.count, accepted.in_vain), (3, 3, 2), "{accepted:?}");
    assert!(accepted.from_intended.p90_ms >= 30.0 && accepted.step.p90_ms >= 30.0, "{accepted:?}");
    assert_eq!(stage(&book, Stage::Begun).unwrap().step.count, 4, "all requests left");
    let [of_second, _] = book.tally.take_latencies();
    assert_eq!(of_second.count(), 3);
    let counted = book.tally.counts.read();
    assert_eq!((counted.accepted, counted.unanswered, counted.refused), (1, 2, 1));
}

#[test]
fn those_that_are_held_are_in_no_figure() {
    let book = book(&[Behaviour::Held]);
    book.answered(0, Some(Instant::now()), Err(NotMade::Unanswered(CallError::TimedOut)));
    assert!(book.stages.figures().is_empty());
    assert_eq!(book.tally.counts.read().unanswered, 0);
}

#[test]
fn a_step_whose_beginning_is_not_known_is_none_of_nothing() {
    let book = book(&[Behaviour::Exact]);
    let id = made(&book, 0);
    // Neither a block nor a confirmation was seen yet.
    hear(&book, id, EventName::PaymentSettled, 3, Status::Settled);
    hear(&book, id, EventName::PaymentConfirmed, 1, Status::Confirmed);
    for reached in [Stage::Settled, Stage::Confirmed] {
        let figures = stage(&book, reached).unwrap();
        assert_eq!((figures.from_intended.count, figures.step.count), (1, 0), "{figures:?}");
    }
    assert_eq!(book.read().records[0].faults, Vec::<String>::new());
}

#[test]
fn a_step_whose_beginning_is_known_is_counted() {
    let book = book(&[Behaviour::Exact]);
    let id = made(&book, 0);
    let now = Instant::now();
    book.paid(0, now, Ok(Sent { tx_hash: HASH, at: now }));
    assert_eq!(book.mined(HASH, now), Some(0));
    std::thread::sleep(WAIT);
    hear(&book, id, EventName::PaymentConfirmed, 1, Status::Confirmed);
    std::thread::sleep(WAIT);
    hear(&book, id, EventName::PaymentSettled, 3, Status::Settled);
    for reached in [Stage::Confirmed, Stage::Settled] {
        let figures = stage(&book, reached).unwrap();
        assert_eq!((figures.from_intended.count, figures.step.count), (1, 1), "{figures:?}");
        assert!(figures.step.min_ms >= 20.0, "{figures:?}");
    }
}

#[test]
fn a_webhook_that_comes_before_the_payer_is_answered_is_compared_with_what_he_sent() {
    for (sent, faults) in [(HASH, 0), (B256::repeat_byte(8), 1)] {
        let book = book(&[Behaviour::Exact]);
        let id = made(&book, 0);
        hear(&book, id, EventName::PaymentConfirmed, 1, Status::Confirmed);
        assert!(book.read().records[0].faults.is_empty());
        let now = Instant::now();
        book.paid(0, now, Ok(Sent { tx_hash: sent, at: now }));
        assert_eq!(book.read().records[0].faults.len(), faults);
    }
}

#[test]
fn a_transfer_that_is_not_shown_is_counted_with_its_wait() {
    let book = book(&[Behaviour::Exact]);
    made(&book, 0);
    let now = Instant::now();
    book.paid(0, now, Ok(Sent { tx_hash: HASH, at: now }));
    book.mined(HASH, now);
    book.unseen(0, now + Duration::from_secs(5));
    let seen = stage(&book, Stage::Seen).unwrap();
    assert_eq!((seen.step.count, seen.in_vain), (1, 1));
    assert!(seen.step.max_ms >= 5_000.0, "{seen:?}");
    assert_eq!(book.tally.errors()[UNSEEN], 1);
}

#[test]
fn what_waits_for_a_connection_is_the_load_testers_own_and_what_was_never_sent_is_no_answer_of_the_service() {
    let book = book(&[Behaviour::Exact; 2]);
    std::thread::sleep(WAIT);
    // It had its connection only now, and was answered at once.
    made(&book, 0);
    let (begun, accepted) = (stage(&book, Stage::Begun).unwrap(), stage(&book, Stage::Accepted).unwrap());
    assert!(begun.step.min_ms >= 30.0 && accepted.step.max_ms < 30.0, "{begun:?} {accepted:?}");
    // This one never had any.
    book.answered(1, None, Err(NotMade::Unanswered(CallError::NotSent)));
    let (begun, accepted) = (stage(&book, Stage::Begun).unwrap(), stage(&book, Stage::Accepted).unwrap());
    assert_eq!((begun.step.count, begun.in_vain), (2, 1), "{begun:?}");
    assert_eq!((accepted.from_intended.count, accepted.step.count, accepted.in_vain), (2, 1, 1), "{accepted:?}");
    assert_eq!(book.tally.errors()["initiate: no connection in time"], 1);
    let not_made = book.read().records[1].not_made.clone().unwrap();
    assert!(!not_made.may_be_there, "{not_made:?}");
}

#[test]
fn what_never_came_has_its_wait_in_the_figures_when_nobody_waits_any_more() {
    let payers =
        [Behaviour::Exact, Behaviour::Over, Behaviour::Exact, Behaviour::Late, Behaviour::Held, Behaviour::Exact];
    let book = book(&payers);
    let id = made(&book, 0);
    for number in 1..5 {
        made(&book, number);
    }
    book.answered(5, Some(Instant::now()), Err(NotMade::Refused(503, "overloaded".to_owned())));
    let now = Instant::now();
    // Of the first, settlement and last webhooks are missing; the second's transfer is in no block; the third could not pay.
    book.paid(0, now, Ok(Sent { tx_hash: HASH, at: now }));
    book.mined(HASH, now);
    hear(&book, id, EventName::PaymentConfirmed, 1, Status::Confirmed);
    hear(&book, id, EventName::PayinConfirmed, 2, Status::Confirmed);
    book.paid(1, now, Ok(Sent { tx_hash: B256::repeat_byte(8), at: now }));
    book.paid(2, now, Err(Unsent::Ended));
    std::thread::sleep(WAIT);
    book.end();
    let figures =
        |stage_of| stage(&book, stage_of).map(|found| (found.from_intended.count, found.step.count, found.in_vain));
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
    let (settled, complete) = (stage(&book, Stage::Settled).unwrap(), stage(&book, Stage::Complete).unwrap());
    assert!(settled.step.min_ms >= 30.0 && complete.from_intended.min_ms >= 30.0, "{settled:?} {complete:?}");
    // What comes all the same is counted, and is in the figures once.
    hear(&book, id, EventName::PaymentSettled, 3, Status::Settled);
    assert_eq!(book.tally.counts.read().settled, 1);
    assert_eq!(figures(Stage::Settled), Some((1, 1, 1)));
}

#[test]
fn a_webhook_with_a_wrong_reference_or_none_is_its_payments_by_its_id() {
    for reference in [None, Some("order-1".to_owned()), Some("load-0a1b2c3d-7".to_owned())] {
        let book = book(&[Behaviour::Exact]);
        let id = made(&book, 0);
        hear_named(&book, id, EventName::PaymentConfirmed, 1, Status::Confirmed, reference.clone());
        let found = reference.as_deref().unwrap_or("-");
        let says = format!("payment.confirmed (event 1): reference is `{found}`, not `load-0a1b2c3d-0`");
        assert_eq!(book.read().records[0].faults, [says]);
        assert_eq!(book.tally.counts.read().foreign, 0);
        // Nobody's id, and nobody's reference.
        hear_named(&book, PaymentId::generate(), EventName::PaymentConfirmed, 1, Status::Confirmed, reference);
        assert_eq!((book.tally.counts.read().foreign, book.read().foreign.len()), (1, 1));
    }
}
