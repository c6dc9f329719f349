//! What is known of one payment of the load, and what is wrong with it so far.
//!
//! Pure: facts come in, faults come out.

use alloy::primitives::{Address, B256};
use payferry_testkit::wire::{Amount, EventId, PaymentId, Timestamp};
use payferry_testkit::wire::{EventName, Status};
use tokio::time::Instant;

use super::behaviour::{Behaviour, Intent};
use super::clock::SLACK_MS;
use super::expect;
use super::stages::Stage;
use payferry_testkit::receiver::Event;

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
    pub made: Option<InitiatedAt>,
    /// Why there is none.
    pub not_made: Option<InitiationFailure>,
    /// Its id as a webhook or the list of payments has it, where no answer told it.
    pub reported_id: Option<PaymentId>,
    /// What its payer sent.
    pub sent: Option<(B256, Instant)>,
    /// Why its payer sent nothing.
    pub unsent: Option<String>,
    /// When the transfer was seen in a block.
    pub mined: Option<Instant>,
    /// When it was confirmed.
    pub confirmed: Option<Instant>,
    /// When it was settled.
    pub settled: Option<Instant>,
    /// Its events by their place, from 0: which came.
    pub events: Vec<Option<EventId>>,
    /// Shares and transaction of the settlement, as they were told.
    pub told: Option<ReportedSettlement>,
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
pub struct InitiatedAt {
    /// The payment.
    pub id: PaymentId,
    /// Where its payer sends the money.
    pub wallet: Address,
    /// When the answer came.
    pub at: Instant,
}

/// Why there is no answer that says where a payment is to be paid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitiationFailure {
    /// The kind of error.
    pub kind: String,
    /// Whether it may be there all the same, since nobody knows what became of the request.
    pub may_be_there: bool,
}

/// A settlement as a webhook told it, or as it was read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedSettlement {
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
            reported_id: None,
            sent: None,
            unsent: None,
            mined: None,
            confirmed: None,
            settled: None,
            events: vec![None; expect::events(intent.behaviour).len()],
            told: None,
            faults: Vec::new(),
            early: Vec::new(),
        }
    }

    /// The payment, as the answer to its initiation names it, or whatever else does.
    pub fn id(&self) -> Option<PaymentId> {
        self.made.map(|made| made.id).or(self.reported_id)
    }

    /// The answer to its initiation came.
    pub fn set_initiated(&mut self, made: InitiatedAt) {
        self.made = Some(made);
        self.compare_early(PAYMENT_ID, &made.id.to_string());
    }

    /// The chain's node took its payer's transfer.
    pub fn set_sent(&mut self, tx_hash: B256, at: Instant) {
        self.sent = Some((tx_hash, at));
        self.compare_early(TX_HASH, &tx_hash.to_string());
    }

    /// Whether webhooks are ahead of what the load tester knows.
    pub fn is_ahead(&self) -> bool {
        !self.early.is_empty()
    }

    /// Nobody will answer any more: a transfer that was told of and that its payer knows nothing of is none. Of one that
    /// its payer could not send for sure, nothing can be said.
    pub fn close(&mut self) {
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
        self.events.iter().all(Option::is_some)
    }

    /// The names of the events that did not come, and their places from 1.
    pub fn missing(&self) -> Vec<(EventName, usize)> {
        let expected = expect::events(self.intent.behaviour).iter().zip(1..).zip(&self.events);
        expected.filter(|(_, events)| events.is_none()).map(|((event, place), _)| (event.name, place)).collect()
    }

    /// The stages that are still to come of a payment that was made, and since when each is waited for, if that is known. None of
    /// one that is to expire or to stay live, which takes its time by intent, nor of one that could not be paid.
    pub fn awaited(&self) -> Vec<(Stage, Option<Instant>)> {
        if self.intent.behaviour.expires() || self.intent.behaviour == Behaviour::Held {
            return Vec::new();
        }
        let Some(made) = self.made.filter(|_| self.unsent.is_none()) else { return Vec::new() };
        let sent = self.sent.map(|(_, at)| at);
        let announces = |name| expect::events(self.intent.behaviour).iter().any(|event| event.name == name);
        let stages = [
            (Stage::Sent, sent.is_none(), Some(made.at)),
            (Stage::Mined, self.mined.is_none(), sent),
            (Stage::Confirmed, self.confirmed.is_none() && announces(EventName::PaymentConfirmed), self.mined),
            (Stage::Settled, self.settled.is_none() && announces(EventName::PaymentSettled), self.confirmed),
            (Stage::Complete, !self.is_complete(), Some(self.intended)),
        ];
        let awaited =
            stages.into_iter().filter(|(_, is_awaited, _)| *is_awaited).map(|(stage, _, since)| (stage, since));
        // When what they tell of happened is not known.
        awaited.chain(self.missing().iter().map(|_| (Stage::Webhook, None))).collect()
    }

    /// Takes an event in and holds it against what must be told.
    pub fn receive(&mut self, event: &Event, webhook_id: &str) -> Novelty {
        if self.made.is_none() {
            self.reported_id = event.payment_id.parse().ok().or(self.reported_id);
        }
        let Ok(event_id) = event.event_id.parse::<EventId>() else {
            self.fault(format!("{} has the event_id `{}`, which is none", event.event, event.event_id));
            return Novelty::Wrong;
        };
        if event.event_id != webhook_id {
            self.fault(format!("{event_id} came under the webhook-id `{webhook_id}`"));
        }
        if self.events.contains(&Some(event_id)) {
            return Novelty::Repeated;
        }
        let place = (event.sequence as usize).wrapping_sub(1);
        let expected = expect::events(self.intent.behaviour);
        let Some(wanted) = expected.get(place) else {
            let (name, count) = (&event.event, expected.len());
            self.fault(format!("{name} came as event {} ({event_id}); {count} are to come", event.sequence));
            return Novelty::Wrong;
        };
        if let Some(other) = self.events[place] {
            self.fault(format!("event {} came as {other} and as {event_id} ({})", event.sequence, event.event));
            return Novelty::Wrong;
        }
        self.events[place] = Some(event_id);
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
                _ if failed || intent.paid_amount().is_none() => same(TX_HASH, tx_hash, "-"),
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
        if failed && Timestamp::parse(&event.timestamp).is_some_and(|at| at.plus_millis(SLACK_MS) < expires_at) {
            let at = &event.timestamp;
            differences.push(format!("it expired at {at}, before its time to pay was over at {expires_at}"));
        }
        (differences, early)
    }
}

fn told(event: &Event) -> Option<ReportedSettlement> {
    Some(ReportedSettlement {
        psp_amount: event.psp_amount.as_deref()?.parse().ok()?,
        treasury_fee: event.treasury_fee.as_deref()?.parse().ok()?,
        tx_hash: event.tx_hash.clone()?,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
