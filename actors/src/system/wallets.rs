//! Keeps the list of the wallets of live payments: fills it when the process starts, and takes wallets off it when their
//! payments have been over for a while.

use std::sync::Arc;
use std::time::{Duration, Instant};

use payferry_journal::payments::{self, StoreError};
use tokio::time::MissedTickBehavior;
use tokio_util::task::AbortOnDropHandle;

use super::System;
use crate::services::Services;

/// How long a wallet stays after its payment was over: longer than anything that was begun before can take to be committed.
const LINGER: Duration = Duration::from_mins(2);
/// How often it is looked who has been over for so long, and how often the list is tried to be filled.
const INTERVAL: Duration = Duration::from_secs(5);
/// Payments looked up at once.
const BATCH: usize = 2_000;

/// Has the wallets of all live payments watched, also of those that no actor can be started of. Where that fails they are looked
/// for in the database, until it is done.
pub(super) async fn watch_live(services: &Services) {
    let watchlist = services.chains.watchlist();
    match payments::live_wallets(&services.database).await {
        Ok(wallets) => {
            for (wallet, id) in wallets {
                watchlist.watch(wallet, id);
            }
            watchlist.set_whole();
        }
        Err(error) => tracing::warn!(%error, "the wallets of live payments cannot be read yet"),
    }
}

/// Does both until it is dropped.
pub(super) fn keep(services: Arc<Services>) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // At once it was tried by whoever starts this.
        ticks.reset();
        loop {
            ticks.tick().await;
            if !services.chains.watchlist().is_whole() {
                watch_live(&services).await;
            }
            if let Err(error) = retire_before(&services, Instant::now().checked_sub(LINGER)).await {
                tracing::warn!(%error, "wallets of payments that are over could not be looked up, and stay watched");
            }
        }
    }))
}

/// Takes off the list whoever was over before, and is not live in the database: that may be so although an actor left it as
/// over, if something was committed behind its back.
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
    /// Takes the wallets of all payments off the list that are over by now, without waiting for a while.
    pub async fn retire_wallets(&self) -> Result<(), StoreError> {
        retire_before(self.services(), Some(Instant::now())).await
    }
}
