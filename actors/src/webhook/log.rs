//! Reads the delivery log, and queues deliveries again.

use std::collections::{BTreeMap, HashMap};

use payferry_domain::payment::EventPattern;
use payferry_domain::{PspId, Timestamp};
use payferry_entities::{Database, deliveries, delivery_attempts, events};
use sea_orm::sea_query::{Expr, ExprTrait as _};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbErr, EntityTrait, FromQueryResult, PaginatorTrait, QueryFilter, QueryOrder,
    QuerySelect, Statement,
};

use crate::journal::DELIVERY_RETRIES_MAX;

/// Entries of one payment that are listed; a payment announces a handful.
pub const ENTRIES_MAX: u64 = 1_000;

/// A delivery with what was delivered and each attempt.
#[derive(Debug, Clone)]
pub struct LogEntry {
    /// The delivery.
    pub delivery: deliveries::Model,
    /// The event.
    pub event: events::Model,
    /// The attempts, oldest first.
    pub attempts: Vec<delivery_attempts::Model>,
}

/// A delivery that is to be attempted.
#[derive(Debug, Clone, FromQueryResult)]
pub(super) struct Due {
    pub(super) id: String,
    pub(super) event_id: String,
    pub(super) payment_id: String,
    pub(super) position: i64,
    pub(super) attempt_count: i64,
    pub(super) retries_left: i64,
    /// Not tried since it was queued (again): its failure takes no retry.
    pub(super) is_fresh: bool,
    pub(super) payload: String,
}

const DUE_COLUMNS: &str = "d.id, d.event_id, d.payment_id, d.position, d.attempt_count, d.retries_left, \
    d.status = 'queued' AS is_fresh, e.payload FROM deliveries d JOIN events e ON e.id = d.event_id";

/// PSPs with deliveries that are neither delivered nor exhausted.
pub(super) async fn psps_with_open(database: &Database) -> Result<Vec<PspId>, DbErr> {
    let sql = "SELECT DISTINCT psp_id FROM deliveries WHERE status IN ('queued', 'failed')";
    let rows = database.reader().query_all_raw(Statement::from_string(database.backend(), sql)).await?;
    rows.iter()
        .map(|row| row.try_get_by_index::<String>(0)?.parse().map_err(|_| DbErr::Type("a PSP's id".to_owned())))
        .collect()
}

/// Queued deliveries that were never attempted, in the order of the feed.
pub(super) async fn fresh_after(database: &Database, psp: PspId, after: i64, limit: u64) -> Result<Vec<Due>, DbErr> {
    let sql = format!(
        "SELECT {DUE_COLUMNS} WHERE d.psp_id = $1 AND d.status = 'queued' AND d.attempt_count = 0 AND d.position > $2 \
         ORDER BY d.position LIMIT $3"
    );
    due(database, &sql, [psp.to_string().into(), after.into(), limit.cast_signed().into()]).await
}

/// Deliveries to be attempted again that are due, and such as were queued again, the longest due first.
pub(super) async fn retries_due(database: &Database, psp: PspId, now: i64, limit: u64) -> Result<Vec<Due>, DbErr> {
    let sql = format!(
        "SELECT {DUE_COLUMNS} WHERE d.psp_id = $1 AND d.status IN ('queued', 'failed') AND d.attempt_count > 0 \
         AND d.next_attempt_at <= $2 ORDER BY d.next_attempt_at LIMIT $3"
    );
    due(database, &sql, [psp.to_string().into(), now.into(), limit.cast_signed().into()]).await
}

async fn due(database: &Database, sql: &str, values: [sea_orm::Value; 3]) -> Result<Vec<Due>, DbErr> {
    let statement = Statement::from_sql_and_values(database.backend(), sql, values);
    Due::find_by_statement(statement).all(database.reader()).await
}

/// When the next retry after `now` is due, milliseconds since the epoch.
pub(super) async fn next_retry_after(database: &Database, psp: PspId, now: i64) -> Result<Option<i64>, DbErr> {
    let sql = "SELECT MIN(next_attempt_at) FROM deliveries WHERE psp_id = $1 AND status IN ('queued', 'failed') \
               AND attempt_count > 0 AND next_attempt_at > $2";
    let values = [psp.to_string().into(), now.into()];
    let row = database.reader().query_one_raw(Statement::from_sql_and_values(database.backend(), sql, values)).await?;
    row.map_or(Ok(None), |row| row.try_get_by_index(0))
}

/// The deliveries of a payment (or of whatever else events are about), in order of sequence.
pub async fn deliveries_of(database: &Database, psp: PspId, payment_id: &str) -> Result<Vec<LogEntry>, DbErr> {
    let rows = deliveries::Entity::find()
        .filter(deliveries::Column::PaymentId.eq(payment_id))
        .filter(deliveries::Column::PspId.eq(psp.to_string()))
        .order_by_asc(deliveries::Column::Sequence)
        .limit(ENTRIES_MAX)
        .all(database.reader())
        .await?;
    complete(database, rows).await
}

