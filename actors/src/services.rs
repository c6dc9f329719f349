//! Services that payments and outbound transfers share: storage, clock, policies, chains, screening and webhooks.
//!
//! Deliberately absent: payments and outbound transfers themselves. Their modules import this one.

use std::sync::Arc;

use parking_lot::RwLock;
use payferry_entities::Database;
use payferry_journal::Journal;
use payferry_journal::psps::PspDirectory;
use payferry_runtime::clock::Clock;
use payferry_webhook::WebhookSender;

use crate::chains::Chains;
use crate::compliance::Screening;
use crate::observe::TreeBooks;
use crate::pauses::Pauses;

/// Services that all parts of one tree share.
pub(crate) struct Services {
    pub(crate) database: Database,
    pub(crate) journal: Journal,
    pub(crate) clock: Clock,
    pub(crate) psps: PspDirectory,
    pub(crate) pauses: Pauses,
    pub(crate) registry: TreeBooks,
    pub(crate) chains: Arc<Chains>,
    /// Set at the start of the actor and at each restart.
    pub(crate) screening: RwLock<Option<Screening>>,
    /// Like `screening`.
    pub(crate) webhooks: RwLock<Option<WebhookSender>>,
}
