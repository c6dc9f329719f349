//! Applies changes one at a time: first written to disk, then visible.
//!
//! Every step that changes the chain holds `turn` and runs on a blocking thread. It executes under a read lock, appends
//! to the file, and takes the write lock only to apply. A started step cannot be cancelled. Transactions enter the
//! mempool independently of the steps. The lock order is `turn`, `chain`, `filters`,
//! `pool`, `clock`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use alloy::primitives::B256;
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::watch;

use crate::block::{Block, BlockRef};
use crate::chain::Chain;
use crate::clock::Clock;
use crate::config::{ChainConfig, Mining};
use crate::error::{ChainError, DevchainOpenError, RpcError};
use crate::faults::FaultInjector;
use crate::mempool::Mempool;
use crate::replay::{self, Replay, settle_pool};
use crate::rpc::Filters;
use crate::state::{Changes, Control};
use crate::store::{BlockRecord, Record, Store, Written};
use crate::tx::Tx;
use crate::ws::WEBSOCKETS_MAX;

/// Maximum number of empty blocks that are sealed, written, and applied together.
const EMPTY_BLOCKS_GROUP_MAX: u64 = 512;

pub(crate) struct Engine {
    pub config: Arc<ChainConfig>,
    pub chain: RwLock<Chain>,
    pub pool: Mutex<Mempool>,
    pub clock: Mutex<Clock>,
    /// Filters that clients have installed. They end with the process.
    pub filters: Mutex<Filters>,
    pub faults: FaultInjector,
    pub heads: watch::Sender<BlockRef>,
    /// Time at which the newest sealed block was about to become visible.
    pub sealed_at: Mutex<Instant>,
    /// Time at which blocks are mined: as configured, until a control changes it.
    pub mining: watch::Sender<Mining>,
    pub paused: AtomicBool,
    /// Callers that wait for their transaction to be mined queue here, so that they do not occupy one thread each.
    pub sealing: tokio::sync::Mutex<()>,
    /// One permit per WebSocket.
    pub websockets: Arc<tokio::sync::Semaphore>,
    closed: AtomicBool,
    turn: Mutex<()>,
    store: Option<Store>,
}

impl Engine {
    pub(crate) fn open(config: ChainConfig) -> Result<Self, DevchainOpenError> {
        let config = Arc::new(config);
        let (Replay { chain, pool, clock, .. }, file) = replay::open(&config)?;
        let store = file
            .map(Store::start)
            .transpose()
            .map_err(|source| DevchainOpenError::Io { path: config.path.clone().unwrap_or_default(), source })?;
        let heads = watch::Sender::new(chain.head_ref());
        let mining = watch::Sender::new(config.mining);
        Ok(Self {
            config,
            chain: RwLock::new(chain),
            pool: Mutex::new(pool),
            clock: Mutex::new(clock),
            filters: Mutex::default(),
            faults: FaultInjector::default(),
            heads,
            sealed_at: Mutex::new(Instant::now()),
            mining,
            paused: AtomicBool::new(false),
            sealing: tokio::sync::Mutex::new(()),
            websockets: Arc::new(tokio::sync::Semaphore::new(WEBSOCKETS_MAX)),
            closed: AtomicBool::new(false),
            turn: Mutex::new(()),
            store,
        })
    }

    /// Adds a transaction to the mempool. It is accepted when `wait` of the result reports that it is on disk.
    pub(crate) fn accept(&self, raw: Vec<u8>, tx: Tx) -> Result<Written, RpcError> {
        let tx = Arc::new(tx);
        let chain = self.chain.read();
        let mut pool = self.pool.lock();
        if self.is_closed() {
            return Err(ChainError::Closed.into());
        }
        pool.add(&tx, &chain.account(&tx.sender))?;
        // Appended under the lock of the pool, so that the transaction precedes its block in the file.
        Ok(self.append(&[Record::Accepted { sender: tx.sender, raw }]))
    }

    pub(crate) fn mine(&self, count: u64) -> Result<Vec<BlockRef>, ChainError> {
        let turn = self.turn()?;
        let mut sealed = Vec::new();
        while (sealed.len() as u64) < count {
            if self.pool.lock().is_empty() {
                let left = count - sealed.len() as u64;
                let mut parent_secs = self.chain.read().head().timestamp;
                let mut clock = *self.clock.lock();
                let timestamps: Vec<u64> = (0..left.min(EMPTY_BLOCKS_GROUP_MAX))
                    .map(|_| {
                        parent_secs = clock.take_timestamp(parent_secs);
                        parent_secs
                    })
                    .collect();
                sealed.extend(self.seal_empty(&turn, &timestamps, clock.offset_secs)?);
            } else {
                sealed.push(self.seal(&turn, None)?);
            }
        }
        Ok(sealed)
    }

    /// Mines one block if the transaction does not wait for another transaction.
    pub(crate) fn mine_if_ready(&self, hash: &B256) -> Result<(), ChainError> {
        let turn = self.turn()?;
        if self.is_ready(hash) {
            self.seal(&turn, None)?;
        }
        Ok(())
    }

