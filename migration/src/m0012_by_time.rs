//! Indexes by time: of operations that are under way, and of an account's events.

use sea_orm_migration::prelude::*;

use crate::statements;

/// Indexes by time.
///
/// Of operations that are under way, by when they were ordered: the operator sees those that take too long. Few are in it at a
/// time; an operation is written to it when it is ordered and with each step, and is gone from it at the end.
///
/// Of an account's events, which are redelivered in bulk by when they were made. Events are made in the order of time, so that
/// each is written to the end of the index, as it is to that by position: about a tenth more of the bare insert of an event.
#[derive(DeriveMigrationName)]
pub struct Migration;

const UP: &[&str] = &[
    "CREATE INDEX operations_open ON operations (created_at) WHERE status IN ('queued', 'submitted', 'mined')",
    "CREATE INDEX events_psp_id_created_at ON events (psp_id, created_at)",
];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        statements::run(manager, UP).await
    }
}
