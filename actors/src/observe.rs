//! What the tree shows of itself: who was restarted, when and why, and who was given up.
//!
//! One log serves the operator's view, the tests and the counters. It holds no payment data beyond ids.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use payferry_domain::{PaymentId, Timestamp};
use serde::Serialize;

/// Entries kept; the counters go on.
pub const LOG_ENTRIES_MAX: usize = 1_000;
/// Characters kept of a reason.
pub const REASON_CHARS_MAX: usize = 500;

/// What sort of actor it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    /// The group-commit writer.
    Journal,
    /// A shard of payments.
    Shard,
    /// One payment.
    Payment,
    /// Reads a chain.
    Watcher,
    /// Writes to a chain.
    Settler,
    /// Asks the KYT provider.
    Screening,
    /// Delivers webhooks.
    WebhookSender,
    /// Delivers one PSP's webhooks.
    Endpoint,
}

impl ActorKind {
    /// The name as it stands in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Journal => "journal",
            Self::Shard => "shard",
            Self::Payment => "payment",
            Self::Watcher => "watcher",
            Self::Settler => "settler",
            Self::Screening => "screening",
            Self::WebhookSender => "webhook_sender",
            Self::Endpoint => "endpoint",
        }
    }
}

/// What the supervisor did about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Started again from the database.
    Restarted,
    /// Not started again: it failed too often in too short a time.
    Quarantined,
}

/// One line of the supervision log.
#[derive(Debug, Clone, Serialize)]
pub struct Incident {
    /// When, by the wall clock.
    pub at: Timestamp,
    /// What failed.
    pub kind: ActorKind,
    /// Which one: a payment id, a chain, a shard's number.
    pub name: String,
    /// Why: the panic's or error's message, cut to [`REASON_CHARS_MAX`].
    pub reason: String,
    /// What was done.
    pub action: Action,
}

/// A payment that is not run any more until an operator looks at it.
#[derive(Debug, Clone, Serialize)]
pub struct Quarantine {
    /// Since when, by the wall clock.
    pub since: Timestamp,
    /// The last failure.
    pub reason: String,
}

/// The supervision log. Shared by all supervisors of one tree.
#[derive(Debug, Default)]
pub struct SupervisionLog {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    recent: VecDeque<Incident>,
    restarts: BTreeMap<ActorKind, u64>,
    quarantined: BTreeMap<PaymentId, Quarantine>,
}

impl SupervisionLog {
    /// Records a restart.
    pub(crate) fn restarted(&self, at: Timestamp, kind: ActorKind, name: String, reason: &str) {
        let reason = cut(reason);
        tracing::warn!(actor.kind = kind.as_str(), actor.name = %name, %reason, "actor failed and is restarted");
        metrics::counter!("payferry_actor_restarts_total", "kind" => kind.as_str()).increment(1);
        let mut inner = self.inner.lock();
        *inner.restarts.entry(kind).or_default() += 1;
        inner.push(Incident { at, kind, name, reason, action: Action::Restarted });
    }

    /// Records that a payment is given up.
    pub(crate) fn quarantined(&self, at: Timestamp, payment: PaymentId, reason: &str) {
        let reason = cut(reason);
        tracing::error!(payment.id = %payment, %reason, "payment {payment} failed too often and is quarantined");
        metrics::counter!("payferry_payments_quarantined_total").increment(1);
        let mut inner = self.inner.lock();
        inner.quarantined.insert(payment, Quarantine { since: at, reason: reason.clone() });
        let (kind, name) = (ActorKind::Payment, payment.to_string());
        inner.push(Incident { at, kind, name, reason, action: Action::Quarantined });
    }

    /// Whether a payment is given up.
    pub fn is_quarantined(&self, payment: PaymentId) -> bool {
        self.inner.lock().quarantined.contains_key(&payment)
    }

    /// Lets a payment run again. Answers whether it was quarantined.
    pub(crate) fn release(&self, payment: PaymentId) -> bool {
        self.inner.lock().quarantined.remove(&payment).is_some()
    }

    /// Recent incidents, newest first.
    pub fn recent(&self) -> Vec<Incident> {
        self.inner.lock().recent.iter().rev().cloned().collect()
    }

    /// Restarts so far by kind of actor.
    pub fn restarts(&self) -> BTreeMap<ActorKind, u64> {
        self.inner.lock().restarts.clone()
    }

    /// Payments given up.
    pub fn quarantine(&self) -> BTreeMap<PaymentId, Quarantine> {
        self.inner.lock().quarantined.clone()
    }
}

impl Inner {
    fn push(&mut self, incident: Incident) {
        if self.recent.len() == LOG_ENTRIES_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(incident);
    }
}

fn cut(reason: &str) -> String {
    reason.chars().take(REASON_CHARS_MAX).collect()
}
