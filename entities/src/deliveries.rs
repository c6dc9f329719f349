//! One row an event that is to reach the PSP's endpoint.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "deliveries")]
pub struct Model {
    /// `whd_` id.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// What is delivered.
    pub event_id: String,
    /// Owner.
    pub psp_id: String,
    /// What the event is about.
    pub payment_id: String,
    /// Of the event.
    pub sequence: i64,
    /// Of the event in the feed; orders the queue.
    pub position: i64,
    /// queued, failed (waits for a retry), delivered or exhausted.
    pub status: String,
    /// Where the last attempt went.
    pub url: Option<String>,
    /// Attempts made, ever.
    pub attempt_count: i64,
    /// Attempts that remain before it is exhausted.
    pub retries_left: i64,
    /// When the next is due, milliseconds since the epoch; null when none is.
    pub next_attempt_at: Option<i64>,
    /// Of the last attempt.
    pub response_code: Option<i64>,
    /// First 1 KiB of the last answer.
    pub response_body: Option<String>,
    /// Of the last attempt.
    pub duration_ms: Option<i64>,
    /// Why the last attempt failed, if not by its answer.
    pub error: Option<String>,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

/// Joins are written where they are needed; none is declared here.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
