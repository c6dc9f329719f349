//! Deliveries of events to the endpoints of the PSP, one row per event and endpoint.

use sea_orm::entity::prelude::*;

use crate::DeliveryStatus;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "deliveries")]
pub struct Model {
    /// `whd_` id.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// Delivered event.
    pub event_id: String,
    /// Owning PSP.
    pub psp_id: String,
    /// Endpoint; null is the PSP's first one, whether it exists or not.
    pub endpoint_id: Option<String>,
    /// Subject of the event: payment, payout, withdrawal, or transfer.
    pub payment_id: String,
    /// Sequence number of the event.
    pub sequence: i64,
    /// Position of the event in the feed; determines the order of the queue.
    pub position: i64,
    /// Status.
    pub status: DeliveryStatus,
    /// URL of the last attempt.
    pub url: Option<String>,
    /// Number of all attempts.
    pub attempt_count: i64,
    /// Remaining attempts before the delivery is exhausted.
    pub retries_left: i64,
    /// Time of the next attempt, in milliseconds since the epoch; null if there is none.
    pub next_attempt_at: Option<i64>,
    /// HTTP status of the last attempt.
    pub response_code: Option<i64>,
    /// First 1 KiB of the last response.
    pub response_body: Option<String>,
    /// Duration of the last attempt.
    pub duration_ms: Option<i64>,
    /// Error of the last attempt, if there was no response.
    pub error: Option<String>,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

crate::tables::without_relations!();
