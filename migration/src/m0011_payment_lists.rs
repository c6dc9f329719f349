//! Index of a PSP's payments by purpose.

use sea_orm_migration::prelude::*;

use crate::statements;

/// Index of a PSP's payments by purpose. The lists of payments and of transfers use it for counting and paging.
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
