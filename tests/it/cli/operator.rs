//! The operator's listener of a running sandbox: in parallel with the command line, and during failures.

use std::time::{Duration, Instant};

use futures::StreamExt;
use reqwest::{Method, StatusCode};
use serde_json::json;

use super::Running;
use crate::call::assert_has;
use crate::process::median;

/// Time within which most incidents must be reported; other load on the machine delays some of them.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);
/// Limit for a single incident.
const SHOWN_LATEST: Duration = Duration::from_secs(8);

#[tokio::test]
async fn command_line_and_listener_are_equivalent() {
    let sandbox = Running::new().await;
    let psp = sandbox.beside(&["psp", "create", "--name", "Northern Pay", "--fee-bps", "80", "--dust-floor", "0.5"]);
    let path = format!("/ops/psps/{psp}");
    let (status, shown) = sandbox.operator(Method::GET, &path, None).await;
    assert_eq!(status, StatusCode::OK);
    let told = ["name", "fee_bps", "dust_floor"].map(|name| shown[name].clone());
    assert_eq!(json!(told), json!(["Northern Pay", 80, "0.50"]));
    sandbox.operator(Method::PATCH, &path, Some(json!({"tolerance_bps": 25, "overpayment": "accept"}))).await;
    sandbox.beside(&["psp", "set", &psp, "--require-customer", "true"]);
    let listed = sandbox.beside(&["psp", "list"]);
    let line = listed.lines().find(|line| line.starts_with(&psp)).unwrap();
    for wanted in ["\"bps\":25", "\"overpayment\":\"accept\"", "\"require_customer\":true", "\"fee_bps\":80"] {
        assert!(line.contains(wanted), "{wanted} in {line}");
    }

    let key = json!({ "name": "web", "scopes": ["full"], "expires_days": "never" });
    let (status, made) = sandbox.operator(Method::POST, &format!("{path}/keys"), Some(key)).await;
    assert_eq!(status, StatusCode::CREATED, "{made:#}");
    let text =
        sandbox.beside(&["key", "create", "--psp", &psp, "--name", "terminal", "--scope", "read", "--expires", "7"]);
    let listed = sandbox.beside(&["key", "list", "--psp", &psp]);
    assert!(listed.lines().count() == 2 && listed.contains("web") && listed.contains("terminal"), "{listed}");
    let (_, keys) = sandbox.operator(Method::GET, &format!("{path}/keys"), None).await;
    assert_has(&keys, json!({ "total": 2, "keys/1/scopes": ["read"] }));
    assert!(keys["keys"][1]["expires_at"].is_string() && !keys.to_string().contains(&text[40..]), "{keys:#}");
    sandbox.beside(&["key", "revoke", made["key_id"].as_str().unwrap()]);
    let (_, keys) = sandbox.operator(Method::GET, &format!("{path}/keys"), None).await;
    assert_has(&keys["keys"], json!({ "0/state": "revoked", "1/state": "active" }));
}

#[tokio::test]
async fn injected_panic_is_reported_within_two_seconds() {
    let sandbox = Running::new().await;
    let url = format!("{}/ops/events", sandbox.text("operator_url"));
    let request = reqwest::Client::new().get(url).bearer_auth(sandbox.text("operator_token"));
    let mut stream = request.send().await.unwrap().bytes_stream();
    let (mut text, mut took) = (String::new(), Vec::new());
    for _ in 0..5 {
        let id = sandbox.payment().await;
        let since = Instant::now();
        sandbox.ok(Method::POST, &format!("/sandbox/payments/{id}/panic"), None).await;
        while !text.contains("event: incident") || !text.contains(&id) {
            let chunk = tokio::time::timeout(Duration::from_secs(30), stream.next()).await.unwrap().unwrap().unwrap();
            text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        took.push(since.elapsed());
    }
    assert!(median(&took) < SHOWN_WITHIN, "{took:?}");
    assert!(took.iter().all(|took| *took < SHOWN_LATEST), "{took:?}");
    // The service also stops in time while a reader listens.
    let since = Instant::now();
    sandbox.stop();
    assert!(since.elapsed() < Duration::from_secs(5), "the stop waited for the reader");
}
