//! State of one payment of the load, and its faults so far.
//!
//! Pure.

use crate::wire::{Amount, EventId, EventName, PaymentId};
use alloy::primitives::{Address, B256};
use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::behaviour::{Behaviour, Intent};
use super::customers::CustomerRecord;
use super::expect;
use super::outbound::Outbound;
use super::stages::Stage;
use crate::psp::OrderFailed;
use crate::receiver::WebhookEvent;

mod after_reorg;
mod compare;

use after_reorg::ReorgedEvents;

/// Largest number of recorded faults of one payment.
const FAULTS_MAX: usize = 8;

/// One payment as the load tester knows it.
#[derive(Debug)]
pub struct Record {
    /// Intended payment.
    pub intent: Intent,
    /// Scheduled start.
    pub intended: Instant,
    /// Scheduled start by the service's clock. The payment cannot be older.
    pub due_at: DateTime<Utc>,
    /// Fee of the PSP's settings, in basis points.
    pub fee_bps: u16,
    /// Response to its initiation.
    pub made: Option<InitiatedAt>,
    /// Reason why there is no response.
    pub not_made: Option<InitiationFailure>,
    /// Its id according to a webhook or the list of payments, if there was no response.
    pub reported_id: Option<PaymentId>,
    /// Transfer of its payer.
    pub sent: Option<(B256, Instant)>,
    /// Account of its payer, if it sent a transfer.
    pub payer: Option<Address>,
    /// Time at which the service accepted the authorization of its payer.
    pub authorized: Option<Instant>,
    /// Reason why its payer sent neither a transfer nor an authorization.
    pub unsent: Option<String>,
    /// Time at which the transfer or the collection was seen in a block.
    pub mined: Option<Instant>,
    /// Time of the confirmation.
    pub confirmed: Option<Instant>,
    /// Arrival of the first webhook of the confirmation.
    pub confirmation_received: Option<Instant>,
    /// Time of the settlement.
    pub settled: Option<Instant>,
    /// Arrival of the last expected webhook.
    pub completed: Option<Instant>,
    /// Ids of the events that arrived, by position from 0. No longer changed after a reorganisation of its chain.
    pub events: Vec<Option<EventId>>,
    /// Its events, if its chain was reorganised.
    reorged: Option<ReorgedEvents>,
    /// Outbound transfer after the settlement, if it was requested.
    pub outbound: Option<Box<Outbound>>,
    /// Customer who was registered when the payment was due, if any.
    pub customer: Option<Box<CustomerRecord>>,
    /// Settlement that a webhook reported.
    pub reported: Option<ReportedSettlement>,
    /// Faults.
    pub faults: Vec<String>,
    /// True if it was only behind when it was read back.
    pub is_late: bool,
    early: Vec<Early>,
}

/// Value of a webhook that the load tester does not know yet: the webhook arrived before a lost or slow response.
#[derive(Debug)]
struct Early {
    /// Event of the webhook.
    of: String,
    what: &'static str,
    reported: String,
}

const PAYMENT_ID: &str = "payment_id";
const TX_HASH: &str = "tx_hash";

/// Response to an initiation.
#[derive(Debug, Clone, Copy)]
pub struct InitiatedAt {
    /// Id of the payment.
    pub id: PaymentId,
    /// Address that the payer pays to.
    pub wallet: Address,
    /// Time of the response.
    pub at: Instant,
}

/// Reason why an initiation returned no address to pay to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitiationFailure {
    /// Kind of error.
    pub kind: String,
    /// True if the payment may exist, because the outcome of the request is unknown.
    pub may_be_there: bool,
}

impl InitiationFailure {
    /// Makes the reason of a failed request; `what` was requested.
    pub fn of_order(what: &str, failed: &OrderFailed) -> Self {
        Self { kind: format!("{what}: {failed}"), may_be_there: failed.may_be_made() }
    }
}

/// Settlement as a webhook reported it, or as it was read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedSettlement {
    /// The PSP's share.
    pub psp_amount: Amount,
    /// The treasury's share.
    pub treasury_fee: Amount,
    /// Transaction.
    pub tx_hash: String,
}

