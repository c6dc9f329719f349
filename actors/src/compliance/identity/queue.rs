//! Queue of checks in the database: due checks, and the writes of their results.
//!
//! Every write names the state that it expects, so that a check concluded or superseded in the meantime does not
//! change. Times use the service's clock, like the rows themselves.

use std::time::Duration;

use payferry_domain::customer::CheckPurpose;
use payferry_domain::{CheckId, CustomerId, Timestamp};
use payferry_entities::checks::{Column, Entity, Model};
use payferry_entities::{CheckStatus, Connection, Database};
use payferry_runtime::seal::Sealer;
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, Condition, DbErr, EntityTrait, QueryFilter, QueryOrder, QuerySelect, Select, UpdateMany};
use url::Url;

/// Maximum number of checks that a count includes.
pub const COUNTED_MAX: u64 = 10_000;

/// An unfinished check.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) check: CheckId,
    pub(super) customer: CustomerId,
    pub(super) purpose: CheckPurpose,
    /// `true` if a provider has it.
    pub(super) is_open: bool,
    pub(super) provider: Option<String>,
    pub(super) provider_ref: Option<String>,
    /// Failures since the provider's last answer.
    pub(super) attempts: u32,
    /// When the provider accepted it, or when it was queued.
    pub(super) since: Timestamp,
}

impl Task {
    fn of(row: &Model) -> Option<Self> {
        Some(Self {
            check: row.id.parse().ok()?,
            customer: row.customer_id.parse().ok()?,
            purpose: row.purpose.parse().ok()?,
            is_open: row.status == CheckStatus::Open,
            provider: row.provider.clone(),
            provider_ref: row.provider_ref.clone(),
            attempts: row.attempts.try_into().unwrap_or(u32::MAX),
            since: Timestamp(row.updated_at),
        })
    }
}

/// Numbers of waiting checks, for metrics and pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckBacklog {
    /// Checks that no provider has yet.
    pub queued: u64,
    /// Checks in progress at a provider.
    pub open: u64,
    /// Overdue checks among both.
    pub overdue: u64,
}

/// Returns the sealing context of a check's link.
pub fn link_place(check: &str) -> [&str; 3] {
    ["checks", check, "url"]
}

/// Returns the link of a check's row, if it has one that opens.
pub fn link_of(row: &Model, sealer: &Sealer) -> Option<String> {
    let opened = sealer.open(&link_place(&row.id), row.url.as_deref()?).ok()?;
    std::str::from_utf8(&opened).ok().map(str::to_owned)
}

/// Returns the due checks, the longest due first.
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
            tracing::error!(check.id = %row.id, "could not parse the row of check {}", row.id);
        }
        task
    });
    Ok(tasks.collect())
}

/// Records that a provider has accepted the check.
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
        .col_expr(Column::Status, Expr::value(CheckStatus::Open))
        .col_expr(Column::Provider, Expr::value(provider))
        .col_expr(Column::ProviderRef, Expr::value(provider_ref))
        .col_expr(Column::Url, Expr::value(sealed_url))
        .col_expr(Column::UpdatedAt, Expr::value(now.as_millis()));
    answered(update, look_at).exec(connection).await.map(|written| written.rows_affected > 0)
}

/// Records that the provider has not decided; schedules the next status query.
pub(super) async fn look_again(connection: &Connection, task: &Task, at: Timestamp) -> Result<(), DbErr> {
    answered(of(task), at).exec(connection).await.map(drop)
}

/// Records a failed request to the provider.
pub(super) async fn failed(connection: &Connection, task: &Task, error: &str, at: Timestamp) -> Result<(), DbErr> {
    unanswered(task, error, at).exec(connection).await.map(drop)
}

/// Records that the provider no longer has the check, so it must start again.
pub(super) async fn requeued(connection: &Connection, task: &Task, error: &str, at: Timestamp) -> Result<(), DbErr> {
    let update = unanswered(task, error, at)
        .col_expr(Column::Status, Expr::value(CheckStatus::Queued))
        .col_expr(Column::ProviderRef, Expr::value(Option::<String>::None))
        .col_expr(Column::Url, Expr::value(Option::<String>::None));
    update.exec(connection).await.map(drop)
}

/// Counts the waiting checks.
pub async fn backlog(database: &Database, now: Timestamp, overdue_after: Duration) -> Result<CheckBacklog, DbErr> {
    let waiting = |status| waiting().filter(Column::Status.eq(status));
    Ok(CheckBacklog {
        queued: count(database, waiting(CheckStatus::Queued)).await?,
        open: count(database, waiting(CheckStatus::Open)).await?,
        overdue: count(database, overdue(now, overdue_after)).await?,
    })
}

/// Counts the rows of a query, up to [`COUNTED_MAX`] plus one.
pub async fn count(database: &Database, query: Select<Entity>) -> Result<u64, DbErr> {
    let rows = query.select_only().column(Column::Id).limit(COUNTED_MAX + 1).into_tuple::<String>();
    Ok(rows.all(database.reader()).await?.len() as u64)
}

/// Returns the overdue checks, the longest waiting first. A person may take any time, so verifications count only while
/// no provider has them.
pub fn overdue(now: Timestamp, after: Duration) -> Select<Entity> {
    let after = i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
    let nobody_else_to_wait_for = Condition::any()
        .add(Column::Status.eq(CheckStatus::Queued))
        .add(Column::Purpose.eq(CheckPurpose::Rescreen.as_str()));
    waiting()
        .filter(nobody_else_to_wait_for)
        .filter(Column::CreatedAt.lt(now.as_millis().saturating_sub(after)))
        .order_by_asc(Column::CreatedAt)
}

/// Unfinished checks. The condition is spelled as in the index.
fn waiting() -> Select<Entity> {
    let condition = format!("status IN ('{}', '{}')", CheckStatus::Queued, CheckStatus::Open);
    Entity::find().filter(Expr::cust(condition))
}

fn of(task: &Task) -> UpdateMany<Entity> {
    let status = if task.is_open { CheckStatus::Open } else { CheckStatus::Queued };
    Entity::update_many().filter(Column::Id.eq(task.check.to_string())).filter(Column::Status.eq(status))
}

fn unanswered(task: &Task, error: &str, next: Timestamp) -> UpdateMany<Entity> {
    of(task)
        .col_expr(Column::Attempts, Expr::value(i64::from(task.attempts) + 1))
        .col_expr(Column::LastError, Expr::value(error))
        .col_expr(Column::NextAttemptAt, Expr::value(next.as_millis()))
}

fn answered(update: UpdateMany<Entity>, next: Timestamp) -> UpdateMany<Entity> {
    update
        .col_expr(Column::Attempts, Expr::value(0_i64))
        .col_expr(Column::LastError, Expr::value(Option::<String>::None))
        .col_expr(Column::NextAttemptAt, Expr::value(next.as_millis()))
}

/// Seals the link for its row.
pub(super) fn sealed(sealer: &Sealer, check: CheckId, url: Option<&Url>) -> Option<String> {
    url.map(|url| sealer.seal(&link_place(&check.to_string()), url.as_str().as_bytes()))
}
