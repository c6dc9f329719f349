//! Webhooks: undelivered events of each PSP with their age, and the state of each endpoint's actor.

pub(crate) mod page;

use std::collections::HashMap;

use payferry_accounts::Moment;
use payferry_actors::System;
use payferry_domain::{PspId, Timestamp};
use payferry_entities::Database;
use payferry_entities::DeliveryStatus::{self, Exhausted, Failed, Queued};
use payferry_entities::EndpointStatus::Deleted;
use payferry_webhook::{BreakerState, EndpointView, NO_URL};
use sea_orm::{DbBackend, DbErr, FromQueryResult, Value};
use serde::Serialize;
use utoipa::ToSchema;

use crate::query::{COUNTED_MAX, Count, rows};

/// Maximum number of PSPs with undelivered events that are read, those with the oldest events first.
pub const ENDPOINTS_MAX: usize = 500;

/// Undelivered events.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct Webhooks {
    /// Total of all PSPs, or of the PSPs that are read if there are more.
    pub backlog: WebhookBacklog,
    /// PSPs with undelivered events and PSPs with a running endpoint, those with problems first. At most
    /// [`ENDPOINTS_MAX`].
    pub endpoints: Vec<EndpointLine>,
    /// True if there are more PSPs than these.
    pub more: bool,
}

/// Undelivered events.
#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
pub struct WebhookBacklog {
    /// Not attempted since they were queued. Only PSPs with a webhook URL.
    pub queued: Count,
    /// Waiting for a retry. Only PSPs with a webhook URL.
    pub retrying: Count,
    /// Waiting for a webhook URL: their PSP has none, and nothing is sent to it.
    pub unaddressed: Count,
    /// Not retried unless a redelivery is requested.
    pub exhausted: Count,
    /// Time since which the oldest queued or retrying event waits.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub waiting_since: Option<Moment>,
    /// Time since which the oldest event without a URL waits.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub unaddressed_since: Option<Moment>,
    /// Time since which the oldest exhausted event is undelivered.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub exhausted_since: Option<Moment>,
}

/// Undelivered events of one PSP.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct EndpointLine {
    pub psp_id: String,
    pub psp_name: String,
    pub backlog: WebhookBacklog,
    /// Reason why nothing is sent, if the receiver is not the cause.
    pub held_by: Option<&'static str>,
    /// True if the endpoint's actor is running.
    pub running: bool,
    /// State of the actor. `None` if it is too busy to answer.
    pub actor: Option<EndpointView>,
}

impl EndpointLine {
    /// Returns true if deliveries are paused because the receiver fails.
    pub fn is_tripped(&self) -> bool {
        self.actor.as_ref().is_some_and(|actor| actor.breaker != BreakerState::Closed)
    }

    fn of(row: Row, actors: &mut Actors) -> Self {
        let shown = actors.remove(&row.id);
        let (running, actor) = (shown.is_some(), shown.flatten());
        // The actor may not know yet that a URL was set.
        let by_actor = actor.as_ref().and_then(|view| view.held_by).filter(|why| *why != NO_URL);
        let held_by = row.held_by().or(by_actor);
        let backlog = row.backlog();
        Self { psp_id: row.id, psp_name: row.name, backlog, held_by, running, actor }
    }

    /// Line of a PSP without undelivered events. Its name is not read from the database.
    fn of_idle(psp_id: String, actor: Option<EndpointView>) -> Self {
        let held_by = actor.as_ref().and_then(|view| view.held_by);
        Self { psp_id, psp_name: String::new(), backlog: WebhookBacklog::default(), held_by, running: true, actor }
    }
}

/// States of the running endpoints, as far as their actors answered.
type Actors = HashMap<String, Option<EndpointView>>;

#[derive(FromQueryResult)]
struct Row {
    id: String,
    name: String,
    endpoints: i64,
    queued: i64,
    retrying: i64,
    exhausted: i64,
    queued_since: Option<i64>,
    retrying_since: Option<i64>,
    exhausted_since: Option<i64>,
}

