//! Webhook configuration, the delivery log and the feed.

use wiremock::matchers::method;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::prelude::*;

async fn set(app: &TestApp, body: &Value) -> Reply {
    app.patch("/api/v1/set_webhook", body).await
}

shared!(#[tokio::test] endpoints, app = TestApp::start().await, app.renew_psp() =>
    secret_is_shown_only_on_creation, lost_secret_is_replayed_with_the_idempotency_key,
    invalid_urls_and_patterns_are_refused, test_event_is_signed_and_its_answer_shown);

async fn secret_is_shown_only_on_creation(app: &TestApp) {
    insta::assert_json_snapshot!("webhook_unset", app.get("/api/v1/webhook").await.redacted());
    let first = set(app, &json!({ "webhook_url": "https://psp.example/hooks" })).await;
    insta::assert_json_snapshot!("set_webhook", first.redacted());
    let second = json!({ "webhook_url": "https://psp.example/other", "events": ["payment.*", "payin.settled"] });
    let second = set(app, &second).await;
    assert_has(&second, json!({ "signing_secret": null, "events": ["payment.*", "payin.settled"] }));
    let third = set(app, &json!({ "webhook_url": "https://psp.example/third" })).await;
    assert_eq!(third["events"], json!(["payment.*", "payin.settled"]), "the patterns are unchanged");
    let rotated = app.request(Method::POST, "/api/v1/webhook/rotate").send().await;
    insta::assert_json_snapshot!("rotate_webhook", rotated.redacted());
    assert_ne!(rotated["signing_secret"], first["signing_secret"]);
    let shown = app.get("/api/v1/webhook").await;
    insta::assert_json_snapshot!("webhook", shown.redacted());
    shown.assert_hides(&["whsec_"]);
}

async fn lost_secret_is_replayed_with_the_idempotency_key(app: &TestApp) {
    let body = json!({ "webhook_url": "https://psp.example/hooks" });
    let call = || app.request(Method::PATCH, "/api/v1/set_webhook").idempotency_key("w").json(&body).send();
    let (first, again) = (call().await, call().await);
    assert!(first["signing_secret"].as_str().unwrap().starts_with("whsec_"));
    again.assert_replays(&first);
    let rotate = || app.request(Method::POST, "/api/v1/webhook/rotate").idempotency_key("r").send();
    assert_eq!(rotate().await["signing_secret"], rotate().await["signing_secret"], "rotated once");
}

async fn invalid_urls_and_patterns_are_refused(app: &TestApp) {
    let cases = [
        (json!({}), "webhook_url: required"),
        (json!({ "webhook_url": 7, "events": "all" }), "webhook_url: wrong_type, events: wrong_type"),
        (json!({ "webhook_url": "psp.example" }), "webhook_url: url_malformed"),
        (json!({ "webhook_url": "ftp://psp.example/" }), "webhook_url: url_not_https"),
        (json!({ "webhook_url": "http://10.0.0.1/" }), "webhook_url: url_not_public"),
        (json!({ "webhook_url": "https://u:p@psp.example/" }), "webhook_url: url_credentials"),
        (json!({ "webhook_url": "https://psp.example/", "events": [] }), "events: empty"),
        (json!({ "webhook_url": "https://psp.example/", "events": ["pay"] }), "events: unknown_value"),
        (json!({ "webhook_url": "https://psp.example/", "events": [1] }), "events: wrong_type"),
    ];
    assert_refused(&cases, async |body| set(app, body).await).await;
    assert_eq!(app.get("/api/v1/webhook").await["webhook_url"], Value::Null, "nothing was written");

    let production = TestConfig { is_production: true, ..TestConfig::default() };
    let production = TestApp::start_with(production).await;
    for (url, fault) in [
        ("http://psp.example/", "webhook_url: url_not_https"),
        ("https://127.0.0.1/", "webhook_url: url_not_public"),
        ("https://localhost/", "webhook_url: url_not_public"),
        ("https://[::1]:8443/", "webhook_url: url_not_public"),
    ] {
        assert_eq!(set(&production, &json!({ "webhook_url": url })).await.faults(), fault);
    }
    // Routes that need a URL report a missing one.
    for path in ["/api/v1/webhook/rotate", "/api/v1/webhook/test"] {
        app.request(Method::POST, path).send().await.assert_problem(409, "webhook_not_set");
    }
}

