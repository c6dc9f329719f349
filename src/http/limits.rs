//! How often a key may ask, and how often an address may open a public page.
//!
//! Counted per process. The sandbox has no limit for keys.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::ConnectInfo;
use axum::http::request::Parts;
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota};
use payferry_domain::KeyId;

use super::error::ApiError;

/// Requests a second that a key may make in the long run.
pub const KEY_REQUESTS_PER_SEC: u32 = 500;
/// Requests that a key may make at once.
pub const KEY_REQUESTS_BURST: u32 = 1_000;
/// Public pages a minute for one address.
pub const PAGES_PER_MINUTE: u32 = 50;
/// How long a request may take, its body included.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How often keys and addresses that have not asked for a while are forgotten.
const FORGET_EVERY_SECS: i64 = 60;
/// The bits of an IPv6 address that name one household.
const IPV6_HOUSEHOLD_BITS: u32 = 64;

/// How much may be asked for; `None` is no limit.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Per key: requests a second, and at once.
    pub key: Option<(NonZeroU32, NonZeroU32)>,
    /// Public pages a minute per address.
    pub pages_per_minute: Option<NonZeroU32>,
    /// Whether a proxy in front tells the payer's address as the last entry of `X-Forwarded-For`.
    pub behind_proxy: bool,
    /// How long a request may take, its body included.
    pub request_timeout: Duration,
}

impl Limits {
    /// The sandbox: no limit for keys.
    pub const fn sandbox() -> Self {
        Self { key: None, ..Self::production() }
    }

    /// Production.
    pub const fn production() -> Self {
        let key = match (NonZeroU32::new(KEY_REQUESTS_PER_SEC), NonZeroU32::new(KEY_REQUESTS_BURST)) {
            (Some(rate), Some(burst)) => Some((rate, burst)),
            _ => None,
        };
        let pages_per_minute = NonZeroU32::new(PAGES_PER_MINUTE);
        Self { key, pages_per_minute, behind_proxy: false, request_timeout: REQUEST_TIMEOUT }
    }
}

/// The counters.
pub(super) struct Limiters {
    keys: Option<DefaultKeyedRateLimiter<KeyId>>,
    pages: Option<DefaultKeyedRateLimiter<IpAddr>>,
    behind_proxy: bool,
    forgotten_at_secs: AtomicI64,
}

impl Limiters {
    pub(super) fn new(limits: &Limits) -> Self {
        let key = |(rate, burst)| DefaultKeyedRateLimiter::keyed(Quota::per_second(rate).allow_burst(burst));
        Self {
            keys: limits.key.map(key),
            pages: limits.pages_per_minute.map(|rate| DefaultKeyedRateLimiter::keyed(Quota::per_minute(rate))),
            behind_proxy: limits.behind_proxy,
            forgotten_at_secs: AtomicI64::new(0),
        }
    }

    /// Counts a request of this key.
    pub(super) fn key(&self, key: KeyId) -> Result<(), ApiError> {
        check(self.keys.as_ref(), &key)
    }

    /// Counts a public page for the address that asks.
    pub(super) fn page(&self, parts: &Parts) -> Result<(), ApiError> {
        self.forget_idle();
        check(self.pages.as_ref(), &household(self.address(parts)))
    }

    fn address(&self, parts: &Parts) -> IpAddr {
        let forwarded = || {
            let entries = parts.headers.get_all("x-forwarded-for").iter().next_back()?.to_str().ok()?;
            entries.rsplit(',').next()?.trim().parse().ok()
        };
        let peer = || parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
        let told = if self.behind_proxy { forwarded() } else { None };
        told.or_else(peer).unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED))
    }

    /// Forgets addresses whose count is full again, so that strangers cannot fill the memory.
    fn forget_idle(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let last = self.forgotten_at_secs.load(Ordering::Relaxed);
        let due = now.saturating_sub(last) >= FORGET_EVERY_SECS;
        if due && self.forgotten_at_secs.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.pages.iter().for_each(DefaultKeyedRateLimiter::retain_recent);
            self.keys.iter().for_each(DefaultKeyedRateLimiter::retain_recent);
        }
    }
}

fn check<K: Clone + Eq + std::hash::Hash>(
    limiter: Option<&DefaultKeyedRateLimiter<K>>,
    key: &K,
) -> Result<(), ApiError> {
    let Some(limiter) = limiter else { return Ok(()) };
    limiter.check_key(key).map_err(|refused| {
        let wait = refused.wait_time_from(DefaultClock::default().now());
        ApiError::RateLimited(wait.as_secs().saturating_add(1))
    })
}

/// Whoever has an IPv6 address has 2^64 of them.
fn household(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let bits = u128::from(address) >> IPV6_HOUSEHOLD_BITS << IPV6_HOUSEHOLD_BITS;
            IpAddr::V6(Ipv6Addr::from(bits))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}
