//! The chain as seen by one request: under the read lock, and possibly behind its head.

use alloy::eips::{BlockId, BlockNumberOrTag};
use alloy::primitives::B256;

use crate::block::Block;
use crate::chain::Chain;
use crate::engine::Engine;
use crate::error::RpcError;
use crate::faults::Faults;
use crate::state::Overlay;

pub(crate) struct View<'a> {
    pub engine: &'a Engine,
    pub chain: &'a Chain,
    pub faults: &'a Faults,
    /// Number of the newest visible block.
    pub head: u64,
}

impl<'a> View<'a> {
    pub(crate) fn new(engine: &'a Engine, chain: &'a Chain, faults: &'a Faults) -> Self {
        let head = chain.head().number.saturating_sub(faults.head_lag_blocks);
        Self { engine, chain, faults, head }
    }

    pub(crate) fn head_block(&self) -> &'a Block {
        self.chain.block(self.head).unwrap_or_else(|| self.chain.head())
    }

    pub(crate) fn by_number(&self, tag: BlockNumberOrTag) -> Option<&'a Block> {
        self.chain.block(self.chain.resolve(tag, self.head)?)
    }

    pub(crate) fn by_hash(&self, hash: &B256) -> Option<&'a Block> {
        let number = self.chain.number_of(hash).filter(|number| *number <= self.head)?;
        self.chain.block(number)
    }

    /// Returns the block whose state is requested; `latest` by default.
    pub(crate) fn by_id(&self, id: Option<BlockId>) -> Result<&'a Block, RpcError> {
        let block = match id.unwrap_or_default() {
            BlockId::Hash(hash) => self.by_hash(&hash.block_hash),
            BlockId::Number(tag) => self.by_number(tag),
        };
        block.ok_or_else(|| RpcError::server("header not found"))
    }

    /// Runs `read` on the state after this block.
    pub(crate) fn with_state<T>(
        &self,
        block: &Block,
        read: impl FnOnce(Overlay<'_>) -> Result<T, RpcError>,
    ) -> Result<T, RpcError> {
        let hashes = |number| self.chain.recent_hash(block.number, number);
        let overlay = self.chain.state_at(block.number, &hashes);
        read(overlay.ok_or_else(|| RpcError::server("required historical state unavailable"))?)
    }
}
