//! What was told of payments that are paid exactly: when which event of which payment first came, and what was wrong with it.
//!
//! The same event may come again; another event of the same name may not, nor one that says anything but that the payment
//! was paid and settled, nor shares that are not the whole. Deliberately absent: what the service says when it is asked.

use std::collections::HashMap;
use std::time::Duration;

use payferry_testkit::wire::Amount;
use tokio::time::Instant;

use payferry_testkit::receiver::{Arrived, Event, Delivery};

/// The webhook that tells of confirmation, and all that tell of a payment's whole life.
pub(super) const CONFIRMED: &str = "payment.confirmed";
const WHOLE: [&str; 4] = [CONFIRMED, "payin.confirmed", "payment.settled", "payin.settled"];

/// What came so far.
#[derive(Debug, Default)]
pub(super) struct Received {
    of: HashMap<String, Told>,
    /// When the last of [`WHOLE`] came that a payment still wanted.
    whole: HashMap<String, Instant>,
    pub(super) webhooks: usize,
    faults: Faults,
}

/// The first event of each of [`WHOLE`] about one payment: when it came, and its id.
type Told = [Option<(Instant, String)>; WHOLE.len()];

#[derive(Debug, Default)]
struct Faults {
    forged: usize,
    doubled: usize,
    foreign: usize,
    uneven: usize,
}

impl Received {
    pub(super) fn hear(&mut self, heard: Delivery) {
        match heard {
            Delivery::Webhook(arrived) => {
                self.webhooks += 1;
                let Arrived { at, event, .. } = *arrived;
                self.hear_event(event, at);
            }
            Delivery::Refused(..) => self.faults.forged += 1,
        }
    }

    fn hear_event(&mut self, event: Event, at: Instant) {
        let Some(place) = WHOLE.iter().position(|known| *known == event.event) else {
            self.faults.foreign += 1;
            return;
        };
        if event.event.ends_with(".settled") && !is_even(&event) {
            self.faults.uneven += 1;
        }
        let told = self.of.entry(event.payment_id.clone()).or_default();
        match &told[place] {
            None => told[place] = Some((at, event.event_id)),
            Some((_, known)) => self.faults.doubled += usize::from(*known != event.event_id),
        }
        if told.iter().all(Option::is_some) {
            self.whole.entry(event.payment_id).or_insert(at);
        }
    }

    /// When this payment was first told to be confirmed.
    pub(super) fn confirmed_at(&self, payment_id: &str) -> Option<Instant> {
        let place = WHOLE.iter().position(|name| *name == CONFIRMED)?;
        self.of.get(payment_id)?[place].as_ref().map(|(at, _)| *at)
    }

    /// How many payments were settled and told of to the last.
    pub(super) fn whole(&self) -> usize {
        self.whole.len()
    }

    /// How many of them so long after `since`.
    pub(super) fn whole_within(&self, since: Instant, [from, to]: [Duration; 2]) -> usize {
        self.whole.values().filter(|at| (since + from..since + to).contains(*at)).count()
    }

    /// What is wrong with what came, if these payments and no others were paid.
    pub(super) fn wrong(&self, paid: &[String]) -> Vec<String> {
        let Faults { forged, doubled, foreign, uneven } = self.faults;
        let faults = [
            (forged, "webhooks had no valid signature"),
            (doubled, "webhooks told once more, under another id, of what had been told"),
            (foreign, "webhooks told of something else than that a payment was confirmed and settled"),
            (uneven, "webhooks told of shares that are not what was due and received"),
            (self.of.len().saturating_sub(paid.len()), "payments were told of that nobody paid"),
        ];
        let faults = faults.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        let is_untold = |id: &String, place: usize| self.of.get(id).is_none_or(|told| told[place].is_none());
        let untold = WHOLE.iter().enumerate().map(|(place, name)| {
            (paid.iter().filter(|id| is_untold(id, place)).count(), format!("payments were not told of by {name}"))
        });
        faults.chain(untold.filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"))).collect()
    }
}

/// Whether all of what was due was received, and its shares are the whole of it.
fn is_even(event: &Event) -> bool {
    let share = |share: &Option<String>| share.as_deref().and_then(|share| share.parse::<Amount>().ok());
    is_split(&event.amount, &event.amount_received, share(&event.psp_amount), share(&event.treasury_fee))
}

/// Whether these shares are all of what was due, which was received. There is no settlement without a fee here.
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
    fn what_never_came_is_missing_and_no_panic() {
        let mut received = Received::default();
        let (since, ramp) = (Instant::now(), Duration::from_secs(10));
        assert!(received.confirmed_at("pay_1").is_none() && received.whole_within(since, [Duration::ZERO, ramp]) == 0);
        for secs in [1, 10, 40, 69, 70] {
            // All but the last come at once; none of them makes it whole.
            for (place, name) in WHOLE.into_iter().enumerate() {
                let at = if place == 3 { since + Duration::from_secs(secs) } else { since };
                received.hear_event(event(name, &format!("pay_{secs}"), name), at);
            }
        }
        received.hear_event(event(CONFIRMED, "pay_41", "evt_1"), since);
        assert_eq!(received.confirmed_at("pay_41"), Some(since));
        let all: Vec<String> = [1, 10, 40, 69, 70, 41, 42].map(|number| format!("pay_{number}")).to_vec();
        assert_eq!(
            received.wrong(&all)[..2],
            [
                "1 payments were not told of by payment.confirmed".to_owned(),
                "2 payments were not told of by payin.confirmed".to_owned()
            ]
        );
        // The ramp does not count, nor does what comes after the last second.
        assert_eq!(received.whole_within(since, [ramp, ramp + Duration::from_mins(1)]), 3);
    }

    #[test]
    fn what_is_told_twice_or_besides_or_does_not_add_up_is_wrong() {
        let mut received = Received::default();
        let now = Instant::now();
        let mut hear = |event: Event| received.hear_event(event, now);
        for (place, name) in WHOLE.into_iter().enumerate() {
            hear(event(name, "pay_1", &format!("evt_{place}")));
            // The same once more.
            hear(event(name, "pay_1", &format!("evt_{place}")));
        }
        let paid = ["pay_1".to_owned()];
        assert_eq!(received.wrong(&paid), Vec::<String>::new());
        let mut hear = |event: Event| received.hear_event(event, now);
        hear(event("payin.settled", "pay_1", "evt_9"));
        hear(event("payment.mismatched", "pay_1", "evt_10"));
        hear(Event { treasury_fee: Some("0.20".to_owned()), ..event("payment.settled", "pay_1", "evt_2") });
        hear(Event { amount_received: "20.00".to_owned(), ..event("payment.settled", "pay_1", "evt_2") });
        hear(event(CONFIRMED, "pay_2", "evt_11"));
        received.hear(Delivery::Refused("no signature", String::new()));
        assert_eq!(
            received.wrong(&paid),
            [
                "1 webhooks had no valid signature",
                "1 webhooks told once more, under another id, of what had been told",
                "1 webhooks told of something else than that a payment was confirmed and settled",
                "2 webhooks told of shares that are not what was due and received",
                "1 payments were told of that nobody paid",
            ]
        );
    }
}
