//! Finality of blocks. Pure.

use payferry_domain::Finality;

/// Progress of a chain: the last block read, and its finality tags. All numbers are of blocks that were read and
/// linked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainProgress {
    /// The last block read.
    pub read: u64,
    /// Number of the newest `safe` block.
    pub safe: Option<u64>,
    /// Number of the newest `finalized` block.
    pub finalized: Option<u64>,
}

impl ChainProgress {
    /// True if `block` has this finality. `Blocks(n)` counts the block itself as the first confirmation.
    pub fn reached(&self, block: u64, finality: Finality) -> bool {
        match finality {
            Finality::Blocks(_) if block > self.read => false,
            Finality::Blocks(needed) => self.confirmations(block) >= u64::from(needed.max(1)),
            Finality::Safe => self.safe.is_some_and(|safe| block <= safe.min(self.read)),
            Finality::Finalized => self.finalized.is_some_and(|finalized| block <= finalized.min(self.read)),
        }
    }

    /// Confirmations of `block`: 0 before it was read, 1 if it is the last one read.
    pub fn confirmations(&self, block: u64) -> u64 {
        (self.read + 1).saturating_sub(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_itself_is_the_first_confirmation() {
        let reach = ChainProgress { read: 10, safe: Some(7), finalized: Some(3) };
        assert!(reach.reached(10, Finality::Blocks(1)) && !reach.reached(10, Finality::Blocks(2)));
        assert!(reach.reached(9, Finality::Blocks(2)) && !reach.reached(11, Finality::Blocks(0)));
        assert!(reach.reached(7, Finality::Safe) && !reach.reached(8, Finality::Safe));
        assert!(reach.reached(3, Finality::Finalized) && !reach.reached(4, Finality::Finalized));
        assert_eq!(reach.confirmations(12), 0);
    }

    #[test]
    fn unread_blocks_are_not_final() {
        let reach = ChainProgress { read: 5, safe: Some(9), finalized: Some(8) };
        assert!(!reach.reached(6, Finality::Safe) && !reach.reached(6, Finality::Finalized));
        let unknown = ChainProgress { read: 5, safe: None, finalized: None };
        assert!(!unknown.reached(1, Finality::Safe) && !unknown.reached(1, Finality::Finalized));
    }
}
