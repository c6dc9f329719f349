//! Alarms about payments that no label shows, until their cause ends.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "alarms")]
pub struct Model {
    /// Payment.
    #[sea_orm(primary_key, auto_increment = false)]
    pub payment_id: String,
    /// Version of the payment that raised it.
    #[sea_orm(primary_key, auto_increment = false)]
    pub version: i64,
    /// Kind of the alarm.
    #[sea_orm(primary_key, auto_increment = false)]
    pub kind: String,
    /// PSP of the payment.
    pub psp_id: String,
    /// Affected money, in units of the payment's token.
    pub amount: i64,
    /// Transaction or operation, for people.
    pub detail: String,
    /// Milliseconds since the epoch.
    pub raised_at: i64,
    /// Time at which its cause ended.
    pub ended_at: Option<i64>,
}

crate::tables::without_relations!();
