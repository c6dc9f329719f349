//! Watching chains and moving money on them.
//!
//! One watcher and one settler per chain. The watcher turns blocks into rows and tells payments about them; the
//! settler turns rows of `operations` into transactions. Both rebuild all they know from the database and the chain.
//! alloy's types end here and in `wallet`: what leaves these modules are the domain's words.

pub mod client;
pub mod config;
pub mod cursor;
pub mod finality;
mod poll;
mod reader;
mod rows;
pub mod selector;
pub mod watcher;
pub mod watchlist;
mod wire;

pub use client::{ChainClient, ClientError};
pub use config::{ChainSpec, FeeCeilings, L1Gas, SpecError};
pub(crate) use rows::{LoadError, facts};
pub use selector::{Choice, NoChain, Selector};
pub use watcher::{WakeUps, Watcher, WatcherArgs, WatcherMessage, WatcherReport, wake_on_change};
pub use watchlist::{ChainView, Watchlist};
