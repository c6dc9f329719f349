//! Removes objects that no row names: left behind by an upload that was cut off between the object and its row.

use std::collections::HashSet;
use std::time::Duration;

use chrono::Utc;
use futures::TryStreamExt;
use payferry_entities::{Database, customer_documents};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect};

use super::{DocumentError, DocumentStore, Place};

/// How old an object without a row has to be: far older than any upload that still runs.
pub const ORPHAN_AGE: Duration = Duration::from_hours(24);
/// How often the service looks.
const SWEEP_EVERY: Duration = Duration::from_hours(1);
/// Objects looked up at once.
const STEP: usize = 200;

/// Sweeps every hour, for as long as this is polled.
pub async fn sweep_on(documents: DocumentStore, database: Database) {
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + SWEEP_EVERY, SWEEP_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match sweep(&documents, &database, ORPHAN_AGE).await {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "removed {removed} documents that no customer has"),
            Err(error) => tracing::warn!(%error, "documents that no customer has could not be removed: {error:#}"),
        }
    }
}

/// Removes objects older than `age` that no row names, and answers how many. What does not open with our keys is not
/// ours to remove: a bucket may be shared by mistake.
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
        let places: Vec<_> = old.filter_map(|object| Place::of_path(object.location.as_ref())).collect();
        for orphan in unnamed(database, places).await? {
            match documents.get(orphan).await {
                Ok(_) => {
                    documents.delete(orphan).await?;
                    removed += 1;
                }
                Err(DocumentError::Missing(_)) => {}
                Err(error) => tracing::warn!(%error, "an object that no customer has is left alone: {error}"),
            }
        }
    }
}

/// Those that no row names.
async fn unnamed(database: &Database, places: Vec<Place>) -> Result<Vec<Place>, sea_orm::DbErr> {
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
