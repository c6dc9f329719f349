//! Kinds that are read from payouts and withdrawals.

use payferry_actors::System;
use payferry_domain::outbound::OutboundTransfer;
use payferry_domain::{Amount, Timestamp};
use payferry_entities::sendings;
use sea_orm::DbErr;

use crate::attention::{AttentionItem, AttentionKind, Found, OUTBOUND_OVERDUE_AFTER_SECS, Part};
use crate::outbound::query::possible;
use crate::query::{Count, rows};

// `live` is in the condition so that the query uses the partial index, which holds few rows.
const IN_REVIEW: &str = "FROM sendings WHERE live AND in_review AND created_at < $1";
const OVERDUE: &str = "FROM sendings WHERE live AND NOT in_review AND created_at < $1";

const ORDER: [&str; 2] = ["created_at", "id"];

/// Payouts and withdrawals that need a decision or have waited too long.
pub(super) async fn of(system: &System, kind: AttentionKind, part: Part<'_>) -> Result<Found, DbErr> {
    let now: Timestamp = system.clock().now();
    let (from, before) = match kind {
        AttentionKind::OutboundInReview => (IN_REVIEW, i64::MAX),
        _ => (OVERDUE, now.plus_secs(-OUTBOUND_OVERDUE_AFTER_SECS).as_millis()),
    };
    let database = system.database();
    let from = part.open(kind, from, &ORDER);
    let total = Count::rows(database, &from, [before.into()]).await?;
    let sql = part.sql(&from, &ORDER);
    let rows: Vec<sendings::Model> = rows(database, sql, part.values(before.into())).await?;
    let item = |row: &sendings::Model| {
        let (reason, can) = match payferry_journal::outbound::outbound_of(row) {
            Ok(outbound) => (reason_of(&outbound), possible(&outbound, now)),
            Err(error) => (error.to_string(), Vec::new()),
        };
        let item = AttentionItem::new(&row.id, Some(Timestamp(row.created_at)), now, reason);
        let item = item.of_money(&row.chain, Amount(row.amount), &row.token);
        AttentionItem { psp_id: Some(row.psp_id.clone()), can, ..item }
    };
    Ok((total, rows.iter().map(item).collect()))
}

/// Reason why it needs attention.
fn reason_of(outbound: &OutboundTransfer) -> String {
    let order = &outbound.order;
    let amount = format!("{} {} on {}", order.amount, order.token, order.asset.chain);
    match outbound.verdict.as_deref() {
        None => format!("{amount}: its address has not been screened"),
        Some(said) if outbound.is_in_review() => format!("{amount}: {} says {}", said.provider, said.flags.join(", ")),
        Some(_) => format!("{amount}: screened but not sent"),
    }
}
