//! The handle: what other code holds of a chain, and the task that mines by interval.

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
use crate::error::{ChainError, OpenError, RpcError};
use crate::faults::Faults;
use crate::rpc;
use crate::state::Control;
use crate::transport::DevchainTransport;

/// What becomes of the transactions of blocks that a reorg takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// They go back to the mempool and are mined in later blocks.
    Remine,
    /// They vanish.
    Discard,
}

/// A running chain. Cheap to clone; all clones are the same chain. It mines until the last clone is gone or
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
    /// Replays the file, if there is one, and starts mining.
    pub async fn open(config: ChainConfig) -> Result<Self, OpenError> {
        let path = config.path.clone().unwrap_or_default();
        let opened = tokio::task::spawn_blocking(move || Engine::open(config)).await;
        let engine = opened.map_err(|error| OpenError::Io { path, source: std::io::Error::other(error) })??;
        let chain = Self { engine: Arc::new(engine) };
        tokio::spawn(mine_by_interval(Arc::downgrade(&chain.engine), chain.engine.mining.subscribe()));
        // What was accepted and not mined before a crash.
        if chain.engine.config.mining == Mining::PerTransaction
            && !chain.engine.pool.lock().is_empty()
            && let Err(error) = chain.mine(1).await
        {
            tracing::warn!(%error, "devchain could not mine what was waiting");
        }
        Ok(chain)
    }

    /// The chain as an alloy transport: `RpcClient::new(chain.transport(), true)`. Faults apply.
    pub fn transport(&self) -> DevchainTransport {
        DevchainTransport::new(self.clone())
    }

    /// `POST /`: JSON-RPC over HTTP, single and batch, open to any origin. Faults apply.
    pub fn router(&self) -> axum::Router {
        crate::http::router(self.clone())
    }

    /// One JSON-RPC request, answered without faults. `params` is an array, or null for none.
    pub async fn call(&self, method: &str, params: Value) -> Result<Value, RpcError> {
        let params = rpc::Params::from_value(params)?;
        let answer = rpc::answer(&self.engine, method, params, &Faults::default()).await?;
        serde_json::from_str(answer.get()).map_err(RpcError::internal)
    }

    /// Sends a signed transaction, without faults: `eth_sendRawTransaction`. It is on disk when this answers, and mined
    /// too where each transaction gets its block.
    pub async fn send_raw(&self, raw: Bytes) -> Result<B256, RpcError> {
        rpc::send_raw_transaction(&self.engine, raw).await
    }

    /// Mines that many blocks now, whatever the mining mode. The first ones take what the mempool holds.
    pub async fn mine(&self, blocks: u64) -> Result<Vec<BlockRef>, ChainError> {
        self.blocking(move |engine| engine.mine(blocks)).await
    }

    /// Replaces the last `depth` blocks with `depth + 1` empty ones of other hashes and answers the new head. The
    /// replacements keep the timestamps of those they replace.
    pub async fn reorg(&self, depth: u64, dropped: Dropped) -> Result<BlockRef, ChainError> {
        self.blocking(move |engine| engine.reorg(depth, dropped == Dropped::Remine)).await
    }

    /// Moves chain time forward by mining blocks at most `spacing_secs` apart, so that it never looks like an outage.
    /// The offset to the wall clock stays, over restarts too.
    pub async fn advance_time(&self, secs: u64, spacing_secs: u64) -> Result<BlockRef, ChainError> {
        self.blocking(move |engine| engine.advance(secs, spacing_secs)).await
    }

    /// Moves chain time forward in one gap, as an outage would, and mines one block that shows it.
    pub async fn jump_time(&self, secs: u64) -> Result<BlockRef, ChainError> {
        self.blocking(move |engine| {
            engine.shift_clock(secs)?;
            engine.mine(1).map(|_| engine.head())
        })
        .await
    }

    /// How far chain time is ahead of the wall clock, in seconds.
    pub fn time_offset_secs(&self) -> i64 {
        self.engine.clock.lock().offset_secs
    }

    /// Sets an account's balance, in wei. It holds over reorgs.
    pub async fn set_balance(&self, address: Address, balance: U256) -> Result<(), ChainError> {
        self.blocking(move |engine| engine.control(Control::Balance(address, balance))).await
    }

    /// Gives the next block this base fee, in wei, however low or high; from there it follows EIP-1559 again. Holds over
    /// a restart, and until a block has it: one on the head, or the first of a reorg's.
    pub async fn set_next_base_fee(&self, wei: u64) -> Result<(), ChainError> {
        self.blocking(move |engine| engine.set_next_base_fee(wei)).await
    }

    /// Replaces the faults that the transport and the router show. `Faults::default()` shows none.
    pub fn set_faults(&self, faults: Faults) {
        self.engine.faults.set(faults);
    }

    /// The faults in force.
    pub fn faults(&self) -> Faults {
        (*self.engine.faults.get()).clone()
    }

    /// Changes whenever the head does. Blocks that come at once may show as one change.
    pub fn heads(&self) -> watch::Receiver<BlockRef> {
        self.engine.heads.subscribe()
    }

    /// The newest block.
    pub fn head(&self) -> BlockRef {
        self.engine.head()
    }

    /// When the newest block that was sealed was on disk and about to be shown, or the chain was opened: nobody has seen it
    /// before.
    pub fn sealed_at(&self) -> Instant {
        *self.engine.sealed_at.lock()
    }

    /// The EIP-155 chain id.
    pub fn chain_id(&self) -> u64 {
        self.engine.config.chain_id
    }

    /// Stops mining by interval and per transaction; [`Devchain::mine`] still works.
    pub fn pause_mining(&self) {
        self.engine.paused.store(true, Ordering::Release);
    }

    /// Takes up mining by interval and per transaction again.
    pub fn resume_mining(&self) {
        self.engine.paused.store(false, Ordering::Release);
    }

    /// Finishes what is under way, writes it and lets go of the file. Whatever comes after is refused.
    pub async fn close(&self) {
        let engine = Arc::clone(&self.engine);
        if let Err(error) = tokio::task::spawn_blocking(move || engine.close()).await {
            tracing::warn!(%error, "devchain did not close in order");
        }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        step: impl FnOnce(&Engine) -> Result<T, ChainError> + Send + 'static,
    ) -> Result<T, ChainError> {
        blocking(&self.engine, step).await
    }
}

/// Runs a step that changes the chain on a thread that may block. The step ends even if the caller goes away.
pub(crate) async fn blocking<T: Send + 'static>(
    engine: &Arc<Engine>,
    step: impl FnOnce(&Engine) -> Result<T, ChainError> + Send + 'static,
) -> Result<T, ChainError> {
    let engine = Arc::clone(engine);
    tokio::task::spawn_blocking(move || step(&engine)).await.unwrap_or(Err(ChainError::Closed))
}

/// Ends with the engine, which holds the sender of `mining`.
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

/// Returns when there is nothing more to mine on.
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
