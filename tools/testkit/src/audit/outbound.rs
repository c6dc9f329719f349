//! Outbound transfers of a run: after the settlement of a payment, the PSP sends money of it on. One payment has at most
//! one.
//!
//! Pure. The expected recipient and amount are those of the request. Answers, webhooks, lists, chain and ledger are
//! compared with them and never replace them.

mod check;

use std::collections::{BTreeMap, BTreeSet};

use alloy::primitives::Address;
use serde::Serialize;
use tokio::time::Instant;

use super::behaviour::{Behaviour, Intent};
use super::expect;
use super::record::{InitiationFailure, Novelty, Record};
use super::stages::{Latencies, LatencyFigures};
use crate::receiver::WebhookEvent;
use crate::wire::{Amount, Chain, EventId, EventName, Token};

pub(super) use check::{SentTransfers, compare_listed, owed, read_listed};

crate::names! {
    /// Kind of an outbound transfer.
    OutboundKind, "a kind of outbound transfer" {
        /// Back to the payer.
        Refund = "refund",
        /// To a customer.
        Payout = "payout",
        /// To the PSP's own wallet.
        Withdrawal = "withdrawal",
    }
}

impl OutboundKind {
    /// Returns the event that reports that it is final on-chain.
    pub const fn sent_event(self) -> EventName {
        match self {
            Self::Refund => EventName::RefundSent,
            Self::Payout => EventName::PayoutSent,
            Self::Withdrawal => EventName::WithdrawSent,
        }
    }

    /// Returns the events under its own id, in the order of their `sequence`, from 1. Those of a refund are among the
    /// events of its payment.
    pub const fn events(self) -> &'static [EventName] {
        match self {
            Self::Refund => &[],
            Self::Payout => &[EventName::PayoutPending, EventName::PayoutSent],
            Self::Withdrawal => &[EventName::WithdrawSent],
        }
    }
}

/// Request of an outbound transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboundOrder {
    /// Kind.
    pub kind: OutboundKind,
    /// Amount.
    pub amount: Amount,
    /// Recipient.
    pub to: Address,
}

/// An outbound transfer as the load tester knows it.
#[derive(Debug)]
pub struct Outbound {
    /// The request.
    pub order: OutboundOrder,
    /// Time of the request.
    pub asked: Instant,
    /// Its id, from the answer.
    pub id: Option<String>,
    /// Time of the answer that accepted it.
    pub accepted: Option<Instant>,
    /// Reason why there is no such answer.
    pub not_made: Option<InitiationFailure>,
    /// Time at which it became final, by its event.
    pub sent: Option<Instant>,
    /// Its transaction, by its event.
    pub tx_hash: Option<String>,
    /// Arrival of the last expected webhook.
    pub completed: Option<Instant>,
    /// True if it was accepted and does not exist at the end.
    pub is_lost: bool,
    /// Id that a webhook reported.
    reported_id: Option<String>,
    /// Ids of the events under its own id, by position from 0.
    events: Vec<Option<EventId>>,
}

impl Outbound {
    fn new(order: OutboundOrder, asked: Instant) -> Self {
        Self {
            order,
            asked,
            id: None,
            accepted: None,
            not_made: None,
            sent: None,
            tx_hash: None,
            completed: None,
            is_lost: false,
            reported_id: None,
            events: vec![None; order.kind.events().len()],
        }
    }

    /// Returns the reason why it must not exist, if it was refused.
    fn refusal(&self) -> Option<&str> {
        self.not_made.as_ref().filter(|why| !why.may_be_there).map(|why| why.kind.as_str())
    }
}

/// Amounts that the outbound transfers of a run take out of the vault beyond what their payments bring in, by token: the
/// fee is refunded, too.
pub type Shortfalls = BTreeMap<(Chain, Token), Amount>;

/// Preparations for the outbound transfers of a run.
#[derive(Debug, Default)]
pub struct OutboundNeeds {
    kinds: BTreeSet<OutboundKind>,
    /// True if payouts go to customers of the run, not of a payment.
    pub(super) has_payees: bool,
    pub(super) shortfalls: Shortfalls,
}

impl OutboundNeeds {
    /// Returns the needs of these payments. `fee_bps` is the treasury's share.
    pub fn of(intents: impl Iterator<Item = Intent>, fee_bps: u16) -> Self {
        let (mut kinds, mut has_payees, mut shortfalls) = (BTreeSet::new(), false, Shortfalls::new());
        for intent in intents {
            has_payees |= intent.behaviour == Behaviour::PaidOut;
            kinds.extend(intent.behaviour.outbound());
            let share = intent.amount.saturating_sub(expect::treasury_fee(intent.amount, fee_bps));
            let lacks = intent.outbound_amount().unwrap_or_default().saturating_sub(share);
            if lacks > Amount::ZERO {
                let sum = shortfalls.entry((intent.chain, intent.token)).or_default();
                *sum = sum.saturating_add(lacks);
            }
        }
        Self { kinds, has_payees, shortfalls }
    }

