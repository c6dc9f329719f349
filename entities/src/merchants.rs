//! Merchants, as synced by their PSP.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "merchants")]
pub struct Model {
    /// `merch_` id.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// Owning PSP.
    pub psp_id: String,
    /// Reference from the PSP, unique per PSP.
    pub external_id: String,
    /// Business name.
    pub name: String,
    /// Contact email.
    pub email: String,
    /// Legal or tax registration; immutable.
    pub business_id: String,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

/// Empty, because queries write their joins explicitly.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
