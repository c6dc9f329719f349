//! Database tables as SeaORM entities, one file per table, and the code that opens the database.
//!
//! Amounts are integers in base units and times are integers in milliseconds since the epoch, so that SQLite and
//! PostgreSQL store and compare the same values. There are no business rules here.

pub mod api_keys;
pub mod audit_log;
pub mod balances;
pub mod chain_counters;
pub mod chain_cursors;
pub mod chain_headers;
pub mod chain_tx_attempts;
pub mod chain_txs;
mod checkpoints;
pub mod checks;
pub mod connection;
pub mod customer_documents;
pub mod customers;
pub mod database;
pub mod deliveries;
pub mod delivery_attempts;
pub mod event_floors;
pub mod events;
pub mod failure;
pub mod hold;
pub mod idempotency_keys;
pub mod in_one_statement;
pub mod ledger_openings;
pub mod ledger_postings;
pub mod merchants;
pub mod operations;
pub mod pauses;
pub mod payment_details;
pub mod payment_transitions;
pub mod payments;
pub mod postgres;
pub mod psps;
pub mod sending_transitions;
pub mod sendings;
pub mod sends_per_day;
mod store_error;
pub mod transfers;
pub mod webhook_endpoints;
pub mod withdrawal_wallets;

pub use connection::{Connection, Transaction};
pub use database::{Database, DatabaseError};
pub use failure::Failure;
pub use hold::Hold;
pub use in_one_statement::{Batch, NotCommitted};
pub use store_error::{ChangeError, StoreError};
