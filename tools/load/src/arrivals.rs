//! Arrivals in an open loop: the start of each payment is scheduled in advance, and the service cannot delay it.
//!
//! A closed loop (a fixed number of workers, each of which waits for its response) sends less while the service is
//! slow, and does not measure the waiting that this causes. Here, latencies count from the scheduled start.
//! Deliberately absent: what starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::schedule::Schedule;

#[derive(Debug, Clone)]
pub struct Arrivals {
    /// Rates over time.
    pub schedule: Schedule,
    /// Largest number of arrivals.
    pub count: u32,
    /// Seed of independent arrivals. Equal gaps if absent.
    pub seed: Option<u32>,
}

impl Arrivals {
    /// Returns the scheduled start of the last arrival, as an offset from the first.
    pub fn last(&self) -> Duration {
        self.schedule.offsets(self.seed).take(self.count as usize).last().unwrap_or_default()
    }

    /// Calls `begin` with the number and the scheduled start of each arrival, as soon as it is due and `room` returns.
    /// `begin` must not block. A late caller catches up at once: due arrivals start, whatever the state of earlier ones.
    /// Returns the number of arrivals that started; fewer than `count` only after `stop`.
    pub async fn run(
        &self,
        first: Instant,
        stop: &CancellationToken,
        mut room: impl AsyncFnMut(),
        mut begin: impl FnMut(u32, Instant),
    ) -> u32 {
        for (number, offset) in (0..self.count).zip(self.schedule.offsets(self.seed)) {
            let intended = first + offset;
            if intended > Instant::now() {
                tokio::select! {
                    () = tokio::time::sleep_until(intended) => {}
                    () = stop.cancelled() => return number,
                }
            } else if number % YIELD_EVERY == 0 {
                // Catching up must not delay the reading of responses.
                tokio::task::yield_now().await;
            }
            room().await;
            if stop.is_cancelled() {
                return number;
            }
            begin(number, intended);
        }
        self.count
    }
}

/// Number of late arrivals that start before other tasks run.
const YIELD_EVERY: u32 = 64;

/// Bound on concurrent initiations. An arrival beyond it is rejected, never delayed.
#[derive(Debug)]
pub struct InFlight {
    max: usize,
    permits: Arc<Semaphore>,
    most: AtomicUsize,
}

impl InFlight {
    /// Allows at most `max` at once.
    pub fn new(max: usize) -> Self {
        Self { max, permits: Arc::new(Semaphore::new(max)), most: AtomicUsize::new(0) }
    }

    /// Takes a permit for one initiation, unless all are in use. Dropping it returns it.
    pub fn enter(&self) -> Option<OwnedSemaphorePermit> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        self.most.fetch_max(self.now(), Ordering::Relaxed);
        Some(permit)
    }

    pub fn now(&self) -> usize {
        self.max - self.permits.available_permits()
    }

    /// Returns the largest number in flight so far.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use payferry_testkit::rate::Rate;

    use super::*;

    fn offsets(rate: f64, count: usize, seed: Option<u32>) -> Vec<Duration> {
        Schedule::endless(Rate::per_second(rate).unwrap()).offsets(seed).take(count).collect()
    }

    fn arrivals(rate: f64, count: u32, seed: Option<u32>) -> Arrivals {
        Arrivals { schedule: Schedule::endless(Rate::per_second(rate).unwrap()), count, seed }
    }

    #[test]
    fn constant_arrivals_have_equal_gaps() {
        assert_eq!(offsets(400.0, 5, None), [0, 2_500, 5_000, 7_500, 10_000].map(Duration::from_micros));
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_exponential_gaps() {
        let starts: Vec<f64> = offsets(100.0, 20_000, Some(7)).iter().map(Duration::as_secs_f64).collect();
        let gaps: Vec<f64> = starts.windows(2).map(|two| two[1] - two[0]).collect();
        let count = f64::from(u32::try_from(gaps.len()).unwrap());
        let mean = gaps.iter().sum::<f64>() / count;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count;
        assert!((mean * 100.0 - 1.0).abs() < 0.05, "{mean}");
        // The standard deviation of exponential gaps is their mean.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "{}", variance.sqrt() / mean);
        let again: Vec<f64> = offsets(100.0, 20_000, Some(7)).iter().map(Duration::as_secs_f64).collect();
        assert_eq!(starts, again);
    }

    #[tokio::test]
    async fn late_arrivals_catch_up_and_keep_their_schedule() {
        // Half of the arrivals are overdue at the beginning.
        let first = Instant::now() - Duration::from_millis(50);
        let mut begun = Vec::new();
        let stop = CancellationToken::new();
        let count = arrivals(100.0, 10, None)
            .run(
                first,
                &stop,
                async || {},
                |number, intended| begun.push((number, intended - first, intended <= Instant::now())),
            )
            .await;
        assert_eq!((count, begun.len()), (10, 10));
        for (number, offset, due) in begun {
            assert!(due && offset == Duration::from_millis(u64::from(number) * 10), "{number} {offset:?}");
        }
        assert!(first.elapsed() >= Duration::from_millis(90), "the last one does not start before it is due");
    }

    #[tokio::test]
    async fn arrivals_stop_on_request() {
        let stop = CancellationToken::new();
        let halt = stop.clone();
        let count = arrivals(1_000.0, 100, None)
            .run(
                Instant::now(),
                &stop,
                async || {},
                |number, _| {
                    if number == 4 {
                        halt.cancel();
                    }
                },
            )
            .await;
        assert_eq!(count, 5);
    }

    #[test]
    fn permits_are_bounded_and_returned() {
        let in_flight = InFlight::new(2);
        let (one, two) = (in_flight.enter().unwrap(), in_flight.enter().unwrap());
        assert!(in_flight.enter().is_none());
        drop(one);
        let three = in_flight.enter().unwrap();
        assert_eq!((in_flight.now(), in_flight.most()), (2, 2));
        drop((two, three));
        assert_eq!(in_flight.now(), 0);
    }
}
