//! Event retention: deletes old events with their deliveries and attempts, in batches.
//!
//! Owned here: which events are deleted, and when. Undelivered events and events younger than [`KEPT_DAYS_MIN`] are
//! never deleted. Payments, their transitions and transfers, the ledger and the audit log are kept forever.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use payferry_domain::Timestamp;
use payferry_entities::{Database, DeliveryStatus, deliveries, delivery_attempts, event_floors, events};
use payferry_runtime::clock::Clock;
use sea_orm::sea_query::OnConflict;
use sea_orm::{
    ColumnTrait, DbErr, EntityTrait, FromQueryResult, IntoActiveModel, QueryFilter, QueryOrder, QuerySelect,
};

/// Minimum retention of events, days, regardless of the configuration.
pub const KEPT_DAYS_MIN: i64 = 30;
/// Interval between two runs.
const PRUNE_EVERY: Duration = Duration::from_hours(1);
/// Delay from the start to the first run.
const PRUNE_FIRST: Duration = Duration::from_mins(1);
/// Events deleted per transaction. Payments then wait for the writer no longer than for one of their own writes.
pub const BATCH_EVENTS: u64 = 100;
/// Pause between two transactions, so that payments are written in between.
const BATCH_PAUSE: Duration = Duration::from_millis(100);
const DAY_SECS: i64 = 24 * 3_600;

payferry_runtime::metrics! {
    Counter PRUNED = "payferry_pruned_rows_total", "Rows deleted because they were old, by table.",
        exported by "table" in ["events", "deliveries", "delivery_attempts"];
}

/// Retention period of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Days; `None` keeps events forever.
    pub events_days: Option<i64>,
}

impl Retention {
    /// Returns the time before which events may be deleted.
    fn before(self, now: Timestamp) -> Option<Timestamp> {
        Some(now.plus_secs(-self.events_days?.max(KEPT_DAYS_MIN).saturating_mul(DAY_SECS)))
    }
}

/// Timing of the retention runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Delay from the start to the first run.
    pub first: Duration,
    /// Interval between two runs; not zero.
    pub every: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { first: PRUNE_FIRST, every: PRUNE_EVERY }
    }
}

/// Numbers of deleted rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Events of the feed.
    pub events: u64,
    /// Deliveries of these events.
    pub deliveries: u64,
    /// Attempts at these deliveries.
    pub attempts: u64,
}

impl Pruned {
    fn add(&mut self, other: Self) {
        self.events += other.events;
        self.deliveries += other.deliveries;
        self.attempts += other.attempts;
    }
}

/// Deletes old events at this pace, while the future is polled.
pub async fn prune_on(database: Database, clock: Clock, retention: Retention, pace: Pace) {
    describe();
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + pace.first, pace.every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // Uses the wall clock: advancing the sandbox's time deletes nothing.
        match prune(&database, retention, clock.real_now()).await {
            Ok(Pruned { events: 0, .. }) => {}
            Ok(Pruned { events, deliveries, attempts }) => tracing::info!(
                events,
                deliveries,
                attempts,
                "deleted {events} old events with {deliveries} deliveries and {attempts} attempts"
            ),
            Err(error) => tracing::warn!(%error, "could not delete old events; the next run tries again"),
        }
    }
}

/// Deletes the events that are old at `now`.
pub async fn prune(database: &Database, retention: Retention, now: Timestamp) -> Result<Pruned, DbErr> {
    let (mut pruned, mut after) = (Pruned::default(), 0);
    let Some(before) = retention.before(now) else { return Ok(pruned) };
    // Limits the number of these transactions at the writer; payments go first.
    let database = database.api_pool();
    while let Some(page) = page(&database, after, before).await? {
        after = page.last;
        if page.old.is_empty() {
            continue;
        }
        let batch = forget(&database, page.old, now).await?;
        pruned.add(batch);
        for (table, rows) in
            [("events", batch.events), ("deliveries", batch.deliveries), ("delivery_attempts", batch.attempts)]
        {
            PRUNED.add(&[("table", table)], rows);
        }
        tokio::time::sleep(BATCH_PAUSE).await;
    }
    Ok(pruned)
}

/// Columns of an event that decide on its deletion.
#[derive(Debug, FromQueryResult)]
struct Old {
    position: i64,
    id: String,
    psp_id: String,
    created_at: i64,
}

struct Page {
    old: Vec<Old>,
    /// Position of the last event of the page.
    last: i64,
}

/// Returns the old events after a position; `None` once all events are younger.
async fn page(database: &Database, after: i64, before: Timestamp) -> Result<Option<Page>, DbErr> {
    let rows = events::Entity::find()
        .select_only()
        .columns([events::Column::Position, events::Column::Id, events::Column::PspId, events::Column::CreatedAt])
        .filter(events::Column::Position.gt(after))
        .order_by_asc(events::Column::Position)
        .limit(BATCH_EVENTS)
        .into_model::<Old>()
        .all(database.reader())
        .await?;
    let Some(last) = rows.last().map(|row| row.position) else { return Ok(None) };
    let old: Vec<_> = rows.into_iter().filter(|row| row.created_at < before.as_millis()).collect();
    // Events come in the order of their commits, which differs from the order of their times only by moments.
    Ok((!old.is_empty()).then_some(Page { old, last }))
}

