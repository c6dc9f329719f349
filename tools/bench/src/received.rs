//! Webhooks of payments that are paid exactly: the first arrival of each event of each payment, and what is wrong.
//!
//! The same event may arrive again. Faults are: a second event of the same name, an event of another kind than
//! confirmation and settlement, and shares that do not sum to the amount. Deliberately absent: the payments as the
//! service shows them.

use std::collections::HashMap;
use std::time::Duration;

use payferry_testkit::wire::Amount;
use tokio::time::Instant;

use payferry_testkit::receiver::{Arrived, Delivery, Event};

/// Event of the confirmation, and all events of a complete payment.
pub(super) const CONFIRMED: &str = "payment.confirmed";
const EVENTS: [&str; 4] = [CONFIRMED, "payin.confirmed", "payment.settled", "payin.settled"];

/// Webhooks so far.
#[derive(Debug, Default)]
pub(super) struct Received {
    of: HashMap<String, Arrivals>,
    /// Time at which the last missing event of [`EVENTS`] arrived, by payment.
    complete: HashMap<String, Instant>,
    pub(super) webhooks: usize,
    faults: Faults,
}

/// First arrival of each of [`EVENTS`] of one payment, with the event id.
type Arrivals = [Option<(Instant, String)>; EVENTS.len()];

#[derive(Debug, Default)]
struct Faults {
    forged: usize,
    duplicated: usize,
    foreign: usize,
    uneven: usize,
}

impl Received {
    pub(super) fn receive(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Webhook(arrived) => {
                self.webhooks += 1;
                let Arrived { at, event, .. } = *arrived;
                self.receive_event(event, at);
            }
            Delivery::Refused(..) => self.faults.forged += 1,
        }
    }

    fn receive_event(&mut self, event: Event, at: Instant) {
        let Some(place) = EVENTS.iter().position(|known| *known == event.event) else {
            self.faults.foreign += 1;
            return;
        };
        if event.event.ends_with(".settled") && !is_event_split(&event) {
            self.faults.uneven += 1;
        }
        let arrivals = self.of.entry(event.payment_id.clone()).or_default();
        match &arrivals[place] {
            None => arrivals[place] = Some((at, event.event_id)),
            Some((_, known)) => self.faults.duplicated += usize::from(*known != event.event_id),
        }
        if arrivals.iter().all(Option::is_some) {
            self.complete.entry(event.payment_id).or_insert(at);
        }
    }

    /// Returns when the first webhook of the confirmation arrived.
    pub(super) fn confirmed_at(&self, payment_id: &str) -> Option<Instant> {
        let place = EVENTS.iter().position(|name| *name == CONFIRMED)?;
        self.of.get(payment_id)?[place].as_ref().map(|(at, _)| *at)
    }

    /// Returns the number of payments of which every event arrived.
    pub(super) fn complete(&self) -> usize {
        self.complete.len()
    }

    /// Returns the number of payments that became complete in this period after `since`.
    pub(super) fn complete_within(&self, since: Instant, [from, to]: [Duration; 2]) -> usize {
        self.complete.values().filter(|at| (since + from..since + to).contains(*at)).count()
    }

    /// Returns what is wrong if these payments and no others were paid.
    pub(super) fn wrong(&self, paid: &[String]) -> Vec<String> {
        let Faults { forged, duplicated, foreign, uneven } = self.faults;
        let faults = [
            (forged, "webhooks had no valid signature"),
            (duplicated, "webhooks repeat an event under another id"),
            (foreign, "webhooks are of other events than confirmation and settlement"),
            (uneven, "webhooks have shares that do not sum to the amount due"),
            (self.of.len().saturating_sub(paid.len()), "payments have webhooks and were not paid"),
        ];
        let faults = faults.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        let is_missing = |id: &String, place: usize| self.of.get(id).is_none_or(|arrivals| arrivals[place].is_none());
        let missing = EVENTS.iter().enumerate().map(|(place, name)| {
            (paid.iter().filter(|id| is_missing(id, place)).count(), format!("payments lack the webhook {name}"))
        });
        faults.chain(missing.filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"))).collect()
    }
}