/// Reads the undelivered events. Each figure of a PSP is a bounded index look-up.
pub async fn webhooks(system: &System) -> Result<Webhooks, DbErr> {
    let observed = system.webhooks().observe().await.into_iter();
    let mut actors: Actors = observed.map(|(psp_id, view)| (psp_id.to_string(), view)).collect();
    let (mut rows, more) = longest(system.database()).await?;
    if more {
        // Endpoints with a failing receiver come first, even if others have waited longer.
        let is_tripped = |view: &Option<EndpointView>| view.as_ref().is_some_and(|v| v.breaker != BreakerState::Closed);
        let listed: Vec<String> = rows.iter().map(|row| row.id.clone()).collect();
        let tripped = actors.iter().filter(|(psp_id, view)| is_tripped(view) && !listed.contains(psp_id));
        let tripped: Vec<String> = tripped.map(|(psp_id, _)| psp_id.clone()).take(ENDPOINTS_MAX).collect();
        rows.extend(find(system.database(), &PspScope::These(tripped)).await?);
    }
    let backlog = sum(&rows, more);
    let mut endpoints: Vec<EndpointLine> = rows.into_iter().map(|row| EndpointLine::of(row, &mut actors)).collect();
    if !more {
        endpoints.extend(actors.into_iter().map(|(psp_id, actor)| EndpointLine::of_idle(psp_id, actor)));
    }
    endpoints.sort_by_key(|line| {
        let WebhookBacklog { waiting_since, unaddressed_since, exhausted_since, .. } = line.backlog;
        let since = waiting_since.into_iter().chain(exhausted_since).min();
        // A PSP without a URL may never set one.
        let is_unaddressed = since.is_none() && unaddressed_since.is_some();
        let since = since.map_or(Timestamp(i64::MAX), |since| since.0);
        (!line.is_tripped(), is_unaddressed, since, line.psp_id.clone())
    });
    let more = more || endpoints.len() > ENDPOINTS_MAX;
    endpoints.truncate(ENDPOINTS_MAX);
    Ok(Webhooks { backlog, endpoints, more })
}

/// Reads the total of all PSPs without asking the endpoints' actors.
pub async fn backlog(system: &System) -> Result<WebhookBacklog, DbErr> {
    let (rows, more) = longest(system.database()).await?;
    Ok(sum(&rows, more))
}

/// Reads the undelivered events of one PSP. `None` if there are none and its endpoint is not running.
pub async fn of_psp(system: &System, psp_id: PspId) -> Result<Option<EndpointLine>, DbErr> {
    let observed = system.webhooks().observe_one(psp_id).await.into_iter();
    let mut actors: Actors = observed.map(|(psp_id, view)| (psp_id.to_string(), view)).collect();
    let rows = find(system.database(), &PspScope::These(vec![psp_id.to_string()])).await?;
    let line = rows.into_iter().next().map(|row| EndpointLine::of(row, &mut actors));
    Ok(line.or_else(|| actors.into_iter().next().map(|(psp_id, actor)| EndpointLine::of_idle(psp_id, actor))))
}

/// Reads the PSPs with the oldest events, and whether there are more.
async fn longest(database: &Database) -> Result<(Vec<Row>, bool), DbErr> {
    let mut rows = find(database, &PspScope::Longest).await?;
    let more = rows.len() > ENDPOINTS_MAX;
    rows.truncate(ENDPOINTS_MAX);
    Ok((rows, more))
}

/// Sums the PSPs. If more PSPs exist, every sum may be larger.
fn sum(rows: &[Row], more: bool) -> WebhookBacklog {
    let mut sum = rows.iter().map(Row::backlog).fold(WebhookBacklog::default(), |sum, one| sum.and(&one));
    for count in [&mut sum.queued, &mut sum.retrying, &mut sum.unaddressed, &mut sum.exhausted] {
        count.more |= more;
    }
    sum
}

/// PSPs to read.
enum PspScope {
    /// PSPs with the oldest events, up to one more than [`ENDPOINTS_MAX`].
    Longest,
    /// PSPs with these ids.
    These(Vec<String>),
}

/// Reads the PSPs with undelivered events.
async fn find(database: &Database, whose: &PspScope) -> Result<Vec<Row>, DbErr> {
    let ids = match whose {
        PspScope::These(ids) if ids.is_empty() => return Ok(Vec::new()),
        PspScope::These(ids) => ids.as_slice(),
        PspScope::Longest => &[],
    };
    let sql = backlogs_sql(database.backend(), ids.len());
    rows(database, sql, ids.iter().map(Value::from)).await
}

