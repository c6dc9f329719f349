//! Position up to which the event feed of each PSP was deleted.

use sea_orm_migration::prelude::*;

use crate::statements;

/// Position up to which the event feed of each PSP was deleted.
#[derive(DeriveMigrationName)]
pub struct Migration;

const UP: &[&str] = &["CREATE TABLE event_floors (
         psp_id TEXT NOT NULL,
         position BIGINT NOT NULL,
         event_id TEXT NOT NULL,
         created_at BIGINT NOT NULL,
         updated_at BIGINT NOT NULL,
         PRIMARY KEY (psp_id),
         FOREIGN KEY (psp_id) REFERENCES psps (id)
     )"];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        statements::run(manager, UP).await
    }
}
