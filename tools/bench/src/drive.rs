//! Load on a service and its latencies: an open loop (steady rate) or a closed loop (as fast as the service responds).
//!
//! In an open loop, the latency of a request counts from the moment when it was due, not from when a connection was
//! free, so that waiting is not hidden.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::task::JoinSet;

/// Period in which due requests are sent.
const TICK: Duration = Duration::from_millis(1);
/// Slow requests that were due within this time of each other form one stretch.
const STRETCH_GAP: Duration = Duration::from_millis(50);

/// Results of many requests.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Successful requests, the fastest first.
    answers: Vec<Answer>,
    /// Values that the successful requests returned.
    pub(super) made: Vec<String>,
    errors: BTreeMap<String, usize>,
    /// Time from the first request to the last response, without pauses between measurements.
    pub(super) took: Duration,
}

/// Latency of a request, and when it was due after the first one.
#[derive(Debug, Clone, Copy)]
struct Answer {
    latency_us: u64,
    due: Duration,
}

impl Outcome {
    fn note(&mut self, result: Result<String, String>, due: Duration, latency: Duration) {
        match result {
            Ok(made) => {
                let latency_us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
                self.answers.push(Answer { latency_us, due });
                self.made.push(made);
            }
            Err(kind) => *self.errors.entry(kind).or_default() += 1,
        }
    }

    fn finish(mut self, since: Instant) -> Self {
        self.took = since.elapsed();
        self.sort();
        self
    }

    /// Adds the results of later requests of the same kind.
    pub(super) fn extend(&mut self, later: Self) {
        let later_by = self.took;
        self.answers.extend(later.answers.into_iter().map(|one| Answer { due: one.due + later_by, ..one }));
        self.sort();
        self.made.extend(later.made);
        for (kind, count) in later.errors {
            *self.errors.entry(kind).or_default() += count;
        }
        self.took += later.took;
    }

    fn sort(&mut self) {
        self.answers.sort_unstable_by_key(|answer| answer.latency_us);
    }

    /// Returns the successful requests per second.
    pub(super) fn per_sec(&self) -> f64 {
        number(self.made.len()) / self.took.as_secs_f64()
    }

    /// Returns the latency that this share of the successful requests did not exceed, in milliseconds.
    pub(super) fn percentile_ms(&self, share: f64) -> f64 {
        let place = place_of(self.answers.len(), share);
        self.answers.get(place).map_or(0.0, |answer| Duration::from_micros(answer.latency_us).as_secs_f64() * 1_000.0)
    }

    /// Returns the number and the total length of the stretches in which the requests above this percentile were due. A
    /// few short stretches come from single events, many or long ones from too little capacity.
    pub(super) fn slow_stretches(&self, share: f64) -> (usize, Duration) {
        let slow = self.answers.iter().skip(place_of(self.answers.len(), share) + 1);
        let mut due: Vec<Duration> = slow.map(|answer| answer.due).collect();
        due.sort_unstable();
        let stretches: Vec<&[Duration]> = due.chunk_by(|one, next| next.saturating_sub(*one) <= STRETCH_GAP).collect();
        let lasted = |stretch: &&[Duration]| stretch[stretch.len() - 1].saturating_sub(stretch[0]);
        (stretches.len(), stretches.iter().map(lasted).sum())
    }

