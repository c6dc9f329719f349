//! Planted defects in every mode of a run: the load tester finds them with stages, in a search and with all kinds of
//! payers. `faults` has them at a constant rate, `injected` beside faults.

use serde_json::{Value, json};

use super::between::{Changes, KeptWith, load_through};
use super::faults::{DOUBLE_ONE_POSTING, DROP_ONE_WEBHOOK, LOSE_ONE_PAYMENT, assert_found, planted, sandbox_with};
use super::{against, complaint, report, run};
use crate::call::assert_has;
use crate::process::Running;

/// A defect, the kind of its finding, and a part of its text.
const DEFECTS: [(&str, &str, &str); 3] = [
    (DROP_ONE_WEBHOOK, "undelivered", "(event 3)"),
    (DOUBLE_ONE_POSTING, "wrong", "the ledger has "),
    (LOSE_ONE_PAYMENT, "lost", ""),
];

/// Plants each defect in a sandbox of its own. Returns the reports, which name the payment with the defect.
async fn find_each(mode: &str) -> Vec<Value> {
    let mut reports = Vec::new();
    for (defect, kind, part) in DEFECTS {
        let (sandbox, database) = sandbox_with(defect).await;
        let report = report(&run(&against(&sandbox, &format!("{mode} --settle-timeout 15 --json"))).await, 1);
        let [payment_id] = planted(&database).await.try_into().expect("the defect was planted");
        sandbox.kill();
        let findings = report["findings"].as_array().unwrap();
        let about: Vec<&Value> = findings.iter().filter(|finding| finding["payment_id"] == *payment_id).collect();
        let [finding] = about.try_into().unwrap_or_else(|_| panic!("{mode}, {kind}, {payment_id}: {report:#}"));
        assert_found(finding, kind, None, &[part]);
        reports.push(report);
    }
    reports
}

#[tokio::test]
#[ignore = "long"]
async fn finds_defects_with_stages() {
    find_each("--stages 20-60/2s,60/1s --mix exact=60,under=40").await;
}

#[tokio::test]
#[ignore = "long"]
async fn finds_defects_in_a_search() {
    let thresholds = "--threshold goodput>0.1 --threshold complete:p99<60s";
    let mode = format!("--find-knee --rate 50/s --duration 3s --mix exact=60,under=40 {thresholds}");
    for report in find_each(&mode).await {
        assert_has(&report, json!({ "passed": false, "ended": "defect" }));
    }
}

#[tokio::test]
#[ignore = "long"]
async fn finds_defects_among_all_kinds_of_payers() {
    let mix = "exact=20,under=25,over=5,authorized=10,refunded=10,paid_out=10,withdrawn=10,customer=10";
    find_each(&format!("--rate 40/s --payments 160 --mix {mix}")).await;
}

#[tokio::test]
async fn counts_no_refusal_as_a_success() {
    let sandbox = Running::new().await;
    let kept =
        |kept_with, initiations_kept| Changes { initiations_kept, kept_with: Some(kept_with), ..Changes::default() };
    for mode in ["--rate 60/s --payments 60", "--stages 20-60/1s,60/500ms", "--poisson --rate 60/s --duration 1s"] {
        let loaded = load_through(&sandbox, kept(KeptWith::Overloaded, 5), mode).await;
        assert_eq!(loaded.output.status.code(), Some(1), "{mode}: {}", complaint(&loaded.output));
        let refused = report(&loaded.output, 1);
        assert_has(&refused, json!({ "passed": false, "findings": [], "counted/overloaded": 5 }));
        let count = |name: &str| refused["counted"][name].as_u64().unwrap();
        assert_eq!([count("accepted"), count("complete")], [count("due") - 5; 2], "{mode}: {:#}", refused["counted"]);

        // The service answers 201 and keeps no payment.
        let asked = format!("{mode} --settle-timeout 3");
        let acknowledged = report(&load_through(&sandbox, kept(KeptWith::Invented, 1), &asked).await.output, 1);
        // On a busy machine, other payments may be incomplete after so short a wait.
        let findings = acknowledged["findings"].as_array().unwrap();
        assert_eq!(findings.iter().filter(|one| one["kind"] == "lost").count(), 1, "{mode}: {findings:#?}");
    }
}
