//! Rate of arrival over time: one rate, or phases with rates that rise, hold and jump.
//!
//! Pure.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use payferry_testkit::rate::{RATE_MAX, Rate};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_with::SerializeDisplay;

/// Longest phase.
pub const PHASE_MAX: Duration = Duration::from_hours(24);
/// Largest number of phases.
const PHASES_MAX: usize = 100;

/// A time with a rate that changes linearly.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Phase {
    from: f64,
    to: f64,
    secs: f64,
}

impl Phase {
    /// Returns the number of its arrivals.
    fn arrivals(self) -> f64 {
        f64::midpoint(self.from, self.to) * self.secs
    }

    /// Returns the seconds from its start until `arrivals` have arrived: the solution of
    /// `from * t + slope * t² / 2 = arrivals`, in a form that also holds without a slope.
    fn secs_until(self, arrivals: f64) -> f64 {
        if arrivals <= 0.0 {
            return 0.0;
        }
        let slope = (self.to - self.from) / self.secs;
        // Rounding may make it negative at the end of a phase that ends at rate 0.
        let root = (self.from * self.from + 2.0 * slope * arrivals).max(0.0).sqrt();
        (2.0 * arrivals / (self.from + root)).min(self.secs)
    }
}

/// Rates of arrival over time.
#[derive(Debug, Clone, PartialEq, SerializeDisplay)]
pub struct Schedule(Vec<Phase>);

impl Schedule {
    /// Makes a schedule of one rate without an end.
    pub fn endless(rate: Rate) -> Self {
        Self(vec![Phase { from: rate.get(), to: rate.get(), secs: f64::INFINITY }])
    }

    /// Makes a schedule of one rate.
    pub fn constant(rate: Rate, duration: Duration) -> Self {
        Self(vec![Phase { from: rate.get(), to: rate.get(), secs: duration.as_secs_f64() }])
    }

    /// Returns the highest rate.
    pub fn peak(&self) -> Option<Rate> {
        Rate::per_second(self.0.iter().map(|phase| phase.from.max(phase.to)).fold(0.0, f64::max))
    }

    /// Returns the scheduled starts, as offsets from the first. With a seed, the arrivals are independent, as of many
    /// payers: exponential gaps, the same for the same seed. Without one, the gaps at one rate are equal.
    pub fn offsets(&self, seed: Option<u32>) -> impl Iterator<Item = Duration> {
        let mut random = seed.map(|seed| StdRng::seed_from_u64(seed.into()));
        let (mut number, mut arrived) = (0_u32, 0.0);
        std::iter::from_fn(move || {
            let offset = self.offset(arrived)?;
            number += 1;
            arrived = match &mut random {
                // Counted, not summed, so that no rounding error grows over a long run.
                None => f64::from(number),
                Some(random) => {
                    let uniform: f64 = random.random();
                    arrived - (1.0 - uniform).ln()
                }
            };
            Some(offset)
        })
    }

    /// Returns the time at which `arrivals` have arrived. `None` after the end.
    fn offset(&self, arrivals: f64) -> Option<Duration> {
        let (mut start_secs, mut left) = (0.0, arrivals);
        for phase in &self.0 {
            if left < phase.arrivals() {
                return Some(Duration::from_secs_f64(start_secs + phase.secs_until(left)));
            }
            (start_secs, left) = (start_secs + phase.secs, left - phase.arrivals());
        }
        None
    }
}

impl FromStr for Schedule {
    type Err = String;

    /// Parses phases such as `0-300/2m,300/10m,600/1m`.
    fn from_str(text: &str) -> Result<Self, String> {
        let phases: Vec<Phase> = text.split(',').map(|part| phase(part.trim())).collect::<Result<_, _>>()?;
        if phases.len() > PHASES_MAX {
            return Err(format!("{} stages are too many: at most {PHASES_MAX}", phases.len()));
        }
        let schedule = Self(phases);
        if schedule.peak().is_none() {
            return Err(format!("`{text}` has no arrivals: a rate must be above 0"));
        }
        Ok(schedule)
    }
}

