//! Index of transfers that their payments set aside.

use sea_orm_migration::prelude::*;

use crate::statements;

/// Index of transfers that their payments processed but do not list. They are few, and the operator searches for them.
#[derive(DeriveMigrationName)]
pub struct Migration;

const UP: &[&str] = &["CREATE INDEX transfers_set_aside ON transfers (payment_id, chain, token_address) \
     WHERE applied_version = 0 AND applied_revision > 0 AND presence = 'present'"];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        statements::run(manager, UP).await
    }
}
