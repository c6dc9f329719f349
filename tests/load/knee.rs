//! Search for the highest rate that keeps the thresholds: it ends, and hides no defect.

use serde_json::json;

use super::between::{Changes, KeptWith, load_through};
use super::faults::LOSE_ONE_PAYMENT;
use super::injected::plant_at_start;
use super::{only_finding, report, run};
use crate::call::assert_has;
use crate::process::Running;

shared!(#[tokio::test] searches_for_the_knee, sandbox = Running::new().await, async {} =>
    finds_the_highest_rate_that_keeps_the_thresholds, a_lost_payment_ends_the_search);

const THRESHOLDS: &str = "--threshold goodput>0.99 --threshold complete:p99<60s";

async fn finds_the_highest_rate_that_keeps_the_thresholds(sandbox: &Running) {
    // 60 payments per second are 30 in half a second, and 65 are 33.
    // The first run is refused five payments, which a second run is not.
    let kept_with = Some(KeptWith::Overloaded);
    let changes = Changes { payments_max: Some(31), initiations_kept: 5, kept_with, ..Changes::default() };
    let asked = format!("--find-knee --rate 60/s --duration 500ms {THRESHOLDS}");
    let found = report(&load_through(sandbox, changes, &asked).await.output, 0);
    assert_has(&found, json!({ "passed": true, "rate": 60.0, "broken_at": 65.0, "ended": "found", "findings": [] }));
    assert_has(
        &found,
        json!({ "thresholds": ["goodput>0.99", "complete:p99<60s"], "version": env!("CARGO_PKG_VERSION") }),
    );
    let probes: Vec<(f64, bool)> = found["probes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|probe| (probe["rate"].as_f64().unwrap(), probe["passed"].as_bool().unwrap()))
        .collect();
    let broken = [120.0, 85.0, 71.0, 65.0].into_iter().flat_map(|rate| [(rate, false); 2]);
    let wanted: Vec<(f64, bool)> = [(60.0, false), (60.0, true)].into_iter().chain(broken).collect();
    assert_eq!(probes, wanted, "each rate that breaks has two runs");
    let verdict = found["probes"][2]["verdict"].as_str().unwrap();
    assert!(verdict.starts_with("Failed: 29 not made (48.33 %), goodput>0.99 is broken (51.67 %)"), "{verdict}");
}

async fn a_lost_payment_ends_the_search(sandbox: &Running) {
    let changes = Changes { initiations_kept: 1, kept_with: Some(KeptWith::Invented), ..Changes::default() };
    let asked = format!("--find-knee --rate 60/s --duration 500ms --settle-timeout 3 {THRESHOLDS}");
    let found = report(&load_through(sandbox, changes, &asked).await.output, 1);
    assert_has(&found, json!({ "passed": false, "rate": null, "ended": "defect" }));
    assert_has(only_finding(&found), json!({ "kind": "lost" }));
    assert_eq!(found["probes"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn all_runs_of_a_search_use_the_given_database() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("own.db");
    let args = "--find-knee --rate 20/s --duration 1s --mix under=100 --block-time-ms 100 --settle-timeout 15 --json";
    let args = format!("{args} {THRESHOLDS} --database-url {}", file.display());
    // The first run has 20 payments, and the second one 40.
    let defect = LOSE_ONE_PAYMENT.replace("{nth}", "30");
    let (output, _database) = tokio::join!(run(&args), plant_at_start(&file, &defect));
    let found = report(&output, 1);
    assert_has(&found, json!({ "passed": false, "rate": 20.0, "ended": "defect" }));
    assert_has(only_finding(&found), json!({ "kind": "lost" }));
    assert_eq!(found["probes"].as_array().unwrap().len(), 2);
}