fn phase(text: &str) -> Result<Phase, String> {
    let expected = || {
        format!(
            "`{text}` is not written as rate/duration or rate-rate/duration, such as 300/10m or 0-300/2m, with rates per second up to {RATE_MAX}"
        )
    };
    let (rates, duration) = text.split_once('/').ok_or_else(expected)?;
    let duration = duration_of(duration).map_err(|error| format!("`{text}`: {error}"))?;
    let (from, to) = rates.split_once('-').unwrap_or((rates, rates));
    let rate = |text: &str| text.trim().parse().ok().filter(|rate| (0.0..=RATE_MAX).contains(rate));
    let (from, to) = rate(from).zip(rate(to)).ok_or_else(expected)?;
    Ok(Phase { from, to, secs: duration.as_secs_f64() })
}

/// Parses the duration of a run or a phase.
pub fn duration_of(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).ok();
    duration.filter(|duration| *duration > Duration::ZERO && *duration <= PHASE_MAX).ok_or_else(|| {
        let max = humantime::format_duration(PHASE_MAX);
        format!("`{text}` is not a duration such as 90s, 10m or 1h, above 0 and at most {max}")
    })
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Phase { from, to, secs }) in self.0.iter().enumerate() {
            f.write_str(if index > 0 { "," } else { "" })?;
            write!(f, "{from}")?;
            if from.total_cmp(to).is_ne() {
                write!(f, "-{to}")?;
            }
            if let Ok(duration) = Duration::try_from_secs_f64(*secs) {
                write!(f, "/{}", humantime::format_duration(duration).to_string().replace(' ', ""))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(text: &str) -> Schedule {
        text.parse().unwrap()
    }

    fn secs(schedule: &Schedule, seed: Option<u32>) -> Vec<f64> {
        schedule.offsets(seed).map(|at| at.as_secs_f64()).collect()
    }

    #[test]
    fn parses_and_formats_phases() {
        for text in ["0-300/2m,300/10m,600/1m", "100/1h30m", "0/5s,10/500ms", "2.5-0/3s"] {
            assert_eq!(schedule(text).to_string(), text);
        }
        assert_eq!(schedule("0-300/2m, 600/1m").peak(), Rate::per_second(600.0));
        assert_eq!(Schedule::endless(Rate::per_second(5.0).unwrap()).to_string(), "5");
        for (bad, says) in [
            ("300", "`300` is not written as rate/duration"),
            ("0-300/2m,fast/1m", "`fast/1m` is not written as"),
            ("300/fast", "`300/fast`: `fast` is not a duration such as 90s"),
            ("300/0s", "not a duration"),
            ("300/25h", "at most 1day"),
            ("60000/1s", "up to 50000"),
            ("-5/1s", "is not written as"),
            ("0/1m", "has no arrivals"),
            ("", "is not written as"),
        ] {
            let refused = bad.parse::<Schedule>().unwrap_err();
            assert!(refused.contains(says), "{bad}: {refused}");
        }
    }

    #[test]
    fn phases_have_the_arrivals_of_their_rates() {
        // A ramp has the arrivals of half its rate, later ones closer together.
        let offsets = secs(&schedule("0-100/10s,50/2s,0/3s,100/1s"), None);
        let within = |from: f64, to: f64| offsets.iter().filter(|at| (from..to).contains(*at)).count();
        assert_eq!(offsets.len(), 500 + 100 + 100);
        assert_eq!([within(0.0, 5.0), within(5.0, 9.999_99)], [125, 375]);
        assert_eq!([within(9.999_99, 12.0 - 1e-6), within(12.0, 15.0 - 1e-6)], [100, 0]);
        assert!(offsets.is_sorted() && (offsets[600] - 15.0).abs() < 1e-6, "{}", offsets[600]);
        let falling = secs(&schedule("100-0/10s"), None);
        assert_eq!(falling.len(), 500);
        assert!(falling.is_sorted() && falling.iter().all(|at| (0.0..=10.0).contains(at)));
    }

    #[test]
    fn independent_arrivals_follow_the_rate() {
        let offsets = secs(&schedule("0-2000/10s"), Some(7));
        assert!((9_700..10_300).contains(&offsets.len()), "{}", offsets.len());
        let early = offsets.iter().filter(|at| **at < 5.0).count();
        assert!((2_300..2_700).contains(&early), "{early}");
        assert_eq!(offsets, secs(&schedule("0-2000/10s"), Some(7)));
    }
}
