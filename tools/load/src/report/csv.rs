//! Course of a run as CSV: one line for each second, for spreadsheets and plots.
//!
//! Pure.

use std::fmt::Display;

use payferry_testkit::audit::tally::Second;

/// Returns the content of the file. A value that is not known is empty.
pub fn course(course: &[Second]) -> String {
    let mut lines = vec![header()];
    lines.extend(course.iter().map(line));
    lines.join("\n") + "\n"
}

fn header() -> String {
    let second = Second::default();
    let mut names = vec!["at_secs", "period_secs"];
    names.extend(second.counted.entries().into_iter().map(|(name, _)| name));
    names.extend(["in_flight", "open", "errors", "accepted_p50_ms", "accepted_p99_ms"]);
    names.extend(["complete_p50_ms", "complete_p99_ms", "service_cores", "service_bytes", "own_cores"]);
    names.join(",")
}

fn line(second: &Second) -> String {
    let cores = |cores: Option<f64>| optional(cores.map(|cores| format!("{cores:.3}")));
    let mut values = vec![format!("{:.3}", second.at_secs), format!("{:.3}", second.period_secs)];
    values.extend(second.counted.entries().iter().map(|(_, count)| count.to_string()));
    values.extend([second.in_flight.to_string(), second.open.to_string(), second.errors.to_string()]);
    // Zero stands for a second in which nothing ended.
    let latency = |ms: f64| optional((ms > 0.0).then(|| format!("{ms:.3}")));
    values.extend([latency(second.accepted_p50_ms), latency(second.accepted_p99_ms)]);
    values.extend([latency(second.complete_p50_ms), latency(second.complete_p99_ms)]);
    values.extend([cores(second.service_cores), optional(second.service_bytes), cores(second.own_cores)]);
    values.join(",")
}

fn optional(value: Option<impl Display>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}
