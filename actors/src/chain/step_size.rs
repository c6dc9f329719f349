//! Number of blocks that the watcher reads at once.

use payferry_evm::ClientError;

use super::poll::PollError;

/// After each success with the largest accepted range, the next one may be larger by this fraction of it.
const RANGE_GROWTH_DIVISOR: u64 = 8;

/// Number of blocks per read. Any error halves it and a success doubles it, up to the largest range that the endpoints
/// accept, which is found again slowly.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepSize {
    blocks: u64,
    accepted_max: u64,
    range_max: u64,
}

impl StepSize {
    /// Starts with the maximum.
    pub(super) fn new(range_max: u64) -> Self {
        let range_max = range_max.max(1);
        Self { blocks: range_max, accepted_max: range_max, range_max }
    }

    /// Blocks of the next read.
    pub(super) fn blocks(self) -> u64 {
        self.blocks
    }

    /// The last read succeeded.
    pub(super) fn succeeded(&mut self) {
        let max = &mut self.accepted_max;
        if self.blocks >= *max {
            *max = (*max + (*max / RANGE_GROWTH_DIVISOR).max(1)).min(self.range_max);
        }
        self.blocks = (self.blocks * 2).min(*max);
    }

    /// A read of this many blocks failed.
    pub(super) fn failed(&mut self, blocks: u64, error: &PollError) {
        self.blocks = (blocks / 2).clamp(1, self.blocks.max(1));
        if let PollError::Client(ClientError::RangeTooLarge(_)) = error {
            self.accepted_max = self.blocks;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_shrinks_on_any_error_and_grows_fast_except_after_a_range_limit() {
        let mut step = StepSize::new(100);
        for blocks in [50, 25, 12, 6, 3, 1, 1] {
            step.failed(step.blocks(), &PollError::Client(ClientError::Timeout));
            assert_eq!(step.blocks(), blocks);
        }
        for blocks in [2, 4, 8, 16, 32, 64, 100, 100] {
            step.succeeded();
            assert_eq!(step.blocks(), blocks);
        }
        step.failed(40, &PollError::Client(ClientError::RangeTooLarge(String::new())));
        for blocks in [22, 24, 27] {
            step.succeeded();
            assert_eq!(step.blocks(), blocks);
        }
    }
}
