//! Payments, their transitions and refunds, and received transfers.

pub(super) const BOTH: &[&str] = &[
    "CREATE TABLE payments (
         id TEXT NOT NULL,
         psp_id TEXT NOT NULL,
         merchant_id TEXT,
         customer_id TEXT,
         reference TEXT,
         shard BIGINT NOT NULL,
         version BIGINT NOT NULL,
         status TEXT NOT NULL,
         live BOOLEAN NOT NULL,
         attention TEXT,
         chain TEXT NOT NULL,
         token TEXT NOT NULL,
         amount BIGINT NOT NULL,
         amount_received BIGINT NOT NULL,
         wallet TEXT NOT NULL,
         link_token TEXT NOT NULL,
         expires_at BIGINT NOT NULL,
         created_at BIGINT NOT NULL,
         updated_at BIGINT NOT NULL,
         purpose TEXT NOT NULL,
         labels TEXT,
         state TEXT NOT NULL,
         PRIMARY KEY (id),
         UNIQUE (link_token),
         CHECK (purpose IN ('payin', 'transfer')),
         CHECK (status IN ('pending', 'confirmed', 'settled', 'mismatched', 'failed')),
         CHECK (amount > 0),
         CHECK (amount_received >= 0),
         FOREIGN KEY (psp_id) REFERENCES psps (id),
         FOREIGN KEY (merchant_id) REFERENCES merchants (id)
     )",
    "CREATE INDEX payments_psp_id_status_created_at ON payments (psp_id, status, created_at)",
    "CREATE INDEX payments_psp_id_merchant_id_created_at ON payments (psp_id, merchant_id, created_at)",
    "CREATE INDEX payments_psp_id_reference ON payments (psp_id, reference)",
    // Queries of the operator for payments that need attention.
    "CREATE INDEX payments_attention ON payments (attention, updated_at) WHERE attention IS NOT NULL",
    "CREATE INDEX payments_pending ON payments (expires_at) WHERE status = 'pending'",
    "CREATE INDEX payments_confirmed ON payments (updated_at) WHERE status = 'confirmed'",
    "CREATE INDEX payments_customer_id_id ON payments (customer_id, id) WHERE customer_id IS NOT NULL",
    "CREATE INDEX payments_live ON payments (id, shard, wallet, live) WHERE live",
    "CREATE INDEX payments_list ON payments (psp_id, purpose, created_at, id, chain, token)",
    "CREATE INDEX payments_updated ON payments (psp_id, purpose, updated_at)",
    "CREATE INDEX payments_labelled ON payments (psp_id, purpose, created_at, id, labels) WHERE labels IS NOT NULL",
    "CREATE TABLE payment_transitions (
         payment_id TEXT NOT NULL,
         version BIGINT NOT NULL,
         at BIGINT NOT NULL,
         events TEXT NOT NULL,
         PRIMARY KEY (payment_id, version),
         FOREIGN KEY (payment_id) REFERENCES payments (id)
     )",
    "CREATE TABLE transfers (
         chain TEXT NOT NULL,
         tx_hash TEXT NOT NULL,
         log_index BIGINT NOT NULL,
         block_hash TEXT NOT NULL,
         payment_id TEXT NOT NULL,
         token_address TEXT NOT NULL,
         from_address TEXT NOT NULL,
         to_address TEXT NOT NULL,
         amount BIGINT NOT NULL,
         block_number BIGINT NOT NULL,
         block_time BIGINT NOT NULL,
         presence TEXT NOT NULL,
         revision BIGINT NOT NULL,
         applied_revision BIGINT NOT NULL,
         applied_version BIGINT NOT NULL,
         created_at BIGINT NOT NULL,
         PRIMARY KEY (chain, tx_hash, log_index, block_hash),
         CHECK (presence IN ('present', 'orphaned')),
         CHECK (amount > 0),
         FOREIGN KEY (payment_id) REFERENCES payments (id)
     )",
    "CREATE INDEX transfers_payment_id ON transfers (payment_id)",
    "CREATE INDEX transfers_chain_block_number ON transfers (chain, block_number)",
    "CREATE INDEX transfers_chain_block_hash ON transfers (chain, block_hash)",
    "CREATE INDEX transfers_unapplied ON transfers (chain) WHERE applied_revision < revision",
    // Transfers that their payments processed but do not list. They are few, and the operator searches for them.
    "CREATE INDEX transfers_set_aside ON transfers (payment_id, chain, token_address) \
     WHERE applied_version = 0 AND applied_revision > 0 AND presence = 'present'",
    "CREATE TABLE refunds (
         id TEXT NOT NULL,
         payment_id TEXT NOT NULL,
         psp_id TEXT NOT NULL,
         reference TEXT,
         status TEXT NOT NULL,
         created_at BIGINT NOT NULL,
         PRIMARY KEY (id),
         CHECK (status IN ('pending_approval', 'pending', 'sent', 'failed')),
         FOREIGN KEY (payment_id) REFERENCES payments (id)
     )",
    "CREATE INDEX refunds_list ON refunds (psp_id, created_at, id)",
    "CREATE INDEX refunds_status ON refunds (psp_id, status, created_at, id)",
    "CREATE INDEX refunds_reference ON refunds (psp_id, reference, created_at, id) WHERE reference IS NOT NULL",
    "CREATE INDEX refunds_payment ON refunds (payment_id, created_at, id)",
];

/// Wallets are hashes, so each new payment writes another page of an index of wallets. On SQLite, this is half of all data
/// written for a payment. The watcher caches live wallets in memory, so this index contains only finished payments.
pub(super) const SQLITE: &[&str] = &["CREATE INDEX payments_over ON payments (wallet) WHERE NOT live"];

/// PostgreSQL keeps every wallet in its index, because a process may not know everything that is committed: another
/// process may be active, or may have just ended.
pub(super) const POSTGRES: &[&str] = &["ALTER TABLE payments ADD UNIQUE (wallet)"];
