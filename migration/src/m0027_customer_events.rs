//! Public events of customers, until the journal moves them into the feed.

pub(crate) const UP: &[&str] = &[
    "ALTER TABLE customers ADD COLUMN event_sequence BIGINT NOT NULL DEFAULT 0",
    "CREATE TABLE customer_events (
         number {identity},
         customer_id TEXT NOT NULL,
         psp_id TEXT NOT NULL,
         sequence BIGINT NOT NULL,
         name TEXT NOT NULL,
         kyc_status TEXT NOT NULL,
         is_active BOOLEAN NOT NULL,
         at BIGINT NOT NULL,
         UNIQUE (customer_id, sequence)
     )",
];
