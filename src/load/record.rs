//! What is known of one payment of the load, and what is wrong with it so far.
//!
//! Pure: facts come in, faults come out.

use alloy::primitives::{Address, B256};
use payferry_domain::payment::{EventName, Status};
use payferry_domain::{Amount, EventId, PaymentId, Timestamp};
use tokio::time::Instant;

use super::behaviour::Intent;
use super::clock::{SLACK_MS, moment};
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
    /// When it was due, by the service's clock: it cannot have been made before.
    pub due_at: Timestamp,
    /// The treasury's share of its settlement in basis points, as the PSP's settings say.
    pub fee_bps: u16,
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
    early: Vec<Early>,
}

/// What a webhook told before the load tester itself knew it: it overtook an answer that was lost or is slow.
#[derive(Debug)]
struct Early {
    /// The event.
    of: String,
    what: &'static str,
    told: String,
}

const PAYMENT_ID: &str = "payment_id";
const TX_HASH: &str = "tx_hash";

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
    pub fn new(intent: Intent, intended: Instant, due_at: Timestamp, fee_bps: u16) -> Self {
        Self {
            intent,
            intended,
            due_at,
            fee_bps,
            made: None,
            not_made: None,
            sent: None,
            unsent: None,
            mined: None,
            confirmed: None,
            heard: vec![None; expect::events(intent.behaviour).len()],
            told: None,
            faults: Vec::new(),
            early: Vec::new(),
        }
    }

    /// The answer to its initiation came.
    pub fn is_made(&mut self, made: MadeAt) {
        self.made = Some(made);
        self.compare_early(PAYMENT_ID, &made.id.to_string());
    }

    /// The chain's node took its payer's transfer.
    pub fn is_sent(&mut self, tx_hash: B256, at: Instant) {
        self.sent = Some((tx_hash, at));
        self.compare_early(TX_HASH, &tx_hash.to_string());
    }

    /// Whether webhooks are ahead of what the load tester knows.
    pub fn is_ahead(&self) -> bool {
        !self.early.is_empty()
    }

    /// Nobody will answer any more: a transfer that was told of and that its payer knows nothing of is none. Of one that
    /// its payer could not send for sure, nothing can be said.
    pub fn is_over(&mut self) {
        for Early { of, what, told } in std::mem::take(&mut self.early) {
            if what == TX_HASH && self.unsent.is_none() {
                self.fault(format!("{of}: {what} is `{told}`, and its payer knows of no transfer"));
            }
        }
    }

    fn compare_early(&mut self, known: &str, wanted: &str) {
        for early in std::mem::take(&mut self.early) {
            let Early { of, what, told } = &early;
            if *what != known {
                self.early.push(early);
            } else if told != wanted {
                let fault = format!("{of}: {what} is `{told}`, not `{wanted}`");
                self.fault(fault);
            }
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
        let of = format!("{} (event {})", event.event, event.sequence);
        let (differences, early) = self.differences(event, place);
        for fault in differences {
            self.fault(format!("{of}: {fault}"));
        }
        self.early.extend(early.into_iter().map(|(what, told)| Early { of: of.clone(), what, told }));
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

    /// What of an event's contents is not as it must be, and what cannot be compared yet.
    fn differences(&self, event: &Event, place: usize) -> (Vec<String>, Vec<(&'static str, String)>) {
        let intent = &self.intent;
        let mut differences = Vec::new();
        let mut early = Vec::new();
        let mut same = |what: &str, found: &str, wanted: &str| {
            if found != wanted {
                differences.push(format!("{what} is `{found}`, not `{wanted}`"));
            }
        };
        match &self.made {
            Some(made) => same(PAYMENT_ID, &event.payment_id, &made.id.to_string()),
            None => early.push((PAYMENT_ID, event.payment_id.clone())),
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
            let tx_hash = event.tx_hash.as_deref().unwrap_or("-");
            match self.sent {
                _ if failed || intent.pays().is_none() => same(TX_HASH, tx_hash, "-"),
                Some((hash, _)) => same(TX_HASH, tx_hash, &hash.to_string()),
                // The node has it, and its answer to the payer is on its way.
                None => early.push((TX_HASH, tx_hash.to_owned())),
            }
        }
        if matches!(expect::events(intent.behaviour)[place].status, Status::Confirmed | Status::Settled) {
            let share = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
            let split = format!("{} and {}", share(&event.psp_amount), share(&event.treasury_fee));
            same(expect::SPLIT, &split, &expect::split(received, self.fee_bps));
        }
        let expires_at = self.due_at.plus_secs(i64::from(intent.expires_secs()));
        if failed && moment(&event.timestamp).is_some_and(|at| at.plus_millis(SLACK_MS) < expires_at) {
            let at = &event.timestamp;
            differences.push(format!("it expired at {at}, before its time to pay was over at {expires_at}"));
        }
        (differences, early)
    }
}

fn told(event: &Event) -> Option<ToldSettlement> {
    Some(ToldSettlement {
        psp_amount: event.psp_amount.as_deref()?.parse().ok()?,
        treasury_fee: event.treasury_fee.as_deref()?.parse().ok()?,
        tx_hash: event.tx_hash.clone()?,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::load::behaviour::Behaviour;

    const HASH: B256 = B256::repeat_byte(7);
    const DUE_AT: Timestamp = Timestamp::from_secs(1_000_000);
    const FEE_BPS: u16 = 33;

    /// Nobody answered anything yet.
    fn asked(behaviour: Behaviour) -> Record {
        Record::new(Intent::nth(0, behaviour), Instant::now(), DUE_AT, FEE_BPS)
    }

    fn record(behaviour: Behaviour) -> Record {
        let mut record = asked(behaviour);
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
        let treasury = received.units() * i64::from(FEE_BPS) / 10_000;
        Event {
            event: wanted.name.to_string(),
            payment_id: record.made.map_or_else(PaymentId::generate, |made| made.id).to_string(),
            event_id: EventId::generate().to_string(),
            timestamp: DUE_AT.plus_secs(i64::from(intent.expires_secs())).to_string(),
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
            ("psp_amount and treasury_fee", |event| event.psp_amount = Some("5.00".into())),
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
    fn a_split_that_adds_up_and_is_not_the_settings_is_a_fault() {
        for place in 0..4 {
            let mut record = record(Behaviour::Exact);
            let right = event(&record, place);
            let moved = |text: &Option<String>, units: i64| {
                text.as_ref().map(|text| Amount(text.parse::<Amount>().unwrap().units() + units).to_string())
            };
            // 5.00 at 0.33 % is 0.0165; the PSP's is one base unit more, the treasury's one less.
            let (psp_amount, treasury_fee) = (moved(&right.psp_amount, 1), moved(&right.treasury_fee, -1));
            hear(&mut record, &Event { psp_amount, treasury_fee, ..right });
            let [fault] = record.faults.as_slice() else { panic!("{:?}", record.faults) };
            let says = "psp_amount and treasury_fee is `4.983501 and 0.016499`, not `4.9835 and 0.0165`";
            assert!(fault.ends_with(says), "{fault}");
        }
    }

    #[test]
    fn a_payment_that_expires_before_its_time_is_a_fault() {
        for behaviour in [Behaviour::Never, Behaviour::Late] {
            for (early_ms, is_fault) in [(0, false), (SLACK_MS, false), (SLACK_MS + 1, true), (54_000, true)] {
                let mut record = record(behaviour);
                let at = DUE_AT.plus_secs(60).plus_millis(-early_ms);
                let failed = Event { timestamp: at.to_string(), ..event(&record, 0) };
                hear(&mut record, &failed);
                assert_eq!(record.faults.len(), usize::from(is_fault), "{early_ms} ms: {:?}", record.faults);
                assert!(record.faults.iter().all(|fault| fault.contains("before its time to pay was over")));
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
                assert!(matches!(hear(&mut record, &event), Novelty::New(_)));
            }
            assert!(record.faults.is_empty(), "nothing is wrong yet: {:?}", record.faults);
            assert!(record.is_complete() && record.is_ahead());
            record.is_sent(sent, Instant::now());
            assert!(!record.is_ahead());
            assert_eq!(record.faults.len(), faults, "the two that tell of the payer's transfer: {:?}", record.faults);
            assert!(record.faults.iter().all(|fault| fault.contains(": tx_hash is `0x0707")), "{:?}", record.faults);
            record.is_over();
            assert_eq!(record.faults.len(), faults, "they are compared once: {:?}", record.faults);
        }
        // No answer at all: a fault in the end, unless it is known that nothing is known.
        for (unsent, faults) in [(None, 1), (Some("the node is away".to_owned()), 0)] {
            let mut record = record(Behaviour::Over);
            (record.sent, record.unsent) = (None, unsent);
            let event = event(&record, 0);
            hear(&mut record, &event);
            record.is_over();
            record.is_over();
            assert_eq!(record.faults.len(), faults, "{:?}", record.faults);
        }
        // Who does not pay has none, whenever that is told.
        let mut record = record(Behaviour::Never);
        let paid = Event { tx_hash: Some(HASH.to_string()), ..event(&record, 0) };
        hear(&mut record, &paid);
        let fault = &record.faults[0];
        assert!(fault.contains(": tx_hash is `0x0707") && fault.ends_with("not `-`"), "{fault}");
    }

    #[test]
    fn a_webhook_may_overtake_the_answer_to_the_initiation() {
        for is_same in [true, false] {
            let mut record = asked(Behaviour::Never);
            let event = event(&record, 0);
            assert!(matches!(hear(&mut record, &event), Novelty::New(_)));
            assert!(record.faults.is_empty(), "{:?}", record.faults);
            let id = if is_same { event.payment_id.parse().unwrap() } else { PaymentId::generate() };
            record.is_made(MadeAt { id, wallet: Address::ZERO, at: Instant::now() });
            assert_eq!(record.faults.is_empty(), is_same, "{:?}", record.faults);
        }
    }
}
