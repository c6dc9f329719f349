//! Waiting, always with an end: for a condition, for the chains to be read, for everything to come to rest.

use std::time::{Duration, Instant};

use payferry_actors::payment::store;
use payferry_domain::Chain;
use payferry_entities::{deliveries, operations};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};

use crate::world::World;

/// How long a story waits for what it expects: generous, since many are told at once on slow machines.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(30);
/// Transfers that nobody took in, as far as they are looked for.
const UNAPPLIED_MAX: u64 = 20;

impl World {
    /// Looks again and again until `look` finds something, and mines a block between two looks if `mines`. `Err` holds the last
    /// answer of `look`.
    pub async fn wait<T>(&self, mines: bool, mut look: impl AsyncFnMut() -> Result<T, String>) -> Result<T, String> {
        let since = Instant::now();
        loop {
            self.heed_auditor();
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

    /// Until the service knows how every chain stands: before that it takes no payments there.
    pub async fn until_looked_at(&self) {
        let looked_at = async || match self.chains.keys().find(|chain| self.system().chain_view(**chain).is_none()) {
            Some(chain) => Err(format!("{chain} was never looked at")),
            None => Ok(()),
        };
        // An endpoint that is behind what was read before shows nothing new until there is.
        self.wait(true, looked_at).await.unwrap();
    }

    /// Until the service has read every chain up to its head.
    pub async fn until_read(&self) {
        let read = async || match self.chains.keys().find(|chain| !self.is_read(**chain)) {
            Some(chain) => Err(format!("{chain} was never read: {:?}", self.system().chain_view(*chain))),
            None => Ok(()),
        };
        self.wait(false, read).await.unwrap();
    }

    fn is_read(&self, chain: Chain) -> bool {
        let head = self.chains[&chain].devchain.head();
        self.system().chain_view(chain).is_some_and(|view| view.read_hash.0 == head.hash.0)
    }

    /// Mines until nothing is left to happen by itself: every transfer taken in, every operation done or failed, every event
    /// delivered.
    pub async fn rest(&self) -> Result<(), String> {
        let mut quiet = 0;
        let still = async || {
            let busy = self.busy().await;
            quiet = if busy.is_none() { quiet + 1 } else { 0 };
            // Not between two steps of one thing.
            match busy {
                None if quiet >= 4 => Ok(()),
                busy => Err(busy.unwrap_or_else(|| "it was never quiet for long".to_owned())),
            }
        };
        self.wait(true, still).await?;
        self.until_read().await;
        Ok(())
    }

    /// What is still going on.
    async fn busy(&self) -> Option<String> {
        let reader = self.database().reader();
        for chain in self.chains.keys() {
            let unapplied = store::unapplied_on(self.database(), *chain, None, UNAPPLIED_MAX).await.unwrap();
            if !unapplied.is_empty() {
                return Some(format!("transfers that no payment has taken in: {unapplied:?}"));
            }
        }
        let under_way = operations::Entity::find()
            .filter(operations::Column::Status.is_in(["queued", "submitted", "mined"]))
            .all(reader)
            .await
            .unwrap();
        if !under_way.is_empty() {
            return Some(format!("operations under way: {under_way:?}"));
        }
        let undelivered =
            deliveries::Entity::find().filter(deliveries::Column::Status.ne("delivered")).all(reader).await.unwrap();
        (!undelivered.is_empty()).then(|| format!("events that were not delivered: {undelivered:?}"))
    }
}
