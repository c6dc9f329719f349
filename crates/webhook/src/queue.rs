//! Delivery queue: the queries with which the sender reads the database, one page at a time.
//!
//! The only write here cancels the deliveries of a deleted endpoint. The commit of an event queues its rows, and recorded
//! outcomes move them.

use std::sync::LazyLock;

use payferry_domain::{EndpointId, PspId, Timestamp};
use payferry_entities::DeliveryStatus::{Cancelled, Failed, Queued};
use payferry_entities::EndpointStatus::{Deleted, Enabled};
use payferry_entities::webhook_endpoints::LANE;
use payferry_entities::{Database, DeliveryStatus, find_all, query_all};
use sea_orm::{DbErr, FromQueryResult, Value};

/// Rows per page.
pub(super) const PAGE: usize = 256;
/// Rows counted per PSP; larger counts are reported as this number.
pub(super) const COUNTED_MAX: i64 = 10_000;

/// A delivery that waits for an attempt. Its body is read when the attempt begins, or together with it if that is now.
#[derive(Debug, Clone, PartialEq, Eq, FromQueryResult)]
pub(super) struct Waiting {
    pub(super) id: String,
    pub(super) payment_id: String,
    pub(super) position: i64,
}

/// A delivery whose attempt begins now.
#[derive(Debug, Clone, FromQueryResult)]
pub(super) struct Due {
    pub(super) id: String,
    pub(super) event_id: String,
    pub(super) status: DeliveryStatus,
    pub(super) attempt_count: i64,
    pub(super) retries_left: i64,
    pub(super) payload: String,
    /// When the event was committed, milliseconds since the epoch.
    pub(super) created_at: i64,
    /// Trace of the subject.
    pub(super) traceparent: Option<String>,
}

/// PSPs with deliveries that are neither delivered nor exhausted.
///
/// The query tests each PSP, so two index probes per PSP suffice regardless of its number of rows.
pub(super) static PSPS_WITH_OPEN: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT p.id FROM psps p \
         WHERE EXISTS (SELECT 1 FROM deliveries d WHERE d.psp_id = p.id AND d.status = '{Queued}') \
         OR EXISTS (SELECT 1 FROM deliveries d WHERE d.psp_id = p.id AND d.status = '{Failed}')"
    )
});

// The states are literals because a partial index serves only queries that contain its condition.
pub(super) static FIRST_ATTEMPTS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT d.id, d.payment_id, d.position, \
         d.event_id, d.status, d.attempt_count, d.retries_left, e.payload, d.created_at, e.traceparent \
         FROM deliveries d JOIN events e ON e.id = d.event_id \
         WHERE COALESCE(d.endpoint_id, d.psp_id) = $1 AND d.status = '{Queued}' AND d.position > $2 ORDER BY d.position LIMIT $3"
    )
});
pub(super) static RETRIES_DUE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT id, payment_id, position FROM deliveries \
         WHERE COALESCE(endpoint_id, psp_id) = $1 AND status = '{Failed}' AND next_attempt_at <= $2 \
         ORDER BY next_attempt_at LIMIT $3"
    )
});
pub(super) static NEXT_RETRY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT MIN(next_attempt_at) FROM deliveries \
         WHERE COALESCE(endpoint_id, psp_id) = $1 AND status = '{Failed}' AND next_attempt_at > $2"
    )
});
const DUE: &str = "SELECT d.id, d.event_id, d.status, d.attempt_count, d.retries_left, e.payload, d.created_at, \
    e.traceparent FROM deliveries d JOIN events e ON e.id = d.event_id WHERE d.id IN";
/// One bounded index range per enabled endpoint and figure.
pub(super) fn backlog_sql() -> String {
    format!(
        "SELECT \
    CAST(COALESCE(SUM(w.queued), 0) AS BIGINT) AS queued, CAST(COALESCE(SUM(w.failed), 0) AS BIGINT) AS failed, \
    MIN(w.queued_at) AS queued_at, MIN(w.failed_at) AS failed_at FROM (SELECT \
    (SELECT COUNT(*) FROM (SELECT 1 FROM deliveries d WHERE COALESCE(d.endpoint_id, d.psp_id) = e.lane \
        AND d.status = '{Queued}' LIMIT $1) q) AS queued, \
    (SELECT COUNT(*) FROM (SELECT 1 FROM deliveries d WHERE COALESCE(d.endpoint_id, d.psp_id) = e.lane \
        AND d.status = '{Failed}' LIMIT $1) f) AS failed, \
    (SELECT MIN(q.next_attempt_at) FROM (SELECT d.next_attempt_at FROM deliveries d \
        WHERE COALESCE(d.endpoint_id, d.psp_id) = e.lane AND d.status = '{Queued}' ORDER BY d.position LIMIT $1) q) \
        AS queued_at, \
    (SELECT MIN(d.next_attempt_at) FROM deliveries d WHERE COALESCE(d.endpoint_id, d.psp_id) = e.lane \
        AND d.status = '{Failed}') AS failed_at \
    FROM (SELECT {LANE} AS lane FROM webhook_endpoints WHERE status = '{Enabled}') e) w"
    )
}
/// Deliveries that are cancelled together, so that payments do not wait long for the writer.
const CANCELLED_TOGETHER: i64 = 500;

