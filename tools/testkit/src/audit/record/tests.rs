//! Tests of the comparison of events with the expected ones.

use chrono::TimeDelta;

use super::*;
use crate::audit::outbound::OutboundOrder;
use crate::wire::Status;

pub(in crate::audit) const HASH: B256 = B256::repeat_byte(7);
const DUE_AT: DateTime<Utc> = DateTime::UNIX_EPOCH;
const FEE_BPS: u16 = 33;
/// Recipient and id of a refund.
pub(in crate::audit) const RECIPIENT: Address = Address::repeat_byte(5);
pub(in crate::audit) const REFUND: &str = "rf_1";

/// Makes a payment without any response.
fn unanswered(behaviour: Behaviour) -> Record {
    Record::new(Intent::nth(0, behaviour), Instant::now(), DUE_AT, FEE_BPS)
}

/// Makes a payment that was initiated, and paid if it is to be paid.
pub(in crate::audit) fn record(behaviour: Behaviour) -> Record {
    let mut record = unanswered(behaviour);
    let at = Instant::now();
    record.made = Some(InitiatedAt { id: PaymentId::generate(), wallet: Address::ZERO, at });
    if behaviour == Behaviour::Authorized {
        record.authorized = Some(at);
    } else {
        record.sent = record.intent.paid_amount().map(|_| (HASH, at));
    }
    if let (Some(kind), Some(amount)) = (behaviour.outbound(), record.intent.outbound_amount()) {
        record.request_outbound(OutboundOrder { kind, amount, to: RECIPIENT }, at);
        record.outbound_answered(Ok(REFUND.to_owned()), at);
    }
    record
}

/// Makes the expected event of this position (from 0).
pub(in crate::audit) fn event(record: &Record, place: usize) -> WebhookEvent {
    let intent = &record.intent;
    let wanted = expect::events(intent.behaviour)[place];
    let received = Amount(expect::received_units(intent, wanted.status));
    let paid = matches!(wanted.status, Status::Confirmed | Status::Settled);
    let failed = wanted.status == Status::Failed;
    let refunds = wanted.name == EventName::RefundSent;
    let treasury = received.units() * i64::from(record.fee_bps) / 10_000;
    WebhookEvent {
        event: wanted.name.to_string(),
        payment_id: record.made.map_or_else(PaymentId::generate, |made| made.id).to_string(),
        event_id: EventId::generate().to_string(),
        timestamp: (DUE_AT + TimeDelta::seconds(i64::from(intent.expires_secs()))).to_rfc3339(),
        sequence: u32::try_from(place).unwrap() + 1,
        status: wanted.status.to_string(),
        reference: None,
        amount: intent.amount.to_string(),
        amount_received: received.to_string(),
        token: intent.token.to_string(),
        chain: intent.chain.to_string(),
        tx_hash: (!failed).then(|| HASH.to_string()),
        psp_amount: paid.then(|| Amount(received.units() - treasury).to_string()),
        treasury_fee: paid.then(|| Amount(treasury).to_string()),
        failure_reason: failed.then(|| "expired".to_owned()),
        labels: expect::labels(intent.behaviour, wanted.status).iter().map(ToString::to_string).collect(),
        address: None,
        refund_id: refunds.then(|| REFUND.to_owned()),
        refund_amount: intent.outbound_amount().filter(|_| refunds).map(|amount| amount.to_string()),
        refund_address: refunds.then_some(RECIPIENT),
    }
}

fn receive(record: &mut Record, event: &WebhookEvent) -> Novelty {
    record.receive(event, &event.event_id)
}

#[test]
fn expected_events_have_no_fault() {
    for behaviour in Behaviour::MIXED {
        let mut record = record(behaviour);
        for place in 0..record.events.len() {
            assert!(!record.is_complete());
            let event = event(&record, place);
            assert!(matches!(receive(&mut record, &event), Novelty::New(_)), "{behaviour:?}: {:?}", record.faults);
            assert_eq!(receive(&mut record, &event), Novelty::Repeated);
        }
        assert!(record.missing().is_empty());
        assert_eq!(record.is_complete(), record.missing_outbound().is_empty());
        assert_eq!(record.faults, Vec::<String>::new(), "{behaviour:?}");
        assert_eq!(record.reported.is_some(), expect::ends(behaviour).status == Status::Settled);
    }
}

#[test]
fn events_of_an_authorized_payment_name_one_transaction() {
    let other = Some(B256::repeat_byte(8).to_string());
    for (place, tx_hash, says) in [
        (0, None, "tx_hash is `-`, not `a collection`"),
        (1, other.clone(), "two events report different settlements"),
        (2, other, "two events report different settlements"),
    ] {
        let mut record = record(Behaviour::Authorized);
        for before in 0..place {
            let event = event(&record, before);
            receive(&mut record, &event);
        }
        let event = WebhookEvent { tx_hash, ..event(&record, place) };
        receive(&mut record, &event);
        let [fault] = record.faults.as_slice() else { panic!("{:?}", record.faults) };
        assert!(fault.contains(says), "{fault}");
    }
}

#[test]
fn duplicate_and_surplus_events_are_faults() {
    let mut record = record(Behaviour::Exact);
    let first = event(&record, 3);
    receive(&mut record, &first);
    let again = WebhookEvent { event_id: EventId::generate().to_string(), ..first.clone() };
    assert_eq!(receive(&mut record, &again), Novelty::Wrong);
    let beyond = WebhookEvent { sequence: 5, ..again };
    assert_eq!(receive(&mut record, &beyond), Novelty::Wrong);
    let before = WebhookEvent { sequence: 0, ..beyond };
    assert_eq!(receive(&mut record, &before), Novelty::Wrong);
    assert!(record.faults[0].contains("event 4 arrived as"), "{:?}", record.faults);
    assert!(record.faults[1].contains("payin.settled arrived as event 5"), "{:?}", record.faults);
    assert_eq!(record.faults.len(), 3);
    let missing: Vec<usize> = record.missing().into_iter().map(|(_, place)| place).collect();
    assert_eq!(missing, [1, 2, 3]);
}

