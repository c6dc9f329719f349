//! Search for the knee: the highest rate at which a service keeps the thresholds.
//!
//! The search doubles the rate (or halves it, if the first one is too high) until the thresholds break (or are kept), then
//! bisects until the two rates are close. Pure.

use std::fmt;

use serde::Serialize;

use crate::arrivals::{RATE_MAX, RATE_MIN, Rate};

/// Largest number of probes.
pub const PROBES_MAX: usize = 12;
/// The search ends when the lowest broken rate is at most this multiple of the highest kept rate.
const PRECISION: f64 = 1.1;
/// Rates from this one on are whole numbers.
const WHOLE_FROM: f64 = 10.0;

/// Thresholds of a search that names none.
pub const DEFAULT_THRESHOLDS: [&str; 3] = ["accepted:p99<100ms", "complete:p99<5s", "goodput>0.99"];

/// Run at one rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Probe {
    pub rate: Rate,
    /// True if the run passed.
    pub passed: bool,
    pub accepted_per_sec: f64,
    pub complete_per_sec: f64,
    /// 99th percentiles from the scheduled start, in milliseconds; null if nothing was measured.
    pub accepted_p99_ms: Option<f64>,
    pub complete_p99_ms: Option<f64>,
    pub verdict: String,
}

/// Reason why a search has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The two rates are close.
    Found,
    /// No rate is left to try: each kept the thresholds, or each broke them.
    Range,
    /// The number of probes is used up.
    Probes,
    /// The search was interrupted.
    Interrupted,
    /// A payment was lost or wrong, or could not be compared, and not only because the service was too slow.
    Defect,
}

impl Ended {
    pub const fn words(self) -> &'static str {
        match self {
            Self::Found => "the rates are within 10 %",
            Self::Range => "no other rate is left to try",
            Self::Probes => "the number of probes is used up, so that a higher rate is possible",
            Self::Interrupted => "the search was interrupted",
            Self::Defect => "a payment was lost or wrong, or could not be compared",
        }
    }
}

/// Result of a search.
#[derive(Debug, Clone, Serialize)]
pub struct Knee {
    /// Highest rate that kept the thresholds; null if none did.
    pub rate: Option<Rate>,
    /// Lowest rate that broke them.
    pub broken_at: Option<Rate>,
    pub ended: Ended,
    pub probes: Vec<Probe>,
}

impl Knee {
    /// Returns true if there is a rate, and no defect.
    pub fn is_found(&self) -> bool {
        self.rate.is_some() && !matches!(self.ended, Ended::Defect | Ended::Interrupted)
    }
}

impl fmt::Display for Knee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |rate: Option<Rate>| rate.map_or_else(|| "none".to_owned(), |rate| format!("{:.1}/s", rate.get()));
        let ms = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
        writeln!(
            f,
            "{:>9}{:>12}{:>12}{:>14}{:>14}",
            "rate/s", "accepted/s", "complete/s", "accepted p99", "complete p99"
        )?;
        writeln!(f, "{}", "-".repeat(61))?;
        for one in &self.probes {
            let (kept, asked) = (if one.passed { "kept" } else { "broken" }, one.rate.get());
            let (accepted, complete) = (ms(one.accepted_p99_ms), ms(one.complete_p99_ms));
            write!(f, "{asked:>9.1}{:>12.1}{:>12.1}", one.accepted_per_sec, one.complete_per_sec)?;
            writeln!(f, "{accepted:>14}{complete:>14}  {kept}: {}", one.verdict)?;
        }
        let (kept, broken) = (rate(self.rate), rate(self.broken_at));
        write!(f, "\nHighest rate with the thresholds kept: {kept}. Lowest rate with one broken: {broken}. ")?;
        write!(f, "The search ended because {}.", self.ended.words())
    }
}

/// Search in progress.
#[derive(Debug)]
pub struct Search {
    first: Rate,
    kept: Option<Rate>,
    broken: Option<Rate>,
    probes: Vec<Probe>,
}

