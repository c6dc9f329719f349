//! Observation of a supervision tree: the state and metrics of every actor, and the supervision log.
//!
//! Every actor runs inside `Kept` and receives messages only through a [`Mailbox`], so that every message is counted.
//! Deliberately absent: the behaviour of actors.

mod counters;
mod figures;
mod kept;
mod log;
mod mailbox;
mod metric;
mod metrics;
mod registry;
mod view;

use serde::Serialize;

pub use ::metrics::Unit;
pub use counters::Counters;
pub use figures::{ActorKindMetrics, ActorMetrics, Stamp};
pub use kept::{Behaviour, panic_text};
pub use log::{Action, Cause, Failure, Incident, LOG_ENTRIES_MAX, REASON_CHARS_MAX, ended};
pub use mailbox::Mailbox;
pub use metric::{Labels, Metric, MetricType};
pub use metrics::{HANDLING, MAILBOX_WAIT};
pub use registry::{ActorRegistry, RunningGuard};
pub use view::{Figures, KindView, NodeState, NodeView, ROOT_NAME};

/// Kind of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    /// Supervises the permanent actors.
    Root,
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
    /// Requests verdicts from the KYT provider.
    Screening,
    /// Requests verifications of customers.
    ComplianceDesk,
    /// Supervises payouts and withdrawals.
    SendingDesk,
    /// One payout or withdrawal.
    Sending,
    /// Delivers webhooks.
    WebhookSender,
    /// Delivers one PSP's webhooks.
    Endpoint,
    /// Checks the ledger, or compares vaults with the ledger.
    Auditor,
}

impl ActorKind {
    /// Every kind.
    pub const ALL: [Self; 13] = [
        Self::Root,
        Self::Journal,
        Self::Shard,
        Self::Payment,
        Self::Watcher,
        Self::Settler,
        Self::Screening,
        Self::ComplianceDesk,
        Self::SendingDesk,
        Self::Sending,
        Self::WebhookSender,
        Self::Endpoint,
        Self::Auditor,
    ];

    /// Returns true for kinds with so many actors that these are counted, not listed by name.
    pub const fn is_one_of_many(self) -> bool {
        matches!(self, Self::Payment | Self::Sending)
    }

    /// Name in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Journal => "journal",
            Self::Shard => "shard",
            Self::Payment => "payment",
            Self::Watcher => "watcher",
            Self::Settler => "settler",
            Self::Screening => "screening",
            Self::ComplianceDesk => "compliance_desk",
            Self::SendingDesk => "sending_desk",
            Self::Sending => "sending",
            Self::WebhookSender => "webhook_sender",
            Self::Endpoint => "endpoint",
            Self::Auditor => "auditor",
        }
    }
}
