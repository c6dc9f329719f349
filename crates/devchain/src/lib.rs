//! An in-process EVM chain with Ethereum JSON-RPC, on `revm`. It executes real bytecode, signatures, and receipts. The
//! sandbox, the load tester, and the tests use it.
//!
//! A [`Devchain`] can be used in three ways: as an alloy transport in the process ([`Devchain::transport`]), over HTTP
//! and WebSockets by wallets and `cast` ([`Devchain::router`]), and directly ([`Devchain::call`], [`Devchain::mine`],
//! [`Devchain::reorg`], and others).
//!
//! Accepted data survives `kill -9`: a transaction is on disk before the response, and a block before it is visible.
//!
//! All blocks stay in memory (about 230 bytes for an empty one) and in the file (about 90 bytes), which is read
//! completely at the start. This is sufficient for weeks of a sandbox, not for years.
//!
//! Not here: peers, state roots (headers contain zero), blob transactions, traces.

mod block;
mod chain;
mod clock;
mod config;
mod devchain;
mod engine;
mod error;
mod execute;
mod faults;
mod http;
mod mempool;
mod orphans;
mod packet;
mod replay;
mod rpc;
mod state;
mod store;
mod tags;
mod transport;
mod tx;
mod wallet;
mod ws;

pub use block::BlockRef;
pub use config::{ChainConfig, GenesisAccount, Mining};
pub use devchain::{Devchain, Dropped};
pub use error::{ChainError, DevchainOpenError, RpcError};
pub use faults::Faults;
pub use tags::Tags;
pub use wallet::DevWallet;