/// Deletes the delivered events among these in one transaction and records how far each PSP's feed is truncated.
async fn forget(database: &Database, old: Vec<Old>, now: Timestamp) -> Result<Pruned, DbErr> {
    let transaction = database.begin().await?;
    let ids = old.iter().map(|event| event.id.as_str());
    // Locked until the end: a concurrent redelivery either commits first or finds no row.
    let made = deliveries::Entity::find()
        .filter(deliveries::Column::EventId.is_in(ids))
        .lock_exclusive()
        .all(&transaction)
        .await?;
    let open: HashSet<String> = made
        .iter()
        .filter(|one| !matches!(one.status, DeliveryStatus::Delivered | DeliveryStatus::Cancelled))
        .map(|one| one.event_id.clone())
        .collect();
    let gone: Vec<&Old> = old.iter().filter(|event| !open.contains(&event.id)).collect();
    if gone.is_empty() {
        transaction.rollback().await?;
        return Ok(Pruned::default());
    }
    let delivered: Vec<&str> =
        made.iter().filter(|one| !open.contains(&one.event_id)).map(|one| one.id.as_str()).collect();
    let attempts = delivery_attempts::Entity::delete_many()
        .filter(delivery_attempts::Column::DeliveryId.is_in(delivered.iter().copied()))
        .exec(&transaction)
        .await?
        .rows_affected;
    let deliveries = deliveries::Entity::delete_many()
        .filter(deliveries::Column::Id.is_in(delivered))
        .exec(&transaction)
        .await?
        .rows_affected;
    let events = events::Entity::delete_many()
        .filter(events::Column::Position.is_in(gone.iter().map(|event| event.position)))
        .exec(&transaction)
        .await?
        .rows_affected;
    // The last event of each PSP, because they are sorted by position.
    let floors: BTreeMap<&str, &Old> = gone.iter().map(|event| (event.psp_id.as_str(), *event)).collect();
    let floors = floors.into_values().map(|event| {
        let row = event_floors::Model {
            psp_id: event.psp_id.clone(),
            position: event.position,
            event_id: event.id.clone(),
            created_at: event.created_at,
            updated_at: now.as_millis(),
        };
        row.into_active_model()
    });
    let newer = OnConflict::column(event_floors::Column::PspId)
        .update_columns([
            event_floors::Column::Position,
            event_floors::Column::EventId,
            event_floors::Column::CreatedAt,
            event_floors::Column::UpdatedAt,
        ])
        .action_and_where(events_floor_is_lower())
        .to_owned();
    event_floors::Entity::insert_many(floors).on_conflict(newer).exec_without_returning(&transaction).await?;
    transaction.commit().await?;
    Ok(Pruned { events, deliveries, attempts })
}

/// A floor only rises: an event that was skipped because it was undelivered may be deleted later.
fn events_floor_is_lower() -> sea_orm::sea_query::SimpleExpr {
    sea_orm::sea_query::Expr::cust("event_floors.position < excluded.position")
}

#[cfg(test)]
mod tests {
    use payferry_harness::PATIENCE;
    use tokio_util::task::AbortOnDropHandle;

    use super::*;
    use crate::writer::tests::Env;

    const PACE: Pace = Pace { first: Duration::from_millis(10), every: Duration::from_millis(20) };

    impl Env {
        /// Inserts an event of this age that has no delivery.
        async fn event(&self, position: i64, days: i64) {
            let row = events::Model {
                position,
                id: format!("evt_{position}"),
                psp_id: "psp_1".to_owned(),
                payment_id: "pay_1".to_owned(),
                sequence: position,
                name: "payment.settled".to_owned(),
                payload: "{}".to_owned(),
                traceparent: None,
                created_at: Clock::default().real_now::<Timestamp>().plus_secs(-days * DAY_SECS).as_millis(),
            };
            let insert = events::Entity::insert(row.into_active_model());
            insert.exec_without_returning(self.database.writer()).await.unwrap();
        }

        async fn kept(&self) -> Vec<i64> {
            let rows = events::Entity::find().order_by_asc(events::Column::Position).all(self.database.reader());
            rows.await.unwrap().into_iter().map(|event| event.position).collect()
        }

        async fn until_kept(&self, positions: &[i64]) {
            let seen = async {
                while self.kept().await != positions {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(PATIENCE, seen).await.unwrap();
        }
    }

    async fn looks(database: Database, events_days: Option<i64>) {
        prune_on(database, Clock::default(), Retention { events_days }, PACE).await;
    }

    #[tokio::test]
    async fn each_run_deletes_events_older_than_the_configured_days() {
        let env = Env::new().await;
        env.event(1, 61).await;
        env.event(2, 59).await;
        let _pruning = AbortOnDropHandle::new(tokio::spawn(looks(env.database.clone(), Some(60))));
        env.until_kept(&[2]).await;
        env.event(3, 61).await;
        env.event(4, 59).await;
        env.until_kept(&[2, 4]).await;
    }

    #[tokio::test]
    async fn without_configured_days_events_are_kept_forever() {
        let env = Env::new().await;
        env.event(1, 4_000).await;
        // About ten runs.
        let looking = tokio::time::timeout(PACE.every * 10, looks(env.database.clone(), None));
        assert!(looking.await.is_err(), "it never ends");
        assert_eq!(env.kept().await, [1]);
    }
}
