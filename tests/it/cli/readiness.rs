//! `/readyz` of a service that starts with many live payments.

use futures::future::join_all;
use payferry_harness::database::DatabaseFault;
use payferry_harness::{eventually, expect};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Home, Running, complaint, payferry, printed};

use crate::call::assert_has;

/// Live payments at the time of the kill: some in each shard.
const PAYMENTS: usize = 100;

/// Repeats `/readyz` until the answer is as wanted.
async fn until_readiness(service: &Running, wanted: impl Fn(&Value) -> bool) -> (StatusCode, Value) {
    let look = async || {
        let (status, readiness) = service.operator(Method::GET, "/readyz", None).await;
        // Status and body always agree.
        assert_eq!(status == StatusCode::OK, readiness["ready"] == true, "{status} {readiness:#}");
        expect(readiness, &wanted).map(|readiness| (status, readiness))
    };
    eventually("the readiness is as wanted", look).await
}

#[tokio::test]
async fn service_is_not_ready_while_it_loads_its_payments() {
    let home = Home::new().await;
    let first = Running::start(&home);
    let made = join_all((0..PAYMENTS).map(|_| first.payment())).await;
    first.kill();

    // The payments are unreadable until the test restores the table; everything else works.
    let away = DatabaseFault::table_away(&home.database_url(), "payments").await;
    let again = Running::start(&home);
    let rest_is_well = |readiness: &Value| readiness["database"]["ok"] == true && readiness["chains"]["ok"] == true;
    let (status, readiness) = until_readiness(&again, rest_is_well).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    let expected = json!({ "ready": false, "payments": {"ok": false}, "database": {"ok": true, "reads": true,
        "writes": true} });
    assert_has(&readiness, expected);
    assert_eq!(again.operator(Method::GET, "/healthz", None).await, (StatusCode::OK, json!({"status": "ok"})));
    let health = |args: &[&str]| payferry().args(["health", "--url", again.text("operator_url")]).args(args).output();
    assert_eq!(printed(&health(&[]).unwrap()), "running");
    let refused = health(&["--ready"]).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let reason = "/readyz answers 503 Service Unavailable; payments: {\"ok\":false}";
    assert!(complaint(&refused).ends_with(reason), "{}", complaint(&refused));
    let (_, tree) = again.operator(Method::GET, "/ops/actors", None).await;
    assert_has(&tree, json!({ "ready": false, "payments_live": 0 }));

    away.end().await;
    until_readiness(&again, |readiness| readiness["ready"] == true).await;
    // Not before the last payment has its actor.
    let (_, tree) = again.operator(Method::GET, "/ops/actors", None).await;
    assert_eq!(tree["payments_live"], made.len());
}
