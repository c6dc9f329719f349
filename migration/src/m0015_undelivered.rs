//! Indexes of failed deliveries by age.

use sea_orm_migration::prelude::*;

use crate::statements;

/// Indexes of failed deliveries by age.
///
/// They show the operator the age of the oldest undelivered event, separately for deliveries that wait for a retry and
/// for exhausted ones. A delivery is in an index only while it has that status; most never are.
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
