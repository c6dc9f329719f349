//! Time of the last change of each API key.

pub(crate) const UP: &[&str] = &[
    "ALTER TABLE api_keys ADD COLUMN updated_at BIGINT NOT NULL DEFAULT 0",
    "UPDATE api_keys SET updated_at = COALESCE(revoked_at, created_at)",
];
