//! The service's clock. The sandbox moves it; everything that asks for the time asks here.

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

    /// Now, offset included. What payments are judged by.
    pub fn now(&self) -> Timestamp {
        Timestamp(self.real_now().as_millis().saturating_add(self.offset_ms()))
    }

    /// Now by the wall clock. What other machines compare with theirs: webhook signatures, retry times.
    pub fn real_now(&self) -> Timestamp {
        Timestamp::from(chrono::Utc::now())
    }

    /// How far this clock is ahead of the wall clock, in milliseconds.
    pub fn offset_ms(&self) -> i64 {
        self.offset_ms.load(Ordering::Acquire)
    }

    /// Moves the clock on and returns the new offset.
    pub fn advance_secs(&self, secs: i64) -> i64 {
        let by_ms = secs.saturating_mul(1000);
        self.offset_ms.fetch_add(by_ms, Ordering::AcqRel).saturating_add(by_ms)
    }
}
