//! The desk's queue in the database: what is due, and what became of it.
//!
//! Every write names the state that it found, so that a check which was concluded or superseded meanwhile is left alone.
//! Times are the service's, as those are that the rows were made with.

use std::time::Duration;

use payferry_domain::customer::CheckPurpose;
use payferry_domain::{CheckId, CustomerId, Timestamp};
use payferry_entities::checks::{Column, Entity, Model};
use payferry_entities::{Connection, Database};
use payferry_journal::customers::{OPEN, QUEUED};
use payferry_runtime::seal::Sealer;
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, Condition, DbErr, EntityTrait, QueryFilter, QueryOrder, QuerySelect, Select, UpdateMany};
use url::Url;

/// Checks that a count looks at, at most.
pub const COUNTED_MAX: u64 = 10_000;

/// A check that is not over.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) check: CheckId,
    pub(super) customer: CustomerId,
    pub(super) purpose: CheckPurpose,
    /// Whether a provider knows of it.
    pub(super) is_open: bool,
    pub(super) provider: Option<String>,
    pub(super) provider_ref: Option<String>,
    /// Failures since the provider last answered.
    pub(super) attempts: u32,
    /// When the provider took it on, or it was queued.
    pub(super) since: Timestamp,
}

impl Task {
    fn of(row: &Model) -> Option<Self> {
        Some(Self {
            check: row.id.parse().ok()?,
            customer: row.customer_id.parse().ok()?,
            purpose: row.purpose.parse().ok()?,
            is_open: row.status == OPEN,
            provider: row.provider.clone(),
            provider_ref: row.provider_ref.clone(),
            attempts: row.attempts.try_into().unwrap_or(u32::MAX),
            since: Timestamp(row.updated_at),
        })
    }
}

/// What waits, for those who look on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Checks that no provider knows of yet.
    pub queued: u64,
    /// Checks that a provider works on.
    pub open: u64,
    /// Of both, those that wait for longer than they should.
    pub overdue: u64,
}

/// Where a check's link is sealed.
pub fn link_place(check: &str) -> [&str; 3] {
    ["checks", check, "url"]
}

/// The link of a check's row, if it has one that opens.
pub fn link_of(row: &Model, sealer: &Sealer) -> Option<String> {
    let opened = sealer.open(&link_place(&row.id), row.url.as_deref()?).ok()?;
    String::from_utf8(opened).ok()
}

/// The checks that are due, the longest first.
pub(super) async fn due(database: &Database, now: Timestamp, limit: u64) -> Result<Vec<Task>, DbErr> {
    let rows = waiting()
        .filter(Column::NextAttemptAt.lte(now.as_millis()))
        .order_by_asc(Column::NextAttemptAt)
        .limit(limit)
        .all(database.reader())
        .await?;
    let tasks = rows.iter().filter_map(|row| {
        let task = Task::of(row);
        if task.is_none() {
            tracing::error!(check.id = %row.id, "the row of check {} cannot be read", row.id);
        }
        task
    });
    Ok(tasks.collect())
}

/// A provider has taken the check on.
pub(super) async fn opened(
    connection: &Connection,
    task: &Task,
    provider: &str,
    provider_ref: &str,
    sealed_url: Option<String>,
    look_at: Timestamp,
    now: Timestamp,
) -> Result<bool, DbErr> {
    let update = of(task)
        .col_expr(Column::Status, Expr::value(OPEN))
        .col_expr(Column::Provider, Expr::value(provider))
        .col_expr(Column::ProviderRef, Expr::value(provider_ref))
        .col_expr(Column::Url, Expr::value(sealed_url))
        .col_expr(Column::UpdatedAt, Expr::value(now.as_millis()));
    answered(update, look_at).exec(connection).await.map(|written| written.rows_affected > 0)
}

/// The provider has not decided: it is looked at again.
pub(super) async fn look_again(connection: &Connection, task: &Task, at: Timestamp) -> Result<(), DbErr> {
    answered(of(task), at).exec(connection).await.map(drop)
}

/// The provider did not answer.
pub(super) async fn failed(connection: &Connection, task: &Task, error: &str, at: Timestamp) -> Result<(), DbErr> {
    let update = of(task)
        .col_expr(Column::Attempts, Expr::value(i64::from(task.attempts) + 1))
        .col_expr(Column::LastError, Expr::value(error))
        .col_expr(Column::NextAttemptAt, Expr::value(at.as_millis()));
    update.exec(connection).await.map(drop)
}

/// The provider no longer has it: it is begun anew.
pub(super) async fn requeued(connection: &Connection, task: &Task, error: &str, at: Timestamp) -> Result<(), DbErr> {
    let update = of(task)
        .col_expr(Column::Status, Expr::value(QUEUED))
        .col_expr(Column::ProviderRef, Expr::value(Option::<String>::None))
        .col_expr(Column::Url, Expr::value(Option::<String>::None))
        .col_expr(Column::Attempts, Expr::value(i64::from(task.attempts) + 1))
        .col_expr(Column::LastError, Expr::value(error))
        .col_expr(Column::NextAttemptAt, Expr::value(at.as_millis()));
    update.exec(connection).await.map(drop)
}

/// How much waits.
pub async fn backlog(database: &Database, now: Timestamp, overdue_after: Duration) -> Result<Backlog, DbErr> {
    let waiting = |status| waiting().filter(Column::Status.eq(status));
    Ok(Backlog {
        queued: count(database, waiting(QUEUED)).await?,
        open: count(database, waiting(OPEN)).await?,
        overdue: count(database, overdue(now, overdue_after)).await?,
    })
}

/// How many rows a query has, up to [`COUNTED_MAX`] and one more.
pub async fn count(database: &Database, query: Select<Entity>) -> Result<u64, DbErr> {
    let rows = query.select_only().column(Column::Id).limit(COUNTED_MAX + 1).into_tuple::<String>();
    Ok(rows.all(database.reader()).await?.len() as u64)
}

/// The checks that wait for longer than they should, the longest first. A person may take its time: of verifications
/// only those count that no provider knows of.
pub fn overdue(now: Timestamp, after: Duration) -> Select<Entity> {
    let after = i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
    let nobody_else_to_wait_for =
        Condition::any().add(Column::Status.eq(QUEUED)).add(Column::Purpose.eq(CheckPurpose::Rescreen.as_str()));
    waiting()
        .filter(nobody_else_to_wait_for)
        .filter(Column::CreatedAt.lt(now.as_millis().saturating_sub(after)))
        .order_by_asc(Column::CreatedAt)
}

/// What is not over. Spelled as the index has it.
fn waiting() -> Select<Entity> {
    Entity::find().filter(Expr::cust("status IN ('queued', 'open')"))
}

fn of(task: &Task) -> UpdateMany<Entity> {
    let status = if task.is_open { OPEN } else { QUEUED };
    Entity::update_many().filter(Column::Id.eq(task.check.to_string())).filter(Column::Status.eq(status))
}

fn answered(update: UpdateMany<Entity>, next: Timestamp) -> UpdateMany<Entity> {
    update
        .col_expr(Column::Attempts, Expr::value(0_i64))
        .col_expr(Column::LastError, Expr::value(Option::<String>::None))
        .col_expr(Column::NextAttemptAt, Expr::value(next.as_millis()))
}

/// The link, sealed for its row.
pub(super) fn sealed(sealer: &Sealer, check: CheckId, url: Option<&Url>) -> Option<String> {
    url.map(|url| sealer.seal(&link_place(&check.to_string()), url.as_str().as_bytes()))
}
