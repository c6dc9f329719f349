//! PSPs, their API keys, merchants, withdrawal wallets, and idempotency keys.

pub(super) const BOTH: &[&str] = &[
    "CREATE TABLE psps (
         id TEXT NOT NULL,
         name TEXT NOT NULL,
         settings TEXT NOT NULL,
         created_at BIGINT NOT NULL,
         updated_at BIGINT NOT NULL,
         PRIMARY KEY (id)
     )",
    "CREATE TABLE api_keys (
         id TEXT NOT NULL,
         psp_id TEXT NOT NULL,
         name TEXT NOT NULL,
         secret_hash TEXT NOT NULL,
         scopes TEXT NOT NULL,
         expires_at BIGINT,
         revoked_at BIGINT,
         last_used_at BIGINT,
         created_at BIGINT NOT NULL,
         updated_at BIGINT NOT NULL,
         PRIMARY KEY (id),
         FOREIGN KEY (psp_id) REFERENCES psps (id)
     )",
    "CREATE INDEX api_keys_psp_id ON api_keys (psp_id)",
    "CREATE TABLE merchants (
         id TEXT NOT NULL,
         psp_id TEXT NOT NULL,
         external_id TEXT NOT NULL,
         name TEXT NOT NULL,
         email TEXT NOT NULL,
         business_id TEXT NOT NULL,
         created_at BIGINT NOT NULL,
         updated_at BIGINT NOT NULL,
         PRIMARY KEY (id),
         UNIQUE (psp_id, external_id),
         FOREIGN KEY (psp_id) REFERENCES psps (id)
     )",
    "CREATE INDEX merchants_psp_id_created_at_id ON merchants (psp_id, created_at, id)",
    // Rows are only inserted; their order and times determine the current wallet.
    "CREATE TABLE withdrawal_wallets (
         number {identity},
         psp_id TEXT NOT NULL,
         chain TEXT NOT NULL,
         address TEXT,
         effective_at BIGINT NOT NULL,
         set_by TEXT NOT NULL,
         created_at BIGINT NOT NULL,
         FOREIGN KEY (psp_id) REFERENCES psps (id)
     )",
    "CREATE INDEX withdrawal_wallets_psp_id_number ON withdrawal_wallets (psp_id, number)",
    "CREATE TABLE idempotency_keys (
         psp_id TEXT NOT NULL,
         route TEXT NOT NULL,
         key TEXT NOT NULL,
         request_hash TEXT NOT NULL,
         response_status BIGINT NOT NULL,
         response_body TEXT NOT NULL,
         created_at BIGINT NOT NULL,
         expires_at BIGINT NOT NULL,
         PRIMARY KEY (psp_id, route, key),
         FOREIGN KEY (psp_id) REFERENCES psps (id)
     )",
    "CREATE INDEX idempotency_keys_expires_at ON idempotency_keys (expires_at)",
];
