//! Result of the search for the knee: the highest rate at which a service keeps the thresholds. Pure.

use std::fmt;

use payferry_testkit::rate::{Ended, Rate};
use serde::Serialize;

/// Largest number of rates. A rate has at most two runs.
pub const PROBES_MAX: usize = 12;

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
