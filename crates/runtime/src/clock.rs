//! Clock of the service, the only source of time. The sandbox can move it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Wall-clock time plus an offset that only the sandbox sets. Clones share the offset.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    offset_ms: Arc<AtomicI64>,
    /// Number of moves that have begun and not ended.
    moves: Arc<AtomicUsize>,
}

/// A move of the clock that has begun. It ends on drop.
#[derive(Debug)]
pub struct ClockMove(Arc<AtomicUsize>);

impl Drop for ClockMove {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Clock {
    /// A clock ahead of the wall clock by `offset_ms`.
    pub fn with_offset_ms(offset_ms: i64) -> Self {
        Self { offset_ms: Arc::new(AtomicI64::new(offset_ms)), ..Self::default() }
    }

    /// Current time including the offset, in whole milliseconds. Deadlines of payments use it.
    ///
    /// The caller chooses the type: [`SystemTime`], or one that is made from it, such as the domain's timestamp.
    pub fn now<T: From<SystemTime>>(&self) -> T {
        from_millis(wall_millis().saturating_add(self.offset_ms())).into()
    }

    /// Current wall-clock time, for values that other machines compare with their clocks: webhook signatures, retry
    /// times.
    pub fn real_now<T: From<SystemTime>>(&self) -> T {
        from_millis(wall_millis()).into()
    }

    /// Offset of this clock from the wall clock, in milliseconds.
    pub fn offset_ms(&self) -> i64 {
        self.offset_ms.load(Ordering::Acquire)
    }

    /// Begins a move. Until it ends, the time of the chains may be ahead of this clock, so no deadline passes.
    pub fn begin_move(&self) -> ClockMove {
        self.moves.fetch_add(1, Ordering::AcqRel);
        ClockMove(self.moves.clone())
    }

    /// True between the begin and the end of a move.
    pub fn is_moving(&self) -> bool {
        self.moves.load(Ordering::Acquire) > 0
    }

    /// Moves the clock forward and returns the new offset.
    pub fn advance_secs(&self, secs: i64) -> i64 {
        let by_ms = secs.saturating_mul(1000);
        self.offset_ms.fetch_add(by_ms, Ordering::AcqRel).saturating_add(by_ms)
    }
}

/// Milliseconds since the Unix epoch; negative before it.
pub(crate) fn millis(moment: SystemTime) -> i64 {
    match moment.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(error) => i64::try_from(error.duration().as_millis()).map_or(i64::MIN, |before| -before),
    }
}

/// Time this number of milliseconds after the Unix epoch; before it if negative.
pub fn from_millis(millis: i64) -> SystemTime {
    let distance = Duration::from_millis(millis.unsigned_abs());
    let moment = if millis < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
    moment.unwrap_or(UNIX_EPOCH)
}

/// Cuts to whole milliseconds, so that a stored or displayed time equals the one in memory.
fn wall_millis() -> i64 {
    millis(SystemTime::now())
}

/// Serialises a time as milliseconds since the Unix epoch.
pub(crate) fn serialize_millis<S: serde::Serializer>(moment: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_i64(millis(*moment))
}

/// As [`serialize_millis`]; `None` is null.
#[allow(clippy::ref_option, reason = "serde passes the field like this")]
pub(crate) fn serialize_millis_or_null<S: serde::Serializer>(
    moment: &Option<SystemTime>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match moment {
        Some(moment) => serialize_millis(moment, serializer),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_whole_milliseconds_and_follow_the_offset() {
        let clock = Clock::with_offset_ms(5_000);
        let (real, now): (SystemTime, SystemTime) = (clock.real_now(), clock.now());
        assert_eq!(from_millis(millis(real)), real);
        assert!(millis(now) >= millis(real) + 5_000);
        assert_eq!(clock.advance_secs(-10), -5_000);
        for ms in [-1, 0, 1, 1_732_175_655_007] {
            assert_eq!(millis(from_millis(ms)), ms);
        }
    }
}
