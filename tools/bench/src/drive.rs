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
/// Slow requests that were due no further apart than this make one stretch.
const STRETCH_GAP: Duration = Duration::from_millis(50);

/// What became of many requests.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The good ones, the fastest first.
    answers: Vec<Answer>,
    /// What was asked for and came.
    pub(super) made: Vec<String>,
    /// What went wrong, by kind.
    pub(super) errors: BTreeMap<String, u64>,
    /// From the first request to the last answer, pauses left out.
    pub(super) took: Duration,
}

/// When its request was due, since the first, and what it took.
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

    /// With what became of more of the same requests, asked later.
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

    /// Good answers a second.
    pub(super) fn per_sec(&self) -> f64 {
        number(self.made.len()) / self.took.as_secs_f64()
    }

    /// The latency that this share of the good answers kept, milliseconds.
    pub(super) fn percentile_ms(&self, share: f64) -> f64 {
        let place = place_of(self.answers.len(), share);
        self.answers.get(place).map_or(0.0, |answer| Duration::from_micros(answer.latency_us).as_secs_f64() * 1_000.0)
    }

    /// In how many stretches those were due that are slower than this share of the good answers, and how long these are
    /// together: a few short ones come of single events, many or long ones of too little room.
    pub(super) fn slow_stretches(&self, share: f64) -> (usize, Duration) {
        let slow = self.answers.iter().skip(place_of(self.answers.len(), share) + 1);
        let mut due: Vec<Duration> = slow.map(|answer| answer.due).collect();
        due.sort_unstable();
        let stretches: Vec<&[Duration]> = due.chunk_by(|one, next| next.saturating_sub(*one) <= STRETCH_GAP).collect();
        let lasted = |stretch: &&[Duration]| stretch[stretch.len() - 1].saturating_sub(stretch[0]);
        (stretches.len(), stretches.iter().map(lasted).sum())
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
#[allow(clippy::cast_precision_loss, reason = "below 2^52 for a hundred years")]
pub(super) fn percentile_us(sorted: &[u64], share: f64) -> f64 {
    sorted.get(place_of(sorted.len(), share)).map_or(0.0, |micros| *micros as f64)
}

/// Where the value stands that this share of `count` sorted ones does not exceed.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place among as many")]
fn place_of(count: usize, share: f64) -> usize {
    let place = (number(count) * share).ceil() as usize;
    place.saturating_sub(1).min(count.saturating_sub(1))
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
            outcome.lock().note(result, asked - since, asked.elapsed());
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
    fn percentiles_are_of_values_that_were_there() {
        let sorted: Vec<u64> = (1..=100).collect();
        let of = |share| percentile_us(&sorted, share);
        assert_eq!([of(0.5), of(0.99), of(1.0), of(0.0)].map(|micros| format!("{micros}")), ["50", "99", "100", "1"]);
        assert!(percentile_us(&[], 0.99) < 1.0);
    }

    #[test]
    fn slow_answers_near_each_other_are_one_stretch() {
        let mut outcome = Outcome::default();
        let ms = Duration::from_millis;
        // One request a millisecond, and a slow one now and then.
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
