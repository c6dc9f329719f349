//! Comparison of a report with an older one: ratios of the figures, and their noise.
//!
//! Both reports are read as JSON, so that a report of an earlier version can be compared. Pure.

use serde::Serialize;
use serde_json::Value;

use crate::report::WARM_UP_SECS;

/// Parts of a run whose means are compared with each other: their spread is the noise.
const PARTS: usize = 5;
/// Standard errors within which a difference is noise: about 95 % of all cases.
const STANDARD_ERRORS: f64 = 2.0;
/// Bytes of a mebibyte.
const MEBIBYTE: f64 = 1_048_576.0;
/// Values that must be equal, so that the figures can be compared.
const CONDITIONS: [(&str, &str); 12] = [
    ("rate", "/asked/rate"),
    ("payments", "/asked/payments"),
    ("stages", "/asked/stages"),
    ("pacing", "/asked/pacing"),
    ("mix", "/asked/mix"),
    ("psps", "/asked/psps"),
    ("hold", "/asked/hold"),
    ("target", "/asked/target"),
    ("cores", "/machine/cores"),
    ("cpu_model", "/machine/cpu_model"),
    ("version", "/version"),
    ("service_version", "/service_version"),
];

/// A figure of both runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    pub figure: &'static str,
    pub unit: &'static str,
    pub before: f64,
    pub now: f64,
    /// `now` divided by `before`.
    pub ratio: f64,
    /// Relative noise of the ratio: two standard errors; null if one of the runs is too short for it.
    pub noise: Option<f64>,
    pub change: Change,
}

/// Meaning of a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    Better,
    Worse,
    /// The difference is within the noise.
    Same,
    /// The noise is unknown.
    Unknown,
}

impl Change {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Same => "same",
            Self::Unknown => "unknown",
        }
    }
}

impl Compared {
    /// Returns the name of the figure, with its unit.
    pub fn title(&self) -> String {
        if self.unit.is_empty() { self.figure.to_owned() } else { format!("{} ({})", self.figure, self.unit) }
    }

    /// Returns the noise of the ratio as text.
    pub fn noise(&self) -> String {
        self.noise.map_or_else(|| "-".to_owned(), |noise| format!("±{:.0} %", noise * 100.0))
    }
}

/// Result of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Name of the older run.
    pub with: String,
    /// Conditions that differ, with both values.
    pub differs: Vec<String>,
    pub figures: Vec<Compared>,
}

struct Figure {
    name: &'static str,
    unit: &'static str,
    is_better_high: bool,
    whole: fn(&Value) -> Option<f64>,
    /// The same in one second of the course.
    second: fn(&Value) -> Option<f64>,
}

const FIGURES: [Figure; 9] = [
    Figure {
        name: "accepted",
        unit: "/s",
        is_better_high: true,
        whole: |report| number(report, "/achieved/accepted_per_sec"),
        second: |second| per_sec(second, "/counted/accepted"),
    },
    Figure {
        name: "complete",
        unit: "/s",
        is_better_high: true,
        whole: |report| number(report, "/achieved/complete_per_sec"),
        second: |second| per_sec(second, "/counted/complete"),
    },
    latency(
        "accepted p50",
        |report| stage(report, "accepted", "p50_ms"),
        |second| positive(second, "/accepted_p50_ms"),
    ),
    latency(
        "accepted p99",
        |report| stage(report, "accepted", "p99_ms"),
        |second| positive(second, "/accepted_p99_ms"),
    ),
    latency(
        "complete p50",
        |report| stage(report, "complete", "p50_ms"),
        |second| positive(second, "/complete_p50_ms"),
    ),
    latency(
        "complete p99",
        |report| stage(report, "complete", "p99_ms"),
        |second| positive(second, "/complete_p99_ms"),
    ),
    Figure {
        name: "CPU of the service",
        unit: "ms a payment",
        is_better_high: false,
        whole: |report| number(report, "/machine/service_ms_a_payment"),
        second: |second| {
            Some(
                number(second, "/service_cores")? * 1_000.0
                    / per_sec(second, "/counted/accepted").filter(|rate| *rate > 0.0)?,
            )
        },
    },
    Figure {
        name: "cores of the service",
        unit: "",
        is_better_high: false,
        whole: |report| number(report, "/machine/service_cores"),
        second: |second| number(second, "/service_cores"),
    },
    Figure {
        name: "memory of the service",
        unit: "MiB",
        is_better_high: false,
        whole: |report| Some(number(report, "/machine/service_bytes_most")? / MEBIBYTE),
        second: |second| number(second, "/service_bytes"),
    },
];

