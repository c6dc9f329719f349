//! Observation of a supervision tree: the state and metrics of every actor, and the supervision log.
//!
//! Every actor runs inside `MeasuredActor` and receives messages only through a [`Mailbox`], so that every message is counted.
//! Deliberately absent: the behaviour of actors.

mod actor;
mod figures;
mod log;
mod messages;
mod metric;
mod metrics;
mod panics;
mod registry;

use serde::Serialize;
use strum::{IntoStaticStr, VariantArray};
use utoipa::ToSchema;

pub use ::metrics::Unit;
pub use actor::{ActorResult, Behaviour, Mailbox, panic_text};
pub use figures::{ActorFigures, ActorKindMetrics, ActorMetrics, KindView, NodeState, NodeView, ROOT_NAME, Stamp};
pub use log::{Action, ActorFailure, Cause, Incident, LOG_ENTRIES_MAX, REASON_CHARS_MAX, SupervisionLog, ended};
pub use messages::{ActorMessages, LAST_MESSAGES, LastMessage, MESSAGES_KEPT_OF, MessageEdge, MessageView};
pub use metric::{Labels, Metric, MetricType};
pub use metrics::{Counters, HANDLING, MAILBOX_WAIT};
pub use panics::PanicSource;
pub use registry::{ActorRegistry, RunningGuard};

/// Kind of an actor.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ToSchema, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
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
    #[serde(rename = "compliance_desk")]
    #[strum(serialize = "compliance_desk")]
    ComplianceService,
    /// Supervises payouts and withdrawals.
    #[serde(rename = "sending_desk")]
    #[strum(serialize = "sending_desk")]
    OutboundSupervisor,
    /// One payout or withdrawal.
    Sending,
    /// Delivers webhooks.
    WebhookSender,
    /// Delivers one PSP's webhooks.
    Endpoint,
    /// Moves the events of customers into the feed.
    Announcer,
    /// Checks the ledger, or compares vaults with the ledger.
    Auditor,
}

impl ActorKind {
    /// Every kind.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns true for kinds with so many actors that these are counted, not listed by name.
    pub const fn is_one_of_many(self) -> bool {
        matches!(self, Self::Payment | Self::Sending)
    }

    /// Returns the kind with this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == name)
    }

    /// Name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
