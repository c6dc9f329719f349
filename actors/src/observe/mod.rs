//! Observability of the supervision tree: metrics of every actor, the supervision log, payments by status.
//!
//! Every actor runs inside `Kept` and can only be reached through a [`Mailbox`], so no actor escapes the metrics.
//! Deliberately absent: the work of the actors, and payment data other than ids.

mod books;
mod buckets;
mod counters;
mod ferried;
mod figures;
mod kept;
mod log;
mod mailbox;
pub(crate) mod metrics;
mod quarantine;
mod tally;
mod view;

use serde::Serialize;

pub use books::Books;
pub use buckets::BUCKETS;
pub(crate) use counters::Counters;
pub use ferried::Ferried;
pub(crate) use figures::{ActorBooks, Stamp};
pub(crate) use kept::Behaviour;
pub(crate) use kept::words_of;
pub(crate) use log::ended;
pub use log::{Action, Cause, Failure, Incident, LOG_ENTRIES_MAX, REASON_CHARS_MAX};
pub use mailbox::Mailbox;
pub use quarantine::{GivenUp, Quarantine};
pub(crate) use tally::Moved;
pub use tally::{Standing, Tallied};
pub use view::{Figures, KindView, NodeState, NodeView, PaymentLine, SendingLine, TreeView};
pub(crate) use view::{ROOT_NAME, line_note, read_line_note, read_sending_note, sending_note};

/// Kind of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    /// Supervisor of all permanent actors.
    Root,
    /// Group-commit writer.
    Journal,
    /// Supervisor of a shard of payments.
    Shard,
    /// One payment.
    Payment,
    /// Reader of one chain.
    Watcher,
    /// Transaction sender of one chain.
    Settler,
    /// Client of the KYT provider.
    Screening,
    /// Service that has customers verified.
    ComplianceDesk,
    /// Supervisor of payouts and withdrawals.
    SendingDesk,
    /// One payout or withdrawal.
    Sending,
    /// Supervisor of webhook delivery.
    WebhookSender,
    /// Delivery of one PSP's webhooks.
    Endpoint,
    /// Auditor of the ledger, or of the vaults against the ledger.
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

    /// True for kinds with very many actors, which are counted and not listed by name.
    pub(crate) const fn is_one_of_many(self) -> bool {
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
