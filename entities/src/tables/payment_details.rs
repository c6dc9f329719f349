//! Payment details of customers. The primary key ensures one set per customer.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "payment_details")]
pub struct Model {
    /// Customer id.
    #[sea_orm(primary_key, auto_increment = false)]
    pub customer_id: String,
    /// Wallet address with EIP-55 checksum, if set.
    pub wallet_address: Option<String>,
    /// Complete submitted set as JSON, encrypted.
    #[sea_orm(column_type = "Text")]
    pub details: String,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

crate::tables::without_relations!();
