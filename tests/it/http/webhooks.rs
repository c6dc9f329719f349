//! Webhook configuration, the delivery log and the feed.

use axum::http::Method;
use payferry::config::Environment;
use payferry_httpkit::Limits;
use serde_json::{Value, json};
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::app::{Reply, TestApp, TestConfig};

async fn set(app: &TestApp, body: &Value) -> Reply {
    app.request(Method::PATCH, "/api/v1/set_webhook").json(body).send().await
}

#[tokio::test]
async fn secret_is_shown_only_on_creation() {
    let app = TestApp::start().await;
    insta::assert_json_snapshot!("webhook_unset", app.get("/api/v1/webhook").await.redacted());
    let first = set(&app, &json!({ "webhook_url": "https://psp.example/hooks" })).await;
    insta::assert_json_snapshot!("set_webhook", first.redacted());
    let second = json!({ "webhook_url": "https://psp.example/other", "events": ["payment.*", "payin.settled"] });
    let second = set(&app, &second).await;
    assert_eq!(
        (&second.json["signing_secret"], &second.json["events"]),
        (&Value::Null, &json!(["payment.*", "payin.settled"]))
    );
    let third = set(&app, &json!({ "webhook_url": "https://psp.example/third" })).await;
    assert_eq!(third.json["events"], json!(["payment.*", "payin.settled"]), "the patterns are unchanged");
    let rotated = app.request(Method::POST, "/api/v1/webhook/rotate").send().await;
    insta::assert_json_snapshot!("rotate_webhook", rotated.redacted());
    assert_ne!(rotated.json["signing_secret"], first.json["signing_secret"]);
    let shown = app.get("/api/v1/webhook").await;
    insta::assert_json_snapshot!("webhook", shown.redacted());
    assert!(!shown.text().contains("whsec_"));
}

#[tokio::test]
async fn lost_secret_is_replayed_with_the_idempotency_key() {
    let app = TestApp::start().await;
    let body = json!({ "webhook_url": "https://psp.example/hooks" });
    let call = || app.request(Method::PATCH, "/api/v1/set_webhook").idempotency_key("w").json(&body).send();
    let (first, again) = (call().await, call().await);
    assert!(first.json["signing_secret"].as_str().unwrap().starts_with("whsec_"));
    assert_eq!((first.bytes, again.header("idempotent-replayed")), (again.bytes.clone(), Some("true")));
    let rotate = || app.request(Method::POST, "/api/v1/webhook/rotate").idempotency_key("r").send();
    assert_eq!(rotate().await.json["signing_secret"], rotate().await.json["signing_secret"], "rotated once");
}

#[tokio::test]
async fn invalid_urls_and_patterns_are_refused() {
    let app = TestApp::start().await;
    for (body, faults) in [
        (json!({}), vec!["webhook_url: required"]),
        (json!({ "webhook_url": 7, "events": "all" }), vec!["webhook_url: wrong_type", "events: wrong_type"]),
        (json!({ "webhook_url": "psp.example" }), vec!["webhook_url: url_malformed"]),
        (json!({ "webhook_url": "ftp://psp.example/" }), vec!["webhook_url: url_not_https"]),
        (json!({ "webhook_url": "http://10.0.0.1/" }), vec!["webhook_url: url_not_public"]),
        (json!({ "webhook_url": "https://u:p@psp.example/" }), vec!["webhook_url: url_credentials"]),
        (json!({ "webhook_url": "https://psp.example/", "events": [] }), vec!["events: empty"]),
        (json!({ "webhook_url": "https://psp.example/", "events": ["pay"] }), vec!["events: unknown_value"]),
        (json!({ "webhook_url": "https://psp.example/", "events": [1] }), vec!["events: wrong_type"]),
    ] {
        let reply = set(&app, &body).await;
        reply.assert_problem(422, "validation_failed");
        assert_eq!(reply.faults(), faults, "{body}");
    }
    assert_eq!(app.get("/api/v1/webhook").await.json["webhook_url"], Value::Null, "nothing was written");

    let production =
        TestConfig { environment: Environment::Production, limits: Limits::production(), ..TestConfig::default() };
    let production = TestApp::start_with(production).await;
    for (url, fault) in [
        ("http://psp.example/", "webhook_url: url_not_https"),
        ("https://127.0.0.1/", "webhook_url: url_not_public"),
        ("https://localhost/", "webhook_url: url_not_public"),
        ("https://[::1]:8443/", "webhook_url: url_not_public"),
    ] {
        assert_eq!(set(&production, &json!({ "webhook_url": url })).await.faults(), [fault]);
    }
}

#[tokio::test]
async fn routes_that_need_a_url_report_a_missing_one() {
    let app = TestApp::start().await;
    for path in ["/api/v1/webhook/rotate", "/api/v1/webhook/test"] {
        app.request(Method::POST, path).send().await.assert_problem(409, "webhook_not_set");
    }
}