/// Deliveries that were not delivered, oldest first, and how many there are in all.
pub async fn undelivered(
    database: &Database,
    psp: PspId,
    limit: u64,
    offset: u64,
) -> Result<(u64, Vec<LogEntry>), DbErr> {
    let stuck = deliveries::Entity::find()
        .filter(deliveries::Column::PspId.eq(psp.to_string()))
        .filter(deliveries::Column::Status.ne("delivered"));
    let total = stuck.clone().count(database.reader()).await?;
    let page = stuck.order_by_asc(deliveries::Column::Position).limit(limit).offset(offset);
    let rows = page.all(database.reader()).await?;
    Ok((total, complete(database, rows).await?))
}

/// One delivery.
pub async fn delivery(database: &Database, psp: PspId, delivery_id: &str) -> Result<Option<LogEntry>, DbErr> {
    let row = deliveries::Entity::find_by_id(delivery_id)
        .filter(deliveries::Column::PspId.eq(psp.to_string()))
        .all(database.reader())
        .await?;
    Ok(complete(database, row).await?.pop())
}

async fn complete(database: &Database, rows: Vec<deliveries::Model>) -> Result<Vec<LogEntry>, DbErr> {
    let event_ids = rows.iter().map(|row| row.event_id.as_str());
    let found = events::Entity::find().filter(events::Column::Id.is_in(event_ids)).all(database.reader()).await?;
    let mut by_id: HashMap<String, events::Model> = found.into_iter().map(|event| (event.id.clone(), event)).collect();
    let delivery_ids = rows.iter().map(|row| row.id.as_str());
    let made = delivery_attempts::Entity::find()
        .filter(delivery_attempts::Column::DeliveryId.is_in(delivery_ids))
        .order_by_asc(delivery_attempts::Column::Number)
        .all(database.reader())
        .await?;
    let mut attempts: BTreeMap<String, Vec<delivery_attempts::Model>> = BTreeMap::new();
    for attempt in made {
        attempts.entry(attempt.delivery_id.clone()).or_default().push(attempt);
    }
    let entry = |delivery: deliveries::Model| {
        let event = by_id.remove(&delivery.event_id)?;
        let attempts = attempts.remove(&delivery.id).unwrap_or_default();
        Some(LogEntry { delivery, event, attempts })
    };
    Ok(rows.into_iter().filter_map(entry).collect())
}

/// Queues a delivery again with all its retries, whatever became of it. Answers whether there is such a delivery.
/// The sender is to be told (`refresh`) after the commit.
pub async fn redeliver(
    connection: &impl ConnectionTrait,
    psp: PspId,
    delivery_id: &str,
    now: Timestamp,
) -> Result<bool, DbErr> {
    let mine = deliveries::Column::PspId.eq(psp.to_string()).and(deliveries::Column::Id.eq(delivery_id));
    Ok(queue_again(connection, mine, now).await? > 0)
}

/// Queues deliveries of events made from `from` up to but not including `to` again, whatever became of them. Answers how
/// many.
pub async fn redeliver_range(
    connection: &impl ConnectionTrait,
    psp: PspId,
    from: Timestamp,
    to: Timestamp,
    patterns: &[EventPattern],
    now: Timestamp,
) -> Result<u64, DbErr> {
    use payferry_domain::payment::EventName;
    let wanted = |name: &&EventName| patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(**name));
    let names: Vec<&str> = EventName::ALL.iter().filter(wanted).map(|name| name.as_str()).collect();
    let chosen = events::Entity::find()
        .select_only()
        .column(events::Column::Id)
        .filter(events::Column::PspId.eq(psp.to_string()))
        .filter(events::Column::CreatedAt.gte(from.as_millis()))
        .filter(events::Column::CreatedAt.lt(to.as_millis()))
        .filter(events::Column::Name.is_in(names));
    let mine = deliveries::Column::PspId
        .eq(psp.to_string())
        .and(deliveries::Column::EventId.in_subquery(sea_orm::QuerySelect::query(&mut chosen.clone()).to_owned()));
    queue_again(connection, mine, now).await
}

async fn queue_again(
    connection: &impl ConnectionTrait,
    which: sea_orm::sea_query::SimpleExpr,
    now: Timestamp,
) -> Result<u64, DbErr> {
    let updated = deliveries::Entity::update_many()
        .col_expr(deliveries::Column::Status, Expr::value("queued"))
        .col_expr(deliveries::Column::RetriesLeft, Expr::value(DELIVERY_RETRIES_MAX))
        .col_expr(deliveries::Column::NextAttemptAt, Expr::value(now.as_millis()))
        .col_expr(deliveries::Column::UpdatedAt, Expr::value(now.as_millis()))
        .filter(which)
        .exec(connection)
        .await?;
    Ok(updated.rows_affected)
}
