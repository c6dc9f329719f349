//! Blocks that a reorg or a revert took out of the chain, for clients that have seen them.

use std::collections::VecDeque;

use alloy::primitives::B256;
use alloy::primitives::map::B256Map;

use crate::block::Block;

/// Maximum number of removed blocks that are kept. A client that has seen an older one must start anew.
const ORPHANS_MAX: usize = 16_384;

/// The blocks that were removed last.
#[derive(Default)]
pub(crate) struct Orphans {
    blocks: B256Map<Block>,
    oldest_first: VecDeque<B256>,
}

impl Orphans {
    pub(crate) fn add(&mut self, block: Block) {
        let hash = block.hash;
        if self.blocks.insert(hash, block).is_none() {
            self.oldest_first.push_back(hash);
        }
        if self.oldest_first.len() > ORPHANS_MAX
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.blocks.remove(&oldest);
        }
    }

    pub(crate) fn get(&self, hash: &B256) -> Option<&Block> {
        self.blocks.get(hash)
    }
}

/// Difference between the chain and the branch that a client has seen.
pub(crate) struct Difference<'a> {
    /// Blocks that are no longer in the chain, the newest first.
    pub removed: Vec<&'a Block>,
    /// Blocks that are new, the oldest first.
    pub added: &'a [Block],
    /// Hash of the newest block that the client has seen when it knows this difference.
    pub seen: B256,
}

impl Difference<'_> {
    /// Returns the part up to a maximum number of added blocks.
    pub(crate) fn limited(mut self, added_max: usize) -> Self {
        if let Some((added, _)) = self.added.split_at_checked(added_max)
            && let Some(last) = added.last()
        {
            (self.added, self.seen) = (added, last.hash);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockParams;

    #[test]
    fn the_oldest_blocks_are_dropped() {
        let block = |number: u64| {
            let params = BlockParams { number, parent_hash: B256::ZERO, timestamp: 0, base_fee: 0, salt: 0 };
            Block::seal(params, 1, None)
        };
        let mut orphans = Orphans::default();
        for number in 0..=ORPHANS_MAX as u64 {
            orphans.add(block(number));
            orphans.add(block(number));
        }
        assert!(orphans.get(&block(0).hash).is_none());
        assert!(orphans.get(&block(1).hash).is_some());
        assert_eq!(orphans.blocks.len(), ORPHANS_MAX);
    }
}
