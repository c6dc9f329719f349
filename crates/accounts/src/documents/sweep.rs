//! Deletes objects without a row, which an upload left behind when it was interrupted between the object and its row.

use std::collections::HashSet;
use std::time::Duration;

use chrono::Utc;
use futures::TryStreamExt;
use payferry_entities::{Database, customer_documents};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect};

use super::{DocumentError, DocumentLocation, DocumentStore};

/// Minimum age of an object to delete. It is far longer than an upload can take.
pub const ORPHAN_AGE: Duration = Duration::from_hours(24);
/// Interval of sweeps.
const SWEEP_EVERY: Duration = Duration::from_hours(1);
/// Objects checked with one query.
const STEP: usize = 200;

/// Sweeps every hour while this future is polled.
pub async fn sweep_on(documents: DocumentStore, database: Database) {
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + SWEEP_EVERY, SWEEP_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match sweep(&documents, &database, ORPHAN_AGE).await {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "removed {removed} documents without a row"),
            Err(error) => tracing::warn!(%error, "documents without a row could not be removed: {error:#}"),
        }
    }
}

/// Deletes objects older than `age` without a row, and returns how many. It keeps objects that the service's keys
/// cannot decrypt, since a bucket may be shared by mistake.
pub async fn sweep(documents: &DocumentStore, database: &Database, age: Duration) -> anyhow::Result<u64> {
    let born_before = Utc::now() - chrono::Duration::from_std(age)?;
    let mut removed = 0;
    let mut objects = documents.list().try_ready_chunks(STEP);
    loop {
        let chunk = match objects.try_next().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return Ok(removed),
            Err(error) => return Err(error.1.into()),
        };
        let old = chunk.iter().filter(|object| object.last_modified <= born_before);
        let places: Vec<_> = old.filter_map(|object| DocumentLocation::of_path(object.location.as_ref())).collect();
        for orphan in unnamed(database, places).await? {
            match documents.get(orphan).await {
                Ok(_) => {
                    documents.delete(orphan).await?;
                    removed += 1;
                }
                Err(DocumentError::Missing(_)) => {}
                Err(error) => tracing::warn!(%error, "an object without a row was kept: {error}"),
            }
        }
    }
}

/// Returns the objects without a row.
async fn unnamed(database: &Database, places: Vec<DocumentLocation>) -> Result<Vec<DocumentLocation>, sea_orm::DbErr> {
    if places.is_empty() {
        return Ok(places);
    }
    let named: HashSet<String> = customer_documents::Entity::find()
        .select_only()
        .column(customer_documents::Column::Path)
        .filter(customer_documents::Column::Id.is_in(places.iter().map(|place| place.document_id.to_string())))
        .into_tuple()
        .all(database.reader())
        .await?
        .into_iter()
        .collect();
    Ok(places.into_iter().filter(|place| !named.contains(&place.to_string())).collect())
}
