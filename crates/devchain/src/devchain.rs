//! The handle to a chain, and the task that mines by interval.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use alloy::primitives::{Address, B256, Bytes, U256};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::block::BlockRef;
use crate::config::{ChainConfig, Mining};
use crate::engine::Engine;
use crate::error::{ChainError, DevchainOpenError, RpcError};
use crate::faults::Faults;
use crate::rpc;
use crate::state::Control;

/// Handling of the transactions in blocks that a reorg removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// They return to the mempool and are mined in later blocks.
    Remine,
    /// They are discarded.
    Discard,
}

/// A running chain. Clones are cheap and refer to the same chain. It mines until the last clone is dropped or
/// [`Devchain::close`] is called.
#[derive(Clone)]
pub struct Devchain {
    pub(crate) engine: Arc<Engine>,
}

impl std::fmt::Debug for Devchain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Devchain")
            .field("chain_id", &self.engine.config.chain_id)
            .field("head", &self.head())
            .finish_non_exhaustive()
    }
}

impl Devchain {
    /// Replays the file, if it exists, and starts mining.
    pub async fn open(config: ChainConfig) -> Result<Self, DevchainOpenError> {
        let path = config.path.clone().unwrap_or_default();
        let opened = tokio::task::spawn_blocking(move || Engine::open(config)).await;
        let engine = opened.map_err(|error| DevchainOpenError::Io { path, source: std::io::Error::other(error) })??;
        let chain = Self { engine: Arc::new(engine) };
        tokio::spawn(mine_by_interval(Arc::downgrade(&chain.engine), chain.engine.mining.subscribe()));
        // Mine transactions that were accepted but not mined before a crash.
        if chain.engine.config.mining == Mining::PerTransaction
            && !chain.engine.pool.lock().is_empty()
            && let Err(error) = chain.mine(1).await
        {
            tracing::warn!(%error, "devchain could not mine the pending transactions");
        }
        Ok(chain)
    }

    /// Returns a router for `/`: JSON-RPC over HTTP, single and batch, and over WebSockets, open to any origin. Faults
    /// apply.
    pub fn router(&self) -> axum::Router {
        crate::http::router(self.clone())
    }

    /// Handles one JSON-RPC request without faults. `params` is an array, or null for none.
    pub async fn call(&self, method: &str, params: Value) -> Result<Value, RpcError> {
        let params = rpc::Params::from_value(params)?;
        let answer = rpc::answer(&self.engine, None, method, params, &Faults::default()).await?;
        serde_json::from_str(answer.get()).map_err(RpcError::internal)
    }

    /// Sends a signed transaction without faults, like `eth_sendRawTransaction`. When this returns, the transaction is
    /// on disk, and also mined if each transaction gets a block.
    pub async fn send_raw(&self, raw: Bytes) -> Result<B256, RpcError> {
        rpc::send_raw_transaction(&self.engine, raw).await
    }

    /// Mines `blocks` blocks now, in any mining mode. The first ones include the transactions of the mempool.
    pub async fn mine(&self, blocks: u64) -> Result<Vec<BlockRef>, ChainError> {
        blocking(&self.engine, move |engine| engine.mine(blocks)).await
    }

    /// Replaces the last `depth` blocks with `depth + 1` empty ones with other hashes, and returns the new head. The
    /// replacements keep the timestamps of the replaced blocks.
    pub async fn reorg(&self, depth: u64, dropped: Dropped) -> Result<BlockRef, ChainError> {
        blocking(&self.engine, move |engine| engine.reorg(|_| depth, dropped == Dropped::Remine)).await
    }

    /// Like [`Self::reorg`], replaces this block and all later ones, also if blocks are mined meanwhile.
    pub async fn reorg_from(&self, block: u64, dropped: Dropped) -> Result<BlockRef, ChainError> {
        let depth = move |head: u64| (head + 1).saturating_sub(block);
        blocking(&self.engine, move |engine| engine.reorg(depth, dropped == Dropped::Remine)).await
    }

    /// Moves chain time forward with blocks at most `spacing_secs` apart, so that it does not look like an outage. The
    /// offset from the wall clock persists, also over restarts.
    pub async fn advance_time(&self, secs: u64, spacing_secs: u64) -> Result<BlockRef, ChainError> {
        blocking(&self.engine, move |engine| engine.advance(secs, spacing_secs)).await
    }

