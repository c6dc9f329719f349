//! `metrics.md`: every metric with its kind, unit and help text, from the calls that describe it.

use std::collections::BTreeMap;
use std::fs;

use super::rust::{Source, arguments, calls, literal, message, name, sources};
use super::{assert_page, head, root, row, sentence};

const TEXT: &str = "`GET /metrics` of the operator listener returns these in Prometheus text format. Labels are kinds, \
                    chains, statuses and route templates, never ids. The process itself is described by the usual \
                    `process_*` metrics. See [Health, metrics and alerts](../operate/alerts.md).";

struct Metric {
    kind: &'static str,
    unit: String,
    help: String,
}

/// The value of the constant, in the same file or else in any.
fn constant(name: &str, source: &Source, all: &[Source]) -> Option<String> {
    let name = name.rsplit("::").next()?.trim();
    let value = |source: &Source| {
        let (_, declared) = source.text.split_once(&format!("const {name}: &str = "))?;
        literal(declared).map(|(value, _)| value)
    };
    value(source).or_else(|| all.iter().find_map(value))
}

fn metrics(all: &[Source]) -> BTreeMap<String, Metric> {
    let mut found = BTreeMap::new();
    for source in all {
        for kind in ["counter", "gauge", "histogram"] {
            for (_, call) in calls(&source.text, &format!("describe_{kind}!(")) {
                let arguments = arguments(call);
                let [name, between @ .., help] = arguments.as_slice() else {
                    panic!("{}: {call}", source.path.display())
                };
                let Some(name) = literal(name).map(|(name, _)| name).or_else(|| constant(name, source, all)) else {
                    assert!(source.path.ends_with(MACRO), "{}: the name in {arguments:?}", source.path.display());
                    continue;
                };
                let unit = between.first().map_or("", |unit| unit.rsplit("::").next().unwrap());
                let help = message(help).unwrap_or_else(|| panic!("{name} needs a help text"));
                found.insert(name, Metric { kind, unit: shown_unit(unit), help });
            }
        }
        if !source.path.ends_with(MACRO) {
            for (_, block) in calls(&source.text, "metrics! {") {
                found.extend(defined(block));
            }
        }
    }
    found
}

/// File of the macro `metrics!`.
const MACRO: &str = "observe/metric.rs";

/// Metrics of a block of `metrics!`, with definitions such as `Gauge(Seconds) AGE = "name", "help";`.
fn defined(block: &str) -> impl Iterator<Item = (String, Metric)> {
    let block = block.split("\n}").next().unwrap_or(block);
    block.split(";\n").filter(|definition| !definition.trim().is_empty()).map(|definition| {
        let (left, right) = definition.split_once(" = ").unwrap_or_else(|| panic!("{definition}"));
        let kind = ["counter", "gauge", "histogram"]
            .into_iter()
            .find(|kind| left.trim().to_lowercase().starts_with(kind))
            .unwrap_or_else(|| panic!("{definition}"));
        let unit = left.split_once('(').map_or("", |(_, unit)| name(unit));
        let (metric, length) = literal(right).unwrap_or_else(|| panic!("{definition}"));
        let help = right[length..].trim_start_matches(',').trim_start();
        let help = message(help).unwrap_or_else(|| panic!("{metric} needs a help text"));
        (metric, Metric { kind, unit: shown_unit(unit), help })
    })
}

fn shown_unit(unit: &str) -> String {
    if unit == "Count" { String::new() } else { unit.to_lowercase() }
}

#[test]
fn metrics_page_is_up_to_date() {
    let metrics = metrics(&sources());
    assert!(metrics.len() >= 80, "{:?}", metrics.keys());
    let mut page = head("Metrics", "the metrics' definitions", TEXT);
    page.push_str("\n| Metric | Type | Unit | Meaning |\n|---|---|---|---|\n");
    for (name, metric) in &metrics {
        page.push_str(&row(&[&format!("`{name}`"), metric.kind, &metric.unit, &sentence(&metric.help)]));
    }
    assert_page("metrics", &page);
}

#[test]
fn guides_name_only_metrics_that_exist() {
    let metrics = metrics(&sources());
    for page in super::files(&root().join("docs/src"), "md") {
        let text = fs::read_to_string(&page).unwrap();
        for (at, _) in text.match_indices("payferry_") {
            let name = name(&text[at..]);
            let is_part = name == "payferry_" || text[..at].ends_with(['^', '/', '-']);
            assert!(is_part || metrics.contains_key(name), "{}: there is no metric {name}", page.display());
        }
    }
}
