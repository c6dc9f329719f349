//! Watching chains and moving money on them.
//!
//! One watcher and one settler per chain. The watcher turns blocks into rows and tells payments about them; the
//! settler turns rows of `operations` into transactions. Both rebuild all they know from the database and the chain.
//! alloy's types end here and in `wallet`: what leaves these modules are the domain's words.

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

#[cfg(feature = "faults")]
pub use checkpoint::HoldAfter;
pub use checkpoint::{Checkpoint, Killed, NoCheckpoint, Step};
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
