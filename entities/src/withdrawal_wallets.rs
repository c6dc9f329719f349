//! Where PSPs withdraw to. Rows are only ever added: which one holds follows from their order and times.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "withdrawal_wallets")]
pub struct Model {
    /// In the order of writing.
    #[sea_orm(primary_key)]
    pub number: i64,
    /// Whose.
    pub psp_id: String,
    /// On which chain, or `*`: on every chain without one of its own.
    pub chain: String,
    /// Where to; null: nowhere from then on.
    pub address: Option<String>,
    /// From when on it holds, milliseconds since the epoch.
    pub effective_at: i64,
    /// The kind of actor that set it, as in the audit log.
    pub set_by: String,
    /// Milliseconds since the epoch.
    pub created_at: i64,
}

/// Joins are written where they are needed; none is declared here.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
