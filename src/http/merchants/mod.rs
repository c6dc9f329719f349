//! Merchants: handlers that read and write rows, without an actor.

pub mod get;
pub mod list;
pub mod sync;

use payferry_domain::Timestamp;
use payferry_entities::merchants;
use serde::Serialize;
use utoipa::ToSchema;

/// A merchant.
#[derive(Debug, Serialize, ToSchema)]
pub struct Merchant {
    /// Permanent id, assigned by the service.
    #[schema(example = "merch_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
    pub merchant_id: String,
    /// The PSP's own reference, unique per PSP.
    pub external_id: String,
    /// Business name.
    pub name: String,
    /// Contact email address.
    pub email: String,
    /// Legal or tax registration; cannot change.
    pub business_id: String,
    /// ISO 8601.
    #[schema(format = "date-time")]
    pub created_at: String,
    /// ISO 8601.
    #[schema(format = "date-time")]
    pub updated_at: String,
}

impl From<merchants::Model> for Merchant {
    fn from(row: merchants::Model) -> Self {
        Self {
            merchant_id: row.id,
            external_id: row.external_id,
            name: row.name,
            email: row.email,
            business_id: row.business_id,
            created_at: Timestamp(row.created_at).to_string(),
            updated_at: Timestamp(row.updated_at).to_string(),
        }
    }
}
