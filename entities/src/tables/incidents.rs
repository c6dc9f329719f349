//! Supervision log of all nodes: each failure of an actor, with the action that followed.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "incidents")]
pub struct Model {
    /// Number, in the order of recording.
    #[sea_orm(primary_key)]
    pub number: i64,
    /// Node of the actor; empty if the service runs alone.
    pub node: String,
    /// Milliseconds since the epoch.
    pub at: i64,
    /// Kind of the actor.
    pub kind: String,
    /// Name of the actor.
    pub name: String,
    /// Class of the failure.
    pub cause: String,
    /// Reason of the failure, with its source location if it is a panic.
    #[sea_orm(column_type = "Text")]
    pub reason: String,
    /// Action that followed.
    pub action: String,
}

crate::tables::without_relations!();