    /// Moves chain time forward in one gap, like an outage, and mines one block after it.
    pub async fn jump_time(&self, secs: u64) -> Result<BlockRef, ChainError> {
        blocking(&self.engine, move |engine| {
            engine.shift_clock(secs)?;
            engine.mine(1).map(|_| engine.head())
        })
        .await
    }

    /// Returns the offset of chain time from the wall clock, in seconds.
    pub fn time_offset_secs(&self) -> i64 {
        self.engine.clock.lock().offset_secs
    }

    /// Sets the balance of an account, in wei. It persists over reorgs.
    pub async fn set_balance(&self, address: Address, balance: U256) -> Result<(), ChainError> {
        blocking(&self.engine, move |engine| engine.control(Control::Balance(address, balance))).await
    }

    /// Sets the base fee of the next block, in wei, without limits. Later base fees follow EIP-1559 again. The setting
    /// persists over a restart until a block uses it: a block on the head, or the first block of a reorg.
    pub async fn set_next_base_fee(&self, wei: u64) -> Result<(), ChainError> {
        blocking(&self.engine, move |engine| engine.set_next_base_fee(wei)).await
    }

    /// Replaces the faults of the transport and the router. `Faults::default()` has none.
    pub fn set_faults(&self, faults: Faults) {
        self.engine.faults.set(faults);
    }

    /// Returns the current faults.
    pub fn faults(&self) -> Faults {
        (*self.engine.faults.get()).clone()
    }

    /// Returns a receiver that changes whenever the head does. Several blocks may appear as one change.
    pub fn heads(&self) -> watch::Receiver<BlockRef> {
        self.engine.heads.subscribe()
    }

    /// Returns the newest block.
    pub fn head(&self) -> BlockRef {
        self.engine.head()
    }

    /// Returns the time at which the newest sealed block was on disk and about to become visible, or at which the chain
    /// was opened. The block was not visible before.
    pub fn sealed_at(&self) -> Instant {
        *self.engine.sealed_at.lock()
    }

    /// Returns the EIP-155 chain id.
    pub fn chain_id(&self) -> u64 {
        self.engine.config.chain_id
    }

    /// Stops mining by interval and per transaction. [`Devchain::mine`] still works.
    pub fn pause_mining(&self) {
        self.engine.paused.store(true, Ordering::Release);
    }

    /// Resumes mining by interval and per transaction.
    pub fn resume_mining(&self) {
        self.engine.paused.store(false, Ordering::Release);
    }

    /// Finishes the current step, writes it, and closes the file. Later calls fail.
    pub async fn close(&self) {
        let engine = Arc::clone(&self.engine);
        if let Err(error) = tokio::task::spawn_blocking(move || engine.close()).await {
            tracing::warn!(%error, "devchain did not close cleanly");
        }
    }
}

/// Runs a step that changes the chain on a blocking thread. The step completes even if the caller is dropped.
pub(crate) async fn blocking<T: Send + 'static>(
    engine: &Arc<Engine>,
    step: impl FnOnce(&Engine) -> Result<T, ChainError> + Send + 'static,
) -> Result<T, ChainError> {
    let engine = Arc::clone(engine);
    tokio::task::spawn_blocking(move || step(&engine)).await.unwrap_or(Err(ChainError::Closed))
}

/// Ends when the engine is dropped, because it owns the sender of `mining`.
async fn mine_by_interval(engine: Weak<Engine>, mut mining: watch::Receiver<Mining>) {
    loop {
        let now = *mining.borrow_and_update();
        let Mining::Interval(interval) = now else {
            if mining.changed().await.is_err() {
                return;
            }
            continue;
        };
        tokio::select! {
            changed = mining.changed() => if changed.is_err() { return },
            () = mine_each(&engine, interval) => return,
        }
    }
}

/// Returns when the chain is closed or dropped.
async fn mine_each(engine: &Weak<Engine>, interval: Duration) {
    let mut ticks = tokio::time::interval(interval.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let Some(engine) = engine.upgrade() else { return };
        if engine.is_closed() {
            return;
        }
        if engine.paused.load(Ordering::Acquire) {
            continue;
        }
        match blocking(&engine, |engine| engine.mine(1)).await {
            Ok(_) => {}
            Err(ChainError::Closed) => return,
            Err(error) => {
                tracing::error!(%error, "devchain stopped mining");
                return;
            }
        }
    }
}
