//! Index of live payments by groups of shards.

use sea_orm_migration::prelude::*;

use crate::statements;

/// Index of live payments by groups of shards. Ids of the same millisecond are spread over all logical shards, so an
/// index by shard writes every new payment to another page. With groups of 32 shards, new payments share few pages. The
/// shard is the last column, so that the index can skip rows of other shards.
#[derive(DeriveMigrationName)]
pub struct Migration;

const UP: &[&str] =
    &["DROP INDEX payments_live", "CREATE INDEX payments_live ON payments ((shard / 32), id, shard) WHERE live"];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        statements::run(manager, UP).await
    }
}
