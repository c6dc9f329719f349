//! Webhooks: assigns each to its payment, compares it, and measures its latency.

use std::time::Duration;

use alloy::primitives::B256;
use axum::http::StatusCode;
use tokio::time::Instant;

use super::{Inner, RunState};
use crate::audit::behaviour::Behaviour;
use crate::audit::reception::Reply;
use crate::audit::record::{Novelty, Record};
use crate::audit::stages::Stage;
use crate::receiver::{WebhookEvent, WebhookRequest};
use crate::wire::{EventName, PaymentId};

/// Prefixes of the events of outbound transfers with a sequence of their own.
const OWN_SEQUENCES: [&str; 2] = ["payout.", "withdraw."];
/// Largest number of recorded forged webhooks, and of webhooks of other payments.
const UNWANTED_MAX: usize = 20;

impl RunState {
    /// Records a webhook.
    pub fn receive(&self, request: &WebhookRequest) {
        match request.event() {
            Ok(event) => self.receive_event(request, &event),
            Err(why) => {
                self.tally.count(|counted| &mut counted.forged);
                self.tally.error(&format!("webhook: {why}"));
                let mut inner = self.inner.lock();
                if inner.forged.len() < UNWANTED_MAX {
                    inner.forged.push(format!("{}: {why}", request.webhook_id));
                }
            }
        }
    }

    /// Decides the answer to a webhook, and records it unless the receiver refuses it. Returns the status and the delay
    /// of the answer.
    pub fn answer(&self, request: &WebhookRequest) -> (StatusCode, Duration) {
        if request.verified.is_err() {
            self.receive(request);
            return (StatusCode::BAD_REQUEST, Duration::ZERO);
        }
        let Reply { after, is_refusal } = self.reception.reply(&request.webhook_id);
        if is_refusal {
            self.tally.count(|counted| &mut counted.denied);
            return (StatusCode::INTERNAL_SERVER_ERROR, after);
        }
        self.receive(request);
        (StatusCode::OK, after)
    }