    /// Returns true if the mempool contains the transaction and all transactions that must precede it.
    pub(crate) fn is_ready(&self, hash: &B256) -> bool {
        let chain = self.chain.read();
        let pool = self.pool.lock();
        pool.get(hash).is_some_and(|tx| tx.nonce() < pool.next_nonce(&tx.sender, chain.nonce(&tx.sender)))
    }

    /// Moves chain time forward with blocks at most `spacing_secs` apart.
    pub(crate) fn advance(&self, secs: u64, spacing_secs: u64) -> Result<BlockRef, ChainError> {
        let turn = self.turn()?;
        let spacing_secs = spacing_secs.max(1);
        let mut left = secs;
        while left > 0 {
            if self.pool.lock().is_empty() {
                let mut clock = Clock { next_timestamp_secs: None, ..*self.clock.lock() };
                let mut parent_secs = self.chain.read().head().timestamp;
                let mut timestamps = Vec::new();
                while left > 0 && (timestamps.len() as u64) < EMPTY_BLOCKS_GROUP_MAX {
                    let step = left.min(spacing_secs);
                    left -= step;
                    clock.advance(step);
                    parent_secs = clock.take_timestamp(parent_secs);
                    timestamps.push(parent_secs);
                }
                self.seal_empty(&turn, &timestamps, clock.offset_secs)?;
            } else {
                let step = left.min(spacing_secs);
                left -= step;
                let mut clock = *self.clock.lock();
                clock.advance(step);
                self.seal(&turn, Some(clock))?;
            }
        }
        Ok(self.head())
    }

    /// Moves chain time forward in one step. The next block shows it.
    pub(crate) fn shift_clock(&self, secs: u64) -> Result<i64, ChainError> {
        let _turn = self.turn()?;
        let mut clock = *self.clock.lock();
        clock.advance(secs);
        self.set_clock(clock)?;
        Ok(clock.offset_secs)
    }

    /// Sets the timestamp of the next block. Time continues from there.
    pub(crate) fn set_next_timestamp(&self, timestamp: u64) -> Result<(), ChainError> {
        let _turn = self.turn()?;
        let head = self.head().timestamp;
        if timestamp < head {
            return Err(ChainError::TimeBackwards { timestamp, head });
        }
        let mut clock = *self.clock.lock();
        clock.set(timestamp);
        self.set_clock(clock)
    }

    fn set_clock(&self, clock: Clock) -> Result<(), ChainError> {
        self.append(&[Record::Clock { offset_secs: clock.offset_secs }]).wait_blocking()?;
        *self.clock.lock() = clock;
        Ok(())
    }

    /// Sets the base fee of the next block. Later base fees follow from it.
    pub(crate) fn set_next_base_fee(&self, wei: u64) -> Result<(), ChainError> {
        let _turn = self.turn()?;
        self.append(&[Record::BaseFee { wei }]).wait_blocking()?;
        self.chain.write().set_base_fee_next(wei);
        Ok(())
    }

    pub(crate) fn reorg(&self, depth: impl FnOnce(u64) -> u64, remine: bool) -> Result<BlockRef, ChainError> {
        let _turn = self.turn()?;
        let depth = depth(self.head().number);
        let (blocks, offset_secs) = {
            let chain = self.chain.read();
            let clock = *self.clock.lock();
            (chain.plan_reorg(depth, clock.now_secs())?, clock.offset_secs)
        };
        let records = blocks.iter().map(|block| block_record(block, offset_secs)).collect();
        self.append(&[Record::Reorg { depth, remine, blocks: records }]).wait_blocking()?;
        let head = {
            let mut chain = self.chain.write();
            let mut pool = self.pool.lock();
            let undone = chain.unwind(depth);
            if remine {
                for tx in &undone {
                    pool.put(tx);
                }
            }
            for block in blocks {
                chain.apply(block, Changes::default());
            }
            chain.head_ref()
        };
        self.heads.send_replace(head);
        Ok(head)
    }

    /// Takes a snapshot and returns its id.
    pub(crate) fn snapshot(&self) -> Result<u64, ChainError> {
        let _turn = self.turn()?;
        // Locked until the record is on disk: a replay takes the snapshot with the transactions that precede its record.
        let mut chain = self.chain.write();
        let pool = self.pool.lock();
        chain.check_snapshots()?;
        self.append(&[Record::Snapshot]).wait_blocking()?;
        Ok(chain.snapshot(&pool))
    }

    /// Restores a snapshot. Returns false if it does not exist.
    pub(crate) fn revert(&self, snapshot: u64) -> Result<bool, ChainError> {
        let _turn = self.turn()?;
        let head = {
            // Locked until the record is on disk, because transactions that are accepted after it must stay in the pool.
            let mut chain = self.chain.write();
            let mut pool = self.pool.lock();
            if !chain.has_snapshot(snapshot) {
                return Ok(false);
            }
            self.append(&[Record::Revert { snapshot }]).wait_blocking()?;
            chain.revert(snapshot, &mut pool);
            chain.head_ref()
        };
        self.heads.send_replace(head);
        Ok(true)
    }

