//! Sample of payments for the stage `seen`: the time until the service shows a mined transfer.
//!
//! The number of a payment determines in advance whether it is in the sample. Each is polled separately, so that a slow
//! one delays no other. One that is not shown in time counts with the time it had waited. A transfer that was mined
//! before its payer had the node's response is left out, because nothing polled for it at that time.

use std::sync::Arc;
use std::time::Duration;

use payferry_testkit::wire::PaymentId;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use payferry_testkit::audit::state::RunState;
use payferry_testkit::psp::{Psp, SAMPLE_CONNECTIONS_MAX};
use payferry_testkit::rate::Rate;

/// Largest number of sampled payments that start in a second: polling costs CPU time of the service.
const A_SECOND: f64 = 5.0;
/// Upper limit of the sampling interval: enough for the highest rate.
const EVERY_MAX: u32 = 20_000;
/// Largest number of payments that are polled at once. A steady load has fewer, even if each is polled until the
/// timeout.
const AT_ONCE_MAX: usize = SAMPLE_CONNECTIONS_MAX;
/// First pause between two polls. Each further pause is a tenth of the wait so far, which limits the error and the load
/// on a slow service.
const POLL_MIN: Duration = Duration::from_millis(5);
const POLL_PART: u32 = 10;
/// Timeout of the polling.
const PATIENCE: Duration = Duration::from_secs(5);
/// Kind of error of a sampled payment that was not polled.
const SKIPPED: &str = "seen: not polled, too many at once";

#[derive(Debug)]
pub(super) struct Samples {
    psp: Psp,
    state: Arc<RunState>,
    /// A payment is in the sample if its number is a multiple of this.
    every: u32,
    patience: Duration,
    at_once_max: usize,
    places: Arc<Semaphore>,
}

impl Samples {
    /// Makes a sample for a load of this rate.
    pub(super) fn new(psp: &Psp, state: &Arc<RunState>, rate: Rate) -> Self {
        Self::of_every(every(rate), PATIENCE, AT_ONCE_MAX, psp, state)
    }

    fn of_every(every: u32, patience: Duration, at_once_max: usize, psp: &Psp, state: &Arc<RunState>) -> Self {
        let places = Arc::new(Semaphore::new(at_once_max));
        Self { psp: psp.clone(), state: Arc::clone(state), every, patience, at_once_max, places }
    }

    /// Records that the transfer of a payment was seen in a block.
    pub(super) fn mined(&self, number: u32, at: Instant) {
        if !number.is_multiple_of(self.every) {
            return;
        }
        let id = self.state.read().record(number).and_then(|record| Some(record.made?.id));
        let Some(id) = id else { return };
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return self.state.tally.error(SKIPPED);
        };
        let (psp, state, until) = (self.psp.clone(), Arc::clone(&self.state), at + self.patience);
        tokio::spawn(async move {
            match tokio::time::timeout_at(until, shown(&psp, id)).await {
                Ok(()) => state.seen(number, Instant::now()),
                Err(_) => state.unseen(number, Instant::now()),
            }
            drop(place);
        });
    }

    /// Waits until no payment is polled any more, at most until the timeout.
    pub(super) async fn ended(&self) {
        let all = u32::try_from(self.at_once_max).unwrap_or(u32::MAX);
        let _ = self.places.acquire_many(all).await;
    }
}

/// Waits until the service shows a transfer of the payment.
async fn shown(psp: &Psp, id: PaymentId) {
    let since = Instant::now();
    while !psp.shows_transfer(id).await.is_ok_and(|shows| shows) {
        tokio::time::sleep(POLL_MIN.max(since.elapsed() / POLL_PART)).await;
    }
}

