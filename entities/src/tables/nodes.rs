//! Processes of the service that share the database.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "nodes")]
pub struct Model {
    /// `node_` id, new at every start.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// Name from the configuration.
    pub name: String,
    /// Version of Payferry.
    pub version: String,
    /// Digest of the settings that must be the same on all nodes.
    pub config_digest: String,
    /// URL of the public listener.
    pub api_url: String,
    /// URL of the operator's listener.
    pub operator_url: String,
    /// `joining`, `ready`, `draining` or `gone`.
    pub state: String,
    /// Milliseconds since the epoch, by the clock of the database server.
    pub joined_at: i64,
    /// Time of the last heartbeat, in milliseconds since the epoch, by the clock of the database server.
    pub seen_at: i64,
    /// Clock of the node's machine minus the clock of the database server, in milliseconds.
    pub clock_offset_ms: i64,
    /// True if an operator has asked the node to drain.
    pub drain_requested: bool,
    /// Time at which it ended by itself. NULL while it runs, and if it was declared gone.
    pub left_at: Option<i64>,
}

crate::tables::without_relations!();
