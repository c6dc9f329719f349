//! Figures of a run in the Prometheus text format, for a textfile collector or a push gateway.
//!
//! Deliberately absent: labels with an id, such as the name of the run.

use std::fmt::Write;

use super::LoadReport;
use payferry_testkit::audit::stages::LatencyFigures;

/// Returns the content of the file.
pub fn figures(report: &LoadReport) -> String {
    let mut text = String::new();
    let info = [("version", report.version), ("service_version", report.service_version.as_deref().unwrap_or(""))];
    metric(&mut text, "payferry_load_info", "versions of load tester and service", [(labels(&info), 1.0)]);
    metric(&mut text, "payferry_load_passed", "1 if the run passed", [plain(f64::from(report.is_ok()))]);
    let counted = report.counted.entries().into_iter().map(|(name, count)| (labels(&[("kind", name)]), float(count)));
    metric(&mut text, "payferry_load_payments", "payments, transfers and webhooks by kind of count", counted);
    metric(&mut text, "payferry_load_findings", "findings", [plain(float(report.findings.len() as u64))]);
    let rates = [("accepted", report.achieved.accepted_per_sec), ("complete", report.achieved.complete_per_sec)];
    let rates = rates.map(|(kind, rate)| (labels(&[("kind", kind)]), rate));
    metric(&mut text, "payferry_load_payments_per_second", "rate after the warm-up", rates);
    let stages = report.stages.iter().flat_map(|of| quantiles(&[("stage", of.stage.as_str())], &of.from_intended));
    metric(&mut text, "payferry_load_stage_seconds", "time from the scheduled start to a stage", stages);
    let answers = report.answers.iter().flat_map(|of| quantiles(&[("answer", of.answer.as_str())], &of.from_intended));
    metric(&mut text, "payferry_load_answer_seconds", "time from the scheduled start to an answer", answers);
    let outbound = report.outbound.iter().flat_map(|of| of.stages.iter().map(|stage| (of.kind, stage)));
    let outbound = outbound
        .flat_map(|(kind, of)| quantiles(&[("kind", kind.as_str()), ("stage", of.stage.as_str())], &of.from_request));
    metric(&mut text, "payferry_load_outbound_seconds", "time from the request of an outbound transfer", outbound);
    let customers = report.customers.iter().flat_map(|of| &of.stages);
    let customers = customers.flat_map(|of| quantiles(&[("stage", of.stage.as_str())], &of.from_intended));
    metric(
        &mut text,
        "payferry_load_customer_seconds",
        "time from the scheduled start to a stage of a customer",
        customers,
    );
    let thresholds = report.thresholds.iter();
    let thresholds =
        thresholds.map(|judged| (labels(&[("threshold", &judged.threshold.to_string())]), f64::from(judged.passed)));
    metric(&mut text, "payferry_load_threshold_kept", "1 if the threshold is kept", thresholds);
    let cores = report.machine.service_cores.map(plain);
    metric(&mut text, "payferry_load_service_cores", "busy cores of the service", cores);
    let bytes = report.machine.service_bytes_most.map(|bytes| plain(float(bytes)));
    metric(&mut text, "payferry_load_service_memory_bytes", "largest memory of the service", bytes);
    text
}

/// Writes a metric with its help text. Writes nothing if it has no values.
fn metric(text: &mut String, name: &str, help: &str, values: impl IntoIterator<Item = (String, f64)>) {
    let lines: Vec<String> = values.into_iter().map(|(labels, value)| format!("{name}{labels} {value}\n")).collect();
    if !lines.is_empty() {
        // Writing to a string cannot fail.
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{}", lines.concat());
    }
}

fn plain(value: f64) -> (String, f64) {
    (String::new(), value)
}

fn labels(labels: &[(&str, &str)]) -> String {
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", labels.join(","))
}

fn quantiles(of: &[(&str, &str)], figures: &LatencyFigures) -> Vec<(String, f64)> {
    let LatencyFigures { p50_ms, p90_ms, p99_ms, p99_9_ms, max_ms, .. } = *figures;
    let points = [("0.5", p50_ms), ("0.9", p90_ms), ("0.99", p99_ms), ("0.999", p99_9_ms), ("1", max_ms)];
    points.map(|(quantile, ms)| (labels(&[of, &[("quantile", quantile)]].concat()), ms / 1_000.0)).to_vec()
}

/// Exact for all counts here.
#[allow(clippy::cast_precision_loss)]
fn float(count: u64) -> f64 {
    count as f64
}
