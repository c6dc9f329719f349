//! Opens a file: replays its records without recovering signatures.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;

use alloy::primitives::map::B256Map;

use crate::block::BlockParams;
use crate::chain::Chain;
use crate::clock::{Clock, wall_secs};
use crate::config::ChainConfig;
use crate::error::DevchainOpenError;
use crate::mempool::Mempool;
use crate::store::{BlockRecord, MAGIC, Record, frame, unframe};
use crate::tx::Tx;

/// Restores a chain, and returns its locked file, positioned at its end; `None` in memory.
pub(crate) fn open(config: &Arc<ChainConfig>) -> Result<(Replay, Option<File>), DevchainOpenError> {
    let Some(path) = config.path.clone() else {
        let timestamp = config.genesis_timestamp_secs.unwrap_or_else(wall_secs);
        return Ok((Replay::new(config, timestamp), None));
    };
    let io = |source| DevchainOpenError::Io { path: path.clone(), source };
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(io)?;
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => DevchainOpenError::InUse(path.clone()),
        TryLockError::Error(source) => io(source),
    })?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(io)?;
    let named = &bytes[..bytes.len().min(MAGIC.len())];
    if !MAGIC.starts_with(named) {
        return Err(DevchainOpenError::NotAChainFile(path));
    }
    match unframe(bytes.get(MAGIC.len()..).unwrap_or_default()) {
        Some((Record::Genesis { fingerprint, timestamp }, length)) => {
            if fingerprint != config.fingerprint() {
                return Err(DevchainOpenError::OtherChain(path));
            }
            let mut replay = Replay::new(config, timestamp);
            let end = replay.run(&path, &bytes, MAGIC.len() + length)?;
            if end < bytes.len() {
                let cut = bytes.len() - end;
                tracing::warn!(path = %path.display(), bytes = cut, "devchain file truncated: incomplete record");
                file.set_len(end as u64).and_then(|()| file.sync_data()).map_err(io)?;
            }
            file.seek(SeekFrom::Start(end as u64)).map_err(io)?;
            Ok((replay, Some(file)))
        }
        None if first_record_is_torn(&bytes) => {
            let timestamp = config.genesis_timestamp_secs.unwrap_or_else(wall_secs);
            let mut start = MAGIC.to_vec();
            frame(&Record::Genesis { fingerprint: config.fingerprint(), timestamp }, &mut start);
            file.set_len(0).map_err(io)?;
            file.seek(SeekFrom::Start(0)).map_err(io)?;
            file.write_all(&start).and_then(|()| file.sync_all()).map_err(io)?;
            sync_folder(&path).map_err(io)?;
            Ok((Replay::new(config, timestamp), Some(file)))
        }
        _ => Err(DevchainOpenError::NotAChainFile(path)),
    }
}

/// A file whose first record is incomplete contains nothing.
fn first_record_is_torn(bytes: &[u8]) -> bool {
    // Magic, frame, tag, fingerprint, and timestamp.
    bytes.len() < MAGIC.len() + 8 + 1 + 32 + 8
}

