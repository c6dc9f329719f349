//! Nodes that share the database, their leases, and what the node that reads a chain publishes for the others.

use crate::change::Change;

pub(crate) const CHANGE: Change = Change {
    name: "m0003_leases",
    both: &[&[
        "CREATE TABLE nodes (
             id TEXT NOT NULL PRIMARY KEY,
             name TEXT NOT NULL,
             version TEXT NOT NULL,
             config_digest TEXT NOT NULL,
             api_url TEXT NOT NULL,
             operator_url TEXT NOT NULL,
             state TEXT NOT NULL CHECK (state IN ('joining', 'ready', 'draining', 'gone')),
             joined_at BIGINT NOT NULL,
             seen_at BIGINT NOT NULL,
             clock_offset_ms BIGINT NOT NULL,
             drain_requested BOOLEAN NOT NULL
         )",
        "CREATE TABLE leases (
             name TEXT NOT NULL PRIMARY KEY,
             kind TEXT NOT NULL,
             owner TEXT REFERENCES nodes (id),
             requested_by TEXT,
             epoch BIGINT NOT NULL,
             changed_at BIGINT NOT NULL
         )",
        "CREATE TABLE chain_views (
             chain TEXT NOT NULL PRIMARY KEY,
             epoch BIGINT NOT NULL,
             view TEXT NOT NULL
         )",
    ]],
    sqlite: &[],
    postgres: &[],
};
