//! `metrics.md`: every metric with its kind, unit and help text, from the calls that describe it.

use std::collections::BTreeMap;
use std::fs;

use super::rust::{Source, calls, literal, message, name, sources};
use super::{assert_page, head, root, row, sentence};

const TEXT: &str = "`GET /metrics` of the operator listener returns these in Prometheus text format. Labels are kinds, \
                    chains, statuses and route templates, never ids. The process itself is described by the usual \
                    `process_*` metrics. See [Health, metrics and alerts](../operate/alerts.md).";

struct Metric {
    kind: &'static str,
    unit: String,
    help: String,
}

fn metrics(all: &[Source]) -> BTreeMap<String, Metric> {
    let defining = all.iter().filter(|source| !source.path.ends_with(MACRO));
    defining.flat_map(|source| calls(&source.text, "metrics! {")).flat_map(|(_, block)| defined(block)).collect()
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
            // Of another word, or a module.
            let is_part = name == "payferry_"
                || text[..at].ends_with(['^', '/', '-'])
                || text[at + name.len()..].starts_with("::");
            assert!(is_part || metrics.contains_key(name), "{}: there is no metric {name}", page.display());
        }
    }
}
