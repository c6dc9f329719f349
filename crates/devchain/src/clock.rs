//! Chain time: the seconds of the wall clock plus an offset that is stored with every block.

use std::time::{SystemTime, UNIX_EPOCH};

/// Offset of chain time from the wall clock. Fractions of a second are truncated, never rounded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    pub offset_secs: i64,
    /// Timestamp requested by `evm_setNextBlockTimestamp`.
    pub next_timestamp_secs: Option<u64>,
}

impl Clock {
    pub(crate) fn now_secs(self) -> u64 {
        wall_secs().saturating_add_signed(self.offset_secs)
    }

    /// Returns the timestamp of the next block, given the timestamp of its parent. Consumes the requested timestamp, if
    /// any.
    pub(crate) fn take_timestamp(&mut self, parent_secs: u64) -> u64 {
        match self.next_timestamp_secs.take() {
            Some(asked) => asked.max(parent_secs),
            None => self.now_secs().max(parent_secs),
        }
    }

    pub(crate) fn advance(&mut self, secs: u64) {
        let secs = i64::try_from(secs).unwrap_or(i64::MAX);
        self.offset_secs = self.offset_secs.saturating_add(secs);
    }

    /// Sets the current time and the timestamp of the next block.
    pub(crate) fn set(&mut self, timestamp_secs: u64) {
        let wall = i64::try_from(wall_secs()).unwrap_or(i64::MAX);
        self.offset_secs = i64::try_from(timestamp_secs).unwrap_or(i64::MAX).saturating_sub(wall);
        self.next_timestamp_secs = Some(timestamp_secs);
    }
}

pub(crate) fn wall_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}
