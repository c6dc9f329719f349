//! Updates gauges at fixed intervals, independently of scrapes.

use std::sync::Arc;
use std::time::Duration;

use payferry_nodes::{Job, LeaseName};
use tokio::time::MissedTickBehavior;
use tokio_util::task::AbortOnDropHandle;

use super::Parts;
use crate::chain::metrics;
use crate::compliance::identity::ComplianceService;
use crate::observe::{refresh_database, refresh_waiting};

/// Interval of updates from the database.
const DATABASE_EVERY: Duration = Duration::from_secs(15);
/// Interval of reads of quarantines, on a node that shares the database.
const QUARANTINES_EVERY: Duration = Duration::from_secs(5);
/// Interval of updates from memory.
const REFRESH_EVERY: Duration = Duration::from_secs(1);

/// Updates gauges until it is dropped.
pub(super) fn refresh(parts: Arc<Parts>) -> AbortOnDropHandle<()> {
    // Concurrently: a hanging database does not delay gauges from memory.
    AbortOnDropHandle::new(tokio::spawn(async move {
        tokio::join!(refresh_from_memory(&parts), refresh_from_database(&parts), follow_quarantines(&parts));
    }))
}

async fn refresh_from_memory(Parts { services, payments, ledger, vaults, .. }: &Parts) {
    let mut ticks = tokio::time::interval(REFRESH_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        services.registry.refresh_metrics(services.node.leases().does(Job::Tally));
        services.journal.refresh_metrics();
        refresh_waiting(payments.waiting_len());
        refresh_database(&services.database);
        // The auditors of the other nodes have found nothing, and would report that they are late.
        if services.node.leases().does(Job::Vaults) {
            vaults.refresh_metrics(services.clock.real_now());
        }
        if services.node.leases().does(Job::Ledger) {
            ledger.refresh_metrics(services.clock.real_now(), &services.chains);
        }
        if let Some(screening) = &*services.screening.read() {
            screening.refresh_metrics();
        }
        services.chains.refresh_metrics(services.clock.now());
        let leases = services.node.leases();
        let elsewhere = services.chains.running().filter(|spec| !leases.holds(LeaseName::Chain(spec.chain)));
        elsewhere.for_each(|spec| metrics::forget(spec.chain));
        if let Some(webhooks) = &*services.webhooks.read() {
            webhooks.refresh_metrics();
        }
    }
}

/// Follows quarantines of other nodes.
async fn follow_quarantines(Parts { services, .. }: &Parts) {
    while services.node.is_shared() {
        tokio::time::sleep(QUARANTINES_EVERY).await;
        if let Err(error) = services.registry.reload_quarantines().await {
            tracing::warn!(%error, "the quarantines cannot be read; the last ones read remain in force");
        }
    }
}

async fn refresh_from_database(Parts { services, compliance, .. }: &Parts) {
    let mut ticks = tokio::time::interval(DATABASE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let webhooks = services.webhooks.read().clone();
        let Some(webhooks) = webhooks else {
            // The service is still starting.
            ticks.reset_after(REFRESH_EVERY);
            continue;
        };
        let compliance = compliance.read().clone();
        if !services.node.leases().does(Job::Tally) {
            webhooks.forget_backlog();
            ComplianceService::forget_backlog();
            continue;
        }
        if let Some(compliance) = compliance
            && let Err(error) = compliance.refresh_backlog().await
        {
            tracing::warn!(%error, "the backlog of the compliance service could not be counted");
        }
        if let Err(error) = webhooks.refresh_backlog().await {
            tracing::warn!(%error, "the backlog of webhooks could not be counted");
        }
    }
}
