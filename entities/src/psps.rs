//! Payment service providers (tenants).

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "psps")]
pub struct Model {
    /// `psp_` id.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// Display name.
    pub name: String,
    /// Policies as JSON: fee, tolerance, overpayment and so on.
    #[sea_orm(column_type = "Text")]
    pub settings: String,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

/// Empty, because queries write their joins explicitly.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
