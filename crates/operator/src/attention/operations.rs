//! Kinds that are read from operations: refunds that were not sent, and settlements that no other kind lists.
//!
//! Deliberately absent: payouts and withdrawals, which have their own kinds.

use payferry_actors::System;
use payferry_domain::{Amount, Timestamp};
use payferry_entities::operations;
use sea_orm::{DbErr, Value};

use crate::attention::part::Part;
use crate::attention::trouble::{BY_CREATION, count, rows};
use crate::attention::{AttentionItem, Found, OPERATION_ATTEMPTS_USUAL_MAX, OPERATION_OVERDUE_AFTER_SECS};

/// Overdue operations. An operation that is put into one transaction after another changes often, but is overdue too. A
/// payment that is confirmed and not settled is listed as such, unless a more urgent kind lists it.
pub(super) const OVERDUE: &str = "FROM operations WHERE status IN ('queued', 'submitted', 'mined') AND created_at < $1 \
    AND (updated_at < $1 OR attempts > 3) AND kind NOT IN ('payout', 'withdrawal') \
    AND NOT (kind IN ('settle', 'deliver') AND EXISTS (SELECT 1 FROM payments WHERE payments.id = operations.payment_id \
        AND payments.status = 'confirmed' \
        AND (payments.attention IS NULL OR payments.attention = 'SETTLEMENT_FAILED')))";

/// Reads the operations that have not finished for too long.
pub(super) async fn of(system: &System, part: Part<'_>) -> Result<Found, DbErr> {
    let now: Timestamp = system.clock().now();
    let before = Value::from(now.plus_secs(-OPERATION_OVERDUE_AFTER_SECS).as_millis());
    let total = count(system, OVERDUE, before.clone()).await?;
    let rows: Vec<operations::Model> = rows(system, part.sql(OVERDUE, &BY_CREATION), part.values(before)).await?;
    let item = |row: &operations::Model| {
        let item = AttentionItem::new(&row.id, Some(since(row)), now, told(system, row));
        item.of_payment(&row.payment_id, Some(&row.psp_id)).standing(row.created_at, &row.id)
    };
    Ok((total, rows.iter().map(item).collect()))
}

/// Time since which the operation has made no progress, or its creation if it is retried again and again.
fn since(row: &operations::Model) -> Timestamp {
    Timestamp(if row.attempts > OPERATION_ATTEMPTS_USUAL_MAX { row.created_at } else { row.updated_at })
}

fn told(system: &System, row: &operations::Model) -> String {
    let what = match row.kind.as_str() {
        "settle" => "the settlement",
        "deliver" => "the delivery to the customer",
        _ => "a refund",
    };
    let spec = system.chains().running().find(|spec| spec.chain.as_str() == row.chain);
    let token = row.token_address.parse().ok().and_then(|address| spec?.token_at(address));
    let token = token.map_or_else(|| format!("of {}", row.token_address), |token| token.to_string());
    let mut told = format!("{what} of {} {token} on {} is {}", Amount(row.amount), row.chain, row.status);
    if spec.is_none() {
        told.push_str(", and the chain is not running on this node");
    }
    if row.attempts > 1 {
        told = format!("{told}, after {} transactions", row.attempts);
    }
    row.failure.as_ref().map(|failure| format!("{told}: {failure}")).unwrap_or(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_uses_the_named_limit_of_attempts() {
        assert!(OVERDUE.contains(&format!("attempts > {OPERATION_ATTEMPTS_USUAL_MAX})")));
    }
}