#[tokio::test]
async fn test_event_is_signed_and_its_answer_shown() {
    let app = TestApp::start().await;
    let receiver = MockServer::start().await;
    Mock::given(method("POST"))
        .respond_with(ResponseTemplate::new(418).set_body_string("short and stout"))
        .mount(&receiver)
        .await;
    let secret = set(&app, &json!({ "webhook_url": receiver.uri() })).await.json["signing_secret"].clone();
    let tested = app.request(Method::POST, "/api/v1/webhook/test").send().await;
    assert_eq!(tested.status, 200, "{}", tested.text());
    assert_eq!((&tested.json["delivered"], &tested.json["response_code"]), (&json!(false), &json!(418)));
    assert_eq!(tested.json["response_body"], "short and stout");
    let received = &receiver.received_requests().await.unwrap()[0];
    let verifier = standardwebhooks::Webhook::new(secret.as_str().unwrap()).unwrap();
    verifier.verify(&received.body, &received.headers).unwrap();
    let body: Value = serde_json::from_slice(&received.body).unwrap();
    assert_eq!((&body["event"], &body["payment_id"]), (&json!("webhook.test"), &json!("pay_test")));
    assert_eq!(body["event_id"], tested.json["event_id"]);
}

#[tokio::test]
async fn undelivered_events_are_listed_redelivered_and_in_the_feed() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let made = app.add_payment(&merchant).await;
    let id = made.json["payment_id"].as_str().unwrap();
    app.pay(&made, "10").await;
    app.payment_when(&made, "settled").await;

    // No delivery is dropped while no URL is set.
    let stuck = app.get("/api/v1/webhook/undelivered?limit=1").await;
    assert_eq!((&stuck.json["total"], stuck.json["deliveries"].as_array().unwrap().len()), (&json!(4), 1));
    assert_eq!(stuck.json["deliveries"][0]["delivery_status"], "queued");

    let receiver = MockServer::start().await;
    Mock::given(method("POST")).respond_with(ResponseTemplate::new(200)).mount(&receiver).await;
    set(&app, &json!({ "webhook_url": receiver.uri() })).await;
    let none_left = async |app: &TestApp| {
        let reply = app.get("/api/v1/webhook/undelivered").await;
        (reply.json["total"] == 0).then_some(())
    };
    app.until("all events are delivered", none_left).await;

    let log = app.get(&format!("/payments/{id}/webhooks")).await;
    let entries = log.json["deliveries"].as_array().unwrap();
    assert!(entries.iter().all(|entry| entry["delivery_status"] == "delivered" && entry["response_code"] == 200));
    let delivery = entries[1]["id"].as_str().unwrap();
    let path = format!("/payments/{id}/webhooks/{delivery}/redeliver");
    let again = app.request(Method::POST, &path).send().await;
    insta::assert_json_snapshot!("redeliver", again.redacted());
    let twice = async |app: &TestApp| {
        let log = app.get(&format!("/payments/{id}/webhooks")).await;
        let entry = &log.json["deliveries"][1];
        (entry["attempt_count"] == 2 && entry["delivery_status"] == "delivered").then(|| entry["attempts"].clone())
    };
    assert_eq!(app.until("it is delivered again", twice).await.as_array().unwrap().len(), 2);
    let unknown = format!("/payments/{id}/webhooks/whd_01J9Z3K4M5N6P7Q8R9S0T1V2W3/redeliver");
    app.request(Method::POST, &unknown).send().await.assert_problem(404, "delivery_not_found");

    let bulk = json!({ "from": "2020-01-01T00:00:00Z", "to": "2120-01-01T00:00:00Z", "events": ["payin.*"] });
    let bulk = app.post("/api/v1/webhook/redeliver", &bulk).await;
    assert_eq!((bulk.status.as_u16(), &bulk.json["redelivered"]), (202, &json!(2)));
    let bad =
        app.post("/api/v1/webhook/redeliver", &json!({ "from": "2020-01-01T00:00:00Z", "to": "2020-01-01" })).await;
    assert_eq!(bad.faults(), ["to: invalid_timestamp"]);
    let bad = json!({ "from": "2020-01-01T00:00:00Z", "to": "2020-01-01T00:00:00Z" });
    assert_eq!(app.post("/api/v1/webhook/redeliver", &bad).await.faults(), ["to: not_after_from"]);

    let feed = app.get("/api/v1/events").await;
    assert_eq!((&feed.json["total"], &feed.json["has_more"]), (&json!(4), &json!(false)));
    let events = feed.json["events"].as_array().unwrap();
    assert_eq!(events.iter().map(|event| event["sequence"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let payloads: Vec<_> = entries.iter().map(|entry| entry["payload"].clone()).collect();
    assert_eq!(events, &payloads, "the feed contains what was sent");
    let first = events[0]["event_id"].as_str().unwrap();
    let rest = app.get(&format!("/api/v1/events?limit=2&after={first}")).await;
    assert_eq!((&rest.json["events"][1], &rest.json["has_more"]), (&events[2], &json!(true)));
    let end = feed.json["next_after"].as_str().unwrap();
    let nothing = app.get(&format!("/api/v1/events?after={end}")).await;
    assert_eq!(
        (&nothing.json["events"], &nothing.json["next_after"]),
        (&json!([]), &json!(end)),
        "continue from there later"
    );
    assert_eq!(app.get("/api/v1/events?after=evt_01J9Z3K4M5N6P7Q8R9S0T1V2W3").await.faults(), ["after: unknown_value"]);
}
