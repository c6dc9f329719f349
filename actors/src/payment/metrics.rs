//! Metrics of payments: transitions and effects.

use std::time::Duration;

use metrics::{Counter, Gauge, Unit, counter, describe_counter, describe_gauge, gauge};
use payferry_domain::payment::{Payment, Transition};
use payferry_domain::{Chain, Token};
use payferry_runtime::observe::Counters;

const INITIATED: &str = "payferry_payments_initiated_total";
const EVENTS: &str = "payferry_payment_events_total";
const VIOLATIONS: &str = "payferry_invariant_violations_total";
const REHYDRATION: &str = "payferry_rehydration_seconds";
const ALARMS: &str = "payferry_alarms_total";
const UNATTENDED: &str = "payferry_payments_unattended_total";

fn describe() {
    describe_counter!(INITIATED, "Payments initiated, by chain and token.");
    describe_counter!(EVENTS, "Events of payments, by name of the domain event.");
    describe_counter!(VIOLATIONS, "Invariants violated after a transition. Any violation is a defect.");
    describe_gauge!(REHYDRATION, Unit::Seconds, "Time from the start until every live payment had its actor again.");
    describe_counter!(ALARMS, "Alerts of payments that need the operator's attention.");
    describe_counter!(UNATTENDED, "Live payments that were found without an actor, and got one.");
}

/// Handles, looked up once.
pub(crate) struct PaymentMetrics {
    initiated: [[Counter; Token::ALL.len()]; Chain::ALL.len()],
    events: Counters,
    violations: Counter,
    rehydration: Gauge,
    alarms: Counter,
    unattended: Counter,
}

impl PaymentMetrics {
    pub(crate) fn new() -> Self {
        describe();
        let initiated =
            |chain: Chain, token: Token| counter!(INITIATED, "chain" => chain.as_str(), "token" => token.as_str());
        Self {
            initiated: Chain::ALL.map(|chain| Token::ALL.map(|token| initiated(chain, token))),
            events: Counters::new(EVENTS, "event"),
            violations: counter!(VIOLATIONS),
            rehydration: gauge!(REHYDRATION),
            alarms: counter!(ALARMS),
            unattended: counter!(UNATTENDED),
        }
    }

    /// Counts an initiated payment.
    pub(crate) fn initiated(&self, payment: &Payment) {
        self.initiated[payment.terms.chain as usize][payment.terms.token as usize].increment(1);
    }

    /// Counts committed events, and logs violated invariants.
    pub(super) fn moved(&self, transition: &Transition) {
        for event in &transition.events {
            self.events.increment(event.name());
        }
        for violation in &transition.violations {
            self.violations.increment(1);
            let id = transition.payment.id();
            tracing::error!(payment.id = %id, ?violation, "payment {id} violated an invariant");
        }
    }

    /// Records the time until every shard had read its live payments.
    pub(super) fn rehydrated(&self, after: Duration) {
        self.rehydration.set(after.as_secs_f64());
    }

    pub(super) fn alarmed(&self) {
        self.alarms.increment(1);
    }

    /// Counts a live payment without an actor.
    pub(super) fn unattended(&self) {
        self.unattended.increment(1);
    }
}
