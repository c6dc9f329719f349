//! Merchants, as synced by their PSP.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
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

crate::tables::without_relations!();
