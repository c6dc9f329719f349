//! What the operator holds back. A row that is gone is a pause that was lifted.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "pauses")]
pub struct Model {
    /// Such as `chain:base`, `psp:psp_...`, `settlement` or `sending:polygon`.
    #[sea_orm(primary_key, auto_increment = false)]
    pub scope: String,
    /// Why, in the operator's words.
    #[sea_orm(column_type = "Text")]
    pub reason: String,
    /// The kind of actor that paused it, as in the audit log.
    pub set_by: String,
    /// Milliseconds since the epoch.
    pub since: i64,
}

/// Joins are written where they are needed; none is declared here.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
