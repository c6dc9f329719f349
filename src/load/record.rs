//! What is known of one payment of the load, and what is wrong with it so far.
//!
//! Pure: facts come in, faults come out.

use std::time::Duration;

use alloy::primitives::{Address, B256};
use payferry_domain::payment::{EventName, Status};
use payferry_domain::{Amount, EventId, PaymentId, Timestamp};
use tokio::time::Instant;

use super::behaviour::Intent;
use super::expect;
use super::receiver::Event;

/// Faults of one payment that are kept in words.
const FAULTS_MAX: usize = 8;

/// One payment as the load tester knows it.
#[derive(Debug)]
pub struct Record {
    /// What it is meant to be.
    pub intent: Intent,
    /// When it was meant to begin.
    pub intended: Instant,
    /// The answer to its initiation.
    pub made: Option<MadeAt>,
    /// Why there is none, as a kind of error.
    pub not_made: Option<String>,
    /// What its payer sent.
    pub sent: Option<(B256, Instant)>,
    /// Why its payer sent nothing.
    pub unsent: Option<String>,
    /// When the transfer was seen in a block.
    pub mined: Option<Instant>,
    /// When it was confirmed.
    pub confirmed: Option<Instant>,
    /// Its events by their place, from 0: which came.
    pub heard: Vec<Option<EventId>>,
    /// Shares and transaction of the settlement, as they were told.
    pub told: Option<ToldSettlement>,
    /// What is wrong.
    pub faults: Vec<String>,
}

/// The answer to an initiation.
#[derive(Debug, Clone, Copy)]
pub struct MadeAt {
    /// The payment.
    pub id: PaymentId,
    /// Where its payer sends the money.
    pub wallet: Address,
    /// When the answer came.
    pub at: Instant,
}

/// A settlement as a webhook told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldSettlement {
    /// The PSP's share.
    pub psp_amount: Amount,
    /// The fee.
    pub treasury_fee: Amount,
    /// The transaction.
    pub tx_hash: String,
}

/// What a webhook was to its payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Novelty {
    /// The first of its event.
    New(EventName),
    /// It came before.
    Repeated,
    /// It should not be; the record has the fault.
    Wrong,
}

impl Record {
    /// Nothing happened yet.
    pub fn new(intent: Intent, intended: Instant) -> Self {
        Self {
            intent,
            intended,
            made: None,
            not_made: None,
            sent: None,
            unsent: None,
            mined: None,
            confirmed: None,
            heard: vec![None; expect::events(intent.behaviour).len()],
            told: None,
            faults: Vec::new(),
        }
    }

