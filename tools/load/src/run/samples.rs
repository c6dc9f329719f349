//! The sample of payments that is watched for the stage `seen`: when the service shows a transfer that is in a block.
//!
//! Who is of it is decided by a payment's number, before anything happens. Each is watched by itself: a slow one holds up no
//! other, and one that is not shown in time is counted with its wait. A transfer that was in a block before its payer knew
//! that the node took it is left out, since nobody looked when it could have been shown first.

use std::sync::Arc;
use std::time::Duration;

use payferry_testkit::wire::PaymentId;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::arrivals::Rate;
use crate::state::RunState;
use payferry_testkit::psp::{Psp, SAMPLE_CONNECTIONS_MAX};

/// Payments of the sample that begin in a second, at most: each is asked for again and again, at the service's cost.
const A_SECOND: f64 = 5.0;
/// One in so many is never exceeded: enough for the fastest load there may be.
const EVERY_MAX: u32 = 20_000;
/// Payments that are watched at once. Even where each is watched to the end of the patience, a steady load has fewer.
const AT_ONCE_MAX: usize = SAMPLE_CONNECTIONS_MAX;
/// The first pause between two questions whether the service shows a transfer that is in a block; each is a tenth of the wait
/// so far, so that it is known that exactly, and a service that is slow is not asked the more for it.
const POLL_MIN: Duration = Duration::from_millis(5);
const POLL_PART: u32 = 10;
/// For how long it is asked.
const PATIENCE: Duration = Duration::from_secs(5);
/// The kind of error of a payment of the sample that found no place.
const SKIPPED: &str = "seen: not watched, too many at once";

/// Watches the sample.
#[derive(Debug)]
pub(super) struct Samples {
    api: Psp,
    state: Arc<RunState>,
    /// Each payment whose number is a multiple of it.
    every: u32,
    patience: Duration,
    at_once_max: usize,
    places: Arc<Semaphore>,
}

impl Samples {
    /// A sample of a load of this rate.
    pub(super) fn new(api: &Psp, state: &Arc<RunState>, rate: Rate) -> Self {
        Self::of_every(every(rate), PATIENCE, AT_ONCE_MAX, api, state)
    }

    fn of_every(every: u32, patience: Duration, at_once_max: usize, api: &Psp, state: &Arc<RunState>) -> Self {
        let places = Arc::new(Semaphore::new(at_once_max));
        Self { api: api.clone(), state: Arc::clone(state), every, patience, at_once_max, places }
    }

    /// The transfer of a payment was seen in a block.
    pub(super) fn mined(&self, number: u32, at: Instant) {
        if !number.is_multiple_of(self.every) {
            return;
        }
        let id = self.state.read().record(number).and_then(|record| Some(record.made?.id));
        let Some(id) = id else { return };
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return self.state.tally.error(SKIPPED);
        };
        let (api, state, until) = (self.api.clone(), Arc::clone(&self.state), at + self.patience);
        tokio::spawn(async move {
            match tokio::time::timeout_at(until, shown(&api, id)).await {
                Ok(()) => state.seen(number, Instant::now()),
                Err(_) => state.unseen(number, Instant::now()),
            }
            drop(place);
        });
    }

    /// Waits until nobody is watched any more, which takes no longer than the patience.
    pub(super) async fn ended(&self) {
        let all = u32::try_from(self.at_once_max).unwrap_or(u32::MAX);
        let _ = self.places.acquire_many(all).await;
    }
}

/// Waits until the service shows a transfer of the payment.
async fn shown(api: &Psp, id: PaymentId) {
    let since = Instant::now();
    while !api.shows_transfer(id).await.is_ok_and(|shows| shows) {
        tokio::time::sleep(POLL_MIN.max(since.elapsed() / POLL_PART)).await;
    }
}

