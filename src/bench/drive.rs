//! Requests to a service and how long they took: at a steady rate, or as fast as they are answered.
//!
//! At a steady rate (an open loop) a request's time begins when it was due, not when a connection was free: waiting is
//! not hidden.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::task::JoinSet;

/// How often what is due is sent.
const TICK: Duration = Duration::from_millis(1);

/// What became of many requests.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Of the good answers, sorted, microseconds.
    latencies_us: Vec<u64>,
    /// What was asked for and came.
    pub(super) made: Vec<String>,
    /// What went wrong, by kind.
    pub(super) errors: BTreeMap<String, u64>,
    /// From the first request to the last answer, pauses left out.
    pub(super) took: Duration,
}

impl Outcome {
    fn note(&mut self, result: Result<String, String>, latency: Duration) {
        match result {
            Ok(made) => {
                self.latencies_us.push(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
                self.made.push(made);
            }
            Err(kind) => *self.errors.entry(kind).or_default() += 1,
        }
    }

    fn finish(mut self, since: Instant) -> Self {
        self.took = since.elapsed();
        self.latencies_us.sort_unstable();
        self
    }

    /// With what became of more of the same requests, asked later.
    pub(super) fn extend(&mut self, later: Self) {
        self.latencies_us.extend(later.latencies_us);
        self.latencies_us.sort_unstable();
        self.made.extend(later.made);
        for (kind, count) in later.errors {
            *self.errors.entry(kind).or_default() += count;
        }
        self.took += later.took;
    }

    /// Good answers a second.
    pub(super) fn per_sec(&self) -> f64 {
        number(self.made.len()) / self.took.as_secs_f64()
    }

    /// The latency that this share of the good answers kept, milliseconds.
    pub(super) fn percentile_ms(&self, share: f64) -> f64 {
        percentile_us(&self.latencies_us, share) / 1_000.0
    }

    /// Bad answers and missing ones, for people; empty if there are none.
    pub(super) fn troubles(&self) -> Vec<String> {
        self.errors.iter().map(|(kind, count)| format!("{count} requests failed: {kind}")).collect()
    }
}

/// A count as a figure.
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(super) fn number(count: usize) -> f64 {
    count as f64
}

/// How many requests `rate` a second are in `time`.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
pub(super) fn count(rate: f64, time: Duration) -> usize {
    (rate * time.as_secs_f64()) as usize
}

/// The value that this share of `sorted` does not exceed; 0 of nothing.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(super) fn percentile_us(sorted: &[u64], share: f64) -> f64 {
    let place = (number(sorted.len()) * share).ceil() as usize;
    sorted.get(place.saturating_sub(1).min(sorted.len().saturating_sub(1))).map_or(0.0, |micros| *micros as f64)
}

/// `workers` that ask again as soon as they are answered, for `time`.
pub(super) async fn closed_loop<F>(workers: usize, time: Duration, ask: impl Fn() -> F) -> Outcome
where
    F: Future<Output = Result<String, String>>,
{
    let (since, outcome) = (Instant::now(), Mutex::new(Outcome::default()));
    let worker = || async {
        while since.elapsed() < time {
            let asked = Instant::now();
            let result = ask().await;
            outcome.lock().note(result, asked.elapsed());
        }
    };
    futures::future::join_all((0..workers).map(|_| worker())).await;
    outcome.into_inner().finish(since)
}

/// `count` requests, `rate` a second.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(super) async fn open_loop<F>(rate: f64, count: usize, ask: impl Fn(usize) -> F) -> Outcome
where
    F: Future<Output = Result<String, String>> + Send + 'static,
{
    let (since, outcome) = (Instant::now(), Arc::new(Mutex::new(Outcome::default())));
    let mut ticks = tokio::time::interval(TICK);
    let (mut asked, mut asking) = (0, JoinSet::new());
    while asked < count {
        ticks.tick().await;
        let due = ((since.elapsed().as_secs_f64() * rate) as usize).min(count);
        for number in asked..due {
            let (answering, outcome) = (ask(number), outcome.clone());
            let due_at = since + Duration::from_secs_f64(number as f64 / rate);
            asking.spawn(async move {
                let result = answering.await;
                outcome.lock().note(result, due_at.elapsed());
            });
        }
        asked = due;
        while asking.try_join_next().is_some() {}
    }
    while asking.join_next().await.is_some() {}
    std::mem::take(&mut *outcome.lock()).finish(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_values_that_were_there() {
        let sorted: Vec<u64> = (1..=100).collect();
        let of = |share| percentile_us(&sorted, share);
        assert_eq!([of(0.5), of(0.99), of(1.0), of(0.0)].map(|micros| format!("{micros}")), ["50", "99", "100", "1"]);
        assert!(percentile_us(&[], 0.99) < 1.0);
    }

    #[tokio::test]
    async fn a_slow_service_shows_in_the_latencies_of_an_open_loop() {
        let one_at_a_time = Arc::new(tokio::sync::Semaphore::new(1));
        let ask = |_| {
            let place = one_at_a_time.clone();
            async move {
                let _place = place.acquire_owned().await;
                tokio::time::sleep(Duration::from_millis(10)).await;
                Ok("made".to_owned())
            }
        };
        // Asked for 1,000 a second and given at most 100.
        let outcome = open_loop(1_000.0, 50, ask).await;
        assert_eq!(outcome.made.len(), 50);
        assert!(outcome.percentile_ms(1.0) > 400.0, "{} ms", outcome.percentile_ms(1.0));
        assert!(outcome.percentile_ms(0.01) < 200.0, "{} ms", outcome.percentile_ms(0.01));
    }

    #[tokio::test]
    async fn what_fails_is_counted_by_kind() {
        let outcome = closed_loop(4, Duration::from_millis(20), || async {
            tokio::time::sleep(Duration::from_millis(2)).await;
            Err("503".to_owned())
        })
        .await;
        assert!(outcome.made.is_empty());
        assert!(outcome.errors["503"] >= 4, "{outcome:?}");
    }
}
