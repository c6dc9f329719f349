//! Lane of one endpoint: which of its deliveries wait, are in progress or are due next, and how many may be sent at once.
//!
//! Not here: reading the queue and starting attempts (`endpoint`).

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use utoipa::ToSchema;

use super::delivery::{Target, Turn};
use super::load::{Breaker, BreakerState, Concurrency, Epoch};
use super::queue::{Due, Waiting};
use super::window::Window;

/// Deliveries to one endpoint.
#[derive(Default)]
pub(super) struct Lane {
    /// Its key in the queue: the endpoint, or the PSP for the first one.
    pub(super) key: String,
    /// When the endpoint was deleted, milliseconds since the epoch.
    pub(super) deleted_at: Option<i64>,
    pub(super) concurrency: Concurrency,
    pub(super) breaker: Breaker,
    /// First attempts read and not yet started.
    pub(super) window: Window,
    /// Rows of first attempts in the window, with the time when they were read.
    pub(super) read: HashMap<String, (Instant, Due)>,
    /// Due retries read and not yet started.
    pub(super) retries: VecDeque<Waiting>,
    /// Deliveries in `retries`, in progress or suspended.
    pub(super) taken: HashSet<String>,
    /// Deliveries whose outcome cannot be recorded: suspended until the actor restarts or is refreshed.
    pub(super) left_alone: Vec<String>,
    pub(super) in_flight: usize,
    /// Feed position up to which first attempts were read.
    pub(super) read_to: i64,
    /// `true` if more rows may follow.
    pub(super) more: bool,
    /// `true` if it must read from the start after reaching the end: with several writers, positions can appear out of
    /// order.
    pub(super) rewind: bool,
    /// Time of the next search for retries, milliseconds since the epoch; `None` without retries.
    pub(super) retries_at: Option<i64>,
    /// `true` if a retry goes before a first attempt when both could go.
    pub(super) retry_is_next: bool,
    pub(super) target: Option<Arc<Target>>,
    pub(super) held_by: Option<&'static str>,
    pub(super) attempts: u64,
    pub(super) failures: u64,
    pub(super) last_failure: Option<String>,
}

/// End of a delivery's turn.
pub(super) struct Ended {
    pub(super) delivery: Waiting,
    pub(super) is_first: bool,
    pub(super) epoch: Epoch,
    pub(super) turn: Turn,
}

/// View of one or several endpoints.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct LaneView {
    /// Attempts in progress.
    pub in_flight: usize,
    /// Maximum number of concurrent attempts.
    pub limit: usize,
    /// Circuit breaker; of several endpoints, the worst.
    pub breaker: BreakerState,
    /// Deliveries read and not yet started.
    pub read_ahead: usize,
    /// Attempts since the actor started.
    pub attempts: u64,
    /// Failed attempts among them.
    pub failures: u64,
    /// Last failure: a status or an error.
    pub last_failure: Option<String>,
    /// Reason why waiting deliveries are not sent, other than the breaker; of several endpoints, if all are held.
    pub held_by: Option<&'static str>,
}

impl Lane {
    pub(super) fn new(key: String) -> Self {
        Self { key, more: true, retries_at: Some(0), ..Self::default() }
    }

    /// Searches for rows that may have been missed.
    pub(super) fn search(&mut self) {
        (self.more, self.rewind) = (true, true);
        self.retries_at = Some(0);
    }

    pub(super) fn view(&self) -> LaneView {
        LaneView {
            in_flight: self.in_flight,
            limit: self.concurrency.limit(),
            breaker: self.breaker.state(Instant::now()),
            read_ahead: self.window.len() + self.retries.len(),
            attempts: self.attempts,
            failures: self.failures,
            last_failure: self.last_failure.clone(),
            held_by: self.held_by,
        }
    }

    /// Applies the result of a delivery's turn.
    pub(super) fn ended(&mut self, ended: Ended) {
        let Ended { delivery, is_first, epoch, turn } = ended;
        let in_flight = self.in_flight;
        self.in_flight -= 1;
        if is_first {
            self.window.ended(&delivery.payment_id);
        }
        match turn {
            Turn::Attempted { delivered: true, .. } => {
                self.concurrency.succeeded(in_flight);
                self.breaker.succeeded();
            }
            Turn::Attempted { strained, failure, next_attempt_at, .. } => {
                self.failures += 1;
                self.last_failure = failure;
                self.breaker.failed(Instant::now());
                if strained {
                    self.concurrency.strained(epoch);
                }
                if let Some(at) = next_attempt_at {
                    self.retries_at = Some(self.retries_at.map_or(at, |other| other.min(at)));
                }
            }
            Turn::Closed => {}
            // The next sweep reads it again.
            Turn::Unread(error) => {
                tracing::warn!(delivery.id = %delivery.id, %error, "could not read delivery {}", delivery.id);
            }
            Turn::Broken(why) => {
                tracing::error!(delivery.id = %delivery.id, %why, "suspended delivery {} until a restart", delivery.id);
                self.last_failure = Some(why);
                self.left_alone.push(delivery.id);
                return;
            }
        }
        self.taken.remove(&delivery.id);
    }

    /// Alternates retries and first attempts, so that neither starves the other.
    pub(super) fn next(&mut self) -> Option<(Waiting, bool)> {
        self.retry_is_next = !self.retry_is_next;
        if self.retry_is_next
            && let Some(retry) = self.retries.pop_front()
        {
            return Some((retry, false));
        }
        let first = self.window.pop().map(|delivery| (delivery, true));
        first.or_else(|| self.retries.pop_front().map(|retry| (retry, false)))
    }

    /// Takes the row of a delivery, if it was read a moment ago.
    pub(super) fn take_row(&mut self, delivery_id: &str) -> Option<Due> {
        self.read.remove(delivery_id).map(|(_, due)| due)
    }

    /// Forgets rows that were read longer ago than this.
    pub(super) fn forget_old_rows(&mut self, age_max: Duration) {
        self.read.retain(|_, (at, _)| at.elapsed() < age_max);
    }

    /// Returns a delivery that was taken and not started.
    pub(super) fn put_back(&mut self, delivery: Waiting, is_first: bool) {
        if is_first {
            self.window.put_back(delivery);
        } else {
            self.retries.push_front(delivery);
        }
    }

    /// Drops everything that is not in progress, so that it is read again.
    pub(super) fn forget_waiting(&mut self) {
        self.window.clear();
        self.read.clear();
        let retries = self.retries.drain(..).map(|retry| retry.id);
        for id in retries.chain(self.left_alone.drain(..)) {
            self.taken.remove(&id);
        }
        (self.read_to, self.more, self.rewind) = (0, true, false);
        self.retries_at = Some(0);
    }
}

impl LaneView {
    /// Both together.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            in_flight: self.in_flight + other.in_flight,
            limit: self.limit + other.limit,
            breaker: self.breaker.max(other.breaker),
            read_ahead: self.read_ahead + other.read_ahead,
            attempts: self.attempts + other.attempts,
            failures: self.failures + other.failures,
            last_failure: self.last_failure.or(other.last_failure),
            held_by: self.held_by.or(other.held_by),
        }
    }
}