/// One in how many payments is of the sample. Chains, tokens and payers come again after three, six and a hundred
/// payments, so that a number with none of their divisors meets them all.
fn every(rate: Rate) -> u32 {
    let meets_all = |every: u32| [2, 3, 5].into_iter().all(|divisor| !every.is_multiple_of(divisor));
    (1..=EVERY_MAX).find(|every| meets_all(*every) && f64::from(*every) * A_SECOND >= rate.get()).unwrap_or(EVERY_MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use alloy::primitives::{Address, B256};
    use axum::extract::{Path, State};
    use axum::routing::get;
    use axum::{Json, Router};
    use serde_json::{Value, json};

    use super::*;
    use crate::behaviour::{Behaviour, Intent};
    use crate::stages::{Stage, StageFigures};
    use payferry_testkit::payers::Sent;
    use payferry_testkit::psp::Initiated;
    use payferry_testkit::stub::serve;

    /// A service that shows the transfer of each payment after so long; for ever not if there is none.
    async fn service(shown_after: Option<Duration>) -> Psp {
        async fn payment(State(shown_at): State<Option<Instant>>, Path(_): Path<String>) -> Json<Value> {
            let shows = shown_at.is_some_and(|at| at <= Instant::now());
            Json(json!({"transfers": if shows { vec![1] } else { vec![] }}))
        }
        let shown_at = shown_after.map(|after| Instant::now() + after);
        let router = Router::new().route("/payments/{id}", get(payment)).with_state(shown_at);
        Psp::new(&serve(router).await, "sk_test_x").unwrap()
    }

    /// So many payments, all paid, whose transfers come into a block now: what is known of the sample in the end.
    async fn watched(samples: &Samples, payments: u32) -> Option<StageFigures> {
        let state = &samples.state;
        for number in 0..payments {
            let now = Instant::now();
            state.due(Intent::nth(number, Behaviour::Exact), now);
            let made = Initiated { payment_id: PaymentId::generate(), intermediary_wallet: Address::ZERO };
            state.answered(number, Some(now), Ok(made));
            let tx_hash = B256::from(alloy::primitives::U256::from(number + 1));
            state.paid(number, now, Ok(Sent { tx_hash, at: now }));
            assert_eq!(state.mined(tx_hash, now), Some(number));
            samples.mined(number, now);
        }
        samples.ended().await;
        state.stages.figures().into_iter().find(|figures| figures.stage == Stage::Seen)
    }

    fn state() -> Arc<RunState> {
        Arc::new(RunState::new("0a1b2c3d", 0, 100).0)
    }

    #[tokio::test]
    async fn slow_ones_hold_up_no_other() {
        let api = service(Some(Duration::from_secs(1))).await;
        let samples = Samples::of_every(7, Duration::from_secs(20), 64, &api, &state());
        let seen = watched(&samples, 70).await.unwrap();
        assert_eq!((seen.from_intended.count, seen.step.count, seen.timed_out), (10, 10, 0), "{seen:?}");
        // One after the other, the second of them would not have been looked at before the first was shown.
        assert!(seen.step.min_ms >= 100.0, "{seen:?}");
        assert!(samples.state.tally.errors().is_empty());
    }

    #[tokio::test]
    async fn one_that_is_not_shown_in_time_is_counted_with_its_wait() {
        let api = service(None).await;
        let samples = Samples::of_every(1, Duration::from_millis(200), 64, &api, &state());
        let seen = watched(&samples, 3).await.unwrap();
        assert_eq!((seen.step.count, seen.timed_out), (3, 3), "{seen:?}");
        assert!(seen.step.min_ms >= 199.0, "{seen:?}");
        let errors = samples.state.tally.errors();
        assert_eq!((errors.len(), errors["seen: a transfer was not shown in time"]), (1, 3));
    }

    #[tokio::test]
    async fn those_beyond_the_bound_are_counted_as_not_watched() {
        let api = service(None).await;
        let samples = Samples::of_every(1, Duration::from_millis(200), 2, &api, &state());
        let seen = watched(&samples, 5).await.unwrap();
        assert_eq!((seen.step.count, seen.timed_out), (2, 2), "{seen:?}");
        assert_eq!(samples.state.tally.errors()[SKIPPED], 3);
    }

    #[test]
    fn a_sample_has_a_few_a_second_of_every_kind() {
        for (rate, wanted) in [(0.5, 1), (5.0, 1), (6.0, 7), (50.0, 11), (100.0, 23), (300.0, 61), (50_000.0, 10_001)] {
            let rate = Rate::per_second(rate).unwrap();
            assert_eq!(every(rate), wanted, "{}", rate.get());
        }
    }
}
