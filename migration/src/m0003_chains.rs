//! Chain cursors, operations and signed transactions.

use sea_orm_migration::prelude::*;

use crate::statements;

/// Chain cursors, operations and signed transactions.
#[derive(DeriveMigrationName)]
pub struct Migration;

const UP: &[&str] = &[
    "CREATE TABLE operations (
         id TEXT NOT NULL,
         chain TEXT NOT NULL,
         number BIGINT NOT NULL,
         kind TEXT NOT NULL,
         payment_id TEXT NOT NULL,
         psp_id TEXT NOT NULL,
         token_address TEXT NOT NULL,
         amount BIGINT NOT NULL,
         psp_amount BIGINT NOT NULL,
         treasury_fee BIGINT NOT NULL,
         recipient TEXT,
         status TEXT NOT NULL,
         chain_tx_id BIGINT,
         tx_hash TEXT,
         block_number BIGINT,
         failure TEXT,
         revision BIGINT NOT NULL,
         attempts BIGINT NOT NULL,
         not_before BIGINT NOT NULL,
         created_at BIGINT NOT NULL,
         updated_at BIGINT NOT NULL,
         PRIMARY KEY (id),
         UNIQUE (chain, number),
         FOREIGN KEY (payment_id) REFERENCES payments (id)
     )",
    "CREATE INDEX operations_chain_status_number ON operations (chain, status, number)",
    "CREATE INDEX operations_payment_id ON operations (payment_id)",
    "CREATE INDEX operations_chain_tx_id ON operations (chain_tx_id)",
    "CREATE TABLE chain_txs (
         id {identity},
         chain TEXT NOT NULL,
         sender TEXT NOT NULL,
         nonce BIGINT NOT NULL,
         to_address TEXT NOT NULL,
         input TEXT NOT NULL,
         gas_limit BIGINT NOT NULL,
         status TEXT NOT NULL,
         tx_hash TEXT,
         block_number BIGINT,
         block_hash TEXT,
         created_at BIGINT NOT NULL,
         updated_at BIGINT NOT NULL,
         UNIQUE (chain, sender, nonce)
     )",
    "CREATE INDEX chain_txs_chain_status ON chain_txs (chain, status)",
    "CREATE TABLE chain_tx_attempts (
         tx_hash TEXT NOT NULL,
         chain TEXT NOT NULL,
         sender TEXT NOT NULL,
         nonce BIGINT NOT NULL,
         raw TEXT NOT NULL,
         max_fee_per_gas TEXT NOT NULL,
         max_priority_fee_per_gas TEXT NOT NULL,
         created_at BIGINT NOT NULL,
         PRIMARY KEY (tx_hash)
     )",
    "CREATE INDEX chain_tx_attempts_chain_sender_nonce ON chain_tx_attempts (chain, sender, nonce)",
    "CREATE TABLE chain_cursors (
         chain TEXT NOT NULL,
         block_number BIGINT NOT NULL,
         block_hash TEXT NOT NULL,
         block_time BIGINT NOT NULL,
         second_look_from BIGINT NOT NULL,
         epoch BIGINT NOT NULL,
         updated_at BIGINT NOT NULL,
         PRIMARY KEY (chain)
     )",
    "CREATE TABLE chain_counters (
         name TEXT NOT NULL,
         next BIGINT NOT NULL,
         PRIMARY KEY (name)
     )",
    "CREATE TABLE chain_headers (
         chain TEXT NOT NULL,
         number BIGINT NOT NULL,
         hash TEXT NOT NULL,
         parent_hash TEXT NOT NULL,
         time BIGINT NOT NULL,
         PRIMARY KEY (chain, number)
     )",
];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        statements::run(manager, UP).await
    }
}
