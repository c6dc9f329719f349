//! The blocks, the state at their head, and the undo log: the data behind the single lock.
//!
//! This module contains only data and pure steps. `devchain.rs` and `engine.rs` decide who calls them, in which order,
//! and what is written to disk first.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use alloy::eips::BlockNumberOrTag;
use alloy::primitives::map::B256Map;
use alloy::primitives::{Address, B256};
use revm::state::AccountInfo;

use crate::block::{Block, BlockParams, BlockRef};
use crate::config::ChainConfig;
use crate::error::ChainError;
use crate::execute::{self, Executed};
use crate::mempool::{Candidates, Mempool};
use crate::orphans::{Difference, Orphans};
use crate::state::{Changes, Control, Overlay, State};
use crate::tx::Tx;

/// Maximum number of snapshots. Each contains the whole state.
const SNAPSHOTS_MAX: usize = 100;

pub(crate) struct Chain {
    pub config: Arc<ChainConfig>,
    pub state: State,
    blocks: Vec<Block>,
    /// History of the newest blocks, the newest last.
    history: VecDeque<History>,
    numbers: B256Map<u64>,
    /// Block and index at which each transaction was mined.
    places: B256Map<(u64, u32)>,
    /// Controls since the head was sealed.
    controls: Vec<Control>,
    /// Base fee for the next block, if set; otherwise it is computed from the parent.
    base_fee_next: Option<u64>,
    /// Number of reorgs; the salt of the next one is derived from it.
    reorgs: u64,
    orphans: Orphans,
    /// By id. An id is never used again.
    snapshots: BTreeMap<u64, Snapshot>,
    snapshot_next: u64,
}

/// State that `evm_revert` restores. The clock is not part of it: the service reads the chain with its own clock, so chain
/// time must not go back.
struct Snapshot {
    /// Number of the head.
    number: u64,
    state: State,
    controls: Vec<Control>,
    base_fee_next: Option<u64>,
    pool: Mempool,
}

struct History {
    undo: Changes,
    /// Controls between the previous block and this one. They are applied again when a reorg undoes the block.
    controls: Vec<Control>,
}

impl Chain {
    pub(crate) fn genesis(config: Arc<ChainConfig>, timestamp: u64) -> Self {
        let state = State::genesis(&config.genesis_accounts());
        let base_fee = config.base_fee_initial_wei;
        let params = BlockParams { number: 0, parent_hash: B256::ZERO, timestamp, base_fee, salt: config.chain_id };
        let genesis = Block::seal(params, config.block_gas_limit, None);
        let mut numbers = B256Map::default();
        numbers.insert(genesis.hash, 0);
        Self {
            config,
            state,
            blocks: vec![genesis],
            history: VecDeque::new(),
            numbers,
            places: B256Map::default(),
            controls: Vec::new(),
            base_fee_next: None,
            reorgs: 0,
            orphans: Orphans::default(),
            snapshots: BTreeMap::new(),
            snapshot_next: 0,
        }
    }

    pub(crate) fn head(&self) -> &Block {
        &self.blocks[self.blocks.len() - 1]
    }

    pub(crate) fn head_ref(&self) -> BlockRef {
        self.head().reference()
    }

    pub(crate) fn block(&self, number: u64) -> Option<&Block> {
        self.blocks.get(usize::try_from(number).ok()?)
    }

    pub(crate) fn number_of(&self, hash: &B256) -> Option<u64> {
        self.numbers.get(hash).copied()
    }

    pub(crate) fn place_of(&self, tx_hash: &B256) -> Option<(u64, u32)> {
        self.places.get(tx_hash).copied()
    }

    /// Returns an account at the head; an empty one if it does not exist.
    pub(crate) fn account(&self, address: &Address) -> AccountInfo {
        self.state.info(address).cloned().unwrap_or_default()
    }

    pub(crate) fn nonce(&self, address: &Address) -> u64 {
        self.state.info(address).map_or(0, |info| info.nonce)
    }

    /// Returns the base fee of a block on top of `parent`: the value that was set, if `parent` is the head, or the
    /// computed value.
    pub(crate) fn base_fee_after(&self, parent: &Block) -> u64 {
        let set = self.base_fee_next.filter(|_| parent.hash == self.head().hash);
        set.unwrap_or_else(|| execute::base_fee_after(&self.config, parent))
    }