async fn test_event_is_signed_and_its_answer_shown(app: &TestApp) {
    let receiver = MockServer::start().await;
    Mock::given(method("POST"))
        .respond_with(ResponseTemplate::new(418).set_body_string("short and stout"))
        .mount(&receiver)
        .await;
    let secret = set(app, &json!({ "webhook_url": receiver.uri() })).await["signing_secret"].clone();
    let tested = app.request(Method::POST, "/api/v1/webhook/test").send().await.ok(200);
    assert_has(&tested, json!({ "delivered": false, "response_code": 418, "response_body": "short and stout" }));
    let received = &receiver.received_requests().await.unwrap()[0];
    let verifier = standardwebhooks::Webhook::new(secret.as_str().unwrap()).unwrap();
    verifier.verify(&received.body, &received.headers).unwrap();
    let body: Value = serde_json::from_slice(&received.body).unwrap();
    assert_has(&body, json!({ "event": "webhook.test", "payment_id": "pay_test", "event_id": tested["event_id"] }));
}

#[tokio::test]
async fn undelivered_events_are_listed_redelivered_and_in_the_feed() {
    let app = TestApp::start_with_chains().await;
    let made = app.paid("10", "settled").await;
    let id = made.id();

    // No delivery is dropped while no URL is set.
    let stuck = app.get("/api/v1/webhook/undelivered?limit=1").await;
    assert_eq!((&stuck["total"], stuck["deliveries"].as_array().unwrap().len()), (&json!(4), 1));
    assert_eq!(stuck["deliveries"][0]["delivery_status"], "queued");

    let receiver = MockServer::start().await;
    Mock::given(method("POST")).respond_with(ResponseTemplate::new(200)).mount(&receiver).await;
    set(&app, &json!({ "webhook_url": receiver.uri() })).await;
    app.get_until("/api/v1/webhook/undelivered", |reply| reply["total"] == 0).await;

    let log = app.get(&format!("/payments/{id}/webhooks")).await;
    let entries = log["deliveries"].as_array().unwrap();
    assert!(entries.iter().all(|entry| entry["delivery_status"] == "delivered" && entry["response_code"] == 200));
    let delivery = entries[1]["id"].as_str().unwrap();
    let path = format!("/payments/{id}/webhooks/{delivery}/redeliver");
    let again = app.request(Method::POST, &path).send().await;
    insta::assert_json_snapshot!("redeliver", again.redacted());
    let twice = |log: &Reply| {
        let entry = &log["deliveries"][1];
        entry["attempt_count"] == 2 && entry["delivery_status"] == "delivered"
    };
    let log_path = format!("/payments/{id}/webhooks");
    let again = app.get_until(&log_path, twice).await;
    assert_eq!(again["deliveries"][1]["attempts"].as_array().unwrap().len(), 2);
    let unknown = format!("/payments/{id}/webhooks/whd_01J9Z3K4M5N6P7Q8R9S0T1V2W3/redeliver");
    app.request(Method::POST, &unknown).send().await.assert_problem(404, "delivery_not_found");

    let bulk = json!({ "from": "2020-01-01T00:00:00Z", "to": "2120-01-01T00:00:00Z", "events": ["payin.*"] });
    app.post("/api/v1/webhook/redeliver", &bulk).await.assert(202, json!({ "redelivered": 2 }));
    for (to, fault) in [("tomorrow", "to: invalid_timestamp"), ("2020-01-01", "to: not_after_from")] {
        let bad = json!({ "from": "2020-01-01T00:00:00Z", "to": to });
        assert_eq!(app.post("/api/v1/webhook/redeliver", &bad).await.faults(), fault);
    }

    let feed = app.get("/api/v1/events").await;
    assert_has(&feed, json!({ "total": 4, "has_more": false }));
    let events = &feed["events"];
    assert_eq!(column(events, "sequence"), [1, 2, 3, 4]);
    assert_eq!(*events, json!(column(&log["deliveries"], "payload")), "the feed contains what was sent");
    let first = events[0]["event_id"].as_str().unwrap();
    let one = app.get(&format!("/api/v1/events/{first}")).await.ok(200);
    assert_has(&one, json!({ "id": first, "event_id": first, "event": events[0]["event"], "payload": events[0] }));
    assert_eq!(one["created_at"], one["updated_at"]);
    for unknown in ["evt_01J9Z3K4M5N6P7Q8R9S0T1V2W3", "x"] {
        app.get(&format!("/api/v1/events/{unknown}")).await.assert_problem(404, "event_not_found");
    }
    let rest = app.get(&format!("/api/v1/events?limit=2&after={first}")).await;
    assert_has(&rest, json!({ "events/1": events[2], "has_more": true }));
    let end = feed["next_after"].as_str().unwrap();
    let nothing = app.get(&format!("/api/v1/events?after={end}")).await;
    assert_eq!((&nothing["events"], &nothing["next_after"]), (&json!([]), &json!(end)), "continue from there later");
    assert_eq!(app.get("/api/v1/events?after=evt_01J9Z3K4M5N6P7Q8R9S0T1V2W3").await.faults(), "after: unknown_value");
}