#[test]
fn names_each_wrong_field() {
    type Change = fn(&mut WebhookEvent);
    let wrong: [(&str, Change); 9] = [
        ("payment_id", |event| event.payment_id = PaymentId::generate().to_string()),
        ("status", |event| event.status = "settled".into()),
        ("amount", |event| event.amount = "6.00".into()),
        ("amount_received", |event| event.amount_received = "10.00".into()),
        ("token", |event| event.token = "USDT".into()),
        ("chain", |event| event.chain = "polygon".into()),
        ("labels", |event| event.labels.push("EXCESS".into())),
        ("tx_hash", |event| event.tx_hash = None),
        ("psp_amount and treasury_fee", |event| event.psp_amount = Some("5.00".into())),
    ];
    for (what, change) in wrong {
        let mut record = record(Behaviour::Exact);
        let mut event = event(&record, 0);
        change(&mut event);
        receive(&mut record, &event);
        assert!(record.faults.iter().any(|fault| fault.contains(&format!("{what} is"))), "{:?}", record.faults);
    }
    let mut record = record(Behaviour::Exact);
    let other = WebhookEvent { event: "payin.failed".into(), ..event(&record, 0) };
    assert_eq!(receive(&mut record, &other), Novelty::Wrong);
}

#[test]
fn a_split_that_differs_from_the_settings_is_a_fault() {
    for place in 0..4 {
        let mut record = record(Behaviour::Exact);
        let right = event(&record, place);
        let moved = |text: &Option<String>, units: i64| {
            text.as_ref().map(|text| Amount(text.parse::<Amount>().unwrap().units() + units).to_string())
        };
        // The fee of 5.00 at 0.33 % is 0.0165. The PSP gets one base unit more, the treasury one less.
        let (psp_amount, treasury_fee) = (moved(&right.psp_amount, 1), moved(&right.treasury_fee, -1));
        receive(&mut record, &WebhookEvent { psp_amount, treasury_fee, ..right });
        let [fault] = record.faults.as_slice() else { panic!("{:?}", record.faults) };
        let says = "psp_amount and treasury_fee is `4.983501 and 0.016499`, not `4.9835 and 0.0165`";
        assert!(fault.ends_with(says), "{fault}");
    }
}

#[test]
fn an_early_expiry_is_a_fault() {
    for behaviour in [Behaviour::Never, Behaviour::Late] {
        for (early_ms, is_fault) in [(0, false), (50, false), (51, true), (54_000, true)] {
            let mut record = record(behaviour);
            let at = DUE_AT + TimeDelta::seconds(60) - TimeDelta::milliseconds(early_ms);
            let failed = WebhookEvent { timestamp: at.to_rfc3339(), ..event(&record, 0) };
            receive(&mut record, &failed);
            assert_eq!(record.faults.len(), usize::from(is_fault), "{early_ms} ms: {:?}", record.faults);
            assert!(record.faults.iter().all(|fault| fault.contains("it expired at ")));
        }
    }
}

#[test]
fn a_webhook_may_overtake_the_payers_answer() {
    for (sent, faults) in [(HASH, 0), (B256::repeat_byte(8), 2)] {
        let mut record = record(Behaviour::Exact);
        record.sent = None;
        for place in 0..4 {
            let event = event(&record, place);
            assert!(matches!(receive(&mut record, &event), Novelty::New(_)));
        }
        assert!(record.faults.is_empty(), "no fault yet: {:?}", record.faults);
        assert!(record.is_complete() && record.is_ahead());
        record.set_sent(sent, Instant::now());
        assert!(!record.is_ahead());
        assert_eq!(record.faults.len(), faults, "the two events with the payer's transfer: {:?}", record.faults);
        assert!(record.faults.iter().all(|fault| fault.contains(": tx_hash is `0x0707")), "{:?}", record.faults);
        record.close();
        assert_eq!(record.faults.len(), faults, "values are compared once: {:?}", record.faults);
    }
    // No response: a fault at the end, unless the payer may have sent the transfer.
    for (unsent, faults) in [(None, 1), (Some("the node is away".to_owned()), 0)] {
        let mut record = record(Behaviour::Over);
        (record.sent, record.unsent) = (None, unsent);
        let event = event(&record, 0);
        receive(&mut record, &event);
        record.close();
        record.close();
        assert_eq!(record.faults.len(), faults, "{:?}", record.faults);
    }
    // A payer that does not pay has no transfer.
    let mut record = record(Behaviour::Never);
    let paid = WebhookEvent { tx_hash: Some(HASH.to_string()), ..event(&record, 0) };
    receive(&mut record, &paid);
    let fault = &record.faults[0];
    assert!(fault.contains(": tx_hash is `0x0707") && fault.ends_with("not `-`"), "{fault}");
}

#[test]
fn a_webhook_may_overtake_the_answer_to_the_initiation() {
    for is_same in [true, false] {
        let mut record = unanswered(Behaviour::Never);
        let event = event(&record, 0);
        assert!(matches!(receive(&mut record, &event), Novelty::New(_)));
        assert!(record.faults.is_empty(), "{:?}", record.faults);
        let id = if is_same { event.payment_id.parse().unwrap() } else { PaymentId::generate() };
        record.set_initiated(InitiatedAt { id, wallet: Address::ZERO, at: Instant::now() });
        assert_eq!(record.faults.is_empty(), is_same, "{:?}", record.faults);
    }
}
