//! Chain watchers, settlers and the RPC client.
//!
//! Each chain has one watcher and one settler. The watcher turns blocks into rows and notifies payments; the settler
//! turns rows of `operations` into transactions. Both rebuild their state from the database and the chain. alloy's
//! types stay inside this module and `wallet`: the public functions return domain types.

mod attempts;
pub mod checkpoint;
pub mod client;
pub mod config;
pub mod cursor;
pub mod deploy;
mod done;
mod endpoint;
mod errors;
mod failover;
mod failures;
pub mod fees;
pub mod finality;
mod found;
mod gas_money;
mod given_up;
mod http;
pub mod inspect;
mod ledger;
pub(crate) mod metrics;
mod nonces;
pub mod operations;
mod pace;
mod poll;
mod reader;
mod recipients;
mod renumber;
mod reread;
mod resolve;
mod rows;
mod second_look;
pub mod selector;
pub mod settler;
mod submit;
mod sweep;
mod telling;
mod trouble;
pub mod watcher;
pub mod watchlist;
mod wire;

pub use checkpoint::{Checkpoint, HoldAfter, Killed, NoCheckpoint, Step};
pub use client::{ChainClient, ClientError};
pub use config::{ChainSpec, FeeCeilings, L1Gas, SpecError};
pub(crate) use found::owners;
pub(crate) use metrics::REORG_DEPTH;
pub use operations::Role;
pub use reread::{Reread, RereadError, reread};
pub(crate) use rows::{LoadError, facts};
pub use selector::{Choice, NoChain, Selector};
pub use settler::{Settler, SettlerArgs, SettlerHandle, SettlerMessage, SettlerReport};
pub use watcher::{WakeUps, Watcher, WatcherArgs, WatcherMessage, WatcherReport, wake_on_change};
pub use watchlist::{ChainView, Watchlist};
