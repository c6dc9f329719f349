//! Rate limits: requests of a key, and public pages and callbacks of an address.
//!
//! Each process counts for itself. The sandbox has no limit for keys.

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

/// Sustained requests of a key, per second.
pub const KEY_REQUESTS_PER_SEC: u32 = 500;
/// Burst of a key's requests.
pub const KEY_REQUESTS_BURST: u32 = 1_000;
/// Public pages of one address, per minute.
pub const PAGES_PER_MINUTE: u32 = 50;
/// Callbacks of identity providers from one address, per minute. Providers repeat refused callbacks.
pub const CALLBACKS_PER_MINUTE: u32 = 600;
/// Requests of one PSP that wait for events at once.
pub const WAITS_PER_PSP: usize = 8;
/// Concurrent requests of all callers together; further requests are refused with 503.
pub const REQUESTS_AT_ONCE: usize = 1_024;
/// Requests with unknown keys from one address, per minute. Above that, keys from this address that were never seen
/// before are refused without a lookup.
pub const UNKNOWN_KEYS_PER_MINUTE: u32 = 60;
/// Time limit of a request, including its body.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between two removals of idle keys and addresses.
const FORGET_EVERY_SECS: i64 = 60;
/// Maximum number of addresses with counted unknown keys.
const STRANGERS_MAX: u64 = 10_000;
/// Window in which unknown keys of an address are counted.
const STRANGERS_WINDOW: Duration = Duration::from_mins(1);
/// Prefix length of an IPv6 address that identifies one household.
const IPV6_HOUSEHOLD_BITS: u32 = 64;

/// The limits; `None` is no limit.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Per key: sustained requests per second, and the burst.
    pub key: Option<(NonZeroU32, NonZeroU32)>,
    /// Public pages per minute and address.
    pub pages_per_minute: Option<NonZeroU32>,
    /// Callbacks per minute and address.
    pub callbacks_per_minute: Option<NonZeroU32>,
    /// Concurrent requests.
    pub requests_at_once: usize,
    /// Unknown keys per minute and address.
    pub unknown_keys_per_minute: u32,
    /// True if a proxy in front appends the payer's address to `X-Forwarded-For`.
    pub behind_proxy: bool,
    /// Time limit of a request, including its body.
    pub request_timeout: Duration,
    /// Streams open at once.
    pub streams_at_once: usize,
    /// Streams open at once for one address.
    pub streams_per_address: usize,
    /// Concurrent requests of one PSP that wait for events.
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

    /// Counts a public page for the requesting address.
    pub fn page(&self, parts: &Parts) -> Result<(), ApiError> {
        self.forget_idle();
        check(self.pages.as_ref(), &self.network_prefix(parts))
    }

    /// Counts a callback for the sending address.
    pub fn callback(&self, parts: &Parts) -> Result<(), ApiError> {
        self.forget_idle();
        check(self.callbacks.as_ref(), &self.network_prefix(parts))
    }

    /// Refuses a key that was never seen if its address has tried too many unknown keys.
    pub fn stranger(&self, parts: &Parts) -> Result<(), ApiError> {
        let tried = self.strangers.get(&self.network_prefix(parts));
        if tried.is_some_and(|tried| tried.load(Ordering::Relaxed) >= self.unknown_keys_per_minute) {
            return Err(ApiError::RateLimited(STRANGERS_WINDOW.as_secs()));
        }
        Ok(())
    }

    /// Counts a key that does not exist.
    pub fn unknown_key(&self, parts: &Parts) {
        let tried = self.strangers.get_with(self.network_prefix(parts), Arc::default);
        tried.fetch_add(1, Ordering::Relaxed);
    }

    /// The household of the requesting address.
    pub fn network_prefix(&self, parts: &Parts) -> IpAddr {
        network_prefix(self.address(parts))
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

    /// Removes idle addresses, so that unknown callers cannot fill the memory.
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

/// An IPv6 customer usually has a /64 network, so that prefix is counted as one address.
pub fn network_prefix(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let bits = u128::from(address) >> IPV6_HOUSEHOLD_BITS << IPV6_HOUSEHOLD_BITS;
            IpAddr::V6(Ipv6Addr::from(bits))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}