/// Relation of a webhook to the earlier webhooks of its payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Novelty {
    /// The first webhook of its event.
    New(EventName),
    /// A repetition.
    Repeated,
    /// An unexpected webhook. The record has the fault.
    Wrong,
}

impl Record {
    /// Makes the record of a payment that has just become due.
    pub fn new(intent: Intent, intended: Instant, due_at: DateTime<Utc>, fee_bps: u16) -> Self {
        Self {
            intent,
            intended,
            due_at,
            fee_bps,
            made: None,
            not_made: None,
            reported_id: None,
            sent: None,
            payer: None,
            authorized: None,
            unsent: None,
            mined: None,
            confirmed: None,
            confirmation_received: None,
            settled: None,
            completed: None,
            events: vec![None; expect::events(intent.behaviour).len()],
            reorged: None,
            outbound: None,
            customer: None,
            reported: None,
            faults: Vec::new(),
            is_late: false,
            early: Vec::new(),
        }
    }

    /// Returns the id of the payment: from the response to its initiation, or from another source.
    pub fn id(&self) -> Option<PaymentId> {
        self.made.map(|made| made.id).or(self.reported_id)
    }

    /// Records the response to its initiation.
    pub fn set_initiated(&mut self, made: InitiatedAt) {
        self.made = Some(made);
        self.compare_early(PAYMENT_ID, &made.id.to_string());
    }

    /// Records that the chain's node accepted the transfer of its payer.
    pub fn set_sent(&mut self, tx_hash: B256, at: Instant) {
        self.sent = Some((tx_hash, at));
        self.compare_early(TX_HASH, &tx_hash.to_string());
    }

    /// Returns true if a webhook has values that the load tester does not know yet.
    pub fn is_ahead(&self) -> bool {
        !self.early.is_empty()
    }

    /// Ends the wait for responses: a reported transfer that the payer does not know is a fault, unless the payer may
    /// have sent one without knowing.
    pub fn close(&mut self) {
        for Early { of, what, reported } in std::mem::take(&mut self.early) {
            if what == TX_HASH && self.unsent.is_none() {
                self.fault(format!("{of}: {what} is `{reported}`, but its payer sent no transfer"));
            }
        }
        if let Some(fault) = self.reorged.as_ref().and_then(|events| events.fault(self.intent.behaviour)) {
            self.fault(fault);
        }
    }

    fn compare_early(&mut self, known: &str, wanted: &str) {
        for early in std::mem::take(&mut self.early) {
            let Early { of, what, reported } = &early;
            if *what != known {
                self.early.push(early);
            } else if reported != wanted {
                let fault = format!("{of}: {what} is `{reported}`, not `{wanted}`");
                self.fault(fault);
            }
        }
    }

