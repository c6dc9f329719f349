//! Rate limits: requests of a key, and public pages and callbacks of an address.
//!
//! Each process counts for itself. The sandbox has no limit for keys.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};
use governor::clock::{Clock, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::{DefaultKeyedRateLimiter, NotUntil, Quota};
use moka::sync::Cache;
use payferry_domain::KeyId;

use crate::address::{ClientAddress, TrustedProxies};
use crate::error::ApiError;
use crate::live::{STREAMS_AT_ONCE, STREAMS_PER_ADDRESS};
use crate::progress::EdgeLimits;
use crate::serve::ServeConfig;

/// Response header with the number of requests that a key can send at once.
pub const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
/// Response header with the number of requests that are left now.
pub const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
/// Response header with the seconds after which the whole limit is available again.
pub const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
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
/// Requests with malformed keys, unknown keys or wrong secrets from one address, per minute. Above that, further ones get
/// 429, and keys from this address that were never seen before are refused without a lookup.
pub const FAILED_KEYS_PER_MINUTE: u32 = 60;
/// Time limit of a request after its body has arrived.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between two removals of idle keys and addresses.
const FORGET_EVERY_SECS: i64 = 60;
/// Maximum number of addresses with counted failures.
const STRANGERS_MAX: u64 = 10_000;
/// Window in which failures of an address are counted.
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
    /// Failed keys per minute and address.
    pub failed_keys_per_minute: u32,
    /// Connections and request bodies.
    pub edge: EdgeLimits,
    /// Proxies that forward the client's address.
    pub trusted_proxies: TrustedProxies,
    /// Time limit of a request after its body has arrived.
    pub request_timeout: Duration,
    /// Streams open at once.
    pub streams_at_once: usize,
    /// Streams open at once for one address.
    pub streams_per_address: usize,
    /// Concurrent requests of one PSP that wait for events.
    pub waits_per_psp: usize,
    /// Number of nodes that answer requests. Each grants its part of the limits of keys, pages and callbacks.
    pub nodes_ready: NodesReady,
}

/// Number of nodes that answer requests; at least 1. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct NodesReady(Option<Arc<AtomicU32>>);

impl NodesReady {
    /// A number that its owner updates.
    pub const fn of(count: Arc<AtomicU32>) -> Self {
        Self(Some(count))
    }

    fn get(&self) -> NonZeroU32 {
        let count = self.0.as_ref().map_or(1, |count| count.load(Ordering::Relaxed));
        NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN)
    }
}

impl Limits {
    /// The sandbox: no limit for keys.
    pub fn sandbox() -> Self {
        Self { key: None, edge: EdgeLimits::sandbox(), ..Self::production() }
    }

    /// Production.
    pub fn production() -> Self {
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
            failed_keys_per_minute: FAILED_KEYS_PER_MINUTE,
            edge: EdgeLimits::production(),
            trusted_proxies: TrustedProxies::Networks(Vec::new()),
            request_timeout: REQUEST_TIMEOUT,
            streams_at_once: STREAMS_AT_ONCE,
            streams_per_address: STREAMS_PER_ADDRESS,
            waits_per_psp: WAITS_PER_PSP,
            nodes_ready: NodesReady::default(),
        }
    }

    /// Settings of a listener with these limits, which does not drain.
    pub fn serve_config(&self) -> ServeConfig {
        let connections_per_address = self.edge.connections_per_address;
        ServeConfig { trusted_proxies: self.trusted_proxies.clone(), connections_per_address, ..ServeConfig::default() }
    }
}

/// Allowance of a key that is left after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KeyAllowance {
    limit: u32,
    remaining: u32,
    reset_secs: u64,
}

impl KeyAllowance {
    /// The part of one of these nodes.
    fn of(quota: Quota, remaining: u32, nodes: NonZeroU32) -> Self {
        let burst = quota.burst_size().get();
        let reset = quota.replenish_interval().saturating_mul(burst.saturating_sub(remaining));
        let is_partial = reset.subsec_nanos() > 0;
        let (limit, remaining) = (burst / nodes, remaining / nodes);
        Self { limit, remaining, reset_secs: reset.as_secs() + u64::from(is_partial) }
    }
}

/// The allowance of the key that has sent a request, for the headers of the response. It is an extension of the request;
/// clones share it. It stays empty if the request has no key, or its key has no limit.
#[derive(Debug, Clone, Default)]
pub(crate) struct AllowanceSlot(Arc<OnceLock<KeyAllowance>>);

impl AllowanceSlot {
    /// Adds the headers to a response.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        if let Some(KeyAllowance { limit, remaining, reset_secs }) = self.0.get().copied() {
            headers.insert(RATELIMIT_LIMIT, limit.into());
            headers.insert(RATELIMIT_REMAINING, remaining.into());
            headers.insert(RATELIMIT_RESET, reset_secs.into());
        }
    }
}

/// Counts the requests of each key and knows what is left.
type KeyRateLimiter = DefaultKeyedRateLimiter<KeyId, StateInformationMiddleware>;