/// Returns true if the amount due was received and the shares sum to it.
fn is_event_split(event: &Event) -> bool {
    let share = |share: &Option<String>| share.as_deref().and_then(|share| share.parse::<Amount>().ok());
    is_split(&event.amount, &event.amount_received, share(&event.psp_amount), share(&event.treasury_fee))
}

/// Returns true if the amount due was received and both shares are positive and sum to it.
pub(super) fn is_split(due: &str, received: &str, psp: Option<Amount>, treasury: Option<Amount>) -> bool {
    let (Ok(due), Ok(received)) = (due.parse::<Amount>(), received.parse::<Amount>()) else { return false };
    let (Some(psp), Some(treasury)) = (psp, treasury) else { return false };
    let whole = psp.units().checked_add(treasury.units());
    due == received && whole == Some(due.units()) && psp.units() > 0 && treasury.units() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, payment_id: &str, event_id: &str) -> Event {
        let shares = name.ends_with(".settled");
        Event {
            event: name.to_owned(),
            payment_id: payment_id.to_owned(),
            event_id: event_id.to_owned(),
            timestamp: String::new(),
            sequence: 1,
            status: String::new(),
            reference: None,
            amount: "10.00".to_owned(),
            amount_received: "10.00".to_owned(),
            token: String::new(),
            chain: String::new(),
            tx_hash: None,
            psp_amount: shares.then(|| "9.90".to_owned()),
            treasury_fee: shares.then(|| "0.10".to_owned()),
            failure_reason: None,
            labels: Vec::new(),
        }
    }

    #[test]
    fn counts_missing_webhooks() {
        let mut received = Received::default();
        let (since, ramp) = (Instant::now(), Duration::from_secs(10));
        assert!(
            received.confirmed_at("pay_1").is_none() && received.complete_within(since, [Duration::ZERO, ramp]) == 0
        );
        for secs in [1, 10, 40, 69, 70] {
            // All but the last arrive at once. The last one completes the payment.
            for (place, name) in EVENTS.into_iter().enumerate() {
                let at = if place == 3 { since + Duration::from_secs(secs) } else { since };
                received.receive_event(event(name, &format!("pay_{secs}"), name), at);
            }
        }
        received.receive_event(event(CONFIRMED, "pay_41", "evt_1"), since);
        assert_eq!(received.confirmed_at("pay_41"), Some(since));
        let all: Vec<String> = [1, 10, 40, 69, 70, 41, 42].map(|number| format!("pay_{number}")).to_vec();
        assert_eq!(
            received.wrong(&all)[..2],
            [
                "1 payments lack the webhook payment.confirmed".to_owned(),
                "2 payments lack the webhook payin.confirmed".to_owned()
            ]
        );
        // The ramp and the time after the period do not count.
        assert_eq!(received.complete_within(since, [ramp, ramp + Duration::from_mins(1)]), 3);
    }

    #[test]
    fn reports_duplicate_foreign_and_uneven_events() {
        let mut received = Received::default();
        let now = Instant::now();
        let mut receive = |event: Event| received.receive_event(event, now);
        for (place, name) in EVENTS.into_iter().enumerate() {
            receive(event(name, "pay_1", &format!("evt_{place}")));
            // The same event again.
            receive(event(name, "pay_1", &format!("evt_{place}")));
        }
        let paid = ["pay_1".to_owned()];
        assert_eq!(received.wrong(&paid), Vec::<String>::new());
        let mut receive = |event: Event| received.receive_event(event, now);
        receive(event("payin.settled", "pay_1", "evt_9"));
        receive(event("payment.mismatched", "pay_1", "evt_10"));
        receive(Event { treasury_fee: Some("0.20".to_owned()), ..event("payment.settled", "pay_1", "evt_2") });
        receive(Event { amount_received: "20.00".to_owned(), ..event("payment.settled", "pay_1", "evt_2") });
        receive(event(CONFIRMED, "pay_2", "evt_11"));
        received.receive(Delivery::Refused("no signature", String::new()));
        assert_eq!(
            received.wrong(&paid),
            [
                "1 webhooks had no valid signature",
                "1 webhooks repeat an event under another id",
                "1 webhooks are of other events than confirmation and settlement",
                "2 webhooks have shares that do not sum to the amount due",
                "1 payments have webhooks and were not paid",
            ]
        );
    }
}
