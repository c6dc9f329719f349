//! Thresholds of a run: expressions such as `accepted:p99<100ms` that its figures must satisfy.
//!
//! Pure.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;
use serde_with::SerializeDisplay;

use crate::report::ratio;
use payferry_testkit::audit::stages::{Latencies, Stage, Stages};
use payferry_testkit::audit::tally::Counted;

/// Share of the due payments of which every expected event arrived.
const GOODPUT: &str = "goodput";
/// Share of the due payments that were refused with the code `overloaded`.
const REFUSED: &str = "refused";
/// An expression of each kind, for errors.
const EXAMPLES: &str = "accepted:p99<100ms, goodput>0.9 or refused<60%";

/// A condition on one figure of a run.
#[derive(Debug, Clone, PartialEq, SerializeDisplay)]
pub struct Threshold {
    figure: Figure,
    is_below: bool,
    limit: f64,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Figure {
    /// Percentile of a stage from the scheduled start, in milliseconds.
    Percentile(Stage, f64),
    Goodput,
    Refused,
}

/// A threshold and the figure of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Judged {
    pub threshold: Threshold,
    /// Milliseconds, or a share from 0 to 1; null if nothing was measured, which breaks the threshold.
    pub measured: Option<f64>,
    pub passed: bool,
}

impl Threshold {
    /// Returns true if refusals with the code `overloaded` are judged by it.
    pub fn judges_refusals(&self) -> bool {
        self.figure == Figure::Refused
    }

    /// Compares the figures of a run.
    pub fn judge(&self, stages: &Stages, counted: &Counted) -> Judged {
        let measured = match self.figure {
            Figure::Percentile(stage, percent) => percentile(&stages.latencies(stage), percent),
            Figure::Goodput => share(counted.complete, counted.due),
            Figure::Refused => share(counted.overloaded, counted.due),
        };
        let holds = |value: f64| if self.is_below { value < self.limit } else { value > self.limit };
        Judged { threshold: self.clone(), measured, passed: measured.is_some_and(holds) }
    }
}

fn percentile(latencies: &Latencies, percent: f64) -> Option<f64> {
    (latencies.count() > 0).then(|| latencies.percentile_ms(percent))
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| ratio(part, whole))
}

