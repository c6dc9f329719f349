//! Webhooks: what waits to be delivered, for whom and since when, and how each endpoint's actor gets on.

use std::collections::HashMap;

use payferry_actors::System;
use payferry_actors::webhook::{BreakerState, EndpointView};
use payferry_domain::{PspId, Timestamp};
use sea_orm::{DbErr, FromQueryResult, Statement};
use serde::Serialize;

use super::{COUNTED_MAX, Count, Moment};

/// PSPs with something undelivered that are looked at.
pub const ENDPOINTS_MAX: usize = 500;
/// Deliveries among which the oldest is looked for, where no index has them by age.
const OLDEST_AMONG: u64 = 1_000;

/// Everything that was not delivered.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Webhooks {
    /// Of all PSPs together.
    pub backlog: Backlog,
    /// PSPs with something undelivered, and those whose endpoint's actor runs: those in trouble first. At most
    /// [`ENDPOINTS_MAX`].
    pub endpoints: Vec<EndpointLine>,
}

/// Deliveries that were not made.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Backlog {
    /// Not attempted since they were queued.
    pub queued: Count,
    /// Wait for a retry.
    pub retrying: Count,
    /// Not tried any more unless somebody asks.
    pub exhausted: Count,
    /// Since when the longest queued or retrying one waits.
    pub waiting_since: Option<Moment>,
    /// Since when the oldest exhausted one is undelivered.
    pub exhausted_since: Option<Moment>,
}

/// One PSP's.
#[derive(Debug, Clone, Serialize)]
pub struct EndpointLine {
    /// Whose.
    pub psp_id: String,
    /// Its name.
    pub psp_name: String,
    /// What was not delivered.
    pub backlog: Backlog,
    /// Its actor, if it runs.
    pub actor: Option<EndpointView>,
}

impl EndpointLine {
    /// Whether its receiver is left alone for failing.
    pub fn is_tripped(&self) -> bool {
        self.actor.as_ref().is_some_and(|actor| actor.breaker != BreakerState::Closed)
    }
}

#[derive(FromQueryResult)]
struct Row {
    id: String,
    name: String,
    queued: i64,
    retrying: i64,
    exhausted: i64,
    queued_since: Option<i64>,
    retrying_since: Option<i64>,
    exhausted_since: Option<i64>,
}

/// Everything that was not delivered. Each figure of a PSP is a bounded probe of an index.
pub async fn webhooks(system: &System) -> Result<Webhooks, DbErr> {
    let mut actors: HashMap<String, EndpointView> =
        system.webhooks().observe().await.into_iter().map(|view| (view.psp_id.to_string(), view)).collect();
    let mut endpoints: Vec<EndpointLine> = backlogs(system)
        .await?
        .into_iter()
        .map(|(psp_id, psp_name, backlog)| EndpointLine { actor: actors.remove(&psp_id), psp_id, psp_name, backlog })
        .collect();
    // Whose endpoints have nothing to do: their names are not worth a look at the database.
    endpoints.extend(actors.into_values().map(|actor| EndpointLine {
        psp_id: actor.psp_id.to_string(),
        psp_name: String::new(),
        backlog: Backlog::default(),
        actor: Some(actor),
    }));
    let backlog = endpoints.iter().fold(Backlog::default(), |sum, line| sum.and(&line.backlog));
    endpoints.sort_by_key(|line| {
        let since = [line.backlog.waiting_since, line.backlog.exhausted_since].into_iter().flatten().min();
        (!line.is_tripped(), since.map_or(Timestamp(i64::MAX), |since| since.0), line.psp_id.clone())
    });
    endpoints.truncate(ENDPOINTS_MAX);
    Ok(Webhooks { backlog, endpoints })
}

/// What waits for all PSPs together, without asking the endpoints' actors.
pub async fn backlog(system: &System) -> Result<Backlog, DbErr> {
    Ok(backlogs(system).await?.iter().fold(Backlog::default(), |sum, (_, _, one)| sum.and(one)))
}

