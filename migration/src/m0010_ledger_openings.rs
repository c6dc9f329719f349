//! Marker that everything from before the ledger is posted. The service sets it, because only the domain can create the
//! postings.

use sea_orm_migration::prelude::*;

use crate::statements;

/// Marker that everything from before the ledger is posted.
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