/// Syncs the folder, so that the name of the new file is durable.
fn sync_folder(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

/// A chain restored from its file.
pub(crate) struct Replay {
    pub chain: Chain,
    pub pool: Mempool,
    pub clock: Clock,
    /// Accepted transactions that are not mined, including those that were replaced while their block was being sealed.
    known: B256Map<Arc<Tx>>,
}

impl Replay {
    fn new(config: &Arc<ChainConfig>, timestamp: u64) -> Self {
        Self {
            chain: Chain::genesis(Arc::clone(config), timestamp),
            pool: Mempool::new(config.chain_id, config.block_gas_limit),
            clock: Clock::default(),
            known: B256Map::default(),
        }
    }

    /// Applies the records from `at` on, and returns the end of the last complete one.
    fn run(&mut self, path: &Path, bytes: &[u8], mut at: usize) -> Result<usize, DevchainOpenError> {
        let mut place = 1;
        while at < bytes.len() {
            let diverged = |reason| DevchainOpenError::Diverged { path: path.into(), record: place, reason };
            let Some((record, length)) = unframe(&bytes[at..]) else {
                // Only the end can be incomplete. Complete records after a damaged one mean that the file is damaged.
                return if more_follows(&bytes[at..]) {
                    Err(diverged("the record is damaged, and complete records follow it".to_owned()))
                } else {
                    Ok(at)
                };
            };
            self.take(record).map_err(diverged)?;
            at += length;
            place += 1;
        }
        Ok(at)
    }

    fn take(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::Genesis { .. } => return Err("a second genesis".into()),
            Record::Accepted { sender, raw } => {
                let tx = Arc::new(Tx::recovered(&raw, sender)?);
                self.known.insert(tx.hash, Arc::clone(&tx));
                if tx.nonce() >= self.chain.nonce(&sender) {
                    self.pool.put(&tx);
                }
            }
            Record::Block(block) => self.block(&block)?,
            Record::Reorg { depth, remine, blocks } => {
                self.chain.check_depth(depth).map_err(|error| error.to_string())?;
                for tx in self.chain.unwind(depth) {
                    if remine {
                        self.pool.put(&tx);
                        self.known.insert(tx.hash, tx);
                    }
                }
                for block in &blocks {
                    self.block(block)?;
                }
            }
            Record::Control(control) => self.chain.control(control),
            Record::Clock { offset_secs } => self.clock.offset_secs = offset_secs,
            Record::Removed { hash } => {
                self.pool.remove(&hash);
                self.known.remove(&hash);
            }
            Record::BaseFee { wei } => self.chain.set_base_fee_next(wei),
            Record::Snapshot => {
                self.chain.snapshot(&self.pool);
            }
            Record::Revert { snapshot } => {
                if !self.chain.revert(snapshot, &mut self.pool) {
                    return Err(format!("there is no snapshot {snapshot}"));
                }
                self.known.extend(self.pool.txs().map(|tx| (tx.hash, Arc::clone(tx))));
            }
        }
        Ok(())
    }

    fn block(&mut self, record: &BlockRecord) -> Result<(), String> {
        let mut txs = Vec::with_capacity(record.txs.len());
        for hash in &record.txs {
            let tx = self.known.remove(hash);
            txs.push(tx.ok_or_else(|| format!("block {} holds an unknown transaction {hash}", record.number))?);
        }
        let parent_hash = self.chain.head().hash;
        let BlockRecord { number, timestamp, base_fee, salt, .. } = *record;
        let executed = self.chain.exactly(BlockParams { number, parent_hash, timestamp, base_fee, salt }, &txs);
        if executed.block.hash != record.hash {
            return Err(format!("block {number} executes to {}, not to {}", executed.block.hash, record.hash));
        }
        self.chain.apply(executed.block, executed.changes);
        self.clock.offset_secs = record.offset_secs;
        settle_pool(&mut self.pool, &self.chain, &txs);
        Ok(())
    }
}

/// Removes mined transactions from the pool, and those that can no longer be mined.
pub(crate) fn settle_pool(pool: &mut Mempool, chain: &Chain, mined: &[Arc<Tx>]) {
    for tx in mined {
        pool.remove(&tx.hash);
    }
    for tx in mined {
        pool.prune(&tx.sender, chain.nonce(&tx.sender));
    }
}

/// Returns true if a complete record starts directly after the damaged one.
fn more_follows(bytes: &[u8]) -> bool {
    let Some(length) = bytes.get(..4).and_then(|length| length.try_into().ok()).map(u32::from_le_bytes) else {
        return false;
    };
    let Ok(length) = usize::try_from(length) else { return false };
    bytes.get(8 + length..).is_some_and(|rest| unframe(rest).is_some())
}