/// Query for the given number of named PSPs, or for all. The PSPs are selected by their oldest deliveries, one index
/// look-up each, before anything is counted.
fn backlogs_sql(backend: DbBackend, named: usize) -> String {
    // Literal states, not bound values: a partial index is used only for a query that contains its condition.
    let count = |status: DeliveryStatus| {
        format!(
            "(SELECT COUNT(*) FROM (SELECT 1 FROM deliveries d WHERE d.psp_id = u.id AND d.status = '{status}' \
             LIMIT {}) c)",
            COUNTED_MAX + 1
        )
    };
    let oldest = |status: DeliveryStatus| {
        format!(
            "(SELECT d.created_at FROM deliveries d WHERE d.psp_id = p.id AND d.status = '{status}' \
             ORDER BY d.position LIMIT 1)"
        )
    };
    // Each endpoint has its own queue; that of the first one has the id of the PSP. A redelivered event counts from the time
    // of the request.
    let oldest_queued = format!(
        "(SELECT MIN((SELECT d.updated_at FROM deliveries d \
        WHERE COALESCE(d.endpoint_id, d.psp_id) = (l.lane || '') AND d.status = '{Queued}' ORDER BY d.position LIMIT 1)) \
        FROM (SELECT p.id AS lane UNION ALL SELECT e.id FROM webhook_endpoints e WHERE e.psp_id = p.id) l)"
    );
    let named = match named {
        0 => String::new(),
        named => format!("WHERE p.id IN ({})", (1..=named).map(|n| format!("${n}")).collect::<Vec<_>>().join(", ")),
    };
    let least = if backend == DbBackend::Sqlite { "MIN" } else { "LEAST" };
    let since = |column: &str| format!("COALESCE(t.{column}, {})", i64::MAX);
    format!(
        "SELECT u.*, {} AS queued, {} AS retrying, {} AS exhausted FROM (SELECT t.* FROM (SELECT p.id, p.name, \
         (SELECT COUNT(*) FROM webhook_endpoints e WHERE e.psp_id = p.id AND e.status <> '{Deleted}') AS endpoints, \
         {oldest_queued} AS queued_since, {} AS retrying_since, {} AS exhausted_since FROM psps p {named}) t \
         WHERE t.queued_since IS NOT NULL OR t.retrying_since IS NOT NULL OR t.exhausted_since IS NOT NULL \
         ORDER BY CASE WHEN t.endpoints = 0 THEN 1 ELSE 0 END, {least}({}, {}, {}), t.id LIMIT {}) u",
        count(Queued),
        count(Failed),
        count(Exhausted),
        oldest(Failed),
        oldest(Exhausted),
        since("queued_since"),
        since("retrying_since"),
        since("exhausted_since"),
        ENDPOINTS_MAX + 1,
    )
}

impl Row {
    fn held_by(&self) -> Option<&'static str> {
        (self.endpoints == 0).then_some(NO_URL)
    }

    fn backlog(&self) -> WebhookBacklog {
        let moment = |at: i64| Moment(Timestamp(at));
        let (queued, retrying) = (Count::of(self.queued), Count::of(self.retrying));
        let waiting_since = [self.queued_since, self.retrying_since].into_iter().flatten().min().map(moment);
        let (exhausted, exhausted_since) = (Count::of(self.exhausted), self.exhausted_since.map(moment));
        let given_up = WebhookBacklog { exhausted, exhausted_since, ..WebhookBacklog::default() };
        if self.endpoints == 0 {
            WebhookBacklog { unaddressed: queued.and(retrying), unaddressed_since: waiting_since, ..given_up }
        } else {
            WebhookBacklog { queued, retrying, waiting_since, ..given_up }
        }
    }
}

