//! `ops/alerts.yml`: Prometheus accepts it, its unit tests pass, and it has a rule for every documented alarm.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use payferry_harness::prometheus::{Server, ops};

use super::{Sandbox, file};
use crate::prelude::*;
use crate::process::{complaint, printed};

const GUIDE: &str = include_str!("../../../docs/src/operate/alerts.md");
/// Configuration of a Prometheus that reads no service.
pub(super) const RULES_ONLY: &str = "rule_files: [alerts.yml]";
const TESTS: [&str; 2] = ["alerts.test.yml", "alerts-days.test.yml"];
/// Start of the link to a runbook, in front of the name of its page.
const RUNBOOKS: &str = "{{ $externalLabels.console }}/ops/view/runbooks/";

/// A rule as Prometheus reads it.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) query: String,
    severity: String,
    summary: String,
    runbook_url: String,
}

/// The rules of a server.
pub(super) async fn rules(prometheus: &Server) -> Vec<Rule> {
    let loaded = async || {
        let groups = prometheus.get("/api/v1/rules", &[]).await["groups"].clone();
        groups.as_array().filter(|groups| !groups.is_empty()).cloned()
    };
    let groups = until("Prometheus has loaded the rules", loaded).await;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rule = |rule: &Value| Rule {
        name: text(&rule["name"]),
        query: text(&rule["query"]),
        severity: text(&rule["labels"]["severity"]),
        summary: text(&rule["annotations"]["summary"]),
        runbook_url: text(&rule["annotations"]["runbook_url"]),
    };
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).map(rule).collect()
}

/// A row of the guide: metrics, and names and severities of the rules, and the runbook as in the path of its page.
struct Row {
    metrics: Vec<&'static str>,
    rules: Vec<(&'static str, &'static str)>,
    runbook: String,
}

fn rows() -> Vec<Row> {
    let quoted = |cell: &'static str| cell.split('`').skip(1).step_by(2);
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.split(" | ").collect();
        let [metrics, _condition, rules, runbook] = cells[..] else { return None };
        let (_, link) = runbook.split_once("(runbooks/")?;
        let (page, heading) = link.split_once(')').unwrap().0.split_once(".md#").unwrap();
        let severities = rules.split("; ").map(|rule| rule.rsplit_once(", ").unwrap().1);
        Some(Row {
            metrics: quoted(metrics).collect(),
            rules: quoted(rules).zip(severities).collect(),
            runbook: format!("{page}#{heading}"),
        })
    };
    GUIDE.lines().filter_map(row).collect()
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(ops()).output();
    let output = output.unwrap_or_else(|error| panic!("{program} ({error}): run tests/tools to install it"));
    assert!(
        output.status.success(),
        "{arguments:?}: {} {}",
        String::from_utf8_lossy(&output.stdout),
        complaint(&output)
    );
    printed(&output)
}

#[test]
fn prometheus_accepts_the_files_and_the_unit_tests_pass() {
    run("promtool", &["check", "rules", "alerts.yml"]);
    run("promtool", &["check", "config", "prometheus.yml"]);
    run("amtool", &["check-config", "alertmanager.yml"]);
    for tests in TESTS {
        run("promtool", &["test", "rules", tests]);
    }
}

#[tokio::test]
async fn every_documented_alarm_has_a_rule_and_a_runbook() {
    let prometheus = Server::prometheus(RULES_ONLY);
    let rules: BTreeMap<String, Rule> =
        rules(&prometheus).await.into_iter().map(|rule| (rule.name.clone(), rule)).collect();
    let rows = rows();
    assert!(rows.len() > 45, "{}", rows.len());
    let mut documented = BTreeSet::new();
    for row in &rows {
        let of_row: Vec<&Rule> = row.rules.iter().map(|(name, _)| &rules[*name]).collect();
        for (rule, (name, severity)) in of_row.iter().zip(&row.rules) {
            assert!(documented.insert(*name), "{name} is in two rows");
            assert_eq!(rule.severity, *severity, "{name}");
            assert_eq!(rule.runbook_url, format!("{RUNBOOKS}{}", row.runbook), "{name}");
        }
        for metric in &row.metrics {
            assert!(of_row.iter().any(|rule| rule.query.contains(metric)), "{metric} in {of_row:?}");
        }
    }
    assert_eq!(documented, rules.keys().map(String::as_str).collect());
    let unit_tests = TESTS.map(|tests| file(&format!("ops/{tests}"))).concat();
    for (name, rule) in &rules {
        assert!(matches!(rule.severity.as_str(), "critical" | "warning") && !rule.summary.is_empty(), "{rule:?}");
        assert!(unit_tests.contains(&format!("- alertname: {name}\n")), "no unit test in which {name} fires");
        let quiet = format!("- {{alertname: {name}, ");
        assert!(unit_tests.contains(&quiet), "no unit test in which {name} does not fire");
    }
}

#[tokio::test]
async fn every_runbook_is_a_page_of_the_operator_listener() {
    let sandbox = Sandbox::start().await;
    let prometheus = Server::prometheus(RULES_ONLY);
    for Rule { name, runbook_url, .. } in rules(&prometheus).await {
        let (page, heading) = runbook_url.split_once('#').unwrap();
        let page = sandbox.page(page.strip_prefix("{{ $externalLabels.console }}").unwrap()).await;
        assert!(page.contains(&format!("id=\"{heading}\"")), "{name}: {heading}");
    }
    sandbox.running.stop();
}