    /// Sets the base fee of the next block, independent of its parent.
    pub(crate) fn set_base_fee_next(&mut self, wei: u64) {
        self.base_fee_next = Some(wei);
    }

    /// Returns the parameters of an ordinary block on top of `parent`.
    pub(crate) fn params_after(&self, parent: &Block, timestamp: u64) -> BlockParams {
        let base_fee = self.base_fee_after(parent);
        BlockParams { number: parent.number + 1, parent_hash: parent.hash, timestamp, base_fee, salt: 0 }
    }

    /// Creates an empty block on top of any block.
    pub(crate) fn empty_after(&self, parent: &Block, timestamp: u64) -> Block {
        Block::seal(self.params_after(parent, timestamp), self.config.block_gas_limit, None)
    }

    pub(crate) fn fill(&self, params: BlockParams, candidates: Candidates) -> Executed {
        let hashes = |number| self.recent_hash(params.number, number);
        execute::fill(&self.config, params, Overlay::new(&self.state, &hashes), candidates)
    }

    pub(crate) fn exactly(&self, params: BlockParams, txs: &[Arc<Tx>]) -> Executed {
        let hashes = |number| self.recent_hash(params.number, number);
        execute::exactly(&self.config, params, Overlay::new(&self.state, &hashes), txs)
    }

    /// Returns the hash that the BLOCKHASH instruction sees in block `from`.
    pub(crate) fn recent_hash(&self, from: u64, number: u64) -> B256 {
        let recent = number < from && from - number <= 256;
        self.block(number).filter(|_| recent).map_or(B256::ZERO, |block| block.hash)
    }

    /// Puts the next block on the head.
    pub(crate) fn apply(&mut self, block: Block, changes: Changes) {
        self.base_fee_next = None;
        let undo = self.state.apply(changes);
        let controls = std::mem::take(&mut self.controls);
        self.history.push_back(History { undo, controls });
        if self.history.len() > self.config.history_blocks_max {
            self.history.pop_front();
        }
        self.numbers.insert(block.hash, block.number);
        for (index, tx) in (0..).zip(block.txs()) {
            self.places.insert(tx.hash, (block.number, index));
        }
        self.blocks.push(block);
    }

    pub(crate) fn control(&mut self, control: Control) {
        self.state.control(&control);
        self.controls.push(control);
    }

    pub(crate) fn check_depth(&self, depth: u64) -> Result<(), ChainError> {
        let depth_max = self.history.len() as u64;
        if depth == 0 || depth > depth_max {
            return Err(ChainError::TooDeep { depth, depth_max });
        }
        Ok(())
    }

    /// Creates the empty blocks that replace the last `depth` blocks, and one more, so that the new branch is longer.
    /// They keep the timestamps of the replaced blocks. The first of them is the next block.
    pub(crate) fn plan_reorg(&self, depth: u64, now_secs: u64) -> Result<Vec<Block>, ChainError> {
        self.check_depth(depth)?;
        let head = self.head();
        let fork = head.number - depth;
        let mut branch: Vec<Block> = Vec::new();
        for number in fork + 1..=head.number + 1 {
            let parent = branch.last().unwrap_or(&self.blocks[index_of(fork)]);
            let timestamp = self.block(number).map_or(now_secs.max(parent.timestamp), |old| old.timestamp);
            let set = self.base_fee_next.filter(|_| branch.is_empty());
            let base_fee = set.unwrap_or_else(|| execute::base_fee_after(&self.config, parent));
            let salt = self.reorgs + 1;
            let params = BlockParams { number, parent_hash: parent.hash, timestamp, base_fee, salt };
            branch.push(Block::seal(params, self.config.block_gas_limit, None));
        }
        Ok(branch)
    }

