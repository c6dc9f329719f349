//! Event feed: long polling and retention.

use std::time::{Duration, Instant};

use payferry_domain::EventId;
use payferry_entities::{deliveries, delivery_attempts, events, payment_transitions, payments};
use payferry_httpkit::Limits;
use payferry_journal::webhooks::retention::{BATCH_EVENTS, Pruned, Retention, prune};
use ulid::Ulid;
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::prelude::*;

const DAY_MS: i64 = 24 * 3_600 * 1_000;
/// Far longer than a wake-up takes, and far shorter than the requested wait.
const SOON: Duration = Duration::from_secs(20);

fn ids(feed: &Value) -> Vec<Value> {
    column(&feed["events"], "event_id")
}

#[tokio::test]
async fn waiting_request_is_woken_by_the_commit() {
    let app = TestApp::start_with_chains().await;
    let made = app.add_payment().await;
    let since = Instant::now();
    let (feed, ()) = tokio::join!(app.get("/api/v1/events?wait=30"), async {
        until("a request waits", async || (app.state.system.journal().waited_for() == 1).then_some(())).await;
        app.pay(&made, "10").await;
    });
    assert!(since.elapsed() < SOON, "woken, not timed out: {:?}", since.elapsed());
    let first = ids(&feed);
    assert!(!first.is_empty(), "{}", feed.text());
    assert_eq!(app.state.system.journal().waited_for(), 0, "no request waits any more");

    // Existing events are returned immediately, and the rest as it arrives.
    app.payment_when(&made, "settled").await;
    let since = Instant::now();
    let again = app.get("/api/v1/events?wait=30&limit=1").await;
    assert_eq!(ids(&again), first[..1]);
    assert!(since.elapsed() < SOON);
    let all = app.get("/api/v1/events").await;
    assert_has(&all, json!({ "total": 4, "forgotten_until": null }));
    let last = all["next_after"].as_str().unwrap();
    let since = Instant::now();
    let nothing = app.get(&format!("/api/v1/events?wait=1&after={last}")).await;
    assert_eq!((ids(&nothing).len(), nothing["next_after"].as_str()), (0, Some(last)));
    assert!(since.elapsed() >= Duration::from_secs(1), "it waited for the requested time");
    for wrong in ["31", "-1", "1.5", "soon"] {
        assert_eq!(app.get(&format!("/api/v1/events?wait={wrong}")).await.faults(), "wait: out_of_range");
    }
}

#[tokio::test]
async fn following_reader_gets_all_events_in_feed_order() {
    const PAYMENTS: usize = 12;
    let app = TestApp::start_with_chains().await;
    let made = futures::future::join_all((0..PAYMENTS).map(|_| app.add_payment())).await;
    let paying = async {
        for payment in &made {
            app.pay(payment, "10").await;
        }
    };
    let following = async {
        let (mut seen, mut after) = (Vec::new(), String::new());
        let since = Instant::now();
        while seen.len() < 4 * PAYMENTS {
            assert!(since.elapsed() < Duration::from_mins(2), "only {} came", seen.len());
            let page = app.get(&format!("/api/v1/events?limit=5&wait=5{after}")).await.ok(200);
            seen.extend(ids(&page));
            if let Some(next) = page["next_after"].as_str() {
                after = format!("&after={next}");
            }
        }
        seen
    };
    let (seen, ()) = tokio::join!(following, paying);
    assert_eq!(seen, ids(&app.get("/api/v1/events?limit=200").await.json));
}

#[tokio::test]
async fn waits_are_limited_and_end_with_the_listener() {
    let limits = Some(Limits { waits_per_psp: 1, ..Limits::sandbox() });
    let app = TestApp::start_with(TestConfig { limits, ..TestConfig::default() }).await;
    let (first, ()) = tokio::join!(app.get("/api/v1/events?wait=30"), async {
        until("a request waits", async || (app.state.system.journal().waited_for() == 1).then_some(())).await;
        let refused = app.get("/api/v1/events?wait=30").await;
        refused.assert_problem(429, "rate_limited");
        assert!(refused.header("retry-after").is_some());
        assert_eq!(app.get("/api/v1/events").await.status, 200, "requests without a wait are answered");
        app.state.config.closing.cancel();
    });
    assert_eq!((first.status.as_u16(), ids(&first).len()), (200, 0));
}

