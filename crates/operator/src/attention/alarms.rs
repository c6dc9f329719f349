//! Kinds that are read from the alarms about payments.

use payferry_actors::System;
use payferry_domain::{Amount, Timestamp};
use payferry_entities::{alarms, payments};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, Value};
use std::collections::HashMap;

use crate::attention::{AttentionItem, AttentionKind, Found, Part};
use crate::query::{Count, rows};

const ORDER: [&str; 3] = ["raised_at", "payment_id", "version"];

/// Alarms whose cause has not ended.
pub(super) async fn of(system: &System, kind: AttentionKind, part: Part<'_>) -> Result<Found, DbErr> {
    // The kinds have the names of the alarms.
    let from = format!("FROM alarms WHERE ended_at IS NULL AND kind = '{kind}' AND raised_at < $1");
    let from = part.open(kind, &from, &ORDER);
    let (database, before) = (system.database(), Value::from(i64::MAX));
    let total = Count::rows(database, &from, [before.clone()]).await?;
    let values = part.values_with(before, |after| {
        let [payment_id, version] = after.parts();
        vec![payment_id.into(), version.parse::<i64>().unwrap_or_default().into()]
    });
    let found: Vec<alarms::Model> = rows(database, part.sql(&from, &ORDER), values).await?;
    let ids = found.iter().map(|row| row.payment_id.as_str());
    let of_them = payments::Entity::find().filter(payments::Column::Id.is_in(ids)).all(database.reader()).await?;
    let payments: HashMap<&str, &payments::Model> = of_them.iter().map(|row| (row.id.as_str(), row)).collect();
    let now: Timestamp = system.clock().now();
    let item = |row: &alarms::Model| {
        let alarms::Model { payment_id, version, raised_at, detail, .. } = row;
        let item = AttentionItem::new(payment_id, Some(Timestamp(*raised_at)), now, detail);
        let item =
            item.of_payment(payment_id, Some(&row.psp_id)).at_position(*raised_at, format!("{payment_id}:{version}"));
        match payments.get(payment_id.as_str()) {
            Some(payment) => item.of_money(&payment.chain, Amount(row.amount), &payment.token),
            None => item,
        }
    };
    Ok((total, found.iter().map(item).collect()))
}