/// The counters.
pub struct Limiters {
    keys: Option<KeyRateLimiter>,
    pages: Option<DefaultKeyedRateLimiter<IpAddr>>,
    callbacks: Option<DefaultKeyedRateLimiter<IpAddr>>,
    /// Failed keys by address; an entry lives for [`STRANGERS_WINDOW`].
    strangers: Cache<IpAddr, Arc<AtomicU32>>,
    failed_keys_per_minute: u32,
    nodes_ready: NodesReady,
    forgotten_at_secs: AtomicI64,
}

impl Limiters {
    /// Counters with these limits.
    pub fn new(limits: &Limits) -> Self {
        let per_minute = |rate| DefaultKeyedRateLimiter::keyed(Quota::per_minute(rate));
        let key = |(rate, burst)| {
            let quota = Quota::per_second(rate).allow_burst(burst);
            DefaultKeyedRateLimiter::keyed(quota).with_middleware::<StateInformationMiddleware>()
        };
        Self {
            keys: limits.key.map(key),
            pages: limits.pages_per_minute.map(per_minute),
            callbacks: limits.callbacks_per_minute.map(per_minute),
            strangers: Cache::builder().max_capacity(STRANGERS_MAX).time_to_live(STRANGERS_WINDOW).build(),
            failed_keys_per_minute: limits.failed_keys_per_minute,
            nodes_ready: limits.nodes_ready.clone(),
            forgotten_at_secs: AtomicI64::new(0),
        }
    }

    /// Counts a request of this key, and notes what is left for the headers of the response.
    pub fn key(&self, parts: &Parts, key: KeyId) -> Result<(), ApiError> {
        let Some(limiter) = &self.keys else { return Ok(()) };
        let nodes = self.nodes_ready.get();
        // A request counts once for each node. More nodes than the burst cannot be counted.
        let checked = limiter.check_key_n(&key, nodes).unwrap_or_else(|_| limiter.check_key(&key));
        let allowance = match &checked {
            Ok(state) => KeyAllowance::of(state.quota(), state.remaining_burst_capacity(), nodes),
            Err(refused) => KeyAllowance::of(refused.quota(), 0, nodes),
        };
        if let Some(slot) = parts.extensions.get::<AllowanceSlot>() {
            slot.0.get_or_init(|| allowance);
        }
        checked.map(drop).map_err(|refused| rate_limited(&refused))
    }

    /// Counts a public page for the requesting address.
    pub fn page(&self, parts: &Parts) -> Result<(), ApiError> {
        self.forget_idle();
        self.check(self.pages.as_ref(), &network_prefix(ClientAddress::of(parts)))
    }

    /// Counts a callback for the sending address.
    pub fn callback(&self, parts: &Parts) -> Result<(), ApiError> {
        self.forget_idle();
        self.check(self.callbacks.as_ref(), &network_prefix(ClientAddress::of(parts)))
    }

    /// Refuses a key that failed or was never seen, if its address has failed too often.
    pub fn stranger(&self, parts: &Parts) -> Result<(), ApiError> {
        let tried = self.strangers.get(&network_prefix(ClientAddress::of(parts)));
        if tried.is_some_and(|tried| tried.load(Ordering::Relaxed) >= self.failed_keys_per_minute) {
            return Err(ApiError::RateLimited(STRANGERS_WINDOW.as_secs()));
        }
        Ok(())
    }

    /// Counts a key that failed.
    pub fn failed_key(&self, parts: &Parts) {
        let tried = self.strangers.get_with(network_prefix(ClientAddress::of(parts)), Arc::default);
        tried.fetch_add(1, Ordering::Relaxed);
    }

    fn check<K: Clone + Eq + std::hash::Hash>(
        &self,
        limiter: Option<&DefaultKeyedRateLimiter<K>>,
        key: &K,
    ) -> Result<(), ApiError> {
        let Some(limiter) = limiter else { return Ok(()) };
        let checked = limiter.check_key_n(key, self.nodes_ready.get()).unwrap_or_else(|_| limiter.check_key(key));
        checked.map_err(|refused| rate_limited(&refused))
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
            self.keys.iter().for_each(KeyRateLimiter::retain_recent);
        }
    }
}

fn rate_limited(refused: &NotUntil<<DefaultClock as Clock>::Instant>) -> ApiError {
    let wait = refused.wait_time_from(DefaultClock::default().now());
    ApiError::RateLimited(wait.as_secs().saturating_add(1))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowance_counts_down_and_resets_when_the_burst_is_replenished() {
        let quota = Quota::per_second(NonZeroU32::new(500).unwrap()).allow_burst(NonZeroU32::new(1_000).unwrap());
        let of = |remaining| KeyAllowance::of(quota, remaining, NonZeroU32::MIN);
        assert_eq!(of(1_000), KeyAllowance { limit: 1_000, remaining: 1_000, reset_secs: 0 });
        assert_eq!(of(999).reset_secs, 1, "seconds are rounded up");
        assert_eq!(of(500).reset_secs, 1);
        assert_eq!(of(499).reset_secs, 2);
        assert_eq!(of(0), KeyAllowance { limit: 1_000, remaining: 0, reset_secs: 2 });
    }
}