/// The body of an event, as an early version of the service wrote it.
fn body(event_id: &str, sequence: i64) -> Value {
    json!({
        "event": "payment.settled", "payment_id": "pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3", "timestamp": "2026-01-31T12:00:00.000Z",
        "event_id": event_id, "sequence": sequence, "status": "settled", "amount": "10.00", "amount_received": "10.00",
        "token": "USDC", "chain": "base", "labels": [],
    })
}

/// Inserts an event of this age with a delivery of this status, if any, and attempts at it. Returns its id.
async fn event(app: &TestApp, psp: PspId, sequence: i64, days: i64, status: Option<&str>, attempts: i64) -> Value {
    let at = app.state.clock().real_now::<Timestamp>().as_millis() - days * DAY_MS;
    let id = EventId::from_ulid(Ulid::from_parts(at.unsigned_abs(), sequence.unsigned_abs().into())).to_string();
    let row = events::ActiveModel {
        position: sea_orm::ActiveValue::NotSet,
        ..events::Model {
            position: 0,
            id: id.clone(),
            psp_id: psp.to_string(),
            payment_id: "pay_old".to_owned(),
            sequence,
            name: "payment.settled".to_owned(),
            payload: body(&id, sequence).to_string(),
            traceparent: None,
            created_at: at,
        }
        .into_active_model()
    };
    let position = events::Entity::insert(row).exec(app.writer()).await.unwrap().last_insert_id;
    let Some(status) = status else { return json!(id) };
    let delivery = deliveries::Model {
        id: format!("whd_{id}"),
        event_id: id.clone(),
        psp_id: psp.to_string(),
        endpoint_id: None,
        payment_id: "pay_old".to_owned(),
        sequence,
        position,
        status: status.parse().unwrap(),
        url: None,
        attempt_count: attempts,
        retries_left: 0,
        next_attempt_at: None,
        response_code: None,
        response_body: None,
        duration_ms: None,
        error: None,
        created_at: at,
        updated_at: at,
    };
    app.insert(delivery).await;
    for number in 1..=attempts {
        let attempt = delivery_attempts::Model {
            delivery_id: format!("whd_{id}"),
            number,
            at,
            url: "https://psp.example".to_owned(),
            response_code: Some(200),
            response_body: None,
            duration_ms: 1,
            error: None,
        };
        app.insert(attempt).await;
    }
    json!(id)
}

fn pruned(events: u64, deliveries: u64, attempts: u64) -> Pruned {
    Pruned { events, deliveries, attempts }
}

#[tokio::test]
async fn only_old_delivered_events_are_deleted() {
    let app = TestApp::start_with_chains().await;
    app.add_payment().await;
    let (psp, other) = (app.psp_id, app.add_psp().await);
    let first = event(&app, psp, 1, 500, Some("delivered"), 2).await;
    let queued = event(&app, psp, 2, 500, Some("queued"), 0).await;
    let failed = event(&app, psp, 3, 500, Some("failed"), 1).await;
    let exhausted = event(&app, psp, 4, 500, Some("exhausted"), 4).await;
    let unwanted = event(&app, psp, 5, 401, None, 0).await;
    let younger = event(&app, psp, 6, 399, Some("delivered"), 1).await;
    let youngest = event(&app, psp, 7, 29, Some("delivered"), 1).await;
    let others = event(&app, other, 8, 29, Some("delivered"), 1).await;
    let forget = async |events_days| {
        prune(app.state.system.database(), Retention { events_days }, app.state.clock().real_now()).await.unwrap()
    };
    let feed = async || app.get("/api/v1/events").await;
    let after = async |event: &Value| app.get(&format!("/api/v1/events?after={}", event.as_str().unwrap())).await;

    assert_eq!(forget(None).await, pruned(0, 0, 0), "forever means forever");
    assert_eq!(forget(Some(400)).await, pruned(2, 1, 2));
    assert_eq!(forget(Some(400)).await, pruned(0, 0, 0), "once");
    let kept = feed().await;
    assert_eq!(ids(&kept), [&queued, &failed, &exhausted, &younger, &youngest].map(Value::clone));
    let until = Timestamp(app.state.clock().real_now::<Timestamp>().as_millis() - 401 * DAY_MS).to_string();
    assert_eq!(kept["forgotten_until"].as_str().unwrap()[..13], until[..13], "by the hour: {until}");
    // A reader in the middle of the deleted events gets an error; a reader who has read all of them continues.
    for behind in [&first, &queued] {
        after(behind).await.assert_problem(410, "events_forgotten");
    }
    assert_eq!(ids(&after(&unwanted).await.json), [&younger, &youngest].map(Value::clone));
    assert_eq!(ids(&after(&younger).await.json), std::slice::from_ref(&youngest));
    assert_eq!(after(&json!(EventId::generate().to_string())).await.faults(), "after: unknown_value");

    // Events younger than thirty days stay, regardless of the configuration.
    assert_eq!(forget(Some(1)).await, pruned(1, 1, 1));
    assert_eq!(ids(&feed().await.json), [queued, failed, exhausted, youngest]);
    assert_eq!(app.count::<events::Entity>().await, 5, "{others} belongs to another PSP and is young");
    assert_eq!(app.count::<payments::Entity>().await, 1);
    assert_eq!(app.count::<payment_transitions::Entity>().await, 1);
}

