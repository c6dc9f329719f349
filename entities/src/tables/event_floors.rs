//! Position up to which the event feed of each PSP was deleted.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "event_floors")]
pub struct Model {
    /// Owning PSP.
    #[sea_orm(primary_key, auto_increment = false)]
    pub psp_id: String,
    /// Position of the last deleted event. Older events that were not delivered may still exist.
    pub position: i64,
    /// Id of that event.
    pub event_id: String,
    /// Time of that event, in milliseconds since the epoch.
    pub created_at: i64,
    /// Time of deletion, in milliseconds since the epoch.
    pub updated_at: i64,
}

crate::tables::without_relations!();
