//! Attempts of deliveries; append-only.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "delivery_attempts")]
pub struct Model {
    /// Delivery.
    #[sea_orm(primary_key, auto_increment = false)]
    pub delivery_id: String,
    /// Number of the attempt, from 1.
    #[sea_orm(primary_key, auto_increment = false)]
    pub number: i64,
    /// Milliseconds since the epoch.
    pub at: i64,
    /// Request URL.
    pub url: String,
    /// HTTP status, if there was a response.
    pub response_code: Option<i64>,
    /// First 1 KiB of the response.
    pub response_body: Option<String>,
    /// Duration.
    pub duration_ms: i64,
    /// Error, if there was no response.
    pub error: Option<String>,
}

crate::tables::without_relations!();
