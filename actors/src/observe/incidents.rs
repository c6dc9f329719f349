//! The supervision log in the database: it survives restarts, and other nodes can read it.
//!
//! An incident is stored soon after it happens, not before: a failure of the database must not stop a restart.

use std::time::Duration;

use payferry_domain::Timestamp;
use payferry_entities::incidents::{Column, Entity, Model};
use payferry_entities::{Database, incidents};
use payferry_runtime::clock::from_millis;
use payferry_runtime::observe::{Action, ActorKind, Cause, Incident, LOG_ENTRIES_MAX, SupervisionLog};
use sea_orm::{ActiveValue, ColumnTrait, DbErr, EntityTrait, IntoActiveModel, QueryFilter, QueryOrder, QuerySelect};

use super::TreeMetrics;

/// Incidents are collected for this time before they are stored.
const COLLECTED_FOR: Duration = Duration::from_millis(200);
/// Pause before another attempt after an error of the database.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// Maximum number of stored incidents; the oldest are deleted.
pub const INCIDENTS_STORED_MAX: i64 = 10_000;
/// Number of new incidents after which old ones are deleted.
const DELETED_EVERY: usize = 100;

/// Begins the log with the stored incidents of this node. Returns the number of the last one.
pub(crate) async fn restore(database: &Database, node: &str, log: &SupervisionLog) -> Result<u64, DbErr> {
    let newest = Entity::find()
        .filter(Column::Node.eq(node))
        .order_by_desc(Column::Number)
        .limit(LOG_ENTRIES_MAX as u64)
        .all(database.reader())
        .await?;
    log.restore(newest.into_iter().rev().filter_map(incident));
    Ok(*log.watch().borrow())
}

/// Stored incidents of all nodes, newest first, each with the name of its node.
pub async fn stored(database: &Database, limit: u64) -> Result<Vec<(String, Incident)>, DbErr> {
    let newest = Entity::find().order_by_desc(Column::Number).limit(limit).all(database.reader()).await?;
    Ok(newest.into_iter().filter_map(|row| Some((row.node.clone(), incident(row)?))).collect())
}

/// Stores the incidents after the one with the number `stored`, as they happen.
pub(crate) async fn keep(database: Database, node: String, metrics: TreeMetrics, mut stored: u64) {
    let log = metrics.log();
    let mut newest = log.watch();
    let mut since_deletion = 0;
    while newest.wait_for(|newest| *newest > stored).await.is_ok() {
        tokio::time::sleep(COLLECTED_FOR).await;
        loop {
            let new = log.since(stored);
            let Some(last) = new.last().map(|incident| incident.number) else { break };
            let count = new.len();
            match insert(&database, &node, new).await {
                Ok(()) => {
                    stored = last;
                    since_deletion += count;
                }
                Err(error) => {
                    tracing::warn!(%error, "incidents could not be stored; trying again: {error}");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
        if since_deletion >= DELETED_EVERY && delete_old(&database).await.is_ok() {
            since_deletion = 0;
        }
    }
}

async fn insert(database: &Database, node: &str, new: Vec<Incident>) -> Result<(), DbErr> {
    let row = |incident: Incident| {
        let Incident { at, kind, name, cause, reason, location, action, .. } = incident;
        let reason = match location {
            Some(location) => format!("{reason}{LOCATION_MARK}{location}"),
            None => reason,
        };
        // PostgreSQL stores no NUL in a text.
        let reason = reason.replace('\0', "");
        let model = Model {
            number: 0,
            node: node.to_owned(),
            at: Timestamp::from(at).as_millis(),
            kind: kind.as_str().to_owned(),
            name,
            cause: cause.as_str().to_owned(),
            reason,
            action: action.as_str().to_owned(),
        };
        // The database assigns the number.
        incidents::ActiveModel { number: ActiveValue::NotSet, ..model.into_active_model() }
    };
    Entity::insert_many(new.into_iter().map(row)).exec_without_returning(database.writer()).await?;
    Ok(())
}

/// Text between the reason and the source location of a panic.
const LOCATION_MARK: &str = "\nat ";

async fn delete_old(database: &Database) -> Result<(), DbErr> {
    let newest = Entity::find().order_by_desc(Column::Number).one(database.reader()).await?;
    let Some(newest) = newest else { return Ok(()) };
    let old = Column::Number.lte(newest.number - INCIDENTS_STORED_MAX);
    Entity::delete_many().filter(old).exec(database.writer()).await?;
    Ok(())
}

/// Incident of a row; `None` if a later version wrote it.
fn incident(row: Model) -> Option<Incident> {
    let (reason, location) = match row.reason.rsplit_once(LOCATION_MARK) {
        Some((reason, location)) => (reason.to_owned(), Some(location.to_owned())),
        None => (row.reason, None),
    };
    Some(Incident {
        number: u64::try_from(row.number).unwrap_or_default(),
        at: from_millis(row.at),
        kind: ActorKind::of(&row.kind)?,
        name: row.name,
        cause: Cause::of(&row.cause)?,
        reason,
        location,
        backtrace: None,
        action: Action::of(&row.action)?,
    })
}
