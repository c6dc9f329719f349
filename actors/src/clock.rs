//! The service's clock, the only source of time. The sandbox can advance it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use payferry_domain::Timestamp;

/// Wall-clock time plus an offset that only the sandbox sets. Clones share the offset.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    offset_ms: Arc<AtomicI64>,
}

impl Clock {
    /// A clock ahead of the wall clock by `offset_ms`.
    pub fn with_offset_ms(offset_ms: i64) -> Self {
        Self { offset_ms: Arc::new(AtomicI64::new(offset_ms)) }
    }

    /// Current time including the offset. Payments use it.
    pub fn now(&self) -> Timestamp {
        Timestamp(self.real_now().as_millis().saturating_add(self.offset_ms()))
    }

    /// Current wall-clock time, for times that other machines compare with theirs: webhook signatures, retry times.
    pub fn real_now(&self) -> Timestamp {
        Timestamp::from(chrono::Utc::now())
    }

    /// Offset from the wall clock, in milliseconds.
    pub fn offset_ms(&self) -> i64 {
        self.offset_ms.load(Ordering::Acquire)
    }

    /// Advances the clock and returns the new offset.
    pub fn advance_secs(&self, secs: i64) -> i64 {
        let by_ms = secs.saturating_mul(1000);
        self.offset_ms.fetch_add(by_ms, Ordering::AcqRel).saturating_add(by_ms)
    }
}
