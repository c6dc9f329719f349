//! `metrics.md`: every metric with its kind, unit and help text, from the calls that describe it.

use std::collections::BTreeMap;
use std::fs;

use super::rust::{Source, arguments, calls, literal, message, sources};
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
    for kind in ["counter", "gauge", "histogram"] {
        for source in all {
            for (_, call) in calls(&source.text, &format!("describe_{kind}!(")) {
                let arguments = arguments(call);
                let [name, between @ .., help] = arguments.as_slice() else {
                    panic!("{}: {call}", source.path.display())
                };
                let name = literal(name).map(|(name, _)| name).or_else(|| constant(name, source, all));
                let name = name.unwrap_or_else(|| panic!("{}: the name in {arguments:?}", source.path.display()));
                let unit = between.first().map_or("", |unit| unit.rsplit("::").next().unwrap()).to_lowercase();
                let unit = if unit == "count" { String::new() } else { unit };
                let help = message(help).unwrap_or_else(|| panic!("{name} needs a help text"));
                found.insert(name, Metric { kind, unit, help });
            }
        }
    }
    found
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
            let name = super::rust::name(&text[at..]);
            let is_part = name == "payferry_" || text[..at].ends_with(['^', '/', '-']);
            assert!(is_part || metrics.contains_key(name), "{}: there is no metric {name}", page.display());
        }
    }
}
