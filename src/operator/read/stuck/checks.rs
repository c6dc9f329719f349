//! What the compliance desk and its queue tell.

use payferry_actors::System;
use payferry_actors::compliance::identity::{ComplianceDesk, count, overdue};
use payferry_domain::Timestamp;
use payferry_entities::checks;
use sea_orm::{DbErr, QuerySelect};

use super::{Count, Found, StuckItem, StuckKind};

/// Where nobody is configured to verify customers.
const NOBODY: &str = "none";

/// What the desk tells of one kind.
pub(super) async fn of(system: &System, kind: StuckKind, limit: usize) -> Result<Found, DbErr> {
    match kind {
        StuckKind::IdentityProvider => provider(system).await,
        StuckKind::CheckOverdue => checks_overdue(system, limit).await,
        _ => Ok((Count::default(), Vec::new())),
    }
}

async fn provider(system: &System) -> Result<Found, DbErr> {
    let desk = system.desk();
    let now = system.clock().real_now();
    let item = match (desk.provider(), desk.trouble()) {
        (Some(name), Some(trouble)) => StuckItem::new(name, Some(trouble.since), now, trouble.reason),
        (Some(_), None) => return Ok((Count::default(), Vec::new())),
        (None, _) => {
            let waiting = desk.backlog().await?;
            let waiting = waiting.queued + waiting.open;
            if waiting == 0 {
                return Ok((Count::default(), Vec::new()));
            }
            StuckItem::new(NOBODY, None, now, format!("no provider is configured, and {waiting} checks wait"))
        }
    };
    Ok((Count::of(1), vec![item]))
}

async fn checks_overdue(system: &System, limit: usize) -> Result<Found, DbErr> {
    let (desk, database) = (system.desk(), system.database());
    // Rows have the service's time.
    let now = system.clock().now();
    let query = || overdue(now, desk.config().overdue_after);
    let total = count(database, query()).await?;
    if total == 0 {
        return Ok((Count::default(), Vec::new()));
    }
    let rows: Vec<checks::Model> = query().limit(limit as u64).all(database.reader()).await?;
    let items = rows.into_iter().map(|row| item(&desk, row, now)).collect();
    Ok((Count::of(i64::try_from(total).unwrap_or(i64::MAX)), items))
}

fn item(desk: &ComplianceDesk, row: checks::Model, now: Timestamp) -> StuckItem {
    let provider = desk.provider().unwrap_or(NOBODY);
    let why = row.last_error.unwrap_or_else(|| format!("it is {} (provider: {provider})", row.status));
    let reason = format!("{}, {} attempts: {why}", row.purpose, row.attempts);
    let mut item = StuckItem::new(row.id, Some(Timestamp(row.created_at)), now, reason);
    item.psp_id = Some(row.psp_id);
    item
}
