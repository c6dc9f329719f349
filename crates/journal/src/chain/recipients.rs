//! Checks, right before signing, that customers may still be paid.

use std::collections::{HashMap, HashSet};

use payferry_entities::{Database, customers, operations, payment_details, payments, sendings};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect};

use super::pays_customer;
use crate::customers::customer_of;

/// Ids of operations with a customer that is not cleared, is deactivated, or has another wallet than the operation's
/// recipient.
pub async fn uncleared(database: &Database, rows: &[operations::Model]) -> Result<HashSet<String>, DbErr> {
    let paying: Vec<&operations::Model> = rows.iter().filter(|row| pays_customer(row)).collect();
    if paying.is_empty() {
        return Ok(HashSet::new());
    }
    let subjects: Vec<&str> = paying.iter().map(|row| row.payment_id.as_str()).collect();
    let reader = database.reader();
    let mut of_subject: HashMap<String, Option<String>> = payments::Entity::find()
        .select_only()
        .columns([payments::Column::Id, payments::Column::CustomerId])
        .filter(payments::Column::Id.is_in(subjects.iter().copied()))
        .into_tuple::<(String, Option<String>)>()
        .all(reader)
        .await?
        .into_iter()
        .collect();
    let of_sendings = sendings::Entity::find()
        .select_only()
        .columns([sendings::Column::Id, sendings::Column::CustomerId])
        .filter(sendings::Column::Id.is_in(subjects.iter().copied()))
        .into_tuple::<(String, Option<String>)>();
    of_subject.extend(of_sendings.all(reader).await?);
    let ids: HashSet<&str> = of_subject.values().flatten().map(String::as_str).collect();
    let found = customers::Entity::find().filter(customers::Column::Id.is_in(ids.iter().copied())).all(reader).await?;
    let cleared: HashSet<&str> = found
        .iter()
        .filter(|row| customer_of(row).is_ok_and(|customer| customer.is_active && customer.is_cleared()))
        .map(|row| row.id.as_str())
        .collect();
    let wallets: HashMap<String, Option<String>> = payment_details::Entity::find()
        .select_only()
        .columns([payment_details::Column::CustomerId, payment_details::Column::WalletAddress])
        .filter(payment_details::Column::CustomerId.is_in(ids.iter().copied()))
        .into_tuple::<(String, Option<String>)>()
        .all(reader)
        .await?
        .into_iter()
        .collect();
    let may = |row: &operations::Model| {
        let customer = of_subject.get(&row.payment_id)?.as_deref().filter(|id| cleared.contains(id))?;
        let wallet = wallets.get(customer)?.as_deref()?;
        Some(row.recipient.as_deref()?.eq_ignore_ascii_case(wallet))
    };
    Ok(paying.into_iter().filter(|row| may(row) != Some(true)).map(|row| row.id.clone()).collect())
}