    /// Notes what is wrong.
    pub fn fault(&mut self, what: String) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(what);
        }
    }

    /// Whether every event came that must.
    pub fn is_complete(&self) -> bool {
        self.heard.iter().all(Option::is_some)
    }

    /// The names of the events that did not come, and their places from 1.
    pub fn missing(&self) -> Vec<(EventName, usize)> {
        let expected = expect::events(self.intent.behaviour).iter().zip(1..).zip(&self.heard);
        expected.filter(|(_, heard)| heard.is_none()).map(|((event, place), _)| (event.name, place)).collect()
    }

    /// Takes an event in and holds it against what must be told.
    pub fn hear(&mut self, event: &Event, webhook_id: &str) -> Novelty {
        let Ok(event_id) = event.event_id.parse::<EventId>() else {
            self.fault(format!("{} has the event_id `{}`, which is none", event.event, event.event_id));
            return Novelty::Wrong;
        };
        if event.event_id != webhook_id {
            self.fault(format!("{event_id} came under the webhook-id `{webhook_id}`"));
        }
        if self.heard.contains(&Some(event_id)) {
            return Novelty::Repeated;
        }
        let place = (event.sequence as usize).wrapping_sub(1);
        let expected = expect::events(self.intent.behaviour);
        let Some(wanted) = expected.get(place) else {
            let (name, count) = (&event.event, expected.len());
            self.fault(format!("{name} came as event {} ({event_id}); {count} are to come", event.sequence));
            return Novelty::Wrong;
        };
        if let Some(other) = self.heard[place] {
            self.fault(format!("event {} came as {other} and as {event_id} ({})", event.sequence, event.event));
            return Novelty::Wrong;
        }
        self.heard[place] = Some(event_id);
        for fault in self.differences(event, place) {
            self.fault(format!("{} (event {}): {fault}", event.event, event.sequence));
        }
        if event.event != wanted.name.as_str() {
            self.fault(format!("event {} is {}, not {}", event.sequence, event.event, wanted.name));
            return Novelty::Wrong;
        }
        if let Some(told) = told(event).filter(|_| wanted.status == Status::Settled) {
            if self.told.as_ref().is_some_and(|before| *before != told) {
                self.fault(format!("two events tell of two settlements, {:?} and {told:?}", self.told));
            }
            self.told = Some(told);
        }
        Novelty::New(wanted.name)
    }

    /// What of an event's contents is not as it must be.
    fn differences(&self, event: &Event, place: usize) -> Vec<String> {
        let intent = &self.intent;
        let mut differences = Vec::new();
        let mut same = |what: &str, found: &str, wanted: &str| {
            if found != wanted {
                differences.push(format!("{what} is `{found}`, not `{wanted}`"));
            }
        };
        if let Some(made) = &self.made {
            same("payment_id", &event.payment_id, &made.id.to_string());
        }
        let received = Amount(expect::received_units(intent, place));
        same("status", &event.status, expect::events(intent.behaviour)[place].status.as_str());
        same("amount", &event.amount, &intent.amount.to_string());
        same("amount_received", &event.amount_received, &received.to_string());
        same("token", &event.token, intent.token.as_str());
        same("chain", &event.chain, intent.chain.as_str());
        let labels: Vec<&str> = expect::labels(intent.behaviour, place).iter().map(|label| label.as_str()).collect();
        same("labels", &event.labels.join(" "), &labels.join(" "));
        let failed = expect::events(intent.behaviour)[place].status == Status::Failed;
        same("failure_reason", event.failure_reason.as_deref().unwrap_or("-"), if failed { "expired" } else { "-" });
        // Of a settlement, the transaction is the settler's; it is compared with the payment and the chain in the end.
        if event.status != Status::Settled.as_str() {
            let tx_hash = self.sent.filter(|_| !failed).map_or_else(|| "-".to_owned(), |(hash, _)| hash.to_string());
            same("tx_hash", event.tx_hash.as_deref().unwrap_or("-"), &tx_hash);
        }
        if matches!(expect::events(intent.behaviour)[place].status, Status::Confirmed | Status::Settled) {
            let share = |text: &Option<String>| text.as_deref().and_then(|text| text.parse::<Amount>().ok());
            let sum = share(&event.psp_amount).zip(share(&event.treasury_fee));
            let sum = sum.and_then(|(psp_amount, fee)| psp_amount.checked_add(fee));
            same(
                "psp_amount + treasury_fee",
                &sum.map_or("-".to_owned(), |sum| sum.to_string()),
                &received.to_string(),
            );
        }
        differences
    }
}

fn told(event: &Event) -> Option<ToldSettlement> {
    Some(ToldSettlement {
        psp_amount: event.psp_amount.as_deref()?.parse().ok()?,
        treasury_fee: event.treasury_fee.as_deref()?.parse().ok()?,
        tx_hash: event.tx_hash.clone()?,
    })
}

/// The service's clock, which a sandbox may have moved on while the load ran.
#[derive(Debug, Clone, Default)]
pub struct ServiceClock {
    /// How far it was ahead, in milliseconds, growing.
    offsets_ms: Vec<i64>,
}

/// How much later than its webhook an event may seem to be: clocks are read at different moments.
const SLACK_MS: i64 = 50;

impl ServiceClock {
    /// It is so far ahead from now on.
    pub fn ahead(&mut self, secs: i64) {
        self.offsets_ms.push(secs.saturating_mul(1_000));
    }

