//! The index of a PSP's payments, by what they are for.

use sea_orm_migration::prelude::*;

use crate::statements;

/// The index of a PSP's payments, by what they are for: the lists of payments and of transfers are counted and paged in it.
#[derive(DeriveMigrationName)]
pub struct Migration;

const UP: &[&str] = &[
    "CREATE INDEX payments_psp_id_purpose_created_at_id ON payments (psp_id, purpose, created_at, id)",
    "DROP INDEX payments_psp_id_created_at_id",
];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        statements::run(manager, UP).await
    }
}
