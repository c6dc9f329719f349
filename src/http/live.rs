//! Server-sent events of one payment. Decides when an event is sent.
//!
//! A stream holds the payment as last read. Commits of the journal wake it, so an open page costs one database read for
//! each change of its payment. Several nodes also read periodically, because a nudge of another node can be lost. Values that
//! change without a commit (confirmations, the deadline) come from memory. The caller of [`follow`] decides the content of an
//! event.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use payferry_domain::payment::{Payment, Status};
use payferry_httpkit::live::{KEEP_ALIVE_EVERY, StreamPermit, UNBUFFERED};
use payferry_httpkit::metrics;
use payferry_journal::Wake;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::payments::progress;
use super::state::{AppShared, AppState};

/// Duration of a stream. Browsers reconnect automatically.
pub const STREAM_LIFE_MAX: Duration = Duration::from_mins(30);
/// Interval of checks of the values in memory (confirmations, the deadline).
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Delay before a client reconnects, milliseconds. Random, so that not all reconnect at once after a restart.
const RETRY_AFTER_MS: std::ops::Range<u64> = 2_000..6_000;

/// Renders the event of a payment.
pub(super) type Render = Box<dyn Fn(&AppShared, &Payment) -> Event + Send + Sync>;

/// Returns true if the payment can change no more by itself. The stream then ends.
pub(super) fn is_over(payment: &Payment) -> bool {
    matches!(payment.status, Status::Settled | Status::Failed)
}

/// Starts a stream with the payment's current state, followed by an event for each change.
pub(super) fn follow(app: AppState, payment: Payment, place: StreamPermit, render: Render) -> Response {
    let mut every = tokio::time::interval(LOOK_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let follower = Follower {
        wake: app.system.journal().wake_on(payment.id()),
        until: Instant::now() + STREAM_LIFE_MAX,
        sent: None,
        // The payment may have changed before the subscription.
        is_stale: true,
        read_at: Instant::now(),
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
    sent: Option<WatchedFields>,
    is_stale: bool,
    read_at: Instant,
    is_ended: bool,
    _open: metrics::OpenStream,
    _place: StreamPermit,
}

/// The part of a payment whose change causes an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WatchedFields {
    version: u32,
    confirmations: Option<u64>,
    is_past: bool,
}

impl WatchedFields {
    fn of(app: &AppShared, payment: &Payment) -> Self {
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
                self.read_at = Instant::now();
                let read = payferry_journal::payments::load(self.app.database(), self.payment.id());
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
            let face = WatchedFields::of(&self.app, &self.payment);
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
                () = self.app.may_have_missed(self.read_at) => self.is_stale = true,
                _ = self.every.tick() => {}
            }
        }
    }
}