    /// Adds a fault.
    pub fn fault(&mut self, what: String) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(what);
        }
    }

    /// Returns true if every expected event arrived.
    pub fn is_complete(&self) -> bool {
        let has_all = match &self.reorged {
            Some(events) => events.is_complete(self.intent.behaviour),
            None => self.events.iter().all(Option::is_some),
        };
        has_all && self.missing_outbound().is_empty()
    }

    /// Returns the names and positions (from 1) of the missing events.
    pub fn missing(&self) -> Vec<(&'static str, usize)> {
        if let Some(events) = &self.reorged {
            return events.missing(self.intent.behaviour);
        }
        let expected = expect::events(self.intent.behaviour).iter().zip(1..).zip(&self.events);
        let missing = expected.filter(|(_, events)| events.is_none()).map(|(event, _)| event);
        let is_awaited = |name: EventName| !(self.is_outbound_refused() && name.is_of_outbound());
        missing.filter(|(event, _)| is_awaited(event.name)).map(|(event, place)| (event.name.as_str(), place)).collect()
    }

    /// Returns true if an event before this one has not arrived yet.
    pub fn lacks_before(&self, sequence: u32) -> bool {
        match &self.reorged {
            Some(events) => events.lacks_before(sequence),
            None => self.events[..(sequence as usize).saturating_sub(1)].iter().any(Option::is_none),
        }
    }

    /// Returns the stages that are still missing, and since when they are awaited, if that is known. Empty for a
    /// payment that is meant to expire or to stay live, and for one that could not be paid.
    pub fn awaited(&self) -> Vec<(Stage, Option<Instant>)> {
        if self.intent.behaviour.expires() || self.intent.behaviour == Behaviour::Held {
            return Vec::new();
        }
        let Some(made) = self.made.filter(|_| self.unsent.is_none()) else { return Vec::new() };
        let sent = self.sent.map(|(_, at)| at).or(self.authorized);
        // The block of a collection is only looked up when a webhook names its transaction.
        let is_mined = self.mined.is_some() || self.authorized.is_some() && self.confirmed.is_some();
        let announces = |name| expect::events(self.intent.behaviour).iter().any(|event| event.name == name);
        let stages = [
            (Stage::Sent, sent.is_none(), Some(made.at)),
            (Stage::Mined, !is_mined, sent),
            (Stage::Confirmed, self.confirmed.is_none() && announces(EventName::PaymentConfirmed), self.mined),
            (Stage::Settled, self.settled.is_none() && announces(EventName::PaymentSettled), self.confirmed),
            (Stage::Complete, !self.is_complete() && self.intent.behaviour.outbound().is_none(), Some(self.intended)),
        ];
        let awaited =
            stages.into_iter().filter(|(_, is_awaited, _)| *is_awaited).map(|(stage, _, since)| (stage, since));
        // The time of the missing events is unknown.
        let is_of_outbound = |name: &str| name.parse().is_ok_and(EventName::is_of_outbound);
        let missing = self.missing().into_iter().filter(|(name, _)| !is_of_outbound(name));
        awaited.chain(missing.map(|_| (Stage::Webhook, None))).collect()
    }

    /// Returns the id of an event. It must also be the id of the webhook.
    pub(super) fn event_id(&mut self, event: &WebhookEvent, webhook_id: &str) -> Option<EventId> {
        let Ok(event_id) = event.event_id.parse::<EventId>() else {
            self.fault(format!("{} has the invalid event_id `{}`", event.event, event.event_id));
            return None;
        };
        if event.event_id != webhook_id {
            self.fault(format!("{event_id} arrived with the webhook-id `{webhook_id}`"));
        }
        Some(event_id)
    }

    /// Records an event and compares it with the expected one.
    pub fn receive(&mut self, event: &WebhookEvent, webhook_id: &str) -> Novelty {
        if self.made.is_none() {
            self.reported_id = event.payment_id.parse().ok().or(self.reported_id);
        }
        let Some(event_id) = self.event_id(event, webhook_id) else { return Novelty::Wrong };
        if self.reorged.is_some() {
            return self.receive_reorged(event, event_id);
        }
        if self.events.contains(&Some(event_id)) {
            return Novelty::Repeated;
        }
        let place = (event.sequence as usize).wrapping_sub(1);
        let expected = expect::events(self.intent.behaviour);
        let Some(wanted) = expected.get(place) else {
            let (name, count) = (&event.event, expected.len());
            self.fault(format!("{name} arrived as event {} ({event_id}); {count} events are expected", event.sequence));
            return Novelty::Wrong;
        };
        if let Some(other) = self.events[place] {
            self.fault(format!("event {} arrived as {other} and as {event_id} ({})", event.sequence, event.event));
            return Novelty::Wrong;
        }
        self.events[place] = Some(event_id);
        if event.event != wanted.name.as_str() {
            self.compare_values(event, *wanted);
            self.fault(format!("event {} is {}, not {}", event.sequence, event.event, wanted.name));
            return Novelty::Wrong;
        }
        self.compare(event, *wanted, true);
        Novelty::New(wanted.name)
    }
}

#[cfg(test)]
pub(super) mod tests;