/// What a PSP's endpoint has not delivered; `None` if everything was.
pub async fn of_psp(system: &System, psp_id: PspId) -> Result<Option<EndpointLine>, DbErr> {
    let psp_id = psp_id.to_string();
    Ok(webhooks(system).await?.endpoints.into_iter().find(|line| line.psp_id == psp_id))
}

/// PSPs with something undelivered: id, name and what.
async fn backlogs(system: &System) -> Result<Vec<(String, String, Backlog)>, DbErr> {
    let database = system.database();
    let statement = Statement::from_string(database.backend(), backlogs_sql());
    let rows = Row::find_by_statement(statement).all(database.reader()).await?;
    Ok(rows.into_iter().map(Row::split).collect())
}

fn backlogs_sql() -> String {
    // The states are spelled out, not bound: a partial index serves only a query that shows its condition.
    let count = |status: &str| {
        format!(
            "(SELECT COUNT(*) FROM (SELECT 1 FROM deliveries d WHERE d.psp_id = p.id AND d.status = '{status}' \
             LIMIT {}) c)",
            COUNTED_MAX + 1
        )
    };
    let oldest = |status: &str| {
        format!(
            "(SELECT MIN(c.created_at) FROM (SELECT d.created_at FROM deliveries d WHERE d.psp_id = p.id \
             AND d.status = '{status}' LIMIT {OLDEST_AMONG}) c)"
        )
    };
    let some =
        |status: &str| format!("EXISTS (SELECT 1 FROM deliveries d WHERE d.psp_id = p.id AND d.status = '{status}')");
    format!(
        "SELECT p.id, p.name, {} AS queued, {} AS retrying, {} AS exhausted, \
         (SELECT d.updated_at FROM deliveries d WHERE d.psp_id = p.id AND d.status = 'queued' ORDER BY d.position \
          LIMIT 1) AS queued_since, \
         {} AS retrying_since, {} AS exhausted_since \
         FROM psps p WHERE {} OR {} OR {} ORDER BY p.id LIMIT {ENDPOINTS_MAX}",
        count("queued"),
        count("failed"),
        count("exhausted"),
        oldest("failed"),
        oldest("exhausted"),
        some("queued"),
        some("failed"),
        some("exhausted"),
    )
}

impl Row {
    fn split(self) -> (String, String, Backlog) {
        let moment = |at: i64| Moment(Timestamp(at));
        let backlog = Backlog {
            queued: Count::of(self.queued),
            retrying: Count::of(self.retrying),
            exhausted: Count::of(self.exhausted),
            waiting_since: [self.queued_since, self.retrying_since].into_iter().flatten().min().map(moment),
            exhausted_since: self.exhausted_since.map(moment),
        };
        (self.id, self.name, backlog)
    }
}

impl Backlog {
    fn and(self, other: &Self) -> Self {
        let oldest = |one: Option<Moment>, other: Option<Moment>| [one, other].into_iter().flatten().min();
        Self {
            queued: self.queued.and(other.queued),
            retrying: self.retrying.and(other.retrying),
            exhausted: self.exhausted.and(other.exhausted),
            waiting_since: oldest(self.waiting_since, other.waiting_since),
            exhausted_since: oldest(self.exhausted_since, other.exhausted_since),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use payferry_entities::Database;
    use payferry_migration::{Migrator, MigratorTrait};
    use sea_orm::ConnectionTrait;

    use super::*;

    /// However many deliveries there are, each PSP's are found by an index.
    #[tokio::test]
    async fn no_delivery_is_looked_at_that_was_made() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}?mode=rwc", folder.path().join("payferry.db").display());
        let database = Database::open(&url).await.unwrap();
        Migrator::up(database.patient(), None).await.unwrap();
        let explain = Statement::from_string(database.backend(), format!("EXPLAIN QUERY PLAN {}", backlogs_sql()));
        let plan = database.reader().query_all_raw(explain).await.unwrap();
        let plan: Vec<String> = plan.iter().map(|row| row.try_get("", "detail").unwrap()).collect();
        let of_deliveries: Vec<_> = plan.iter().filter(|step| step.contains(" d ")).collect();
        assert!(
            of_deliveries.len() >= 9 && of_deliveries.iter().all(|step| step.starts_with("SEARCH d ")),
            "{plan:#?}"
        );
    }
}
