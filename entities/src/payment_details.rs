//! Payment details of customers. The primary key ensures one set per customer.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
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

/// Empty, because queries write their joins explicitly.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
