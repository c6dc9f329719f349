//! Maintains the list of wallets of live payments: fills it when the process starts, and removes wallets some time
//! after their payments have ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use payferry_journal::payments::{self, StoreError};
use payferry_nodes::LeaseKind;
use tokio::time::MissedTickBehavior;
use tokio_util::task::AbortOnDropHandle;

use super::System;
use crate::aggregate::Services;

/// Time that a wallet stays after its payment ended: longer than any commit started before can take.
const LINGER: Duration = Duration::from_mins(2);
/// Interval of removals, and of attempts to fill the list.
const INTERVAL: Duration = Duration::from_secs(5);
/// Interval of reads of the payments that other nodes have created or ended, on a node that shares the database.
const FOLLOW_INTERVAL: Duration = Duration::from_mins(1);
/// Payments per lookup.
const BATCH: usize = 2_000;

/// Watches the wallets of all live payments, including those that cannot be started. If this fails, they are looked up
/// in the database until it succeeds.
pub(super) async fn watch_live(services: &Services) {
    let watchlist = services.chains.watchlist();
    match payments::live_wallets(&services.database).await {
        Ok(wallets) => {
            if services.node.is_shared() {
                // Payments that ended on other nodes.
                let live = wallets.iter().map(|(wallet, _)| *wallet).collect();
                watchlist.retire_others(&live);
            }
            for (wallet, id) in wallets {
                watchlist.watch(wallet, id);
            }
            watchlist.set_whole();
        }
        Err(error) => tracing::warn!(%error, "the wallets of live payments cannot be read yet"),
    }
}

/// Runs both until it is dropped.
pub(super) fn keep(services: Arc<Services>) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The caller has already made the first attempt.
        ticks.reset();
        let mut read_at = Instant::now();
        loop {
            ticks.tick().await;
            // Only watchers use the list.
            let reads_chains = services.node.leases().count(LeaseKind::Chain) > 0;
            let follows_others = services.node.is_shared() && reads_chains && read_at.elapsed() >= FOLLOW_INTERVAL;
            if !services.chains.watchlist().is_whole() || follows_others {
                watch_live(&services).await;
                read_at = Instant::now();
            }
            if let Err(error) = retire_before(&services, Instant::now().checked_sub(LINGER)).await {
                tracing::warn!(%error, "wallets of ended payments could not be looked up; they stay watched");
            }
        }
    }))
}

/// Removes wallets retired before `before`, except those of payments that are live in the database. That is possible
/// although the actor left the payment as ended, if another writer committed meanwhile.
async fn retire_before(services: &Services, before: Option<Instant>) -> Result<(), StoreError> {
    let watchlist = services.chains.watchlist();
    let Some(before) = before else { return Ok(()) };
    loop {
        let retired = watchlist.retired(before, BATCH);
        if retired.is_empty() {
            return Ok(());
        }
        let ids: Vec<_> = retired.iter().map(|one| one.payment_id).collect();
        match payments::live_among(&services.database, &ids).await {
            Ok(live) => watchlist.unwatch(&retired, &live),
            Err(error) => {
                watchlist.defer(retired);
                return Err(error);
            }
        }
    }
}

impl System {
    /// Removes the wallets of all ended payments now, without the waiting time.
    pub async fn retire_wallets(&self) -> Result<(), StoreError> {
        retire_before(self.services(), Some(Instant::now())).await
    }
}
