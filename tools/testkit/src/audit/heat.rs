//! Distribution of latencies in a short time, for a heat map: counts by latency, four for each decade.

use std::time::Duration;

use serde::Serialize;

use super::stages::Latencies;

/// Counts for each decade, and number of decades from 1 ms.
const OF_A_DECADE: usize = 4;
const DECADES: usize = 5;
/// Upper bound of the first count.
const LEAST: Duration = Duration::from_millis(1);
/// Number of counts: the first one is below 1 ms, the last one above all decades.
pub const COUNTS: usize = OF_A_DECADE * DECADES + 2;

/// Counts of latencies, in ascending order of the latency.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Heat(pub [u32; COUNTS]);

impl Heat {
    /// Counts latencies.
    pub fn of(latencies: &Latencies) -> Self {
        let mut heat = Self::default();
        for (latency, count) in latencies.recorded() {
            let place = (0..COUNTS - 1).find(|place| latency < Self::upper(*place)).unwrap_or(COUNTS - 1);
            heat.0[place] = heat.0[place].saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        }
        heat
    }

    /// Returns the upper bound of a count, exclusive. The last one has none, and gets one as if it had.
    pub fn upper(place: usize) -> Duration {
        #[allow(clippy::cast_precision_loss, reason = "small")]
        LEAST.mul_f64(10_f64.powf(place as f64 / OF_A_DECADE as f64))
    }

    /// Adds the counts of another time.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum = sum.saturating_add(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_latency() {
        let mut latencies = Latencies::default();
        for us in [500, 999, 1_100, 9_900, 10_100, 10_200, 99_000_000, 200_000_000] {
            latencies.record(Duration::from_micros(us));
        }
        let Heat(counts) = Heat::of(&latencies);
        let filled: Vec<(usize, u32)> = (0..).zip(counts).filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(0, 2), (1, 1), (4, 1), (5, 2), (20, 1), (21, 1)]);
        assert_eq!([0, 4, 20].map(Heat::upper), [1, 10, 100_000].map(Duration::from_millis));
        let mut sum = Heat(counts);
        sum.add(&Heat(counts));
        assert_eq!(sum.0[5], 4);
    }
}
