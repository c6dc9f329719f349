//! The index of transfers that their payments have set aside.

use sea_orm_migration::prelude::*;

use crate::statements;

/// The index of transfers that their payments have taken note of and do not list: few, and what the operator looks for.
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
