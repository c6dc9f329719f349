//! Chain watchers, settlers and the RPC client.
//!
//! One watcher and one settler per chain. The watcher turns blocks into rows and notifies payments; the
//! settler turns rows of `operations` into transactions. Both rebuild their state from the database and the chain.
//! alloy's types are used only here and in `payferry_evm`: these modules return the domain's types.

pub mod agreement;
mod block_transfers;
pub mod checkpoint;
mod collect;
mod deposits;
mod done;
mod errors;
mod failures;
mod finality_waits;
mod follower;
mod given_up;
pub(crate) mod metrics;
mod nonces;
pub mod operations;
mod outcomes;
mod poll;
mod reread;
mod rescan;
mod resolve;
pub mod settler;
mod settler_handle;
mod simulate;
mod step_size;
mod submit;
mod sweep;
mod unknown_sent;
pub mod watcher;
pub mod watchlist;

use std::sync::Arc;

use payferry_entities::Database;
use payferry_evm::{ChainClient, ChainSpec};
use payferry_journal::Journal;
use payferry_runtime::clock::Clock;

use crate::inbox::PaymentInbox;

pub(crate) use block_transfers::owners;
#[cfg(feature = "faults")]
pub use checkpoint::HoldAfter;
pub use checkpoint::{Checkpoint, Killed, NoCheckpoint, Step};
pub(crate) use deposits::psp_ids;
pub use finality_waits::{FinalityWait, HeldTransfer};
pub(crate) use follower::Follower;
pub use reread::{RereadError, RereadResult, reread};
pub use settler::{Settler, SettlerArgs, SettlerMessage, SettlerReport};
pub use settler_handle::SettlerHandle;
pub use unknown_sent::{SentSearch, post_unknown_sent};
pub use watcher::{HeadSignals, Watcher, WatcherArgs, WatcherMessage, WatcherReport, wake_on_change};
pub use watchlist::{ChainView, Watchlist};

/// One chain, and the services that its watcher and its settler use.
#[derive(Clone)]
pub struct ChainContext {
    /// The chain.
    pub spec: Arc<ChainSpec>,
    /// Its endpoints.
    pub client: ChainClient,
    /// For reads.
    pub database: Database,
    /// For writes.
    pub journal: Journal,
    /// The watcher's view of the chain. Shared within the process.
    pub watchlist: Watchlist,
    /// Receiver of payment commands.
    pub inbox: Arc<dyn PaymentInbox>,
    /// The service's clock.
    pub clock: Clock,
}
