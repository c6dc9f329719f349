//! What the tree shows of itself: every actor's books, the supervision log, payments by status, and the metrics.
//!
//! Every actor runs inside `Kept` and is reached through a [`Mailbox`] only, so none can be written past the
//! bookkeeping. Deliberately absent: what an actor does, and payment data beyond ids.

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

/// What sort of actor it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    /// Supervises all that is permanent.
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
    /// Asks the KYT provider.
    Screening,
    /// Has customers verified.
    ComplianceDesk,
    /// Looks after payouts and withdrawals.
    SendingDesk,
    /// One payout or withdrawal.
    Sending,
    /// Delivers webhooks.
    WebhookSender,
    /// Delivers one PSP's webhooks.
    Endpoint,
    /// Holds the ledger against itself, or vaults against the ledger.
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

    /// Whether there are so many that they are counted, not listed by name.
    pub(crate) const fn is_one_of_many(self) -> bool {
        matches!(self, Self::Payment | Self::Sending)
    }

    /// The name as it stands in metrics and logs.
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
