//! From an alert to its end, with a real Prometheus and Alertmanager that are configured as in `ops/`, and the documents.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use parking_lot::Mutex;
use payferry_harness::prometheus::{Server, adapted};
use payferry_harness::stub::serve;

use super::Sandbox;
use crate::prelude::*;

/// Notifications that the pager received.
type Received = Arc<Mutex<Vec<Value>>>;

async fn pager() -> (String, Received) {
    let received = Received::default();
    let receive = async |State(received): State<Received>, Json(body): Json<Value>| received.lock().push(body);
    (serve(Router::new().route("/", post(receive)).with_state(Arc::clone(&received))).await, received)
}

/// The newest alert with this name and status in a notification.
fn newest(received: &Received, name: &str, status: &str) -> Option<Value> {
    let notifications = received.lock();
    let mut alerts = notifications.iter().rev().flat_map(|notification| notification["alerts"].as_array().unwrap());
    alerts.find(|alert| alert["labels"]["alertname"] == name && alert["status"] == status).cloned()
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_receives_an_alert_opens_its_runbook_and_resolves_it() {
    let sandbox = Sandbox::start().await;
    let (url, received) = pager().await;
    let alertmanager = Server::alertmanager(&adapted(
        "alertmanager.yml",
        &[
            ("http://127.0.0.1:9099/", &url),
            ("group_wait: 10s", "group_wait: 1s"),
            ("group_interval: 1m", "group_interval: 1s"),
        ],
    ));
    let console = sandbox.running.text("operator_url");
    let prometheus = Server::prometheus(&adapted(
        "prometheus.yml",
        &[
            ("scrape_interval: 15s", "scrape_interval: 1s"),
            ("evaluation_interval: 15s", "evaluation_interval: 1s"),
            ("console: http://127.0.0.1:8081", &format!("console: {console}")),
            (r#"["127.0.0.1:8081"]"#, &format!("[{:?}]", sandbox.target())),
            ("127.0.0.1:9093", alertmanager.url.strip_prefix("http://").unwrap()),
        ],
    ));

    // Given a payment whose actor panics too often
    let id = sandbox.psp.payment("25", Token::Usdc, Chain::Base).await;
    let scraped = async || {
        let up = prometheus.get("/api/v1/query", &[("query", "up")]).await;
        (up["result"][0]["value"][1] == "1").then_some(())
    };
    until("Prometheus reads the service", scraped).await;
    sandbox.psp.ok(Method::POST, &format!("/sandbox/payments/{id}/panic"), json!({"times": 10})).await;

    // When the operator opens the runbook of the alert
    let paged = async || newest(&received, "PayferryQuarantined", "firing");
    let alert = until("the pager receives the alert", paged).await;
    assert_eq!(alert["labels"], json!({"alertname": "PayferryQuarantined", "job": "payferry", "severity": "critical"}));
    let annotations = &alert["annotations"];
    assert_eq!(annotations["summary"], "Quarantined payments, payouts, withdrawals and customers: 1.");
    let runbook = annotations["runbook_url"].as_str().unwrap();
    assert_eq!(runbook, format!("{console}/ops/view/runbooks/payments#quarantined"));
    let (page, heading) = runbook.strip_prefix(console).unwrap().split_once('#').unwrap();
    let page = sandbox.page(page).await;
    let section = page.split_once(&format!("id=\"{heading}\"")).unwrap().1.split("<h2").next().unwrap().to_owned();

    // Then its check names the payment and the reason, and its command ends the alert
    let check = "/ops/stuck?kind=quarantined";
    assert!(section.contains(check), "{section}");
    let stuck: Value = serde_json::from_str(&sandbox.page(check).await).unwrap();
    let item = &stuck["kinds"][0]["items"][0];
    assert!(item.to_string().contains(&id) && item.to_string().contains("panic"), "{stuck:#}");
    assert!(section.contains("ops /ops/actors/pay_.../release -X POST"), "{section}");
    let operator = payferry_harness::psp::Psp::new(console, sandbox.running.text("operator_token"));
    operator.ok(Method::POST, &format!("/ops/actors/{id}/release"), Value::Null).await;
    let resolved = async || newest(&received, "PayferryQuarantined", "resolved");
    until("the pager receives the end of the alert", resolved).await;
    assert!(operator.metric("payferry_payments_quarantined").await < 1.0);
    sandbox.psp.ok(Method::POST, &format!("/sandbox/payments/{id}/pay"), json!({})).await;
    sandbox.psp.until_status(&id, "settled").await;
    sandbox.running.stop();
}