    /// How long before `now` something happened, of which a webhook that came now tells.
    pub fn age(&self, happened: &str, now: Timestamp) -> Option<Duration> {
        let happened = chrono::DateTime::parse_from_rfc3339(happened).ok()?.timestamp_millis();
        // It cannot have happened after its webhook, so that an offset that says so came later.
        let ages = self.offsets_ms.iter().map(|offset| now.as_millis() - (happened - offset));
        let age = ages.into_iter().find(|age| *age >= -SLACK_MS)?;
        Some(Duration::from_millis(age.max(0).unsigned_abs()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::load::behaviour::Behaviour;

    const HASH: B256 = B256::repeat_byte(7);

    fn record(behaviour: Behaviour) -> Record {
        let mut record = Record::new(Intent::nth(0, behaviour), Instant::now());
        let at = Instant::now();
        record.made = Some(MadeAt { id: PaymentId::generate(), wallet: Address::ZERO, at });
        record.sent = record.intent.pays().map(|_| (HASH, at));
        record
    }

    /// The event of this place as it must be.
    fn event(record: &Record, place: usize) -> Event {
        let intent = &record.intent;
        let wanted = expect::events(intent.behaviour)[place];
        let received = Amount(expect::received_units(intent, place));
        let paid = matches!(wanted.status, Status::Confirmed | Status::Settled);
        let failed = wanted.status == Status::Failed;
        Event {
            event: wanted.name.to_string(),
            payment_id: record.made.unwrap().id.to_string(),
            event_id: EventId::generate().to_string(),
            timestamp: String::new(),
            sequence: u32::try_from(place).unwrap() + 1,
            status: wanted.status.to_string(),
            reference: None,
            amount: intent.amount.to_string(),
            amount_received: received.to_string(),
            token: intent.token.to_string(),
            chain: intent.chain.to_string(),
            tx_hash: (!failed).then(|| HASH.to_string()),
            psp_amount: paid.then(|| Amount(received.units() - 5).to_string()),
            treasury_fee: paid.then(|| Amount(5).to_string()),
            failure_reason: failed.then(|| "expired".to_owned()),
            labels: expect::labels(intent.behaviour, place).iter().map(ToString::to_string).collect(),
        }
    }

    fn hear(record: &mut Record, event: &Event) -> Novelty {
        record.hear(event, &event.event_id)
    }

    #[test]
    fn what_must_be_told_has_no_fault() {
        for behaviour in Behaviour::MIXED {
            let mut record = record(behaviour);
            for place in 0..record.heard.len() {
                assert!(!record.is_complete());
                let event = event(&record, place);
                assert!(matches!(hear(&mut record, &event), Novelty::New(_)), "{behaviour:?}: {:?}", record.faults);
                assert_eq!(hear(&mut record, &event), Novelty::Repeated);
            }
            assert!(record.is_complete() && record.missing().is_empty());
            assert_eq!(record.faults, Vec::<String>::new(), "{behaviour:?}");
            assert_eq!(record.told.is_some(), behaviour == Behaviour::Exact);
        }
    }

    #[test]
    fn what_is_told_twice_or_too_much_is_a_fault() {
        let mut record = record(Behaviour::Exact);
        let first = event(&record, 3);
        hear(&mut record, &first);
        let again = Event { event_id: EventId::generate().to_string(), ..first.clone() };
        assert_eq!(hear(&mut record, &again), Novelty::Wrong);
        let beyond = Event { sequence: 5, ..again };
        assert_eq!(hear(&mut record, &beyond), Novelty::Wrong);
        let before = Event { sequence: 0, ..beyond };
        assert_eq!(hear(&mut record, &before), Novelty::Wrong);
        assert!(record.faults[0].contains("event 4 came as"), "{:?}", record.faults);
        assert!(record.faults[1].contains("payin.settled came as event 5"), "{:?}", record.faults);
        assert_eq!(record.faults.len(), 3);
        let missing: Vec<usize> = record.missing().into_iter().map(|(_, place)| place).collect();
        assert_eq!(missing, [1, 2, 3]);
    }

    #[test]
    fn each_wrong_content_is_named() {
        type Change = fn(&mut Event);
        let wrong: [(&str, Change); 9] = [
            ("payment_id", |event| event.payment_id = PaymentId::generate().to_string()),
            ("status", |event| event.status = "settled".into()),
            ("amount", |event| event.amount = "6.00".into()),
            ("amount_received", |event| event.amount_received = "10.00".into()),
            ("token", |event| event.token = "USDT".into()),
            ("chain", |event| event.chain = "polygon".into()),
            ("labels", |event| event.labels.push("EXCESS".into())),
            ("tx_hash", |event| event.tx_hash = None),
            ("psp_amount + treasury_fee", |event| event.psp_amount = Some("5.00".into())),
        ];
        for (what, change) in wrong {
            let mut record = record(Behaviour::Exact);
            let mut event = event(&record, 0);
            change(&mut event);
            hear(&mut record, &event);
            assert!(record.faults.iter().any(|fault| fault.contains(&format!("{what} is"))), "{:?}", record.faults);
        }
        let mut record = record(Behaviour::Exact);
        let other = Event { event: "payin.failed".into(), ..event(&record, 0) };
        assert_eq!(hear(&mut record, &other), Novelty::Wrong);
    }

    #[test]
    fn the_clock_may_move_on_in_between() {
        let mut clock = ServiceClock::default();
        clock.ahead(0);
        clock.ahead(61);
        let now = Timestamp::from_secs(1_000_000);
        let age = |happened: Timestamp| clock.age(&happened.to_string(), now);
        assert_eq!(age(now.plus_millis(-200)), Some(Duration::from_millis(200)), "before it moved");
        assert_eq!(age(now.plus_secs(61).plus_millis(-200)), Some(Duration::from_millis(200)), "after");
        assert_eq!(age(now.plus_millis(20)), Some(Duration::ZERO));
        assert_eq!(age(now.plus_secs(3_600)), None);
        assert_eq!(clock.age("yesterday", now), None);
    }
}