impl Search {
    /// Starts a search at a rate.
    pub fn new(first: Rate) -> Self {
        Self { first, kept: None, broken: None, probes: Vec::new() }
    }

    /// Returns the next rate, or the reason why there is none.
    pub fn next(&self) -> Result<Rate, Ended> {
        if self.probes.len() >= PROBES_MAX {
            return Err(Ended::Probes);
        }
        let rate = match (self.kept.map(Rate::get), self.broken.map(Rate::get)) {
            (None, None) => return Ok(self.first),
            (Some(kept), None) if kept >= RATE_MAX => return Err(Ended::Range),
            (None, Some(broken)) if broken <= RATE_MIN => return Err(Ended::Range),
            (Some(kept), None) => (kept * 2.0).min(RATE_MAX),
            (None, Some(broken)) => (broken / 2.0).max(RATE_MIN),
            (Some(kept), Some(broken)) if broken <= kept * PRECISION => return Err(Ended::Found),
            (Some(kept), Some(broken)) => (kept * broken).sqrt(),
        };
        let rate = if rate >= WHOLE_FROM { rate.round() } else { rate };
        Rate::per_second(rate).ok_or(Ended::Range)
    }

    /// Records a run.
    pub fn record(&mut self, probe: Probe) {
        // Each next rate lies between the two.
        *if probe.passed { &mut self.kept } else { &mut self.broken } = Some(probe.rate);
        self.probes.push(probe);
    }

    /// Returns the result.
    pub fn end(self, ended: Ended) -> Knee {
        Knee { rate: self.kept, broken_at: self.broken, ended, probes: self.probes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches a service that keeps the thresholds up to `knee`. Returns the rates of the probes.
    fn search(first: f64, knee: f64) -> (Vec<f64>, Knee) {
        let mut search = Search::new(Rate::per_second(first).unwrap());
        let mut rates = Vec::new();
        loop {
            let rate = match search.next() {
                Ok(rate) => rate,
                Err(ended) => return (rates, search.end(ended)),
            };
            rates.push(rate.get());
            search.record(Probe {
                rate,
                passed: rate.get() <= knee,
                accepted_per_sec: 0.0,
                complete_per_sec: 0.0,
                accepted_p99_ms: None,
                complete_p99_ms: None,
                verdict: String::new(),
            });
        }
    }

    #[test]
    fn finds_the_knee_within_ten_percent() {
        for (first, knee) in [(100.0, 333.0), (100.0, 100.0), (400.0, 30.0), (20.0, 2_000.0), (1.0, 0.4)] {
            let (rates, found) = search(first, knee);
            let (kept, broken) = (found.rate.unwrap().get(), found.broken_at.unwrap().get());
            assert_eq!(found.ended, Ended::Found, "{first} {knee}: {rates:?}");
            assert!(kept <= knee && knee < broken && broken <= kept * PRECISION, "{first} {knee}: {rates:?}");
            assert_eq!(found.probes.len(), rates.len());
        }
        assert_eq!(search(100.0, 333.0).0, [100.0, 200.0, 400.0, 283.0, 336.0, 308.0]);
        assert_eq!(search(400.0, 30.0).0[..4], [400.0, 200.0, 100.0, 50.0]);
    }

    #[test]
    fn a_search_is_bounded() {
        let (rates, found) = search(10.0, f64::INFINITY);
        assert_eq!((found.ended, found.broken_at, rates.len()), (Ended::Probes, None, PROBES_MAX));
        let (rates, found) = search(40_000.0, f64::INFINITY);
        assert_eq!((found.ended, rates), (Ended::Range, vec![40_000.0, RATE_MAX]));
        let (rates, found) = search(RATE_MIN * 3.0, 0.0);
        assert_eq!((found.ended, found.rate, rates.len()), (Ended::Range, None, 3));
    }
}
