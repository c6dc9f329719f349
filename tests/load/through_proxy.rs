//! Runs through the proxy: a service that cannot be read, a fee that differs from the settings, repeated and forged
//! webhooks, and payments that exist although their initiation got an error or an unreadable response.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::between::{Changes, Loaded, load_through};
use super::{only_finding, report, stage};
use crate::call::assert_has;
use crate::process::Running;

shared!(#[tokio::test] loads_through_a_proxy, sandbox = Running::new().await, async {} =>
    counts_repeated_webhooks, finds_a_forged_webhook, retries_reads,
    a_failed_comparison_is_a_finding_and_figures_remain, finds_a_fee_that_differs_from_the_settings,
    finds_refused_payments_that_exist, payments_with_an_unreadable_response_may_exist);

const ASKED: &str = "--rate 50/s --payments 50";

async fn counts_repeated_webhooks(sandbox: &Running) {
    let loaded = load_through(sandbox, Changes { repeats: true, ..Changes::default() }, ASKED).await;
    let report = report(&loaded.output, 0);
    let counted = &report["counted"];
    assert_has(counted, json!({ "webhooks": 400, "repeated": 200 }));
    assert_eq!((&counted["complete"], &report["findings"]), (&json!(50), &json!([])));
    let webhook = stage(&report, "webhook");
    assert_eq!(webhook["from_intended"]["count"], 200, "each is in the figures once: {webhook:#}");
}

async fn finds_a_forged_webhook(sandbox: &Running) {
    let loaded = load_through(sandbox, Changes { forges: Some(70), ..Changes::default() }, ASKED).await;
    let report = report(&loaded.output, 1);
    let counted = &report["counted"];
    assert_has(counted, json!({ "webhooks": 200, "forged": 1 }));
    assert_eq!(report["errors"], json!({"webhook: no signature is by the endpoint's secret": 1}));
    let finding = only_finding(&report);
    assert_has(finding, json!({ "kind": "wrong", "payment_id": null }));
    let words = finding["found"].as_str().unwrap();
    assert!(
        words.starts_with("a webhook evt_") && words.ends_with("no signature is by the endpoint's secret"),
        "{words}"
    );
}

/// Payments whose response is changed.
const DENIED: usize = 3;
const SOME_NOT_MADE: &str = "--rate 50/s --payments 50 --not-made-max 10";

fn denied_with(status: StatusCode, body: Value) -> Changes {
    Changes { initiations_denied: DENIED, denied_with: Some((status, body)), ..Changes::default() }
}

async fn finds_refused_payments_that_exist(sandbox: &Running) {
    let refusal = denied_with(StatusCode::SERVICE_UNAVAILABLE, json!({"code": "overloaded"}));
    let loaded = load_through(sandbox, refusal, SOME_NOT_MADE).await;
    let report = report(&loaded.output, 1);
    assert_has(&report["counted"], json!({ "accepted": 47, "refused": DENIED }));
    let findings = report["findings"].as_array().unwrap();
    let mut found: Vec<&str> = findings.iter().map(|finding| finding["payment_id"].as_str().unwrap()).collect();
    let mut denied = loaded.denied.clone();
    found.sort_unstable();
    denied.sort_unstable();
    assert_eq!(found, denied, "{findings:#?}");
    for finding in findings {
        assert_has(finding, json!({ "kind": "wrong", "expected": "no payment" }));
        let words = finding["found"].as_str().unwrap();
        let says = "was not made (initiate: 503 overloaded), but exists: pending, 0.00 of ";
        assert!(words.starts_with(says), "{words}");
    }
}

async fn payments_with_an_unreadable_response_may_exist(sandbox: &Running) {
    let loaded = load_through(sandbox, denied_with(StatusCode::CREATED, json!({})), SOME_NOT_MADE).await;
    let report = report(&loaded.output, 0);
    assert_eq!((report["findings"].clone(), loaded.denied.len()), (json!([]), DENIED));
    let counted = &report["counted"];
    assert_has(counted, json!({ "accepted": 47, "unanswered": DENIED }));
    assert_has(&report, json!({ "read_back": 50, "errors": {"initiate: unreadable answer": DENIED} }));
}

/// Puts load on a sandbox that refuses this number of lists of payments.
async fn load_refusing(sandbox: &Running, lists_refused: usize, further: &str) -> Loaded {
    load_through(sandbox, Changes { lists_refused, ..Changes::default() }, &format!("{ASKED} {further}")).await
}

async fn retries_reads(sandbox: &Running) {
    let Loaded { output, lists_refused: refused, .. } = load_refusing(sandbox, 2, "").await;
    let report = report(&output, 0);
    assert_eq!((refused, &report["audited"], &report["read_back"]), (2, &json!(true), &json!(50)));
}

async fn a_failed_comparison_is_a_finding_and_figures_remain(sandbox: &Running) {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("report.html");
    let asked = format!("--report {}", file.display());
    let Loaded { output, lists_refused: refused, .. } = load_refusing(sandbox, usize::MAX, &asked).await;
    let report = report(&output, 1);
    assert!((2..50).contains(&refused), "retried a limited number of times: {refused}");
    assert_has(&report, json!({ "audited": false, "interrupted": false }));
    let finding = only_finding(&report);
    assert_has(finding, json!({ "kind": "wrong", "payment_id": null }));
    let words = finding["found"].as_str().unwrap();
    assert!(words.starts_with("the comparison failed: GET /payments?") && words.contains("503"), "{words}");
    // The measurements remain.
    assert_has(&report["counted"], json!({ "accepted": 50, "complete": 50 }));
    assert!(report["stages"].as_array().unwrap().len() > 5, "{:#}", report["stages"]);
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(page.contains("Payments were not compared.") && page.contains("the comparison failed"), "{page}");
}

async fn finds_a_fee_that_differs_from_the_settings(sandbox: &Running) {
    // The sandbox takes 1 %.
    let Loaded { output, .. } =
        load_through(sandbox, Changes { fee_bps: Some(101), ..Changes::default() }, ASKED).await;
    let report = report(&output, 1);
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 50, "{findings:#?}");
    for finding in findings {
        assert_eq!(finding["kind"], "wrong", "{finding:#}");
        let words = finding["found"].as_str().unwrap();
        for says in [
            "payment.confirmed (event 1): psp_amount and treasury_fee is `",
            "payin.settled (event 4): psp_amount and treasury_fee is `",
            "shows psp_amount and treasury_fee `",
            " to the treasury, not ",
        ] {
            assert!(words.contains(says), "{says}: {words}");
        }
    }
}