    /// Returns true if there are outbound transfers of this kind.
    pub fn has(&self, kind: OutboundKind) -> bool {
        self.kinds.contains(&kind)
    }
}

impl Record {
    /// Records that the PSP requests an outbound transfer.
    pub fn request_outbound(&mut self, order: OutboundOrder, asked: Instant) {
        self.outbound = Some(Box::new(Outbound::new(order, asked)));
    }

    /// Records the answer to the request of the outbound transfer: its id, or the failure.
    pub fn outbound_answered(&mut self, answer: Result<String, InitiationFailure>, at: Instant) {
        let Some(outbound) = &mut self.outbound else { return };
        match answer {
            Ok(id) => {
                (outbound.id, outbound.accepted) = (Some(id), Some(at));
                self.compare_outbound_ids();
            }
            Err(why) => outbound.not_made = Some(why),
        }
    }

    /// Compares an event of the outbound transfer with its request.
    pub(super) fn compare_refund(&mut self, event: &WebhookEvent) {
        let to = event.refund_address;
        self.compare_outbound(event, event.refund_id.as_deref(), event.refund_amount.as_deref(), to);
    }

    /// Records an event under the id of the outbound transfer and compares it with the request.
    pub fn receive_outbound(&mut self, event: &WebhookEvent, webhook_id: &str) -> Novelty {
        let Some(event_id) = self.event_id(event, webhook_id) else { return Novelty::Wrong };
        let name = &event.event;
        let Some(outbound) = self.outbound.as_deref_mut() else {
            self.fault(format!("{name} of {}: the PSP did not request it", event.payment_id));
            return Novelty::Wrong;
        };
        if outbound.events.contains(&Some(event_id)) {
            return Novelty::Repeated;
        }
        let kind = outbound.order.kind;
        let place = (event.sequence as usize).wrapping_sub(1);
        let wanted = kind.events().get(place).copied();
        let other = outbound.events.get_mut(place).and_then(|known| known.replace(event_id));
        let Some(wanted) = wanted.filter(|wanted| other.is_none() && wanted.as_str() == name) else {
            self.fault(format!("{name} arrived as event {} of the {kind} ({event_id})", event.sequence));
            return Novelty::Wrong;
        };
        self.compare_outbound(event, Some(&event.payment_id), Some(&event.amount), event.address);
        let (token, chain) = (self.intent.token.as_str(), self.intent.chain.as_str());
        if (event.token.as_str(), event.chain.as_str()) != (token, chain) {
            self.fault(format!("{name}: {} on {}, not {token} on {chain}", event.token, event.chain));
        }
        Novelty::New(wanted)
    }

    /// Returns the names and positions (from 1) of the missing events under the id of the outbound transfer.
    pub(super) fn missing_outbound(&self) -> Vec<(&'static str, usize)> {
        if self.is_outbound_refused() {
            return Vec::new();
        }
        let names = self.intent.behaviour.outbound().map_or(&[][..], OutboundKind::events);
        let known = self.outbound.as_ref().map_or(&[][..], |outbound| outbound.events.as_slice());
        let missing = (0..).zip(names).filter(|(place, _)| known.get(*place).is_none_or(Option::is_none));
        missing.map(|(place, name)| (name.as_str(), place + 1)).collect()
    }

    /// Returns true if an event under the id of the outbound transfer before this one has not arrived yet.
    pub(super) fn lacks_outbound_before(&self, sequence: u32) -> bool {
        self.missing_outbound().iter().any(|(_, place)| *place < sequence as usize)
    }

    fn compare_outbound(&mut self, event: &WebhookEvent, id: Option<&str>, amount: Option<&str>, to: Option<Address>) {
        let name = &event.event;
        let Some(outbound) = &mut self.outbound else {
            return self.fault(format!("{name}: the PSP did not request it"));
        };
        let OutboundOrder { kind, amount: wanted, to: recipient } = outbound.order;
        let is_other = outbound.reported_id.as_deref().is_some_and(|other| Some(other) != id);
        outbound.reported_id = id.map(str::to_owned);
        if name == kind.sent_event().as_str() {
            outbound.tx_hash.clone_from(&event.tx_hash);
        }
        let lacks_tx = name == kind.sent_event().as_str() && event.tx_hash.is_none();
        let is_same = amount == Some(wanted.to_string().as_str()) && to == Some(recipient);
        if !is_same {
            let to = to.map_or_else(|| "-".to_owned(), |to| to.to_string());
            let amount = amount.unwrap_or("-");
            self.fault(format!("{name}: {amount} to {to}, not {wanted} to {recipient}"));
        }
        if lacks_tx {
            self.fault(format!("{name} has no tx_hash"));
        }
        if is_other {
            self.fault(format!("{name}: another {kind} with the id `{}`", id.unwrap_or("-")));
        }
        self.compare_outbound_ids();
    }

