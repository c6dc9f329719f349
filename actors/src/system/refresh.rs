//! Keeps gauges fresh at a bounded pace, whoever scrapes them how often.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::task::AbortOnDropHandle;

use crate::payment::Services;

/// How often what is in memory is shown.
const REFRESH_EVERY: Duration = Duration::from_secs(1);

/// Shows gauges until it is dropped.
pub(super) fn refresh(services: Arc<Services>) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut ticks = tokio::time::interval(REFRESH_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            services.books.refresh_metrics();
            services.journal.refresh_metrics();
        }
    }))
}
