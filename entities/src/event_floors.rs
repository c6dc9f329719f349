//! How far the feed of each PSP has been forgotten.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "event_floors")]
pub struct Model {
    /// Owner.
    #[sea_orm(primary_key, auto_increment = false)]
    pub psp_id: String,
    /// Of the last event that was forgotten; older ones that were not delivered may still be there.
    pub position: i64,
    /// Its id.
    pub event_id: String,
    /// When it was made, milliseconds since the epoch.
    pub created_at: i64,
    /// When it was forgotten, milliseconds since the epoch.
    pub updated_at: i64,
}

/// Joins are written where they are needed; none is declared here.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