    fn compare_outbound_ids(&mut self) {
        let Some(outbound) = &self.outbound else { return };
        if let (Some(id), Some(reported)) = (&outbound.id, &outbound.reported_id)
            && id != reported
        {
            let fault = format!("webhooks report the {} {reported}, not {id}", outbound.order.kind);
            self.fault(fault);
        }
    }

    /// Records when an event of the outbound transfer happened, and that its webhook arrived. Latencies are of the first
    /// time.
    pub(super) fn outbound_announced(&mut self, name: EventName, happened: Instant, at: Instant) {
        let is_complete = self.is_complete();
        let Some(outbound) = &mut self.outbound else { return };
        if name == outbound.order.kind.sent_event() {
            outbound.sent = outbound.sent.or(Some(happened));
        }
        if is_complete {
            outbound.completed = outbound.completed.or(Some(at));
        }
    }

    /// Returns true if the outbound transfer was not accepted, so that its events do not arrive.
    pub fn is_outbound_refused(&self) -> bool {
        self.outbound.as_ref().is_some_and(|outbound| outbound.not_made.is_some())
    }

    /// Describes the outbound transfer that is expected.
    pub(super) fn expected_outbound(&self) -> Option<String> {
        let kind = self.intent.behaviour.outbound()?;
        let (amount, token) = (self.intent.outbound_amount()?, self.intent.token);
        let to = self.outbound.as_ref().map(|outbound| format!(" to {}", outbound.order.to)).unwrap_or_default();
        Some(format!("{kind} of {amount} {token}{to}"))
    }
}

crate::names! {
    /// Stages of an outbound transfer.
    OutboundStage, "a stage of an outbound transfer" {
        /// The service responded with 202.
        Accepted = "accepted",
        /// It is final on-chain, by the timestamp of its event.
        Sent = "sent",
        /// Its last expected webhook arrived.
        Complete = "complete",
    }
}

/// Outbound transfers of one kind in a report.
#[derive(Debug, Clone, Serialize)]
pub struct OutboundFigures {
    /// Kind.
    pub kind: OutboundKind,
    /// Number of requests.
    pub requested: u64,
    /// Those that the service did not accept.
    pub not_accepted: u64,
    /// Those of which every expected webhook arrived.
    pub complete: u64,
    /// Latencies.
    pub stages: Vec<OutboundStageFigures>,
}

/// One stage of the outbound transfers of one kind.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct OutboundStageFigures {
    /// Stage.
    pub stage: OutboundStage,
    /// Latencies from the request, which follows `payment.settled` at once.
    pub from_request: LatencyFigures,
    /// Accepted transfers that did not reach the stage. Their wait counts as a lower bound.
    pub timed_out: u64,
}

/// Returns the figures of the kinds that occurred, at the end of the run.
pub fn figures<'a>(records: impl Iterator<Item = &'a Record>, now: Instant) -> Vec<OutboundFigures> {
    let outbound: Vec<&Outbound> = records.filter_map(|record| record.outbound.as_deref()).collect();
    let of_kind = |kind: OutboundKind| {
        let of: Vec<&Outbound> = outbound.iter().copied().filter(|outbound| outbound.order.kind == kind).collect();
        let count = |is: &dyn Fn(&Outbound) -> bool| of.iter().filter(|outbound| is(outbound)).count() as u64;
        (!of.is_empty()).then(|| OutboundFigures {
            kind,
            requested: of.len() as u64,
            not_accepted: count(&|outbound| outbound.accepted.is_none()),
            complete: count(&|outbound| outbound.completed.is_some()),
            stages: OutboundStage::ALL.map(|stage| stage_figures(stage, &of, now)).to_vec(),
        })
    };
    OutboundKind::ALL.into_iter().filter_map(of_kind).collect()
}

fn stage_figures(stage: OutboundStage, all: &[&Outbound], now: Instant) -> OutboundStageFigures {
    let reached = |outbound: &Outbound| match stage {
        OutboundStage::Accepted => outbound.accepted,
        OutboundStage::Sent => outbound.sent,
        OutboundStage::Complete => outbound.completed,
    };
    let accepted = all.iter().filter(|outbound| outbound.accepted.is_some());
    let (from_request, timed_out) =
        Latencies::of_waits(accepted.map(|outbound| (outbound.asked, reached(outbound))), now);
    OutboundStageFigures { stage, from_request, timed_out }
}

#[cfg(test)]
mod tests;
