//! The blocks `safe` and `finalized`: a pure function of the head's number, so that a restart and a lagging view agree.
//!
//! On a rollup they do not follow the head block by block. The sequencer posts batches of many blocks to L1, and a
//! batch becomes safe at once. L1 finalises epochs, and all batches in an epoch become finalized at once.

/// Distance and jumps of `safe` and `finalized`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tags {
    /// Minimum number of blocks from `safe` to `latest`.
    pub safe_depth: u64,
    /// Minimum number of blocks from `finalized` to `latest`; at least `safe_depth`.
    pub finalized_depth: u64,
    /// Average number of blocks by which `safe` jumps. The jumps are irregular, up to almost twice as long. With 1,
    /// `safe` follows every block.
    pub batch_blocks: u64,
    /// Number of blocks per epoch: `finalized` is the last batch before an epoch's end. With 1, it follows every batch.
    pub epoch_blocks: u64,
}

impl Default for Tags {
    /// Both follow the head block by block.
    fn default() -> Self {
        Self { safe_depth: 5, finalized_depth: 10, batch_blocks: 1, epoch_blocks: 1 }
    }
}

impl Tags {
    /// Tags that jump as on a rollup, and are still reached within 30 blocks.
    pub const JUMPING: Self = Self { safe_depth: 5, finalized_depth: 10, batch_blocks: 4, epoch_blocks: 8 };

    /// Number of the `safe` block when `head` is the newest one.
    pub fn safe(self, head: u64) -> u64 {
        self.batch_end(head.saturating_sub(self.safe_depth))
    }

    /// Number of the `finalized` block when `head` is the newest one.
    pub fn finalized(self, head: u64) -> u64 {
        let number = head.saturating_sub(self.finalized_depth);
        self.batch_end(number - number.checked_rem(self.epoch_blocks).unwrap_or(0))
    }

    /// Last block of the last batch that ends at or before `number`; the genesis if there is none.
    fn batch_end(self, number: u64) -> u64 {
        let every = self.batch_blocks.max(1);
        // One batch ends in each window of `every` blocks, at a place that looks random.
        let end = |window: u64| window * every + scattered(window) % every;
        let window = number / every;
        let ends = [Some(window), window.checked_sub(1)];
        ends.into_iter().flatten().map(end).find(|end| *end <= number).unwrap_or(0)
    }
}

/// splitmix64
fn scattered(x: u64) -> u64 {
    let x = x.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn tags_without_jumps_follow_the_head() {
        let tags = Tags::default();
        assert_eq!([3, 5, 6, 100].map(|head| tags.safe(head)), [0, 0, 1, 95]);
        assert_eq!([3, 10, 11, 100].map(|head| tags.finalized(head)), [0, 0, 1, 90]);
    }

    #[test]
    fn jumps_are_irregular_and_bounded_and_never_go_back() {
        let tags = Tags::JUMPING;
        let (mut safe_jumps, mut finalized_jumps) = (BTreeSet::new(), BTreeSet::new());
        for head in 1..10_000 {
            let (safe, finalized) = (tags.safe(head), tags.finalized(head));
            assert!(finalized <= safe && safe + tags.safe_depth <= head.max(tags.safe_depth), "{head}");
            assert!(head < safe + tags.safe_depth + 2 * tags.batch_blocks, "{head}");
            assert!(head < finalized + tags.finalized_depth + 2 * tags.batch_blocks + tags.epoch_blocks, "{head}");
            safe_jumps.insert(safe - tags.safe(head - 1));
            finalized_jumps.insert(finalized - tags.finalized(head - 1));
        }
        assert_eq!(safe_jumps.iter().copied().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(finalized_jumps.contains(&0) && finalized_jumps.len() > 3, "{finalized_jumps:?}");
        assert!(finalized_jumps.iter().skip(1).all(|jump| *jump > 1), "{finalized_jumps:?}");
    }
}
