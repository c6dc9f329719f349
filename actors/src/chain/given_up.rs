//! Finds operations that their owner has given up, before one that was already signed is signed again.
//!
//! The chain may carry out an operation that failed and was given up, and then orphan it: it must not be sent a second
//! time. Outbound transfers and refunds are given up when the chain has rejected them; a settlement (or the delivery of
//! a transfer) when its payment's funds were orphaned while it was in progress and its row could not be cancelled; an
//! authorization when it has ended.

use std::collections::HashSet;

use payferry_domain::outbound::OutboundStatus;
use payferry_domain::payment::{Payment, RefundState, SettlementState};
use payferry_entities::{Database, operations, payments, sendings};
use payferry_journal::chain::is_outbound;
use payferry_journal::payments::payment_of;
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect};

use super::collect::is_authorization;

/// Ids of operations that were attempted before and that their outbound transfer, refund or settlement has given up
/// since.
pub(super) async fn given_up(database: &Database, rows: &[operations::Model]) -> Result<HashSet<String>, DbErr> {
    let (sent, paid): (Vec<_>, Vec<_>) = rows.iter().filter(|row| row.attempts > 0).partition(|row| is_outbound(row));
    let mut found = HashSet::new();
    if !sent.is_empty() {
        let failed: Vec<String> = sendings::Entity::find()
            .select_only()
            .column(sendings::Column::Id)
            .filter(sendings::Column::Id.is_in(sent.iter().map(|row| row.payment_id.as_str())))
            .filter(sendings::Column::Status.eq(OutboundStatus::Failed.as_str()))
            .into_tuple()
            .all(database.reader())
            .await?;
        found.extend(sent.iter().filter(|row| failed.contains(&row.payment_id)).map(|row| row.id.clone()));
    }
    if !paid.is_empty() {
        let ids = paid.iter().map(|row| row.payment_id.as_str());
        let owners = payments::Entity::find().filter(payments::Column::Id.is_in(ids)).all(database.reader()).await?;
        // An unreadable row decides nothing.
        let owners: Vec<Payment> = owners.iter().filter_map(|row| payment_of(row).ok()).collect();
        let is_wanted = |row: &operations::Model| {
            let owner = owners.iter().find(|payment| payment.id().to_string() == row.payment_id);
            owner.is_none_or(|payment| wants(payment, row))
        };
        found.extend(paid.iter().filter(|row| !is_wanted(row)).map(|row| row.id.clone()));
    }
    Ok(found)
}

fn wants(payment: &Payment, row: &operations::Model) -> bool {
    let operation = row.id.as_str();
    if is_authorization(row) {
        let authorization = payment.authorization.as_deref();
        return authorization.is_some_and(|one| one.operation.to_string() == operation && one.is_valid());
    }
    let settlement = payment.settlement.as_deref().filter(|one| one.operation.to_string() == operation);
    let refund = payment.refunds.iter().find(|one| one.operation.to_string() == operation);
    settlement.is_none_or(|one| one.state != SettlementState::Withdrawn)
        && refund.is_none_or(|one| one.state != RefundState::Failed)
}
