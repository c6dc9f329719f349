//! Indexes of deliveries that failed, by age.

use sea_orm_migration::prelude::*;

use crate::statements;

/// Indexes of deliveries that failed, by age.
///
/// The operator sees since when the oldest of them is undelivered, of those that wait for a retry and of those that were given up.
/// A delivery is in one of them only while it stands so; most never are.
#[derive(DeriveMigrationName)]
pub struct Migration;

const UP: &[&str] = &[
    "CREATE INDEX deliveries_failed ON deliveries (psp_id, position) WHERE status = 'failed'",
    "CREATE INDEX deliveries_exhausted ON deliveries (psp_id, position) WHERE status = 'exhausted'",
];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        statements::run(manager, UP).await
    }
}
