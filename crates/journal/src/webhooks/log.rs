//! Delivery log: reads it and queues deliveries again.

use std::collections::{BTreeMap, HashMap};

use payferry_domain::payment::{EventName, EventPattern};
use payferry_domain::{EndpointId, PspId, Timestamp};
use payferry_entities::webhook_endpoints::LANE;
use payferry_entities::{Database, DeliveryStatus, EndpointStatus, deliveries, delivery_attempts, events, query_all};
use sea_orm::sea_query::{Expr, ExprTrait as _, SimpleExpr};
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DbErr, EntityTrait, PaginatorTrait, QueryFilter, QueryOrder, QueryResult,
    QuerySelect,
};

use crate::writer::DELIVERY_RETRIES_MAX;

/// Entries of one payment on the operator's page; a payment announces only a few events.
pub const ENTRIES_MAX: u64 = 1_000;
/// Listed attempts of one delivery, the latest ones. Four are normal; redelivery and probes of an open breaker add
/// more.
pub const ATTEMPTS_LISTED_MAX: i64 = 50;
/// Deliveries that one call queues again at most. Payments wait for the writer meanwhile.
pub const REDELIVERED_MAX: usize = 5_000;
/// Deliveries that one statement queues again.
const REDELIVERED_TOGETHER: usize = 500;

/// A delivery with its event and attempts.
#[derive(Debug, Clone)]
pub struct LogEntry {
    /// The delivery.
    pub delivery: deliveries::Model,
    /// The event.
    pub event: events::Model,
    /// Attempts, oldest first; only the last [`ATTEMPTS_LISTED_MAX`].
    pub attempts: Vec<delivery_attempts::Model>,
}

/// Part of a list.
#[derive(Debug, Clone)]
pub struct Slice {
    /// Key of the entry after which it begins.
    pub after: Option<EntryKey>,
    /// Maximum number of entries.
    pub limit: u64,
    /// Entries to skip.
    pub offset: u64,
}

impl Slice {
    /// The whole list of one payment.
    pub const ALL_OF_A_PAYMENT: Self = Self { after: None, limit: ENTRIES_MAX, offset: 0 };
}

/// Key of an entry in a list: the position of the event in the feed, and the id of the delivery.
pub type EntryKey = (i64, String);

impl LogEntry {
    /// Its key.
    pub fn key(&self) -> EntryKey {
        (self.delivery.position, self.delivery.id.clone())
    }
}

/// Returns the deliveries of a payment (or of another subject of events) in the order of the events, and their total
/// number.
pub async fn deliveries_of(
    database: &Database,
    psp: PspId,
    payment_id: &str,
    slice: Slice,
) -> Result<(u64, Vec<LogEntry>), DbErr> {
    list(database, psp, deliveries::Column::PaymentId.eq(payment_id), slice).await
}

/// Returns the deliveries that are not delivered, oldest first, and their total number.
pub async fn undelivered(database: &Database, psp: PspId, slice: Slice) -> Result<(u64, Vec<LogEntry>), DbErr> {
    use DeliveryStatus::{Exhausted, Failed, Queued};
    list(database, psp, deliveries::Column::Status.is_in([Queued, Failed, Exhausted]), slice).await
}

async fn list(
    database: &Database,
    psp: PspId,
    which: SimpleExpr,
    Slice { after, limit, offset }: Slice,
) -> Result<(u64, Vec<LogEntry>), DbErr> {
    let (position, id) = (deliveries::Column::Position, deliveries::Column::Id);
    let wanted = deliveries::Entity::find().filter(deliveries::Column::PspId.eq(psp.to_string())).filter(which);
    let total = wanted.clone().count(database.reader()).await?;
    let columns = Expr::tuple([Expr::col(position), Expr::col(id)]);
    let after = after.map(|(at, id)| columns.gt(Expr::tuple([Expr::value(at), Expr::value(id)])));
    let page = wanted.filter(Condition::all().add_option(after)).order_by_asc(position).order_by_asc(id);
    let rows = page.limit(limit).offset(offset).all(database.reader()).await?;
    Ok((total, complete(database, rows).await?))
}

/// Returns one delivery.
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
    let by_id: HashMap<String, events::Model> = found.into_iter().map(|event| (event.id.clone(), event)).collect();
    let latest = Expr::cust(format!(
        "number > (SELECT d.attempt_count - {ATTEMPTS_LISTED_MAX} FROM deliveries d \
         WHERE d.id = delivery_attempts.delivery_id)"
    ));
    let delivery_ids = rows.iter().map(|row| row.id.as_str());
    let made = delivery_attempts::Entity::find()
        .filter(delivery_attempts::Column::DeliveryId.is_in(delivery_ids).and(latest))
        .order_by_asc(delivery_attempts::Column::Number)
        .all(database.reader())
        .await?;
    let mut attempts: BTreeMap<String, Vec<delivery_attempts::Model>> = BTreeMap::new();
    for attempt in made {
        attempts.entry(attempt.delivery_id.clone()).or_default().push(attempt);
    }
    let entry = |delivery: deliveries::Model| {
        let event = by_id.get(&delivery.event_id)?.clone();
        let attempts = attempts.remove(&delivery.id).unwrap_or_default();
        Some(LogEntry { delivery, event, attempts })
    };
    Ok(rows.into_iter().filter_map(entry).collect())
}

