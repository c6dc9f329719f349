//! Webhook endpoints of the PSPs.

use sea_orm::entity::prelude::*;

use crate::EndpointStatus;

/// SQL: the key of the endpoint's deliveries (`COALESCE(endpoint_id, psp_id)`).
pub const LANE: &str = "CASE WHEN substr(id, 4) = substr(psp_id, 5) THEN psp_id ELSE id END";

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "webhook_endpoints")]
pub struct Model {
    /// `we_` id. That of the PSP's first endpoint has the ULID of the PSP.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// Owning PSP.
    pub psp_id: String,
    /// HTTPS URL.
    pub url: String,
    /// The PSP's own note.
    pub description: Option<String>,
    /// default or extended: the schedule of retries.
    pub schedule: String,
    /// Status.
    pub status: EndpointStatus,
    /// JSON array of event patterns; empty means all.
    #[sea_orm(column_type = "Text")]
    pub events: String,
    /// Signing secret, encrypted.
    pub secret: String,
    /// Previous secret, encrypted.
    pub previous_secret: Option<String>,
    /// Time until which the previous secret also signs.
    pub previous_secret_expires_at: Option<i64>,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

crate::tables::without_relations!();
