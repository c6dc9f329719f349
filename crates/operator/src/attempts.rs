//! Failed attempts to authenticate: how many are answered, and which of them the audit log records.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use moka::sync::Cache;
use parking_lot::Mutex;
use payferry_httpkit::error::TokenProblem;
use payferry_httpkit::limits::network_prefix;

/// Wrong tokens that an address may send within a minute. Further ones are refused as too many until the minute is over.
pub const FAILED_ATTEMPTS_PER_MINUTE_MAX: u32 = 30;
/// Wrong tokens of all addresses within a minute.
pub const FAILED_ATTEMPTS_PER_MINUTE_TOTAL_MAX: u32 = 300;
/// Audit entries of failed attempts within an hour. An address gets at most one per minute.
pub const FAILED_ATTEMPTS_AUDITED_PER_HOUR_MAX: u32 = 60;
/// Starts with the first wrong token.
const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);
/// Addresses whose wrong tokens are counted at the same time.
const ADDRESSES_MAX: u64 = 10_000;

/// Counts of failed attempts. A correct credential is accepted whatever they are.
pub(crate) struct FailedAttempts {
    by_address: Cache<IpAddr, Arc<AtomicU32>>,
    all: Mutex<AllAddresses>,
}

struct AllAddresses {
    failed: Window,
    audited: Window,
    /// Failed attempts since the last audit entry.
    unaudited: u32,
}

/// A count that starts again after some time.
struct Window {
    length: Duration,
    ends_at: Instant,
    count: u32,
}

/// Outcome of one failed attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FailedAttempt {
    pub(crate) problem: TokenProblem,
    /// Number of failed attempts since the last audit entry, if this one is to be recorded.
    pub(crate) to_record: Option<u32>,
}

impl FailedAttempts {
    pub(crate) fn new() -> Self {
        let all = AllAddresses { failed: Window::new(MINUTE), audited: Window::new(HOUR), unaudited: 0 };
        Self {
            by_address: Cache::builder().max_capacity(ADDRESSES_MAX).time_to_live(MINUTE).build(),
            all: Mutex::new(all),
        }
    }

    /// Counts a failed attempt.
    pub(crate) fn add(&self, from: IpAddr) -> FailedAttempt {
        let address = network_prefix(from);
        let here = self.by_address.get_with(address, Arc::default).fetch_add(1, Ordering::Relaxed) + 1;
        let mut all = self.all.lock();
        let in_total = all.failed.add();
        all.unaudited += 1;
        let is_recorded = here == 1 && all.audited.add() <= FAILED_ATTEMPTS_AUDITED_PER_HOUR_MAX;
        let to_record = is_recorded.then(|| std::mem::take(&mut all.unaudited));
        if here == FAILED_ATTEMPTS_PER_MINUTE_MAX + 1 || in_total == FAILED_ATTEMPTS_PER_MINUTE_TOTAL_MAX + 1 {
            tracing::warn!(%address, here, in_total, "too many wrong operator tokens within a minute");
        }
        let is_over = here > FAILED_ATTEMPTS_PER_MINUTE_MAX || in_total > FAILED_ATTEMPTS_PER_MINUTE_TOTAL_MAX;
        let problem = if is_over { TokenProblem::TooManyAttempts(MINUTE.as_secs()) } else { TokenProblem::Wrong };
        FailedAttempt { problem, to_record }
    }
}

impl Window {
    fn new(length: Duration) -> Self {
        Self { length, ends_at: Instant::now() + length, count: 0 }
    }

    fn add(&mut self) -> u32 {
        if Instant::now() >= self.ends_at {
            *self = Self::new(self.length);
        }
        self.count = self.count.saturating_add(1);
        self.count
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const fn address(index: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + index))
    }

    #[test]
    fn failed_attempts_are_limited_per_address_and_in_total() {
        let attempts = FailedAttempts::new();
        let fail = |index| attempts.add(address(index)).problem;
        let too_many = TokenProblem::TooManyAttempts(60);
        for _ in 0..FAILED_ATTEMPTS_PER_MINUTE_MAX {
            assert_eq!(fail(0), TokenProblem::Wrong);
        }
        assert_eq!(fail(0), too_many);
        // The total also includes refused attempts.
        for index in FAILED_ATTEMPTS_PER_MINUTE_MAX + 1..FAILED_ATTEMPTS_PER_MINUTE_TOTAL_MAX {
            assert_eq!(fail(index), TokenProblem::Wrong);
        }
        assert_eq!(fail(1_000), too_many, "in total");
    }

    #[test]
    fn audit_entries_of_failed_attempts_are_limited_and_count_all() {
        let attempts = FailedAttempts::new();
        let fail = |index| attempts.add(address(index)).to_record;
        assert_eq!((fail(0), fail(0), fail(0), fail(1)), (Some(1), None, None, Some(3)));
        let recorded = (2..10_000).filter_map(fail).count();
        assert_eq!(recorded, FAILED_ATTEMPTS_AUDITED_PER_HOUR_MAX as usize - 2);
    }
}
