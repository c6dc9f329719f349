//! Bounded waits: for a condition, for the chains to be read, and for rest.

use std::time::{Duration, Instant};

use payferry_entities::{deliveries, operations, sendings};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};

use super::env::Env;

/// Timeout of a wait: generous, because stories run concurrently on slow machines.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(30);
/// Maximum number of unapplied transfers to search for.
const UNAPPLIED_MAX: u64 = 20;

impl Env {
    /// Calls `look` repeatedly until it returns `Ok`, and mines a block between two calls if `mines`. `Err` contains
    /// the last error of `look`.
    pub async fn wait<T>(&self, mines: bool, mut look: impl AsyncFnMut() -> Result<T, String>) -> Result<T, String> {
        let since = Instant::now();
        loop {
            self.record_imbalances();
            match look().await {
                Ok(found) => return Ok(found),
                Err(missing) if since.elapsed() > PATIENCE => return Err(missing),
                Err(_) => {}
            }
            if mines {
                self.mine(1).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits until the service knows the state of every chain; before that it accepts no payments there.
    pub async fn until_looked_at(&self) {
        let checked_len = async || match self.chains.keys().find(|chain| self.system().chain_view(**chain).is_none()) {
            Some(chain) => Err(format!("{chain} was never polled")),
            None => Ok(()),
        };
        // A lagging endpoint shows nothing new until it exceeds the read position.
        self.wait(true, checked_len).await.unwrap();
    }

    /// Waits until the service has read every chain up to its head.
    pub async fn until_all_read(&self) {
        for chain in self.chains.values() {
            self.until_read(chain).await;
        }
    }

    /// Mines until nothing more happens automatically: every transfer applied, every operation completed or failed,
    /// every event delivered.
    pub async fn rest(&self) -> Result<(), String> {
        let mut quiet = 0;
        let still = async || {
            let busy = self.busy().await;
            quiet = if busy.is_none() { quiet + 1 } else { 0 };
            // Several checks, so that the pause between two steps does not count as rest.
            match busy {
                None if quiet >= 4 => Ok(()),
                busy => Err(busy.unwrap_or_else(|| "it was never quiet for long enough".to_owned())),
            }
        };
        self.wait(true, still).await?;
        self.until_all_read().await;
        Ok(())
    }

    /// Returns the work in progress.
    async fn busy(&self) -> Option<String> {
        let reader = self.database.reader();
        for chain in self.chains.keys() {
            let unapplied =
                payferry_journal::payments::unapplied_on(&self.database, *chain, None, UNAPPLIED_MAX).await.unwrap();
            if !unapplied.is_empty() {
                return Some(format!("transfers that no payment has applied: {unapplied:?}"));
            }
        }
        let under_way = operations::Entity::find()
            .filter(operations::Column::Status.is_in(["queued", "submitted", "mined"]))
            .all(reader)
            .await
            .unwrap();
        if !under_way.is_empty() {
            return Some(format!("operations in progress: {under_way:?}"));
        }
        // The settler repeats the notice of a failure after a minute if a crash lost it.
        let failed =
            operations::Entity::find().filter(operations::Column::Status.eq("failed")).all(reader).await.unwrap();
        let subjects = failed.iter().map(|operation| operation.payment_id.clone());
        let unnotified = sendings::Entity::find()
            .filter(sendings::Column::Live.eq(true))
            .filter(sendings::Column::Id.is_in(subjects))
            .all(reader)
            .await
            .unwrap();
        if !unnotified.is_empty() {
            return Some(format!("outbound transfers that have not applied their failure: {unnotified:?}"));
        }
        let undelivered =
            deliveries::Entity::find().filter(deliveries::Column::Status.ne("delivered")).all(reader).await.unwrap();
        (!undelivered.is_empty()).then(|| format!("undelivered events: {undelivered:?}"))
    }
}