impl WebhookBacklog {
    fn and(self, other: &Self) -> Self {
        let oldest = |one: Option<Moment>, other: Option<Moment>| [one, other].into_iter().flatten().min();
        Self {
            queued: self.queued.and(other.queued),
            retrying: self.retrying.and(other.retrying),
            unaddressed: self.unaddressed.and(other.unaddressed),
            exhausted: self.exhausted.and(other.exhausted),
            waiting_since: oldest(self.waiting_since, other.waiting_since),
            unaddressed_since: oldest(self.unaddressed_since, other.unaddressed_since),
            exhausted_since: oldest(self.exhausted_since, other.exhausted_since),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::test_database;
    use payferry_harness::database::query_plan;
    use sea_orm::{ConnectionTrait, Statement};

    /// SQL of a PSP, with a webhook URL or without.
    fn psp(id: &str, has_url: bool) -> String {
        let endpoint = format!(
            "INSERT INTO webhook_endpoints (id, psp_id, url, events, secret, schedule, status, created_at, updated_at) \
             VALUES ('we_{id}', '{id}', 'https://psp.example/', '[]', 'x', 'default', 'enabled', 0, 0);"
        );
        format!(
            "INSERT INTO psps (id, name, settings, created_at, updated_at) VALUES ('{id}', '{id}', '{{}}', 0, 0);{}",
            if has_url { endpoint } else { String::new() }
        )
    }

    /// SQL of a delivery at a position of the feed.
    fn delivery(psp_id: &str, position: i64, status: &str, at: i64, next_attempt_at: i64) -> String {
        format!(
            "INSERT INTO deliveries (id, event_id, psp_id, payment_id, sequence, position, status, attempt_count, \
             retries_left, next_attempt_at, created_at, updated_at) VALUES ('{psp_id}-{position}', 'e', '{psp_id}', 'p', \
             {position}, {position}, '{status}', 1, 2, {next_attempt_at}, {at}, {at});"
        )
    }

    async fn write(database: &Database, statements: &[String]) {
        for some in statements.chunks(100) {
            database.writer().execute_unprepared(&some.concat()).await.unwrap();
        }
    }

    /// The query finds each PSP's deliveries by an index and the oldest at its start, for any number of deliveries.
    #[tokio::test]
    async fn the_backlog_query_reads_no_finished_delivery() {
        let (database, _test_database) = test_database().await;
        let sql = backlogs_sql(DbBackend::Sqlite, 0);
        let plan = query_plan(database.reader(), Statement::from_string(database.backend(), sql)).await;
        let of_deliveries: Vec<_> = plan.iter().filter(|step| step.contains(" d ")).collect();
        assert!(
            of_deliveries.len() >= 6 && of_deliveries.iter().all(|step| step.starts_with("SEARCH d ")),
            "{plan:#?}"
        );
        for index in ["deliveries_queued", "deliveries_failed", "deliveries_exhausted"] {
            assert!(of_deliveries.iter().any(|step| step.contains(index)), "{index} in {plan:#?}");
        }
        let sorts = plan.iter().filter(|step| step.contains("TEMP B-TREE")).count();
        assert_eq!(sorts, 1, "only PSPs are sorted: {plan:#?}");
    }

    #[tokio::test]
    async fn reads_the_psps_with_the_oldest_events_and_reports_that_more_exist() {
        let (database, _test_database) = test_database().await;
        let (last, count) = (i64::try_from(ENDPOINTS_MAX).unwrap(), ENDPOINTS_MAX + 1);
        // A higher id has waited longer.
        let statements = (0..=last).flat_map(|n| {
            let id = format!("psp_{n:04}");
            [psp(&id, true), delivery(&id, n, "failed", 10_000 - n, 0)]
        });
        write(&database, &statements.collect::<Vec<_>>()).await;
        // Longer than all others, but without a URL.
        write(&database, &[psp("psp_0", false), delivery("psp_0", 9_999, "queued", 1, 0)]).await;

        let (rows, more) = longest(&database).await.unwrap();
        assert_eq!((rows.len(), more), (ENDPOINTS_MAX, true));
        assert_eq!((&*rows[0].id, rows[0].retrying_since), ("psp_0500", Some(9_500)));
        assert!(
            rows.iter().all(|row| row.id != "psp_0000" && row.id != "psp_0"),
            "one has the newest event, the other has no URL"
        );
        let all = sum(&rows, more);
        assert_eq!(all.retrying, Count { counted: count as u64 - 1, more: true });
        assert_eq!(all.waiting_since, Some(Moment(Timestamp(9_500))));
        // A PSP that is not among them is found by its id.
        let one = find(&database, &PspScope::These(vec!["psp_0000".to_owned()])).await.unwrap();
        assert_eq!(one[0].backlog().retrying, Count::of(1));
        assert!(find(&database, &PspScope::These(Vec::new())).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn finds_the_oldest_failed_event_and_counts_events_without_a_url_apart() {
        let (database, _test_database) = test_database().await;
        let mut statements = vec![psp("psp_failing", true), psp("psp_silent", false)];
        // An older delivery has a later retry.
        statements.extend((1..=1_500).map(|n| delivery("psp_failing", n, "failed", n, 10_000 - n)));
        statements.extend([
            delivery("psp_silent", 1_501, "queued", 7, 0),
            delivery("psp_silent", 1_502, "failed", 5, 0),
            delivery("psp_silent", 1_503, "exhausted", 6, 0),
        ]);
        write(&database, &statements).await;
        let (rows, more) = longest(&database).await.unwrap();
        assert_eq!(rows.iter().map(|row| &*row.id).collect::<Vec<_>>(), ["psp_failing", "psp_silent"]);
        assert_eq!(rows[0].backlog().waiting_since, Some(Moment(Timestamp(1))));
        assert_eq!((rows[0].held_by(), rows[1].held_by()), (None, Some(NO_URL)));
        let all = sum(&rows, more);
        assert_eq!((all.queued, all.retrying), (Count::default(), Count::of(1_500)));
        assert_eq!((all.unaddressed, all.unaddressed_since), (Count::of(2), Some(Moment(Timestamp(5)))));
        assert_eq!((all.exhausted, all.exhausted_since), (Count::of(1), Some(Moment(Timestamp(6)))));
        assert_eq!(all.waiting_since, Some(Moment(Timestamp(1))));
    }
}