const fn latency(name: &'static str, whole: fn(&Value) -> Option<f64>, second: fn(&Value) -> Option<f64>) -> Figure {
    Figure { name, unit: "ms", is_better_high: false, whole, second }
}

fn number(value: &Value, path: &str) -> Option<f64> {
    value.pointer(path)?.as_f64()
}

fn positive(value: &Value, path: &str) -> Option<f64> {
    number(value, path).filter(|number| *number > 0.0)
}

fn per_sec(second: &Value, path: &str) -> Option<f64> {
    Some(number(second, path)? / positive(second, "/period_secs")?)
}

fn stage(report: &Value, name: &str, percentile: &str) -> Option<f64> {
    let stages = report["stages"].as_array()?;
    stages.iter().find(|stage| stage["stage"] == name)?["from_intended"][percentile].as_f64()
}

/// Returns true if a value is the report of a run.
pub fn is_report(value: &Value) -> bool {
    value["run"].is_string() && value["course"].is_array() && number(value, "/achieved/arrivals_secs").is_some()
}

/// Compares the reports of two runs.
pub fn compare(before: &Value, now: &Value) -> Comparison {
    let differs = CONDITIONS.iter().filter_map(|(name, path)| {
        let [before, now] = [before, now].map(|report| report.pointer(path).unwrap_or(&Value::Null));
        let is_equal = before == now || before.as_f64().is_some_and(|number| now.as_f64() == Some(number));
        (!is_equal).then(|| format!("{name}: {before} before, {now} now"))
    });
    let compared = |figure: &Figure| {
        let [old, new] = [before, now].map(|report| (figure.whole)(report).filter(|value| *value > 0.0));
        let (old, new) = old.zip(new)?;
        let ratio = new / old;
        let [a, b] = [before, now].map(|report| noise(report, figure.second));
        let noise = a.zip(b).map(|(a, b)| a.hypot(b));
        let change = match noise {
            None => Change::Unknown,
            Some(noise) if (ratio - 1.0).abs() <= noise => Change::Same,
            Some(_) if (ratio > 1.0) == figure.is_better_high => Change::Better,
            Some(_) => Change::Worse,
        };
        Some(Compared { figure: figure.name, unit: figure.unit, before: old, now: new, ratio, noise, change })
    };
    Comparison {
        with: before["run"].as_str().unwrap_or("-").to_owned(),
        differs: differs.collect(),
        figures: FIGURES.iter().filter_map(compared).collect(),
    }
}

/// Returns two standard errors of the means of the run's parts, relative to their mean. `None` if a part has no value.
fn noise(report: &Value, of: fn(&Value) -> Option<f64>) -> Option<f64> {
    let arrivals_secs = number(report, "/achieved/arrivals_secs")?;
    let warm_up = if arrivals_secs > 2.0 * WARM_UP_SECS { WARM_UP_SECS } else { 0.0 };
    let is_steady = |second: &&Value| number(second, "/at_secs").is_some_and(|at| at > warm_up && at <= arrivals_secs);
    let values: Vec<f64> = report["course"].as_array()?.iter().filter(is_steady).filter_map(of).collect();
    if values.len() < PARTS {
        return None;
    }
    let part = |n: usize| &values[values.len() * n / PARTS..values.len() * (n + 1) / PARTS];
    let means: Vec<f64> = (0..PARTS).map(|n| mean(part(n))).collect();
    let whole = mean(&means);
    let squares: Vec<f64> = means.iter().map(|part| (part - whole).powi(2)).collect();
    let variance = mean(&squares) * count(PARTS) / count(PARTS - 1);
    Some(STANDARD_ERRORS * (variance / count(PARTS)).sqrt() / whole).filter(|noise| noise.is_finite())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / count(values.len())
}

