//! Takes wallets off the list when their payments have been over for a while.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::MissedTickBehavior;
use tokio_util::task::AbortOnDropHandle;

use super::System;
use crate::payment::Services;
use crate::payment::store::{self, StoreError};

/// How long a wallet stays after its payment was over: longer than anything that was begun before can take to be committed.
const LINGER: Duration = Duration::from_mins(2);
/// How often it is looked who has been over for so long.
const INTERVAL: Duration = Duration::from_secs(15);
/// Payments looked up at once.
const BATCH: usize = 2_000;

/// Does it until it is dropped.
pub(super) fn retire(services: Arc<Services>) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
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
        match store::live_among(&services.database, &ids).await {
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
        retire_before(&self.inner.services, Some(Instant::now())).await
    }
}