    fn receive_event(&self, request: &WebhookRequest, event: &WebhookEvent) {
        let WebhookRequest { at, at_wall, webhook_id, .. } = request;
        let mut inner = self.inner.lock();
        if event.payment_id.parse().is_ok_and(|id: PaymentId| inner.prepared.contains(&id)) {
            return;
        }
        self.tally.count(|counted| &mut counted.webhooks);
        inner.last_webhook = Some(*at);
        let (age, is_closed) = (inner.clock.age(&event.timestamp, *at_wall), inner.is_closed);
        let number = self.number_of(&inner, event);
        let collection = event.tx_hash.as_deref().and_then(|hash| hash.parse().ok());
        let collected = collection.and_then(|hash: B256| inner.mined_early.get(&hash).copied());
        let Some((number, record)) = number.and_then(|number| Some((number, inner.record(number)?))) else {
            inner.receive_foreign(event);
            return self.tally.count(|counted| &mut counted.foreign);
        };
        let was_complete = record.is_complete();
        let is_own_sequence = OWN_SEQUENCES.iter().any(|prefix| event.event.starts_with(prefix));
        let novelty = if is_own_sequence {
            record.receive_outbound(event, webhook_id)
        } else {
            record.receive(event, webhook_id)
        };
        let (found, wanted) = (event.reference.as_deref().unwrap_or("-"), self.reference(number));
        if found != wanted && novelty != Novelty::Repeated {
            record.fault(format!("{} (event {}): reference is `{found}`, not `{wanted}`", event.event, event.sequence));
        }
        let Novelty::New(name) = novelty else {
            if novelty == Novelty::Repeated {
                self.tally.count(|counted| &mut counted.repeated);
            }
            return;
        };
        let lacks_before = if is_own_sequence {
            record.lacks_outbound_before(event.sequence)
        } else {
            record.lacks_before(event.sequence)
        };
        if lacks_before {
            self.tally.count(|counted| &mut counted.out_of_order);
        }
        let Some(age) = age else {
            return record.fault(format!("{name} has the timestamp `{}`, which is not in the past", event.timestamp));
        };
        let happened = at.checked_sub(age).unwrap_or(*at);
        if name.is_of_outbound() {
            record.outbound_announced(name, happened, *at);
        }
        let is_authorized = record.intent.behaviour == Behaviour::Authorized;
        // The stage that this event reaches, and the time of the stage before.
        let reached = match name {
            EventName::PaymentReorged => {
                self.tally.count(|counted| &mut counted.reorged);
                None
            }
            // Announced again after a reorganisation: the latencies are those of the first time.
            EventName::PaymentConfirmed if record.confirmed.is_some() => None,
            EventName::PaymentSettled if record.settled.is_some() => None,
            EventName::PaymentConfirmed => {
                self.tally.count(|counted| &mut counted.confirmed);
                record.confirmed = Some(happened);
                record.confirmation_received = Some(*at);
                if let Some(mined) = collected.filter(|_| is_authorized) {
                    record.mined = Some(mined);
                    self.tally.count(|counted| &mut counted.mined);
                    if !is_closed {
                        self.reached(Stage::Mined, record.intended, record.authorized, mined);
                    }
                }
                Some((Stage::Confirmed, record.mined))
            }
            EventName::PaymentSettled => {
                self.tally.count(|counted| &mut counted.settled);
                record.settled = Some(happened);
                // A collection confirms and settles at once: a step of zero would make those of transfers look fast.
                Some((Stage::Settled, record.confirmed.filter(|_| !is_authorized)))
            }
            _ => None,
        };
        let complete = !was_complete && record.completed.is_none() && record.is_complete();
        if complete {
            self.tally.count(|counted| &mut counted.complete);
            record.completed = Some(*at);
        }
        // Otherwise its wait has timed out and counted already.
        if !is_closed && !name.is_of_outbound() {
            self.measure(record, *at, happened, reached);
        }
        let follows = match record.intent.behaviour {
            Behaviour::Late => name == EventName::PaymentFailed,
            behaviour => behaviour.outbound().is_some() && name == EventName::PaymentSettled,
        };
        drop(inner);
        if follows {
            let _ = self.due_next.send(number);
        }
    }

    /// Returns the number of the payment of an event: by its reference, or else by its id.
    fn number_of(&self, inner: &Inner, event: &WebhookEvent) -> Option<u32> {
        let named = event.reference.as_deref().and_then(|reference| self.number(reference));
        let known = named.filter(|number| (*number as usize) < inner.records.len());
        known.or_else(|| inner.by_id.get(&event.payment_id.parse().ok()?).copied())
    }

    /// Measures a webhook that arrived `at`, of an event that happened before.
    fn measure(&self, record: &Record, at: Instant, happened: Instant, reached: Option<(Stage, Option<Instant>)>) {
        let intended = record.intended;
        // Payments that are meant to expire take long by intent.
        if record.intent.behaviour.expires() {
            self.stages.record_step(Stage::Webhook, at - happened);
        } else {
            self.stages.record(Stage::Webhook, at - intended, at - happened);
            if record.completed == Some(at) && record.intent.behaviour.outbound().is_none() {
                self.stages.record(Stage::Complete, at - intended, at - intended);
            }
        }
        if let Some((stage, began)) = reached {
            self.reached(stage, intended, began, happened);
        }
    }

    /// Records that a payment reached a stage. Only the total if the beginning of the step is unknown or was seen after
    /// its end: a step of zero would look fast.
    fn reached(&self, stage: Stage, intended: Instant, began: Option<Instant>, at: Instant) {
        match began.and_then(|began| at.checked_duration_since(began)) {
            Some(step) => self.stages.record(stage, at - intended, step),
            None => self.stages.record_total(stage, at - intended),
        }
    }
}

impl Inner {
    fn receive_foreign(&mut self, event: &WebhookEvent) {
        if self.foreign.len() < UNWANTED_MAX {
            let reference = event.reference.as_deref().unwrap_or("-");
            self.foreign.push(format!("{} of {} (reference {reference})", event.event, event.payment_id));
        }
    }
}