    pub(crate) fn control(&self, control: Control) -> Result<(), ChainError> {
        let _turn = self.turn()?;
        self.append(&[Record::Control(control.clone())]).wait_blocking()?;
        let mut chain = self.chain.write();
        let pruned = if let Control::Nonce(address, nonce) = &control { Some((*address, *nonce)) } else { None };
        chain.control(control);
        if let Some((address, nonce)) = pruned {
            self.pool.lock().prune(&address, nonce);
        }
        Ok(())
    }

    /// Removes a transaction from the mempool.
    pub(crate) fn remove(&self, hash: &B256) -> Result<bool, ChainError> {
        let _turn = self.turn()?;
        if self.pool.lock().get(hash).is_none() {
            return Ok(false);
        }
        self.append(&[Record::Removed { hash: *hash }]).wait_blocking()?;
        Ok(self.pool.lock().remove(hash).is_some())
    }

    pub(crate) fn head(&self) -> BlockRef {
        *self.heads.borrow()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Writes the queue and closes the file.
    pub(crate) fn close(&self) {
        let _turn = self.turn.lock();
        {
            // Under the lock of the pool: transactions accepted before are written, later ones are rejected.
            let _pool = self.pool.lock();
            self.closed.store(true, Ordering::Release);
        }
        // WebSockets end.
        self.heads.send_modify(|_| {});
        if let Some(store) = &self.store {
            store.close();
        }
    }

    fn turn(&self) -> Result<MutexGuard<'_, ()>, ChainError> {
        let turn = self.turn.lock();
        if self.is_closed() { Err(ChainError::Closed) } else { Ok(turn) }
    }

    fn append(&self, records: &[Record]) -> Written {
        self.store.as_ref().map_or_else(Written::nowhere, |store| store.append(records))
    }

    /// Seals one block with transactions from the mempool. `clock`, if given, becomes the clock of the chain.
    fn seal(&self, _turn: &MutexGuard<'_, ()>, clock: Option<Clock>) -> Result<BlockRef, ChainError> {
        let mut clock = clock.unwrap_or_else(|| *self.clock.lock());
        let executed = {
            let chain = self.chain.read();
            let params = chain.params_after(chain.head(), clock.take_timestamp(chain.head().timestamp));
            let candidates = self.pool.lock().candidates(params.base_fee, |sender| chain.nonce(sender));
            chain.fill(params, candidates)
        };
        self.append(&[Record::Block(block_record(&executed.block, clock.offset_secs))]).wait_blocking()?;
        *self.sealed_at.lock() = Instant::now();
        let head = {
            let mut chain = self.chain.write();
            let mut pool = self.pool.lock();
            let mined: Vec<Arc<Tx>> = executed.block.txs().to_vec();
            chain.apply(executed.block, executed.changes);
            settle_pool(&mut pool, &chain, &mined);
            for (tx, reason) in &executed.invalid {
                tracing::debug!(tx.hash = %tx.hash, reason, "devchain dropped an invalid transaction");
                pool.remove(&tx.hash);
            }
            *self.clock.lock() = clock;
            chain.head_ref()
        };
        self.heads.send_replace(head);
        Ok(head)
    }

    /// Seals several empty blocks with these timestamps.
    fn seal_empty(
        &self,
        _turn: &MutexGuard<'_, ()>,
        timestamps: &[u64],
        offset_secs: i64,
    ) -> Result<Vec<BlockRef>, ChainError> {
        let blocks: Vec<Block> = {
            let chain = self.chain.read();
            let mut blocks: Vec<Block> = Vec::with_capacity(timestamps.len());
            for timestamp in timestamps {
                let parent = blocks.last().unwrap_or(chain.head());
                blocks.push(chain.empty_after(parent, *timestamp));
            }
            blocks
        };
        let records: Vec<Record> = blocks.iter().map(|block| Record::Block(block_record(block, offset_secs))).collect();
        self.append(&records).wait_blocking()?;
        let sealed: Vec<BlockRef> = blocks.iter().map(Block::reference).collect();
        *self.sealed_at.lock() = Instant::now();
        {
            let mut chain = self.chain.write();
            for block in blocks {
                chain.apply(block, Changes::default());
            }
            *self.clock.lock() = Clock { offset_secs, next_timestamp_secs: None };
        }
        self.heads.send_replace(self.chain.read().head_ref());
        Ok(sealed)
    }
}

impl Drop for Engine {
    /// Unlocks the file.
    fn drop(&mut self) {
        if let Some(store) = &self.store {
            store.close();
        }
    }
}

fn block_record(block: &Block, offset_secs: i64) -> BlockRecord {
    BlockRecord {
        number: block.number,
        hash: block.hash,
        timestamp: block.timestamp,
        base_fee: block.base_fee,
        salt: block.salt,
        offset_secs,
        txs: block.txs().iter().map(|tx| tx.hash).collect(),
    }
}
