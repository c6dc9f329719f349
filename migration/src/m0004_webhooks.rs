//! The event feed, deliveries and endpoints.

use sea_orm_migration::prelude::*;

use crate::statements;

/// The event feed, deliveries and endpoints.
#[derive(DeriveMigrationName)]
pub struct Migration;

const UP: &[&str] = &[
    "CREATE TABLE events (
         position {identity},
         id TEXT NOT NULL,
         psp_id TEXT NOT NULL,
         payment_id TEXT NOT NULL,
         sequence BIGINT NOT NULL,
         name TEXT NOT NULL,
         payload TEXT NOT NULL,
         created_at BIGINT NOT NULL,
         UNIQUE (id),
         UNIQUE (payment_id, sequence)
     )",
    "CREATE INDEX events_psp_id_position ON events (psp_id, position)",
    "CREATE TABLE deliveries (
         id TEXT NOT NULL,
         event_id TEXT NOT NULL,
         psp_id TEXT NOT NULL,
         payment_id TEXT NOT NULL,
         sequence BIGINT NOT NULL,
         position BIGINT NOT NULL,
         status TEXT NOT NULL,
         url TEXT,
         attempt_count BIGINT NOT NULL,
         retries_left BIGINT NOT NULL,
         next_attempt_at BIGINT,
         response_code BIGINT,
         response_body TEXT,
         duration_ms BIGINT,
         error TEXT,
         created_at BIGINT NOT NULL,
         updated_at BIGINT NOT NULL,
         PRIMARY KEY (id)
     )",
    "CREATE INDEX deliveries_event_id ON deliveries (event_id)",
    "CREATE INDEX deliveries_payment_id_sequence ON deliveries (payment_id, sequence)",
    "CREATE INDEX deliveries_psp_id_status_next_attempt_at ON deliveries (psp_id, status, next_attempt_at)",
    "CREATE INDEX deliveries_psp_id_position ON deliveries (psp_id, position)",
    "CREATE TABLE delivery_attempts (
         delivery_id TEXT NOT NULL,
         number BIGINT NOT NULL,
         at BIGINT NOT NULL,
         url TEXT NOT NULL,
         response_code BIGINT,
         response_body TEXT,
         duration_ms BIGINT NOT NULL,
         error TEXT,
         PRIMARY KEY (delivery_id, number),
         FOREIGN KEY (delivery_id) REFERENCES deliveries (id)
     )",
    "CREATE TABLE webhook_endpoints (
         psp_id TEXT NOT NULL,
         url TEXT NOT NULL,
         events TEXT NOT NULL,
         secret TEXT NOT NULL,
         previous_secret TEXT,
         previous_secret_expires_at BIGINT,
         created_at BIGINT NOT NULL,
         updated_at BIGINT NOT NULL,
         PRIMARY KEY (psp_id),
         FOREIGN KEY (psp_id) REFERENCES psps (id)
     )",
    "CREATE INDEX deliveries_queued ON deliveries (psp_id, position) WHERE status = 'queued'",
];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        statements::run(manager, UP).await
    }
}
