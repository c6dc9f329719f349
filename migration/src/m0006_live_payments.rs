//! The index of live payments, in few places.

use sea_orm_migration::prelude::*;

use crate::statements;

/// The index of live payments, in few places: ids of one moment are spread over all logical shards, so that an index by
/// shard has every new payment written to another page. By groups of 32 shards, new payments share few pages. The shard
/// itself comes last, so that the rows of other shards are passed over in the index.
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
