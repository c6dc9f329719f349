//! Whether what an operation is for still wants it, looked at before one that was signed before is signed anew.
//!
//! The chain may carry out what failed and was given up, and take that back again: then it must not go out a second time.
//! Sendings and refunds are given up when the chain has refused them; a settlement (or a transfer's delivery, which is one)
//! when its payment's money was taken back while it was on its way, where its row cannot be cancelled.

use std::collections::HashSet;

use payferry_domain::payment::{Payment, RefundState, SettlementState};
use payferry_entities::{Database, operations, payments, sendings};
use payferry_journal::chain::is_sending;
use payferry_journal::payments::payment_of;
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect};

/// Operations, by their id, that were tried before and that their sending, refund or settlement has given up since.
pub(super) async fn given_up(database: &Database, rows: &[operations::Model]) -> Result<HashSet<String>, DbErr> {
    let (sent, paid): (Vec<_>, Vec<_>) = rows.iter().filter(|row| row.attempts > 0).partition(|row| is_sending(row));
    let mut found = HashSet::new();
    if !sent.is_empty() {
        let failed: Vec<String> = sendings::Entity::find()
            .select_only()
            .column(sendings::Column::Id)
            .filter(sendings::Column::Id.is_in(sent.iter().map(|row| row.payment_id.as_str())))
            .filter(sendings::Column::Status.eq("failed"))
            .into_tuple()
            .all(database.reader())
            .await?;
        found.extend(sent.iter().filter(|row| failed.contains(&row.payment_id)).map(|row| row.id.clone()));
    }
    if !paid.is_empty() {
        let ids = paid.iter().map(|row| row.payment_id.as_str());
        let owners = payments::Entity::find().filter(payments::Column::Id.is_in(ids)).all(database.reader()).await?;
        // What cannot be read decides nothing.
        let owners: Vec<Payment> = owners.iter().filter_map(|row| payment_of(row).ok()).collect();
        let is_wanted = |row: &operations::Model| {
            let owner = owners.iter().find(|payment| payment.id().to_string() == row.payment_id);
            owner.is_none_or(|payment| wants(payment, &row.id))
        };
        found.extend(paid.iter().filter(|row| !is_wanted(row)).map(|row| row.id.clone()));
    }
    Ok(found)
}

fn wants(payment: &Payment, operation: &str) -> bool {
    let settlement = payment.settlement.as_deref().filter(|one| one.operation.to_string() == operation);
    let refund = payment.refunds.iter().find(|one| one.operation.to_string() == operation);
    settlement.is_none_or(|one| one.state != SettlementState::Withdrawn)
        && refund.is_none_or(|one| one.state != RefundState::Failed)
}
