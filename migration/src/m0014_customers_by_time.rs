//! Indexes of the customers of all PSPs by time.

use sea_orm_migration::prelude::*;

use crate::statements;

/// Indexes of the customers of all PSPs by time, for the operator: newest first, and by verification status. They
/// contain the other filter columns of the operator's list, like the index of a PSP's customers.
#[derive(DeriveMigrationName)]
pub struct Migration;

const UP: &[&str] = &[
    "CREATE INDEX customers_newest ON customers (created_at, id, is_active, email_search)",
    "CREATE INDEX customers_kyc_status ON customers (kyc_status, created_at, id, psp_id, is_active, email_search)",
];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        statements::run(manager, UP).await
    }
}
