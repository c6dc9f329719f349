//! Pauses set by the operator. Lifting a pause deletes its row.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "pauses")]
pub struct Model {
    /// Scope, such as `chain:base`, `psp:psp_...`, `settlement` or `sending:polygon`.
    #[sea_orm(primary_key, auto_increment = false)]
    pub scope: String,
    /// Reason given by the operator.
    #[sea_orm(column_type = "Text")]
    pub reason: String,
    /// Kind of the actor that set it, as in the audit log.
    pub set_by: String,
    /// Milliseconds since the epoch.
    pub since: i64,
}

crate::tables::without_relations!();