/// Queues a delivery again with all its retries, regardless of its state. Returns whether the delivery and its endpoint
/// exist. The caller must notify the sender (`refresh`) after the commit.
pub async fn redeliver(
    connection: &impl ConnectionTrait,
    psp: PspId,
    delivery_id: &str,
    now: Timestamp,
) -> Result<bool, DbErr> {
    Ok(queue_again(connection, psp, deliveries::Column::Id.eq(delivery_id), now).await? > 0)
}

/// Deliveries chosen for a bulk redelivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// Oldest events first; at most [`REDELIVERED_MAX`], unless one millisecond contains more.
    pub delivery_ids: Vec<String>,
    /// Start of the next choice, if there are more.
    pub continue_from: Option<Timestamp>,
}

/// Chooses the deliveries of events created in `from..to`, to this endpoint or to all, regardless of their state. No
/// patterns means all events.
/// Uses a reader only, because the search may be long.
pub async fn choose(
    database: &Database,
    psp: PspId,
    from: Timestamp,
    to: Timestamp,
    patterns: &[EventPattern],
    endpoint: Option<EndpointId>,
) -> Result<Chosen, DbErr> {
    let lane = endpoint.map(|id| id.lane(psp));
    let to_endpoint = lane.map(|lane| format!("AND COALESCE(d.endpoint_id, d.psp_id) = '{lane}' ")).unwrap_or_default();
    let wanted = |name: &&EventName| patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(**name));
    // The names are a closed list and contain no quotes.
    let names: Vec<String> = EventName::ALL.iter().filter(wanted).map(|name| format!("'{name}'")).collect();
    let between = async |from: i64, to: i64, max: String| {
        let sql = format!(
            "SELECT d.id, e.created_at FROM events e JOIN deliveries d ON d.event_id = e.id \
             WHERE e.psp_id = $1 AND e.created_at >= $2 AND e.created_at < $3 AND e.name IN ({}) \
             {to_endpoint}ORDER BY e.created_at, e.position {max}",
            names.join(", ")
        );
        let values = [psp.to_string().into(), from.into(), to.into()];
        let rows = query_all(database.reader(), &sql, values).await?;
        rows.iter().map(QueryResult::try_get_many_by_index).collect::<Result<Vec<(String, i64)>, _>>()
    };
    let mut found = between(from.as_millis(), to.as_millis(), format!("LIMIT {}", REDELIVERED_MAX + 1)).await?;
    let mut continue_from = None;
    if let Some(&(_, next)) = found.get(REDELIVERED_MAX) {
        // Either all rows of a millisecond are chosen or none: the next choice starts at a millisecond and must
        // advance.
        found.retain(|(_, at)| *at < next);
        continue_from = Some(next);
        if found.is_empty() {
            found = between(next, next + 1, String::new()).await?;
            continue_from = Some(next + 1);
        }
    }
    let delivery_ids = found.into_iter().map(|(id, _)| id).collect();
    Ok(Chosen { delivery_ids, continue_from: continue_from.map(Timestamp) })
}

/// Like [`redeliver`] for many deliveries. Returns how many exist.
pub async fn redeliver_all(
    connection: &impl ConnectionTrait,
    psp: PspId,
    delivery_ids: &[String],
    now: Timestamp,
) -> Result<u64, DbErr> {
    let mut count = 0;
    for together in delivery_ids.chunks(REDELIVERED_TOGETHER) {
        count += queue_again(connection, psp, deliveries::Column::Id.is_in(together), now).await?;
    }
    Ok(count)
}

/// Not those whose endpoint was deleted. Without any endpoint, the deliveries to the first one wait for it.
async fn queue_again(
    connection: &impl ConnectionTrait,
    psp: PspId,
    which: SimpleExpr,
    now: Timestamp,
) -> Result<u64, DbErr> {
    let own = format!("FROM webhook_endpoints WHERE psp_id = '{psp}' AND status <> '{}'", EndpointStatus::Deleted);
    let has_endpoint = Expr::cust(format!(
        "(COALESCE(endpoint_id, psp_id) IN (SELECT {LANE} {own}) \
         OR (endpoint_id IS NULL AND NOT EXISTS (SELECT 1 {own})))"
    ));
    let updated = deliveries::Entity::update_many()
        .col_expr(deliveries::Column::Status, Expr::value(DeliveryStatus::Queued))
        .col_expr(deliveries::Column::RetriesLeft, Expr::value(DELIVERY_RETRIES_MAX))
        .col_expr(deliveries::Column::NextAttemptAt, Expr::value(now.as_millis()))
        .col_expr(deliveries::Column::UpdatedAt, Expr::value(now.as_millis()))
        .filter(deliveries::Column::PspId.eq(psp.to_string()))
        .filter(which)
        .filter(has_endpoint)
        .exec(connection)
        .await?;
    Ok(updated.rows_affected)
}
