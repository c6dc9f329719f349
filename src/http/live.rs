//! Streams that follow one payment as server-sent events: how many may be open, and when an event is sent.
//!
//! A stream holds the payment as last read. Commits of the journal wake it, so an open page costs one database read for
//! each change of its payment. Values that change without a commit (confirmations, the deadline) come from memory. The
//! caller of [`follow`] decides the content of an event.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use dashmap::DashMap;
use payferry_actors::journal::Wake;
use payferry_actors::payment::store;
use payferry_domain::PspId;
use payferry_domain::payment::{Payment, Status};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::error::{ApiError, Away};
use super::metrics;
use super::payments::progress;
use super::state::{AppState, Shared};

/// Streams open at once, of all callers together.
pub const STREAMS_AT_ONCE: usize = 8_192;
/// Streams open at once for one address, which may be a household or an office.
pub const STREAMS_PER_ADDRESS: usize = 64;
/// Streams open at once for one PSP.
pub const STREAMS_PER_PSP: usize = 1_024;
/// How long a stream lasts. Browsers reconnect by themselves.
pub const STREAM_LIFE_MAX: Duration = Duration::from_mins(30);
/// Interval of the comments on an idle stream.
pub const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);
/// How often the values in memory (confirmations, the deadline) are checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Delay before a client reconnects, milliseconds. Random, so that not all reconnect at once after a restart.
const RETRY_AFTER_MS: std::ops::Range<u64> = 2_000..6_000;
/// Seconds after which a client with too many streams may try again.
const FULL_RETRY_SECS: u64 = 30;

/// Tells buffering proxies to pass this answer through as it arrives.
pub(crate) const UNBUFFERED: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));

/// The owner of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    /// A client at this address.
    Address(IpAddr),
    /// A PSP, by its key.
    Psp(PspId),
}

/// Limits of long-lived requests: in total and for each holder.
pub(super) struct Rooms {
    all: Arc<Semaphore>,
    held: DashMap<Holder, usize>,
}

impl Rooms {
    pub(super) fn new(at_once: usize) -> Arc<Self> {
        Arc::new(Self { all: Arc::new(Semaphore::new(at_once)), held: DashMap::new() })
    }

    /// Takes a permit, unless this holder has `each_max` already or the total is used up.
    pub(super) fn take(self: &Arc<Self>, holder: Holder, each_max: usize) -> Result<Place, ApiError> {
        let all = Arc::clone(&self.all).try_acquire_owned();
        let all = all.map_err(|_| ApiError::Unavailable(Away::Capacity, "too many long-lived requests".into()))?;
        let mut held = self.held.entry(holder).or_insert(0);
        if *held >= each_max {
            return Err(ApiError::RateLimited(FULL_RETRY_SECS));
        }
        *held += 1;
        Ok(Place { rooms: Arc::clone(self), holder, _all: all })
    }
}

/// A permit, released when dropped.
pub(super) struct Place {
    rooms: Arc<Rooms>,
    holder: Holder,
    _all: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(mut held) = self.rooms.held.get_mut(&self.holder) {
            *held = held.saturating_sub(1);
        }
        self.rooms.held.remove_if(&self.holder, |_, held| *held == 0);
    }
}

/// Renders the event of a payment.
pub(super) type Render = fn(&Shared, &Payment) -> Event;

/// Returns true if the payment can change no more by itself. The stream then ends.
pub(super) fn is_over(payment: &Payment) -> bool {
    matches!(payment.status, Status::Settled | Status::Failed)
}

/// Starts a stream with the payment's current state, followed by an event for each change.
pub(super) fn follow(app: AppState, payment: Payment, place: Place, render: Render) -> Response {
    let mut every = tokio::time::interval(LOOK_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let follower = Follower {
        wake: app.system.journal().wake_on(payment.id()),
        until: Instant::now() + STREAM_LIFE_MAX,
        sent: None,
        // The payment may have changed before the subscription.
        is_stale: true,
        is_ended: false,
        payment,
        render,
        every,
        app,
        _open: metrics::stream_opened(),
        _place: place,
    };
    let stream = futures::stream::unfold(follower, Follower::next);
    let stream = Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_EVERY));
    ([UNBUFFERED], stream).into_response()
}

/// One open stream.
struct Follower {
    app: AppState,
    payment: Payment,
    render: Render,
    wake: Wake,
    every: Interval,
    until: Instant,
    sent: Option<Face>,
    is_stale: bool,
    is_ended: bool,
    _open: metrics::OpenStream,
    _place: Place,
}

/// The part of a payment whose change causes an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Face {
    version: u32,
    confirmations: Option<u64>,
    is_past: bool,
}

impl Face {
    fn of(app: &Shared, payment: &Payment) -> Self {
        let waits = !is_over(payment) && payment.expires_at <= app.clock().now();
        let confirmations = progress(app, payment).map(|progress| progress.confirmations);
        Self { version: payment.version, confirmations, is_past: waits }
    }
}

impl Follower {
    /// Returns the next event; `None` once the payment is final, the stream's lifetime is over, or the listener ends.
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        loop {
            if self.is_ended {
                return None;
            }
            if self.is_stale {
                let read = store::load(self.app.database(), self.payment.id());
                tokio::select! {
                    () = self.app.config.closing.cancelled() => return None,
                    read = read => match read {
                        Ok(payment) => {
                            self.payment = payment?;
                            self.is_stale = false;
                        }
                        // The next tick tries again; the client keeps the last state until then.
                        Err(error) => tracing::debug!(%error, "a stream could not read its payment"),
                    },
                }
            }
            let face = Face::of(&self.app, &self.payment);
            if self.sent != Some(face) {
                let event = (self.render)(&self.app, &self.payment);
                let is_first = self.sent.replace(face).is_none();
                let retry = || Duration::from_millis(rand::random_range(RETRY_AFTER_MS));
                return Some((Ok(if is_first { event.retry(retry()) } else { event }), self));
            }
            if is_over(&self.payment) && !self.is_stale {
                self.is_ended = true;
                let end = Event::default().event("end").data(self.payment.status.as_str());
                return Some((Ok(end), self));
            }
            tokio::select! {
                () = self.app.config.closing.cancelled() => return None,
                () = tokio::time::sleep_until(self.until) => return None,
                () = self.wake.woken() => self.is_stale = true,
                _ = self.every.tick() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_limited_in_total_and_per_holder_and_released() {
        let rooms = Rooms::new(3);
        let (one, two) = (Holder::Address([127, 0, 0, 1].into()), Holder::Psp(PspId::generate()));
        let first = rooms.take(one, 2).unwrap_or_else(|error| panic!("{error:?}"));
        let second = rooms.take(one, 2).unwrap_or_else(|error| panic!("{error:?}"));
        assert!(matches!(rooms.take(one, 2), Err(ApiError::RateLimited(_))));
        let third = rooms.take(two, 2).unwrap_or_else(|error| panic!("{error:?}"));
        assert!(matches!(rooms.take(two, 2), Err(ApiError::Unavailable(Away::Capacity, _))));
        drop(first);
        let fourth = rooms.take(one, 2).unwrap_or_else(|error| panic!("{error:?}"));
        drop((second, third, fourth));
        assert!(rooms.held.is_empty(), "no entries remain for released permits");
        assert_eq!(rooms.all.available_permits(), 3);
    }
}
