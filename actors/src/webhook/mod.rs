//! The handle through which payments reach the webhook sender.

use payferry_domain::PspId;
use payferry_entities::Database;
use ractor::{ActorCell, SpawnErr};

use crate::clock::Clock;
use crate::journal::Journal;
use crate::seal::Sealer;

/// Limits and schedule of webhooks.
#[derive(Clone, Debug, Default)]
pub struct WebhookConfig;

/// Handle to the webhook sender.
#[derive(Clone, Debug)]
pub struct WebhookSender {
    cell: ActorCell,
}

impl WebhookSender {
    /// Starts the sender.
    pub async fn start(
        root: ActorCell,
        _: Database,
        _: Journal,
        _: Sealer,
        _: Clock,
        _: WebhookConfig,
    ) -> Result<Self, SpawnErr> {
        Ok(Self { cell: root })
    }

    /// The actor's cell, for its supervisor.
    pub fn cell(&self) -> ActorCell {
        self.cell.clone()
    }

    /// Rows of this PSP wait.
    pub fn nudge(&self, _: PspId) {}
}