#[tokio::test]
async fn many_events_are_deleted_in_small_batches() {
    let app = TestApp::start().await;
    let many = i64::try_from(BATCH_EVENTS).unwrap() * 2 + 7;
    for sequence in 1..=many {
        event(&app, app.psp_id, sequence, 450, Some("delivered"), 1).await;
    }
    let kept = event(&app, app.psp_id, many + 1, 5, Some("delivered"), 1).await;
    let now = app.state.clock().real_now();
    let forgotten = prune(app.state.system.database(), Retention { events_days: Some(400) }, now).await.unwrap();
    let many = many.unsigned_abs();
    assert_eq!(forgotten, pruned(many, many, many));
    assert_eq!(ids(&app.get("/api/v1/events").await.json), [kept]);
    assert_eq!(app.count::<delivery_attempts::Entity>().await, 1);
}

#[tokio::test]
async fn repeated_bulk_redelivery_runs_once() {
    let app = TestApp::start_with_chains().await;
    let receiver = MockServer::start().await;
    Mock::given(method("POST")).respond_with(ResponseTemplate::new(200)).mount(&receiver).await;
    app.patch("/api/v1/set_webhook", &json!({ "webhook_url": receiver.uri() })).await;
    let made = app.paid("10", "settled").await;
    let log = format!("/payments/{}/webhooks", made.id());
    let attempts = async || -> Vec<i64> {
        let log = app.get(&log).await;
        let all = log["deliveries"].as_array().unwrap();
        all.iter().map(|one| one["attempt_count"].as_i64().unwrap()).collect()
    };
    until("all events are delivered", async || (attempts().await == [1, 1, 1, 1]).then_some(())).await;

    let bulk = json!({ "from": "2020-01-01T00:00:00Z", "to": "2120-01-01T00:00:00Z", "events": ["payment.settled"] });
    let ask = async || app.post_keyed("b", "/api/v1/webhook/redeliver", &bulk).await;
    let first = ask().await;
    first.assert(202, json!({ "redelivered": 1 }));
    assert!(first.json.get("continue_from").is_none());
    until("it is delivered again", async || (attempts().await.iter().sum::<i64>() == 5).then_some(())).await;
    ask().await.assert_replays(&first);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(attempts().await.iter().sum::<i64>(), 5, "not again");

    // No events of another account, and none outside the period.
    let key = app.stranger().await;
    let theirs = app.post_as(&key, "/api/v1/webhook/redeliver", &bulk).await;
    assert_eq!(theirs["redelivered"], json!(0));
    let before = json!({ "from": "2020-01-01T00:00:00Z", "to": "2021-01-01T00:00:00Z" });
    assert_eq!(app.post("/api/v1/webhook/redeliver", &before).await["redelivered"], json!(0));
}
