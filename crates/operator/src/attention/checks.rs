//! Kinds that are read from the compliance actor and the table of checks.

use payferry_actors::System;
use payferry_actors::compliance::identity::{ComplianceService, count, overdue};
use payferry_domain::Timestamp;
use payferry_entities::checks;
use sea_orm::{ColumnTrait, Condition, DbErr, QueryFilter, QueryOrder, QuerySelect};

use crate::attention::part::Part;
use crate::attention::{AttentionItem, AttentionKind, Count, Found, service};

/// Item id if no identity provider is configured.
const NOBODY: &str = "none";

/// Reads one kind.
pub(super) async fn of(system: &System, kind: AttentionKind, part: Part<'_>) -> Result<Found, DbErr> {
    match kind {
        AttentionKind::IdentityProvider => provider(system, part).await,
        AttentionKind::CheckOverdue => checks_overdue(system, part).await,
        _ => Ok((Count::default(), Vec::new())),
    }
}

async fn provider(system: &System, part: Part<'_>) -> Result<Found, DbErr> {
    let compliance = system.compliance();
    let now = system.clock().real_now();
    let item = match (compliance.provider(), compliance.trouble()) {
        (Some(name), Some(trouble)) => AttentionItem::new(name, Some(trouble.since), now, trouble.reason),
        (Some(_), None) => return Ok((Count::default(), Vec::new())),
        (None, _) => {
            let waiting = compliance.backlog().await?;
            let waiting = waiting.queued + waiting.open;
            if waiting == 0 {
                return Ok((Count::default(), Vec::new()));
            }
            AttentionItem::new(NOBODY, None, now, format!("no provider is configured and {waiting} checks are waiting"))
        }
    };
    Ok(service::first(vec![item], part))
}

async fn checks_overdue(system: &System, part: Part<'_>) -> Result<Found, DbErr> {
    let (compliance, database) = (system.compliance(), system.database());
    // Rows have the service's time.
    let now = system.clock().now();
    let query = || overdue(now, compliance.config().overdue_after);
    let total = count(database, query()).await?;
    if total == 0 {
        return Ok((Count::default(), Vec::new()));
    }
    let mut rest = query().order_by_asc(checks::Column::Id);
    if let Some(after) = part.after {
        let at = after.at.as_millis();
        let beside = Condition::all().add(checks::Column::CreatedAt.eq(at)).add(checks::Column::Id.gt(&after.id));
        rest = rest.filter(Condition::any().add(checks::Column::CreatedAt.gt(at)).add(beside));
    }
    let rows: Vec<checks::Model> = rest.limit(part.read_max() as u64).all(database.reader()).await?;
    let items = rows.into_iter().map(|row| item(&compliance, row, now)).collect();
    Ok((Count::of(i64::try_from(total).unwrap_or(i64::MAX)), items))
}

fn item(compliance: &ComplianceService, row: checks::Model, now: Timestamp) -> AttentionItem {
    let provider = compliance.provider().unwrap_or(NOBODY);
    let why = row.last_error.unwrap_or_else(|| format!("status {} (provider: {provider})", row.status));
    let reason = format!("{}, {} attempts: {why}", row.purpose, row.attempts);
    let mut item = AttentionItem::new(row.id, Some(Timestamp(row.created_at)), now, reason);
    item.psp_id = Some(row.psp_id);
    item
}
