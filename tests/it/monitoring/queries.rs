//! Every query of the rules and dashboards uses metrics and labels that exist.

use std::collections::{BTreeMap, BTreeSet};

use payferry_harness::eventually;
use payferry_harness::prometheus::Server;

use super::dashboards::dashboards;
use super::rules::{RULES_ONLY, rules};
use super::{Sandbox, file};

/// Labels by metric.
type Metrics = BTreeMap<String, BTreeSet<String>>;

/// Labels that Prometheus adds to every series.
const TARGET: [&str; 2] = ["instance", "job"];
/// Metrics that Prometheus makes, with their labels. Alerts have the labels of their expressions.
const OF_PROMETHEUS: [(&str, &[&str]); 2] =
    [("up", &[]), ("ALERTS", &["alertname", "alertstate", "severity", "chain", "kind"])];
/// Metrics that a service has only with a certain configuration.
const CONFIGURED: [&str; 1] = ["payferry_unsafe_setting"];
/// Endings of the series of a histogram.
const HISTOGRAM: [&str; 3] = ["_bucket", "_sum", "_count"];

/// A metric of a query, with the labels that the query matches on.
#[derive(Debug, PartialEq, Eq)]
struct Selector<'a> {
    metric: &'a str,
    labels: Vec<&'a str>,
}

/// The selectors of a query, and the labels of its `by`, `without`, `on` and `ignoring`.
fn parts(query: &str) -> (Vec<Selector<'_>>, BTreeSet<&str>) {
    let (mut selectors, mut grouping) = (Vec::new(), BTreeSet::new());
    let mut rest = query;
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    while let Some(letter) = rest.chars().next() {
        if letter == '"' {
            let end = rest[1..].find('"').unwrap() + 2;
            rest = &rest[end..];
            continue;
        }
        let length = rest.find(|letter| !is_name(letter)).unwrap_or(rest.len());
        if length == 0 {
            rest = &rest[1..];
            continue;
        }
        let word;
        (word, rest) = rest.split_at(length);
        let inner = |open, close| rest.trim_start().strip_prefix(open)?.split_once(close).map(|(inner, _)| inner);
        if matches!(word, "by" | "without" | "on" | "ignoring") {
            let labels = inner('(', ')').unwrap();
            grouping.extend(labels.split(',').map(str::trim).filter(|label| !label.is_empty()));
            rest = rest.split_once(')').unwrap().1;
        } else if word.starts_with("payferry_") || word.starts_with("process_") || matches!(word, "up" | "ALERTS") {
            let matchers = if rest.starts_with('{') { inner('{', '}').unwrap() } else { "" };
            let labels = matchers.split("\",").map(|matcher| matcher.split(['=', '!']).next().unwrap().trim());
            selectors.push(Selector { metric: word, labels: labels.filter(|label| !label.is_empty()).collect() });
            rest = if matchers.is_empty() { rest } else { rest.split_once('}').unwrap().1 };
        }
    }
    (selectors, grouping)
}

/// Metrics of a service, with their labels.
fn exported(text: &str) -> Metrics {
    let mut metrics = Metrics::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (series, _) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels.split("\",").filter_map(|label| label.split_once('=')).map(|(label, _)| label.to_owned());
        metrics.entry(name.to_owned()).or_default().extend(labels);
    }
    metrics
}

/// Metrics of the reference.
fn documented() -> BTreeSet<String> {
    let page = file("docs/src/reference/metrics.md");
    page.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned())).collect()
}

#[test]
fn queries_are_read_into_their_parts() {
    let query = r#"max without (instance) (a_b{x="}"} + payferry_x_total{kind=~"a|b", le!="1"}) > on (chain) up"#;
    let (selectors, grouping) = parts(query);
    let selector = |metric, labels: &[&'static str]| Selector { metric, labels: labels.to_vec() };
    assert_eq!(selectors, [selector("payferry_x_total", &["kind", "le"]), selector("up", &[])]);
    assert_eq!(grouping, BTreeSet::from(["instance", "chain"]));
}

#[tokio::test]
async fn rules_and_dashboards_use_metrics_and_labels_that_exist() {
    let sandbox = Sandbox::start().await;
    let documented = documented();
    let prometheus = Server::prometheus(RULES_ONLY);
    let mut queries: Vec<(String, String)> =
        rules(&prometheus).await.into_iter().map(|rule| (rule.name, rule.query)).collect();
    for dashboard in dashboards() {
        queries.extend(dashboard.queries().into_iter().map(|query| (dashboard.name.clone(), query.expression("1m"))));
        queries.extend(dashboard.other_queries().into_iter().map(|query| (dashboard.name.clone(), query)));
    }
    assert!(queries.len() > 150, "{}", queries.len());
    let used: BTreeSet<&str> = queries.iter().flat_map(|(_, query)| parts(query).0).map(|part| part.metric).collect();
    // Some exist from the first run of an auditor on.
    let exist = async || {
        let mut metrics = exported(&sandbox.page("/metrics").await);
        for (metric, labels) in OF_PROMETHEUS {
            metrics.insert(metric.to_owned(), labels.iter().map(|label| (*label).to_owned()).collect());
        }
        let is_missing = |metric: &&&str| !metrics.contains_key(**metric) && !CONFIGURED.contains(*metric);
        let missing: Vec<&&str> = used.iter().filter(is_missing).collect();
        if missing.is_empty() { Ok(metrics) } else { Err(format!("{missing:?}")) }
    };
    let metrics = eventually("the service has every metric", exist).await;
    for (of, query) in &queries {
        // Prometheus reads it.
        prometheus.get("/api/v1/format_query", &[("query", query)]).await;
        let (selectors, grouping) = parts(query);
        assert!(!selectors.is_empty(), "{of}: {query}");
        let mut known: BTreeSet<&str> = TARGET.into();
        for Selector { metric, labels } in selectors {
            let base = HISTOGRAM.iter().find_map(|ending| metric.strip_suffix(ending)).unwrap_or(metric);
            let is_documented = documented.contains(metric) || documented.contains(base);
            assert!(is_documented || !metric.starts_with("payferry_"), "{of}: {metric} is in no reference: {query}");
            let Some(existing) = metrics.get(metric) else { continue };
            known.extend(existing.iter().map(String::as_str));
            for label in labels {
                let exists = existing.contains(label) || TARGET.contains(&label);
                assert!(exists, "{of}: {metric} has no label {label}: {query}");
            }
        }
        for label in grouping {
            assert!(known.contains(label), "{of}: nothing has the label {label}: {query}");
        }
    }
    sandbox.running.stop();
}
