//! Pauses set by the operator. Lifting a pause deletes its row.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
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

/// Empty, because queries write their joins explicitly.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
