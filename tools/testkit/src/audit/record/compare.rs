//! Comparison of an event with the expected one.
//!
//! Pure.

use chrono::{DateTime, SecondsFormat, TimeDelta};

use super::{Early, PAYMENT_ID, Record, ReportedSettlement, TX_HASH};
use crate::audit::behaviour::{Behaviour, Intent};
use crate::audit::clock::SLACK;
use crate::audit::expect::{self, ExpectedEvent};
use crate::receiver::WebhookEvent;
use crate::wire::{Amount, EventName, Label, Status};

impl Record {
    /// Compares an event with the expected one. `is_newest` is true if no later event arrived.
    pub(super) fn compare(&mut self, event: &WebhookEvent, wanted: ExpectedEvent, is_newest: bool) {
        self.compare_values(event, wanted);
        if wanted.name == EventName::RefundSent {
            return self.compare_refund(event);
        }
        // The transaction of a collection is that of the settlement.
        let is_settled = wanted.status == Status::Settled || self.intent.behaviour == Behaviour::Authorized;
        let Some(reported) = reported(event).filter(|_| is_settled) else { return };
        // After a reorganisation another transaction may settle the payment.
        let is_other = self.reported.as_ref().is_some_and(|before| *before != reported);
        if is_other && self.reorged.is_none() {
            self.fault(format!("two events report different settlements, {:?} and {reported:?}", self.reported));
        }
        if is_newest || self.reported.is_none() {
            self.reported = Some(reported);
        }
    }

    pub(super) fn compare_values(&mut self, event: &WebhookEvent, wanted: ExpectedEvent) {
        let of = format!("{} (event {})", event.event, event.sequence);
        let (differences, early) = self.differences(event, wanted);
        for fault in differences {
            self.fault(format!("{of}: {fault}"));
        }
        self.early.extend(early.into_iter().map(|(what, reported)| Early { of: of.clone(), what, reported }));
    }

    /// Compares the event of a reorganisation with the payment. The amounts after it depend on the removed blocks.
    pub(super) fn compare_reorged(&mut self, event: &WebhookEvent) {
        let Intent { amount, token, chain, .. } = self.intent;
        let same = (event.amount.as_str(), event.token.as_str(), event.chain.as_str())
            == (amount.to_string().as_str(), token.as_str(), chain.as_str());
        let is_labelled = event.labels.iter().any(|label| label == Label::Reorged.as_str());
        if !same || !is_labelled {
            self.fault(format!("event {} is {event:?}, of {amount} {token} on {chain}", event.sequence));
        }
    }

    /// Returns the labels without the one of a reorganisation, which a payment may have if its chain was reorganised.
    pub(in crate::audit) fn own_labels(&self, labels: &[String]) -> String {
        let is_own = |label: &&str| !(self.reorged.is_some() && *label == Label::Reorged.as_str());
        labels.iter().map(String::as_str).filter(is_own).collect::<Vec<_>>().join(" ")
    }

    /// Returns the differences of an event, and the values that cannot be compared yet.
    fn differences(&self, event: &WebhookEvent, wanted: ExpectedEvent) -> (Vec<String>, Vec<(&'static str, String)>) {
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
        let received = Amount(expect::received_units(intent, wanted.status));
        same("status", &event.status, wanted.status.as_str());
        same("amount", &event.amount, &intent.amount.to_string());
        same("amount_received", &event.amount_received, &received.to_string());
        same("token", &event.token, intent.token.as_str());
        same("chain", &event.chain, intent.chain.as_str());
        let labels: Vec<&str> =
            expect::labels(intent.behaviour, wanted.status).iter().map(|label| label.as_str()).collect();
        same("labels", &self.own_labels(&event.labels), &labels.join(" "));
        let failed = wanted.status == Status::Failed;
        same(
            "failure_reason",
            event.failure_reason.as_deref().unwrap_or("-"),
            if failed { expect::EXPIRED_REASON } else { "-" },
        );
        // The transaction of a settlement is the settler's. It is compared with the payment and the chain at the end.
        if event.status != Status::Settled.as_str() {
            let tx_hash = event.tx_hash.as_deref().unwrap_or("-");
            match self.sent {
                _ if failed || intent.paid_amount().is_none() => same(TX_HASH, tx_hash, "-"),
                // The payer does not know the collection. All events must name the same one, see `receive`.
                _ if intent.behaviour == Behaviour::Authorized => {
                    if event.tx_hash.is_none() {
                        same(TX_HASH, tx_hash, "a collection");
                    }
                }
                Some((hash, _)) => same(TX_HASH, tx_hash, &hash.to_string()),
                // The node has the transfer. Its response to the payer is still on the way.
                None => early.push((TX_HASH, tx_hash.to_owned())),
            }
        }
        if matches!(wanted.status, Status::Confirmed | Status::Settled) {
            let share = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
            let split = format!("{} and {}", share(&event.psp_amount), share(&event.treasury_fee));
            same(expect::SPLIT, &split, &expect::split(received, self.fee_bps));
        }
        let expires_at = self.due_at + TimeDelta::seconds(i64::from(intent.expires_secs()));
        if failed && DateTime::parse_from_rfc3339(&event.timestamp).is_ok_and(|at| at + SLACK < expires_at) {
            let (at, expires_at) = (&event.timestamp, expires_at.to_rfc3339_opts(SecondsFormat::Millis, true));
            differences.push(format!("it expired at {at}, before {expires_at}"));
        }
        (differences, early)
    }
}

fn reported(event: &WebhookEvent) -> Option<ReportedSettlement> {
    Some(ReportedSettlement {
        psp_amount: event.psp_amount.as_deref()?.parse().ok()?,
        treasury_fee: event.treasury_fee.as_deref()?.parse().ok()?,
        tx_hash: event.tx_hash.clone()?,
    })
}
