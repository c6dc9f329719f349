//! Database tables as SeaORM entities, one file per table, and the code that opens the database.
//!
//! Amounts are integers in base units and times are integers in milliseconds since the epoch, so that SQLite and
//! PostgreSQL store and compare the same values. There are no business rules here.

mod checkpoints;
pub mod connection;
mod counts;
pub mod database;
pub mod failure;
pub mod hold;
pub mod in_one_statement;
mod pool;
pub mod postgres;
mod primary;
mod status;
mod store_error;
mod tables;
mod writer_lock;

pub use connection::{Connection, Transaction, find_all, query_all};
pub use counts::StatementCounts;
pub use database::Database;
pub use failure::DatabaseFailure;
pub use hold::Hold;
pub use in_one_statement::{Batch, NotCommitted};
pub use postgres::WeakTls;
pub use status::{ChainTxStatus, CheckStatus, DeliveryStatus, EndpointStatus, OperationStatus};
pub use store_error::{ChangeError, StoreError};
pub use tables::*;
pub use writer_lock::{CommitSettings, LOCK_CHECK_PAUSE};
