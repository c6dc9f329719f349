//! The mark that everything from before the ledger is posted; set by the service, since only the domain can post it.

use sea_orm_migration::prelude::*;

use crate::statements;

/// The mark that everything from before the ledger is posted.
#[derive(DeriveMigrationName)]
pub struct Migration;

const UP: &[&str] = &["CREATE TABLE ledger_openings (
         id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
         opened_at BIGINT NOT NULL
     )"];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        statements::run(manager, UP).await
    }
}
