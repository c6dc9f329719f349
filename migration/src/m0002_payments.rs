//! Payments, their transitions, and received transfers.

use sea_orm_migration::prelude::*;

use crate::statements;

/// Payments, their transitions, and received transfers.
#[derive(DeriveMigrationName)]
pub struct Migration;

const UP: &[&str] = &[
    "CREATE TABLE payments (
         id TEXT NOT NULL,
         psp_id TEXT NOT NULL,
         merchant_id TEXT NOT NULL,
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
         state TEXT NOT NULL,
         PRIMARY KEY (id),
         UNIQUE (wallet),
         UNIQUE (link_token),
         FOREIGN KEY (psp_id) REFERENCES psps (id),
         FOREIGN KEY (merchant_id) REFERENCES merchants (id)
     )",
    "CREATE INDEX payments_psp_id_created_at_id ON payments (psp_id, created_at, id)",
    "CREATE INDEX payments_psp_id_status_created_at ON payments (psp_id, status, created_at)",
    "CREATE INDEX payments_psp_id_merchant_id_created_at ON payments (psp_id, merchant_id, created_at)",
    "CREATE INDEX payments_psp_id_reference ON payments (psp_id, reference)",
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
         payment_id TEXT NOT NULL,
         token_address TEXT NOT NULL,
         from_address TEXT NOT NULL,
         to_address TEXT NOT NULL,
         amount BIGINT NOT NULL,
         block_number BIGINT NOT NULL,
         block_hash TEXT NOT NULL,
         block_time BIGINT NOT NULL,
         presence TEXT NOT NULL,
         revision BIGINT NOT NULL,
         applied_revision BIGINT NOT NULL,
         applied_version BIGINT NOT NULL,
         created_at BIGINT NOT NULL,
         PRIMARY KEY (chain, tx_hash, log_index),
         FOREIGN KEY (payment_id) REFERENCES payments (id)
     )",
    "CREATE INDEX transfers_payment_id ON transfers (payment_id)",
    "CREATE INDEX transfers_chain_block_number ON transfers (chain, block_number)",
    "CREATE INDEX transfers_chain_block_hash ON transfers (chain, block_hash)",
    "CREATE INDEX payments_live ON payments (shard, id) WHERE live",
    // Queries of the operator for payments that need attention.
    "CREATE INDEX payments_attention ON payments (attention, updated_at) WHERE attention IS NOT NULL",
    "CREATE INDEX payments_pending ON payments (expires_at) WHERE status = 'pending'",
    "CREATE INDEX payments_confirmed ON payments (updated_at) WHERE status = 'confirmed'",
    "CREATE INDEX transfers_unapplied ON transfers (chain) WHERE applied_revision < revision",
];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        statements::run(manager, UP).await
    }
}
