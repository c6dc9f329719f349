//! How often a key may ask, and how often an address may open a public page.
//!
//! Counted per process. The sandbox has no limit for keys.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::ConnectInfo;
use axum::http::request::Parts;
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota};
use moka::sync::Cache;
use payferry_domain::KeyId;

use crate::error::ApiError;
use crate::live::{STREAMS_AT_ONCE, STREAMS_PER_ADDRESS};

/// Requests a second that a key may make in the long run.
pub const KEY_REQUESTS_PER_SEC: u32 = 500;
/// Requests that a key may make at once.
pub const KEY_REQUESTS_BURST: u32 = 1_000;
/// Public pages a minute for one address.
pub const PAGES_PER_MINUTE: u32 = 50;
/// Callbacks of identity providers a minute for one address; providers repeat those that are refused.
pub const CALLBACKS_PER_MINUTE: u32 = 600;
/// Requests of one PSP that wait for events at once.
pub const WAITS_PER_PSP: usize = 8;
/// Requests under way at once, of all callers together; more are told to come again.
pub const REQUESTS_AT_ONCE: usize = 1_024;
/// Requests a minute that one address may make with keys that do not exist; from then on, keys from there that were never
/// seen are refused unread.
pub const UNKNOWN_KEYS_PER_MINUTE: u32 = 60;
/// How long a request may take, its body included.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How often keys and addresses that have not asked for a while are forgotten.
const FORGET_EVERY_SECS: i64 = 60;
/// Addresses whose unknown keys are counted.
const STRANGERS_MAX: u64 = 10_000;
/// How long an address is remembered for them.
const STRANGERS_WINDOW: Duration = Duration::from_mins(1);
/// The bits of an IPv6 address that name one household.
const IPV6_HOUSEHOLD_BITS: u32 = 64;

/// How much may be asked for; `None` is no limit.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Per key: requests a second, and at once.
    pub key: Option<(NonZeroU32, NonZeroU32)>,
    /// Public pages a minute per address.
    pub pages_per_minute: Option<NonZeroU32>,
    /// Callbacks a minute per address.
    pub callbacks_per_minute: Option<NonZeroU32>,
    /// Requests under way at once.
    pub requests_at_once: usize,
    /// Unknown keys a minute per address.
    pub unknown_keys_per_minute: u32,
    /// Whether a proxy in front tells the payer's address as the last entry of `X-Forwarded-For`.
    pub behind_proxy: bool,
    /// How long a request may take, its body included.
    pub request_timeout: Duration,
    /// Streams open at once.
    pub streams_at_once: usize,
    /// Streams open at once for one address.
    pub streams_per_address: usize,
    /// Requests of one PSP that wait for events at once.
    pub waits_per_psp: usize,
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
        let callbacks_per_minute = NonZeroU32::new(CALLBACKS_PER_MINUTE);
        Self {
            key,
            pages_per_minute,
            callbacks_per_minute,
            requests_at_once: REQUESTS_AT_ONCE,
            unknown_keys_per_minute: UNKNOWN_KEYS_PER_MINUTE,
            behind_proxy: false,
            request_timeout: REQUEST_TIMEOUT,
            streams_at_once: STREAMS_AT_ONCE,
            streams_per_address: STREAMS_PER_ADDRESS,
            waits_per_psp: WAITS_PER_PSP,
        }
    }
}

/// The counters.
pub struct Limiters {
    keys: Option<DefaultKeyedRateLimiter<KeyId>>,
    pages: Option<DefaultKeyedRateLimiter<IpAddr>>,
    callbacks: Option<DefaultKeyedRateLimiter<IpAddr>>,
    /// Unknown keys by address; an entry lives for [`STRANGERS_WINDOW`].
    strangers: Cache<IpAddr, Arc<AtomicU32>>,
    unknown_keys_per_minute: u32,
    behind_proxy: bool,
    forgotten_at_secs: AtomicI64,
}

impl Limiters {
    /// Counters with these limits.
    pub fn new(limits: &Limits) -> Self {
        let per_minute = |rate| DefaultKeyedRateLimiter::keyed(Quota::per_minute(rate));
        let key = |(rate, burst)| DefaultKeyedRateLimiter::keyed(Quota::per_second(rate).allow_burst(burst));
        Self {
            keys: limits.key.map(key),
            pages: limits.pages_per_minute.map(per_minute),
            callbacks: limits.callbacks_per_minute.map(per_minute),
            strangers: Cache::builder().max_capacity(STRANGERS_MAX).time_to_live(STRANGERS_WINDOW).build(),
            unknown_keys_per_minute: limits.unknown_keys_per_minute,
            behind_proxy: limits.behind_proxy,
            forgotten_at_secs: AtomicI64::new(0),
        }
    }

    /// Counts a request of this key.
    pub fn key(&self, key: KeyId) -> Result<(), ApiError> {
        check(self.keys.as_ref(), &key)
    }

    /// Counts a public page for the address that asks.
    pub fn page(&self, parts: &Parts) -> Result<(), ApiError> {
        self.forget_idle();
        check(self.pages.as_ref(), &household(self.address(parts)))
    }

    /// Counts a callback for the address that sends it.
    pub fn callback(&self, parts: &Parts) -> Result<(), ApiError> {
        self.forget_idle();
        check(self.callbacks.as_ref(), &household(self.address(parts)))
    }

    /// Whether a key that was never seen may be looked up for the address that presents it.
    pub fn stranger(&self, parts: &Parts) -> Result<(), ApiError> {
        let tried = self.strangers.get(&household(self.address(parts)));
        if tried.is_some_and(|tried| tried.load(Ordering::Relaxed) >= self.unknown_keys_per_minute) {
            return Err(ApiError::RateLimited(STRANGERS_WINDOW.as_secs()));
        }
        Ok(())
    }

    /// Counts a key that does not exist.
    pub fn unknown_key(&self, parts: &Parts) {
        let tried = self.strangers.get_with(household(self.address(parts)), Arc::default);
        tried.fetch_add(1, Ordering::Relaxed);
    }

    /// The household that asks.
    pub fn household(&self, parts: &Parts) -> IpAddr {
        household(self.address(parts))
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
            self.callbacks.iter().for_each(DefaultKeyedRateLimiter::retain_recent);
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
pub fn household(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let bits = u128::from(address) >> IPV6_HOUSEHOLD_BITS << IPV6_HOUSEHOLD_BITS;
            IpAddr::V6(Ipv6Addr::from(bits))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}
