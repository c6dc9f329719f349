//! What payments count, in the two central loops: transitions and effects.

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
    describe_counter!(INITIATED, "Payments made, by chain and token.");
    describe_counter!(EVENTS, "What happened to payments, by name of the event of the domain.");
    describe_counter!(VIOLATIONS, "Invariants found broken after a transition. Any is a defect.");
    describe_gauge!(REHYDRATION, Unit::Seconds, "From the start until every live payment had its actor again.");
    describe_counter!(ALARMS, "Payments that wanted the operator's attention.");
    describe_counter!(UNATTENDED, "Live payments that were found without an actor, and given one.");
}

/// The handles, looked up once.
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

    /// A payment was made.
    pub(crate) fn initiated(&self, payment: &Payment) {
        self.initiated[payment.terms.chain as usize][payment.terms.token as usize].increment(1);
    }

    /// Counts what was committed, and alarms of what should never be.
    pub(super) fn moved(&self, transition: &Transition) {
        for event in &transition.events {
            self.events.increment(event.name());
        }
        for violation in &transition.violations {
            self.violations.increment(1);
            let id = transition.payment.id();
            tracing::error!(payment.id = %id, ?violation, "payment {id} broke an invariant");
        }
    }

    /// Every shard has read its live payments.
    pub(super) fn rehydrated(&self, after: Duration) {
        self.rehydration.set(after.as_secs_f64());
    }

    pub(super) fn alarmed(&self) {
        self.alarms.increment(1);
    }

    /// A live payment had no actor.
    pub(super) fn unattended(&self) {
        self.unattended.increment(1);
    }
}
