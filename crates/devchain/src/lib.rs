//! An in-process EVM chain that speaks Ethereum JSON-RPC.
//!
//! Real bytecode, real signatures and real receipts, on `revm`: the chain of the sandbox, of the load tester and of
//! the tests. A [`Devchain`] is used in three ways: as an alloy transport inside the process
//! ([`Devchain::transport`]), over HTTP by wallets and `cast` ([`Devchain::router`]), and directly
//! ([`Devchain::call`], [`Devchain::mine`], [`Devchain::reorg`] and their like).
//!
//! What it accepts survives `kill -9`: a transaction is on disk before it is answered, a block before it is seen.
//!
//! All blocks stay in memory (an empty one takes about 230 bytes) and in the file (about 90), which is read whole at the
//! start: enough for weeks of a sandbox, not for years.
//!
//! Deliberately absent: peers, state roots (headers carry zero), blob transactions, traces, subscriptions.

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
mod replay;
mod rpc;
mod state;
mod store;
mod transport;
mod tx;
mod wallet;

pub use block::BlockRef;
pub use config::{CREATE2_DEPLOYER, ChainConfig, GenesisAccount, Mining};
pub use devchain::{Devchain, Dropped};
pub use error::{ChainError, OpenError, RpcError};
pub use faults::Faults;
pub use transport::DevchainTransport;
pub use wallet::Wallet;