    /// Describes percentiles of the latency.
    pub(super) fn latencies(&self) -> String {
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| self.percentile_ms(share));
        format!("p50 {p50:.1} ms, p99 {p99:.1} ms, max {max:.1} ms")
    }

    pub(super) fn failed(&self) -> usize {
        self.errors.values().sum()
    }

    /// Describes the failed requests by kind. Empty if there are none.
    pub(super) fn failures(&self) -> Vec<String> {
        self.errors.iter().map(|(kind, count)| format!("{count} requests failed: {kind}")).collect()
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(super) fn number(count: usize) -> f64 {
    count as f64
}

/// Returns the number of requests in `time` at `rate` per second.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
pub(super) fn count(rate: f64, time: Duration) -> usize {
    (rate * time.as_secs_f64()) as usize
}

/// Returns the value that this share of `sorted` does not exceed, 0 if it is empty.
#[allow(clippy::cast_precision_loss, reason = "below 2^52 for a hundred years")]
pub(super) fn percentile_us(sorted: &[u64], share: f64) -> f64 {
    sorted.get(place_of(sorted.len(), share)).map_or(0.0, |micros| *micros as f64)
}

/// Returns the index of the value that this share of `count` sorted values does not exceed.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index below count")]
fn place_of(count: usize, share: f64) -> usize {
    let place = (number(count) * share).ceil() as usize;
    place.saturating_sub(1).min(count.saturating_sub(1))
}

/// Sends requests with `workers` workers for `time`. Each worker sends the next one as soon as it has a response.
pub(super) async fn closed_loop<F>(workers: usize, time: Duration, ask: impl Fn() -> F) -> Outcome
where
    F: Future<Output = Result<String, String>>,
{
    let (since, outcome) = (Instant::now(), Mutex::new(Outcome::default()));
    let worker = || async {
        while since.elapsed() < time {
            let asked = Instant::now();
            let result = ask().await;
            outcome.lock().note(result, asked - since, asked.elapsed());
        }
    };
    futures::future::join_all((0..workers).map(|_| worker())).await;
    outcome.into_inner().finish(since)
}

/// Sends `count` requests with `workers` workers. Returns what they returned, or the first failure.
pub(super) async fn repeat<F>(workers: usize, count: usize, ask: impl Fn() -> F) -> anyhow::Result<Vec<String>>
where
    F: Future<Output = Result<String, String>>,
{
    let (left, made) = (AtomicUsize::new(count), Mutex::new(Vec::with_capacity(count)));
    let worker = || async {
        while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            let one = ask().await.map_err(anyhow::Error::msg)?;
            made.lock().push(one);
        }
        anyhow::Ok(())
    };
    futures::future::try_join_all((0..workers).map(|_| worker())).await?;
    Ok(made.into_inner())
}

/// Sends `count` requests at `rate` per second.
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
            let due = Duration::from_secs_f64(number as f64 / rate);
            let due_at = since + due;
            asking.spawn(async move {
                let result = answering.await;
                outcome.lock().note(result, due, due_at.elapsed());
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
    fn percentiles_are_measured_values() {
        let sorted: Vec<u64> = (1..=100).collect();
        let of = |share| percentile_us(&sorted, share);
        assert_eq!([of(0.5), of(0.99), of(1.0), of(0.0)].map(|micros| format!("{micros}")), ["50", "99", "100", "1"]);
        assert!(percentile_us(&[], 0.99) < 1.0);
    }

    #[test]
    fn slow_requests_near_each_other_form_one_stretch() {
        let mut outcome = Outcome::default();
        let ms = Duration::from_millis;
        // One request per millisecond; some of them are slow.
        for due in 0..1_000 {
            let is_slow = matches!(due, 100..103 | 150 | 400);
            outcome.note(Ok(String::new()), ms(due), ms(if is_slow { 60 } else { 1 }));
        }
        let outcome = outcome.finish(Instant::now());
        assert_eq!(outcome.slow_stretches(0.995), (2, ms(50)));
        assert_eq!(outcome.slow_stretches(1.0), (0, Duration::ZERO));
        assert_eq!(Outcome::default().slow_stretches(0.5), (0, Duration::ZERO));
    }

    #[tokio::test]
    async fn latencies_of_an_open_loop_include_the_wait() {
        let one_at_a_time = Arc::new(tokio::sync::Semaphore::new(1));
        let ask = |_| {
            let place = one_at_a_time.clone();
            async move {
                let _place = place.acquire_owned().await;
                tokio::time::sleep(Duration::from_millis(10)).await;
                Ok("made".to_owned())
            }
        };
        // 1,000 requests per second on a service that handles at most 100.
        let outcome = open_loop(1_000.0, 50, ask).await;
        assert_eq!(outcome.made.len(), 50);
        assert!(outcome.percentile_ms(1.0) > 400.0, "{} ms", outcome.percentile_ms(1.0));
        assert!(outcome.percentile_ms(0.01) < 200.0, "{} ms", outcome.percentile_ms(0.01));
    }

    #[tokio::test]
    async fn counts_failures_by_kind() {
        let outcome = closed_loop(4, Duration::from_millis(20), || async {
            tokio::time::sleep(Duration::from_millis(2)).await;
            Err("503".to_owned())
        })
        .await;
        assert!(outcome.made.is_empty());
        assert!(outcome.errors["503"] >= 4, "{outcome:?}");
    }
}
