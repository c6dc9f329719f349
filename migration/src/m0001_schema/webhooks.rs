//! The event feed, webhook endpoints, and deliveries.

pub(super) const BOTH: &[&str] = &[
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
    "CREATE INDEX events_psp_id_created_at ON events (psp_id, created_at)",
    // Position up to which the event feed of each PSP was deleted.
    "CREATE TABLE event_floors (
         psp_id TEXT NOT NULL,
         position BIGINT NOT NULL,
         event_id TEXT NOT NULL,
         created_at BIGINT NOT NULL,
         updated_at BIGINT NOT NULL,
         PRIMARY KEY (psp_id),
         FOREIGN KEY (psp_id) REFERENCES psps (id)
     )",
    "CREATE TABLE webhook_endpoints (
         id TEXT NOT NULL,
         psp_id TEXT NOT NULL,
         url TEXT NOT NULL,
         events TEXT NOT NULL,
         secret TEXT NOT NULL,
         previous_secret TEXT,
         previous_secret_expires_at BIGINT,
         description TEXT,
         schedule TEXT NOT NULL,
         status TEXT NOT NULL,
         created_at BIGINT NOT NULL,
         updated_at BIGINT NOT NULL,
         PRIMARY KEY (id),
         CHECK (schedule IN ('default', 'extended')),
         CHECK (status IN ('enabled', 'disabled', 'deleted')),
         FOREIGN KEY (psp_id) REFERENCES psps (id)
     )",
    "CREATE INDEX webhook_endpoints_psp_id ON webhook_endpoints (psp_id)",
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
         endpoint_id TEXT,
         created_at BIGINT NOT NULL,
         updated_at BIGINT NOT NULL,
         PRIMARY KEY (id),
         CHECK (status IN ('queued', 'failed', 'delivered', 'exhausted', 'cancelled'))
     )",
    "CREATE INDEX deliveries_event_id ON deliveries (event_id)",
    "CREATE INDEX deliveries_payment_id_sequence ON deliveries (payment_id, sequence)",
    "CREATE INDEX deliveries_psp_id_status_next_attempt_at ON deliveries (psp_id, status, next_attempt_at)",
    "CREATE INDEX deliveries_psp_id_position ON deliveries (psp_id, position)",
    // Failed deliveries by age: the operator sees the oldest one.
    "CREATE INDEX deliveries_failed ON deliveries (psp_id, position) WHERE status = 'failed'",
    "CREATE INDEX deliveries_exhausted ON deliveries (psp_id, position) WHERE status = 'exhausted'",
    // Each endpoint has its own queue.
    "CREATE INDEX deliveries_queued ON deliveries (COALESCE(endpoint_id, psp_id), position) WHERE status = 'queued'",
    "CREATE INDEX deliveries_retries ON deliveries (COALESCE(endpoint_id, psp_id), next_attempt_at) \
     WHERE status = 'failed'",
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
];