impl Judged {
    /// Returns the measured figure in the unit of the threshold.
    pub fn figure(&self) -> String {
        match (self.measured, self.threshold.figure) {
            (None, _) => "nothing measured".to_owned(),
            (Some(ms), Figure::Percentile(..)) => format!("{ms:.1} ms"),
            (Some(share), Figure::Goodput | Figure::Refused) => format!("{:.2} %", share * 100.0),
        }
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Threshold {
    type Err = String;

    /// Parses `<stage>:p<percent>` or a share, `<` or `>`, and a limit.
    fn from_str(text: &str) -> Result<Self, String> {
        let compact: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
        let (name, limit, is_below) = match (compact.split_once('<'), compact.split_once('>')) {
            (Some((name, limit)), None) => (name, limit, true),
            (None, Some((name, limit))) => (name, limit, false),
            _ => return Err(format!("`{text}` has no single < or >; write it as {EXAMPLES}")),
        };
        let figure = figure(name).map_err(|error| format!("`{text}`: {error}"))?;
        let limit = match figure {
            Figure::Percentile(..) => millis(limit),
            Figure::Goodput | Figure::Refused => fraction(limit),
        };
        let limit = limit.map_err(|error| format!("`{text}`: {error}"))?;
        Ok(Self { figure, is_below, limit, text: compact })
    }
}

fn figure(name: &str) -> Result<Figure, String> {
    match name.split_once(':') {
        None if name == GOODPUT => Ok(Figure::Goodput),
        None if name == REFUSED => Ok(Figure::Refused),
        Some((stage, percentile)) => {
            let known = || Stage::ALL.map(Stage::as_str).join(", ");
            let stage = stage.parse().map_err(|_| format!("`{stage}` is no stage; known are {}", known()))?;
            let percent = match percentile {
                "max" => Some(100.0),
                _ => percentile.strip_prefix('p').and_then(|percent| percent.parse().ok()),
            };
            let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
            let percent =
                percent.ok_or_else(|| format!("`{percentile}` is no percentile such as p99, p99.9 or max"))?;
            Ok(Figure::Percentile(stage, percent))
        }
        None => Err(format!("`{name}` is no figure; write it as {EXAMPLES}")),
    }
}

fn millis(limit: &str) -> Result<f64, String> {
    // Fractions of a unit, such as 1.5s, are not known to `humantime`.
    let split = limit.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(limit.len());
    let (number, unit) = limit.split_at(split);
    let unit = if unit.is_empty() { None } else { humantime::parse_duration(&format!("1{unit}")).ok() };
    let number = number.parse::<f64>().ok();
    let millis = |(number, unit): (f64, Duration)| number * unit.as_secs_f64() * 1_000.0;
    number.zip(unit).map(millis).ok_or_else(|| format!("`{limit}` is no duration such as 100ms or 5s"))
}

fn fraction(limit: &str) -> Result<f64, String> {
    let fraction = match limit.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().ok().map(|percent| percent / 100.0),
        None => limit.parse().ok(),
    };
    let fraction = fraction.filter(|fraction| (0.0..=1.0).contains(fraction));
    fraction.ok_or_else(|| format!("`{limit}` is no share such as 0.9 or 90%, from 0 to 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threshold(text: &str) -> Threshold {
        text.parse().unwrap()
    }

    #[test]
    fn parses_thresholds() {
        for (text, figure, is_below, limit) in [
            ("accepted:p99<100ms", Figure::Percentile(Stage::Accepted, 99.0), true, 100.0),
            ("complete : p99.9 < 1.5s", Figure::Percentile(Stage::Complete, 99.9), true, 1_500.0),
            ("webhook:max<500us", Figure::Percentile(Stage::Webhook, 100.0), true, 0.5),
            ("goodput>0.9", Figure::Goodput, false, 0.9),
            ("refused<60%", Figure::Refused, true, 0.6),
        ] {
            let Threshold { figure: found, is_below: below, limit: found_limit, .. } = threshold(text);
            assert_eq!((found, below), (figure, is_below), "{text}");
            assert!((found_limit - limit).abs() < 1e-9, "{text}: {found_limit}");
        }
        assert!(threshold("refused<60%").judges_refusals() && !threshold("goodput>0").judges_refusals());
        assert_eq!(serde_json::to_value(threshold("goodput > 90%")).unwrap(), "goodput>90%");
    }

    #[test]
    fn rejects_thresholds_that_it_cannot_judge() {
        for (bad, says) in [
            ("", "no single < or >"),
            ("accepted:p99", "no single < or >; write it as accepted:p99<100ms"),
            ("0.1<goodput<0.9", "is no figure"),
            ("speed>9", "`speed` is no figure; write it as"),
            ("done:p99<1s", "`done` is no stage; known are begun, accepted, sent"),
            ("accepted:99<1s", "`99` is no percentile such as p99"),
            ("accepted:p101<1s", "`p101` is no percentile"),
            ("accepted:p99<100", "`100` is no duration such as 100ms"),
            ("accepted:p99<fast", "`fast` is no duration"),
            ("goodput>90", "`90` is no share such as 0.9"),
            ("refused<60ms", "`60ms` is no share"),
            ("goodput>=0.9", "`=0.9` is no share"),
        ] {
            let refused = bad.parse::<Threshold>().unwrap_err();
            assert!(refused.contains(says), "{bad}: {refused}");
        }
    }

    #[test]
    fn judges_the_figures_of_a_run() {
        let stages = Stages::default();
        for ms in 1..=100 {
            stages.record(Stage::Accepted, Duration::from_millis(ms), Duration::ZERO);
        }
        let counted =
            Counted { due: 200, accepted: 100, complete: 80, refused: 90, overloaded: 90, ..Counted::default() };
        for (text, passed, figure) in [
            ("accepted:p50<60ms", true, "50.0 ms"),
            ("accepted:p99<60ms", false, "99.0 ms"),
            ("goodput>0.4", false, "40.00 %"),
            ("goodput>0.39", true, "40.00 %"),
            ("refused<45%", false, "45.00 %"),
            ("refused<46%", true, "45.00 %"),
            ("complete:p99<1h", false, "nothing measured"),
        ] {
            let judged = threshold(text).judge(&stages, &counted);
            assert_eq!((judged.passed, judged.figure().as_str()), (passed, figure), "{text}");
        }
        assert!(!threshold("goodput>0").judge(&stages, &Counted::default()).passed, "nothing was due");
    }
}