/// Cancels some of the open deliveries to an endpoint that was deleted at this time. Returns `true` if there may be more.
/// If the PSP has no endpoint left, its later events wait for the first one.
pub(super) async fn cancel(
    database: &Database,
    id: EndpointId,
    lane: &str,
    deleted_at: i64,
    now: Timestamp,
) -> Result<bool, DbErr> {
    for status in [Queued, Failed] {
        let open = format!(
            "SELECT d.id FROM deliveries d WHERE COALESCE(d.endpoint_id, d.psp_id) = $1 AND d.status = '{status}' \
             AND (d.endpoint_id IS NOT NULL OR d.created_at <= $2 OR EXISTS (SELECT 1 FROM webhook_endpoints e \
             WHERE e.psp_id = d.psp_id AND e.status <> '{Deleted}')) LIMIT {CANCELLED_TOGETHER}"
        );
        if query_all(database.reader(), &open, [lane.into(), deleted_at.into()]).await?.is_empty() {
            continue;
        }
        // The first endpoint may have been set again.
        let cancel = format!(
            "UPDATE deliveries SET status = '{Cancelled}', next_attempt_at = NULL, updated_at = $3 WHERE id IN ({open}) \
             AND EXISTS (SELECT 1 FROM webhook_endpoints WHERE id = $4 AND status = '{Deleted}') RETURNING id"
        );
        let values = [lane.into(), deleted_at.into(), now.as_millis().into(), id.to_string().into()];
        return Ok(!query_all(database.writer(), &cancel, values).await?.is_empty());
    }
    Ok(false)
}

/// PSPs with deliveries that are neither delivered nor exhausted.
pub(super) async fn psps_with_open(database: &Database) -> Result<Vec<PspId>, DbErr> {
    let rows = query_all(database.reader(), &PSPS_WITH_OPEN, []).await?;
    rows.iter()
        .map(|row| row.try_get_by_index::<String>(0)?.parse().map_err(|_| DbErr::Type("a PSP's id".to_owned())))
        .collect()
}

/// Returns a page of queued deliveries after a position, in feed order, together with their current rows because most
/// are sent immediately.
pub(super) async fn first_attempts(database: &Database, lane: &str, after: i64) -> Result<Vec<(Waiting, Due)>, DbErr> {
    let limit = i64::try_from(PAGE).unwrap_or(i64::MAX);
    let values = [lane.into(), after.into(), limit.into()];
    let rows = query_all(database.reader(), &FIRST_ATTEMPTS, values).await?;
    rows.iter().map(|row| Ok((Waiting::from_query_result(row, "")?, Due::from_query_result(row, "")?))).collect()
}

/// Returns deliveries whose retry is due, the longest due first: one page plus `under_way` rows, because rows with an
/// attempt in progress still count as due.
pub(super) async fn retries_due(
    database: &Database,
    lane: &str,
    now: i64,
    under_way: usize,
) -> Result<Vec<Waiting>, DbErr> {
    let limit = i64::try_from(PAGE + under_way).unwrap_or(i64::MAX);
    let values = [lane.into(), now.into(), limit.into()];
    find_all(database.reader(), &RETRIES_DUE, values).await
}

/// Returns the time of the next retry after `now`, milliseconds since the epoch.
pub(super) async fn next_retry_after(database: &Database, lane: &str, now: i64) -> Result<Option<i64>, DbErr> {
    let values = [lane.into(), now.into()];
    let rows = query_all(database.reader(), &NEXT_RETRY, values).await?;
    rows.first().map_or(Ok(None), |row| row.try_get_by_index(0))
}

/// Returns the current rows of deliveries, with their bodies.
pub(super) async fn due(database: &Database, delivery_ids: &[String]) -> Result<Vec<Due>, DbErr> {
    let Some(last) = delivery_ids.last() else { return Ok(Vec::new()) };
    // Few distinct lengths, so that the statements stay prepared.
    let places = delivery_ids.len().next_power_of_two();
    let values = delivery_ids.iter().chain(std::iter::repeat(last)).take(places).map(Value::from);
    find_all(database.reader(), &due_sql(places), values).await
}

pub(super) fn due_sql(places: usize) -> String {
    let places: Vec<String> = (1..=places).map(|place| format!("${place}")).collect();
    format!("{DUE} ({})", places.join(", "))
}

/// Waiting deliveries of enabled endpoints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromQueryResult)]
pub(super) struct Backlog {
    /// Not attempted since they were queued.
    pub(super) queued: i64,
    /// Waiting for a retry.
    pub(super) failed: i64,
    /// Earliest due time of the queued deliveries, milliseconds since the epoch.
    pub(super) queued_at: Option<i64>,
    /// Earliest due time of the failed deliveries.
    pub(super) failed_at: Option<i64>,
}

impl Backlog {
    /// Due time of the delivery that has been due for longest, milliseconds since the epoch.
    pub(super) fn due_first_at(&self) -> Option<i64> {
        self.queued_at.into_iter().chain(self.failed_at).min()
    }
}

/// Counts all waiting deliveries; at most [`COUNTED_MAX`] per endpoint and kind.
pub(super) async fn backlog(database: &Database) -> Result<Backlog, DbErr> {
    Ok(find_all(database.reader(), &backlog_sql(), [COUNTED_MAX.into()]).await?.pop().unwrap_or_default())
}