/// Returns the sampling interval. Chains, tokens and behaviours repeat after 3, 6 and 100 payments, so an interval
/// without common divisors meets all of them.
fn every(rate: Rate) -> u32 {
    let meets_all = |every: u32| [2, 3, 5].into_iter().all(|divisor| !every.is_multiple_of(divisor));
    (1..=EVERY_MAX).find(|every| meets_all(*every) && f64::from(*every) * A_SECOND >= rate.get()).unwrap_or(EVERY_MAX)
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{Address, B256};
    use axum::extract::{Path, State};
    use axum::routing::get;
    use axum::{Json, Router};
    use serde_json::{Value, json};

    use super::*;
    use payferry_testkit::audit::behaviour::{Behaviour, Intent};
    use payferry_testkit::audit::stages::{Stage, StageFigures};
    use payferry_testkit::payers::Sent;
    use payferry_testkit::psp::Initiated;
    use payferry_testkit::stub::serve;

    /// A service that shows the transfer of each payment after this time; never if `None`.
    async fn service(shown_after: Option<Duration>) -> Psp {
        async fn payment(State(shown_at): State<Option<Instant>>, Path(_): Path<String>) -> Json<Value> {
            let shows = shown_at.is_some_and(|at| at <= Instant::now());
            Json(json!({"transfers": if shows { vec![1] } else { vec![] }}))
        }
        let shown_at = shown_after.map(|after| Instant::now() + after);
        let router = Router::new().route("/payments/{id}", get(payment)).with_state(shown_at);
        Psp::new(&serve(router).await, "sk_test_x").unwrap()
    }

    /// Makes paid payments whose transfers are mined now. Returns the figures of the sample.
    async fn watched(samples: &Samples, payments: u32) -> Option<StageFigures> {
        let state = &samples.state;
        for number in 0..payments {
            let now = Instant::now();
            state.due(Intent::nth(number, Behaviour::Exact), now);
            let payment_id = PaymentId::generate();
            let made = Initiated { payment_id, intermediary_wallet: Address::ZERO, payment_methods: None };
            state.answered(number, Some(now), Ok(made));
            let tx_hash = B256::from(alloy::primitives::U256::from(number + 1));
            state.paid(number, now, Ok(Sent { from: Address::ZERO, tx_hash, at: now }));
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
    async fn slow_samples_delay_no_other() {
        let psp = service(Some(Duration::from_secs(1))).await;
        let samples = Samples::of_every(7, Duration::from_secs(20), 64, &psp, &state());
        let seen = watched(&samples, 70).await.unwrap();
        assert_eq!((seen.from_intended.count, seen.step.count, seen.timed_out), (10, 10, 0), "{seen:?}");
        // In sequence, the second one would not have been polled before the first was shown.
        assert!(seen.step.min_ms >= 100.0, "{seen:?}");
        assert!(samples.state.tally.errors().is_empty());
    }

    #[tokio::test]
    async fn samples_that_time_out_count_with_their_wait() {
        let psp = service(None).await;
        let samples = Samples::of_every(1, Duration::from_millis(200), 64, &psp, &state());
        let seen = watched(&samples, 3).await.unwrap();
        assert_eq!((seen.step.count, seen.timed_out), (3, 3), "{seen:?}");
        assert!(seen.step.min_ms >= 199.0, "{seen:?}");
        let errors = samples.state.tally.errors();
        assert_eq!((errors.len(), errors["seen: a transfer was not shown in time"]), (1, 3));
    }

    #[tokio::test]
    async fn samples_beyond_the_limit_are_counted_as_not_polled() {
        let psp = service(None).await;
        let samples = Samples::of_every(1, Duration::from_millis(200), 2, &psp, &state());
        let seen = watched(&samples, 5).await.unwrap();
        assert_eq!((seen.step.count, seen.timed_out), (2, 2), "{seen:?}");
        assert_eq!(samples.state.tally.errors()[SKIPPED], 3);
    }

    #[test]
    fn a_sample_has_a_few_payments_per_second_of_every_kind() {
        for (rate, wanted) in [(0.5, 1), (5.0, 1), (6.0, 7), (50.0, 11), (100.0, 23), (300.0, 61), (50_000.0, 10_001)] {
            let rate = Rate::per_second(rate).unwrap();
            assert_eq!(every(rate), wanted, "{}", rate.get());
        }
    }
}