/// Exact for all counts here.
#[allow(clippy::cast_precision_loss)]
fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the report of a run with this p99 of `accepted` in each second.
    fn report(p99: &[f64]) -> Value {
        let second = |(at, p99): (usize, &f64)| {
            json!({
                "at_secs": at + 1, "period_secs": 1.0, "counted": {"accepted": 50, "complete": 40},
                "accepted_p50_ms": 2.0, "accepted_p99_ms": p99, "service_cores": 0.5, "service_bytes": null,
            })
        };
        json!({
            "run": "0a1b2c3d", "version": "0.1.0", "asked": {"rate": 50.0, "mix": "exact=100"},
            "machine": {"cores": 2, "service_cores": 0.5, "service_ms_a_payment": 10.0},
            "achieved": {"arrivals_secs": p99.len(), "accepted_per_sec": 50.0, "complete_per_sec": 40.0},
            "stages": [{"stage": "accepted", "from_intended": {"p50_ms": 2.0, "p99_ms": mean(p99)}}],
            "course": p99.iter().enumerate().map(second).collect::<Vec<_>>(),
        })
    }

    fn p99(before: &[f64], now: &[f64]) -> Compared {
        let compared = compare(&report(before), &report(now));
        compared.figures.into_iter().find(|one| one.figure == "accepted p99").unwrap()
    }

    #[test]
    fn differences_within_the_noise_are_no_change() {
        let (steady, restless) = ([20.0, 21.0, 20.0, 19.0, 20.0], [10.0, 30.0, 12.0, 28.0, 20.0]);
        let slow: Vec<f64> = steady.iter().map(|ms| ms * 1.5).collect();
        let found = p99(&steady, &slow);
        assert_eq!(found.change, Change::Worse);
        assert!((found.ratio - 1.5).abs() < 1e-9 && found.noise.is_some_and(|noise| noise < 0.06), "{found:?}");
        assert_eq!(p99(&slow, &steady).change, Change::Better);
        assert_eq!(p99(&steady, &steady).change, Change::Same);
        let loud: Vec<f64> = restless.iter().map(|ms| ms * 1.2).collect();
        let found = p99(&restless, &loud);
        assert!(found.change == Change::Same && found.noise.is_some_and(|noise| noise > 0.2), "{found:?}");
        assert_eq!(p99(&steady[..3], &slow).change, Change::Unknown, "too short for a noise");
    }

    #[test]
    fn a_higher_rate_is_better_and_other_conditions_are_named() {
        let (before, mut now) = (report(&[20.0; 5]), report(&[20.0; 5]));
        now["achieved"]["accepted_per_sec"] = json!(60.0);
        now["asked"]["rate"] = json!(60.0);
        now["asked"]["mix"] = json!("exact=50,never=50");
        let Comparison { with, differs, figures } = compare(&before, &now);
        assert_eq!(with, "0a1b2c3d");
        let mix = "mix: \"exact=100\" before, \"exact=50,never=50\" now";
        assert_eq!(differs, ["rate: 50.0 before, 60.0 now", mix]);
        let accepted = &figures[0];
        assert_eq!((accepted.figure, accepted.change), ("accepted", Change::Better));
        assert!(figures.iter().all(|one| one.figure != "memory of the service"), "unknown in both: {figures:?}");
        assert!(is_report(&before) && !is_report(&json!({"run": "x"})) && !is_report(&json!([])));
    }
}