    /// Removes the last `depth` blocks and returns their transactions, the oldest first. Controls are applied again,
    /// because they are not part of the chain. Snapshots of removed blocks are discarded.
    pub(crate) fn unwind(&mut self, depth: u64) -> Vec<Arc<Tx>> {
        self.reorgs += 1;
        let mut undone = Vec::new();
        let mut controls = std::mem::take(&mut self.controls);
        for _ in 0..depth {
            let Some(history) = self.history.pop_back() else { break };
            undone.extend(self.head().txs().iter().rev().cloned());
            self.remove_head();
            self.state.apply(history.undo);
            controls.splice(0..0, history.controls);
        }
        let fork = self.head().number;
        self.snapshots.retain(|_, snapshot| snapshot.number <= fork);
        for control in controls {
            self.control(control);
        }
        undone.reverse();
        undone
    }

    fn remove_head(&mut self) {
        let Some(block) = self.blocks.pop() else { return };
        self.numbers.remove(&block.hash);
        for tx in block.txs() {
            self.places.remove(&tx.hash);
        }
        self.orphans.add(block);
    }

    pub(crate) fn check_snapshots(&self) -> Result<(), ChainError> {
        if self.snapshots.len() < SNAPSHOTS_MAX {
            return Ok(());
        }
        Err(ChainError::TooManySnapshots { snapshots_max: SNAPSHOTS_MAX })
    }

    /// Keeps a copy of the state and of the pool, and returns its id.
    pub(crate) fn snapshot(&mut self, pool: &Mempool) -> u64 {
        let id = self.snapshot_next;
        self.snapshot_next += 1;
        let snapshot = Snapshot {
            number: self.head().number,
            state: self.state.clone(),
            controls: self.controls.clone(),
            base_fee_next: self.base_fee_next,
            pool: pool.copy(),
        };
        self.snapshots.insert(id, snapshot);
        id
    }

    pub(crate) fn has_snapshot(&self, id: u64) -> bool {
        self.snapshots.contains_key(&id)
    }

    /// Removes the blocks after a snapshot, and restores its state and pool. Discards this snapshot and later ones.
    /// Returns false if there is no such snapshot.
    pub(crate) fn revert(&mut self, id: u64, pool: &mut Mempool) -> bool {
        if !self.has_snapshot(id) {
            return false;
        }
        let Some((_, snapshot)) = self.snapshots.split_off(&id).pop_first() else { return false };
        while self.head().number > snapshot.number {
            self.history.pop_back();
            self.remove_head();
        }
        self.state = snapshot.state;
        self.controls = snapshot.controls;
        self.base_fee_next = snapshot.base_fee_next;
        pool.restore(snapshot.pool);
        true
    }

    /// Returns the difference between the blocks up to `head` and the branch that ends with block `seen`; `None` if too
    /// many blocks were removed since.
    pub(crate) fn difference(&self, mut seen: B256, head: u64) -> Option<Difference<'_>> {
        let mut removed = Vec::new();
        let fork = loop {
            if let Some(number) = self.number_of(&seen) {
                break number;
            }
            let block = self.orphans.get(&seen)?;
            removed.push(block);
            seen = block.parent_hash;
        };
        // A lagging head can be before the fork.
        let added = self.blocks.get(index_of(fork) + 1..=index_of(head)).unwrap_or_default();
        Some(Difference { removed, added, seen: added.last().map_or(seen, |block| block.hash) })
    }

    /// Returns the state after block `number`; `None` if the block is too old.
    pub(crate) fn state_at<'a>(&'a self, number: u64, hashes: &'a dyn Fn(u64) -> B256) -> Option<Overlay<'a>> {
        let behind = usize::try_from(self.head().number.checked_sub(number)?).ok()?;
        if behind > self.history.len() {
            return None;
        }
        let mut overlay = Overlay::new(&self.state, hashes);
        for history in self.history.iter().rev().take(behind) {
            overlay.rewind(&history.undo);
        }
        Some(overlay)
    }

    /// Resolves a tag when `head` is the newest visible block; `None` for a number beyond it.
    pub(crate) fn resolve(&self, tag: BlockNumberOrTag, head: u64) -> Option<u64> {
        match tag {
            BlockNumberOrTag::Latest | BlockNumberOrTag::Pending => Some(head),
            BlockNumberOrTag::Safe => Some(self.config.tags.safe(head)),
            BlockNumberOrTag::Finalized => Some(self.config.tags.finalized(head)),
            BlockNumberOrTag::Earliest => Some(0),
            BlockNumberOrTag::Number(number) => (number <= head).then_some(number),
        }
    }
}

fn index_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
