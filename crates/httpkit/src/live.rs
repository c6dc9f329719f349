//! Limits of server-sent event streams, and of other requests that stay open.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use dashmap::DashMap;
use payferry_domain::PspId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{ApiError, Away};

/// Streams open at once, of all callers together.
pub const STREAMS_AT_ONCE: usize = 8_192;
/// Streams open at once for one address: a household or an office behind one.
pub const STREAMS_PER_ADDRESS: usize = 64;
/// Streams open at once for one PSP.
pub const STREAMS_PER_PSP: usize = 1_024;
/// Interval of comments on a quiet stream.
pub const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);
/// Seconds after which a caller with too many open streams may try again.
const FULL_RETRY_SECS: u64 = 30;

/// Header that asks proxies not to buffer the response.
pub const UNBUFFERED: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));

/// Holder of an open stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamOwner {
    /// An address.
    Address(IpAddr),
    /// A PSP, by its key.
    Psp(PspId),
}

/// Limits of requests that stay open: in total, and for each holder.
pub struct StreamLimits {
    all: Arc<Semaphore>,
    held: DashMap<StreamOwner, usize>,
}

impl StreamLimits {
    /// Creates limits with `total_max` open requests in total.
    pub fn new(total_max: usize) -> Arc<Self> {
        Arc::new(Self { all: Arc::new(Semaphore::new(total_max)), held: DashMap::new() })
    }

    /// Takes a permit, unless this holder already has `each_max` or none is left.
    pub fn take(self: &Arc<Self>, holder: StreamOwner, each_max: usize) -> Result<StreamPermit, ApiError> {
        let all = Arc::clone(&self.all).try_acquire_owned();
        let all = all.map_err(|_| ApiError::Unavailable(Away::Capacity, "too many open streams".into()))?;
        let mut held = self.held.entry(holder).or_insert(0);
        if *held >= each_max {
            return Err(ApiError::RateLimited(FULL_RETRY_SECS));
        }
        *held += 1;
        Ok(StreamPermit { stream_limits: Arc::clone(self), holder, _all: all })
    }
}

/// Permit for one open request, returned on drop.
pub struct StreamPermit {
    stream_limits: Arc<StreamLimits>,
    holder: StreamOwner,
    _all: OwnedSemaphorePermit,
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        if let Some(mut held) = self.stream_limits.held.get_mut(&self.holder) {
            *held = held.saturating_sub(1);
        }
        self.stream_limits.held.remove_if(&self.holder, |_, held| *held == 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_limited_in_total_and_per_holder_and_are_returned() {
        let stream_limits = StreamLimits::new(3);
        let (one, two) = (StreamOwner::Address([127, 0, 0, 1].into()), StreamOwner::Psp(PspId::generate()));
        let first = stream_limits.take(one, 2).unwrap_or_else(|error| panic!("{error:?}"));
        let second = stream_limits.take(one, 2).unwrap_or_else(|error| panic!("{error:?}"));
        assert!(matches!(stream_limits.take(one, 2), Err(ApiError::RateLimited(_))));
        let third = stream_limits.take(two, 2).unwrap_or_else(|error| panic!("{error:?}"));
        assert!(matches!(stream_limits.take(two, 2), Err(ApiError::Unavailable(Away::Capacity, _))));
        drop(first);
        let fourth = stream_limits.take(one, 2).unwrap_or_else(|error| panic!("{error:?}"));
        drop((second, third, fourth));
        assert!(stream_limits.held.is_empty(), "nothing is kept of those who left");
        assert_eq!(stream_limits.all.available_permits(), 3);
    }
}
