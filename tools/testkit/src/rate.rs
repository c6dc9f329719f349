//! Rate of a load, and the search for the highest rate that a service keeps.
//!
//! Pure. Deliberately absent: the load, and the rule by which a rate is kept.

use std::str::FromStr;

use serde::Serialize;

/// Largest rate. Beyond it, a run measures the scheduler of the machine.
pub const RATE_MAX: f64 = 50_000.0;
/// Smallest rate: one in 1,000 s.
pub const RATE_MIN: f64 = 0.001;

/// Arrivals per second.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Rate(f64);

impl Rate {
    /// Makes a rate from [`RATE_MIN`] to [`RATE_MAX`].
    pub fn per_second(rate: f64) -> Option<Self> {
        (RATE_MIN..=RATE_MAX).contains(&rate).then_some(Self(rate))
    }

    /// Returns the arrivals per second.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl FromStr for Rate {
    type Err = String;

    /// Parses `500/s`, `500` (the same) or `3000/min`.
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected a rate such as 500/s or 90/min, above 0 and at most {RATE_MAX}/s");
        let (number, secs) = match text.split_once('/') {
            None | Some((_, "s")) => (text.trim_end_matches("/s"), 1.0),
            Some((number, "min")) => (number, 60.0),
            Some(_) => return Err(expected()),
        };
        let number: f64 = number.trim().parse().map_err(|_| expected())?;
        Self::per_second(number / secs).ok_or_else(expected)
    }
}

/// The search ends when the lowest broken rate is at most this multiple of the highest kept rate.
const PRECISION: f64 = 1.1;
/// Rates from this one on are whole numbers.
const WHOLE_FROM: f64 = 10.0;

/// Reason why a search has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The two rates are close.
    Found,
    /// No rate is left to try: each was kept, or each broke.
    Range,
    /// The number of probes is used up.
    Probes,
    /// The caller ended the search: it was interrupted.
    Interrupted,
    /// The caller ended the search: a payment was lost or wrong, or could not be compared, and not only because the
    /// service was too slow.
    Defect,
}

impl Ended {
    /// Completes the sentence "the search ended because".
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

/// Search in progress. It doubles the rate (or halves it, if the first one is too high) until a rate breaks (or is kept),
/// then bisects until the two rates are close.
#[derive(Debug)]
pub struct RateSearch {
    first: Rate,
    kept: Option<Rate>,
    broken: Option<Rate>,
    probes: usize,
    probes_max: usize,
}

impl RateSearch {
    /// Starts a search at a rate, with at most `probes_max` probes.
    pub fn new(first: Rate, probes_max: usize) -> Self {
        Self { first, kept: None, broken: None, probes: 0, probes_max }
    }

    /// Returns the next rate, or the reason why there is none.
    pub fn next(&self) -> Result<Rate, Ended> {
        if self.probes >= self.probes_max {
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

    /// Records a run at the next rate.
    pub fn record(&mut self, rate: Rate, is_kept: bool) {
        // Each next rate lies between the two.
        *if is_kept { &mut self.kept } else { &mut self.broken } = Some(rate);
        self.probes += 1;
    }

    /// Returns the highest rate that was kept.
    pub fn kept(&self) -> Option<Rate> {
        self.kept
    }

    /// Returns the lowest rate that broke.
    pub fn broken(&self) -> Option<Rate> {
        self.broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROBES_MAX: usize = 12;

    #[test]
    fn parses_rates() {
        for (text, rate) in [("500/s", 500.0), ("500", 500.0), ("90/min", 1.5), ("0.5/s", 0.5), ("50000/s", 50_000.0)] {
            assert_eq!(text.parse::<Rate>().unwrap(), Rate(rate), "{text}");
        }
        for bad in ["0", "0/s", "-1/s", "", "/s", "fast", "1/h", "50001/s", "inf", "NaN", "1/s/s"] {
            let refused = bad.parse::<Rate>().unwrap_err();
            assert!(refused.contains("500/s"), "{bad}: {refused}");
        }
    }

    /// Searches a service that keeps rates up to `knee`. Returns the rates of the probes, and the search with the reason
    /// for its end.
    fn search(first: f64, knee: f64) -> (Vec<f64>, RateSearch, Ended) {
        let mut search = RateSearch::new(Rate::per_second(first).unwrap(), PROBES_MAX);
        let mut rates = Vec::new();
        loop {
            let rate = match search.next() {
                Ok(rate) => rate,
                Err(ended) => return (rates, search, ended),
            };
            rates.push(rate.get());
            search.record(rate, rate.get() <= knee);
        }
    }

    #[test]
    fn finds_the_knee_within_ten_percent() {
        for (first, knee) in [(100.0, 333.0), (100.0, 100.0), (400.0, 30.0), (20.0, 2_000.0), (1.0, 0.4)] {
            let (rates, found, ended) = search(first, knee);
            let (kept, broken) = (found.kept().unwrap().get(), found.broken().unwrap().get());
            assert_eq!(ended, Ended::Found, "{first} {knee}: {rates:?}");
            assert!(kept <= knee && knee < broken && broken <= kept * PRECISION, "{first} {knee}: {rates:?}");
        }
        assert_eq!(search(100.0, 333.0).0, [100.0, 200.0, 400.0, 283.0, 336.0, 308.0]);
        assert_eq!(search(400.0, 30.0).0[..4], [400.0, 200.0, 100.0, 50.0]);
    }

    #[test]
    fn a_search_is_bounded() {
        let (rates, found, ended) = search(10.0, f64::INFINITY);
        assert_eq!((ended, found.broken(), rates.len()), (Ended::Probes, None, PROBES_MAX));
        let (rates, _, ended) = search(40_000.0, f64::INFINITY);
        assert_eq!((ended, rates), (Ended::Range, vec![40_000.0, RATE_MAX]));
        let (rates, found, ended) = search(RATE_MIN * 3.0, 0.0);
        assert_eq!((ended, found.kept(), rates.len()), (Ended::Range, None, 3));
    }
}
