//! Metrics of payments: transitions and effects.

use metrics::{Counter, counter};
use payferry_domain::payment::{Payment, Transition};
use payferry_domain::{Chain, Token};
use payferry_runtime::observe::Counters;

payferry_runtime::metrics! {
    Counter INITIATED = "payferry_payments_initiated_total", "Payments initiated, by chain and token.";
    Counter EVENTS = "payferry_payment_events_total", "Events of payments, by name of the domain event.";
    Gauge(Seconds) REHYDRATION = "payferry_rehydration_seconds",
        "Time from the start until every live payment had its actor again.", exported;
    Counter ALARMS = "payferry_alarms_total", "Alerts of payments that need the operator's attention.", exported;
    Counter UNATTENDED = "payferry_payments_unattended_total",
        "Live payments that were found without an actor, and got one.", exported;
}

/// Handles that every payment uses, looked up once.
pub(crate) struct PaymentMetrics {
    initiated: [[Counter; Token::ALL.len()]; Chain::ALL.len()],
    events: Counters,
}

impl PaymentMetrics {
    pub(super) fn new() -> Self {
        describe();
        let initiated =
            |chain: Chain, token: Token| counter!(INITIATED.name, "chain" => chain.as_str(), "token" => token.as_str());
        Self {
            initiated: Chain::ALL.map(|chain| Token::ALL.map(|token| initiated(chain, token))),
            events: Counters::new(EVENTS.name, "event"),
        }
    }

    /// Counts an initiated payment.
    pub(crate) fn initiated(&self, payment: &Payment) {
        self.initiated[payment.terms.chain as usize][payment.terms.token as usize].increment(1);
    }

    /// Counts committed events.
    pub(super) fn moved(&self, transition: &Transition) {
        for event in &transition.events {
            self.events.increment(event.name());
        }
    }
}
