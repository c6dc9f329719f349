//! Idempotency: the same request twice.

use axum::Router;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::response::Response;
use axum::routing::post;
use payferry::http::AppState;
use payferry_entities::idempotency_keys;
use payferry_httpkit::caller::Submission;
use payferry_httpkit::idempotency::KEPT_SECS;
use payferry_httpkit::{Answer, ApiError, Money};
use sea_orm::IntoActiveModel;

use crate::app::TestConfig;
use crate::http::customers::paid_out::{payee, payout};
use crate::prelude::*;

fn batch(external_id: &str) -> Value {
    let merchant = json!({ "external_id": external_id, "name": "S", "email": "a@b.example", "business_id": "biz-7" });
    json!({ "merchants": [merchant] })
}

fn sync(app: &TestApp, key: &str, body: &Value) -> Call {
    app.request(Method::POST, "/merchants/sync").idempotency_key(key).json(body)
}

shared!(#[tokio::test] keys, app = TestApp::start().await, app.renew_psp() =>
    first_answer_is_replayed, equal_json_values_are_the_same_body, only_successes_are_stored, one_of_many_concurrent_requests_is_executed);

async fn first_answer_is_replayed(app: &TestApp) {
    let first = sync(app, "k1", &batch("a")).send().await;
    assert_eq!((&first["created"], first.header("idempotent-replayed")), (&json!(1), None));
    sync(app, "k1", &batch("a")).send().await.assert_replays(&first);
    app.post_keyed("k1", "/api/v1/merchants/sync", &batch("a")).await.assert_replays(&first);
    sync(app, "k1", &batch("b")).send().await.assert_problem(422, "idempotency_key_reused");
    assert_eq!(app.get("/merchants").await["total"], 1);
    // Keys belong to a PSP.
    let key = app.stranger().await;
    let theirs = sync(app, "k1", &batch("other")).key(&key).send().await;
    assert_eq!((&theirs["created"], theirs.header("idempotent-replayed")), (&json!(1), None));
}

async fn equal_json_values_are_the_same_body(app: &TestApp) {
    let sync = |body: &str| app.request(Method::POST, "/merchants/sync").idempotency_key("k1").bytes(body).send();
    let first =
        sync(r#"{"merchants":[{"external_id":"é","name":"S","email":"a@b.example","business_id":"1"}],"n":10}"#).await;
    assert_eq!(first["created"], 1);
    let same = "{ \"n\": 1.0e1,\n \"merchants\": [ { \"business_id\": \"1\", \"name\": \"\\u0053\", \
                \"email\": \"a@b.example\", \"external_id\": \"\\u00e9\" } ] }";
    sync(same).await.assert_replays(&first);
    for other in [same.replace("1.0e1", "10.5"), same.replace("1.0e1", "\"10\""), same.replace("\"n\"", "\"m\"")] {
        sync(&other).await.assert_problem(422, "idempotency_key_reused");
    }
    sync("{").await.assert_problem(422, "idempotency_key_reused");
}

async fn only_successes_are_stored(app: &TestApp) {
    sync(app, "k1", &json!({ "merchants": [] })).send().await.assert_problem(422, "validation_failed");
    let fixed = sync(app, "k1", &batch("a")).send().await;
    assert_eq!((&fixed["created"], fixed.header("idempotent-replayed")), (&json!(1), None));
    // Invalid keys are refused.
    for bad in ["", "a b", &"k".repeat(256)] {
        sync(app, bad, &batch("a")).send().await.assert_problem(400, "invalid_header");
    }
    assert_eq!(app.get("/merchants").await["total"], 1);
}

#[tokio::test]
async fn payout_refused_for_insufficient_balance_can_be_repeated() {
    let app = TestApp::start_with_chains().await;
    let customer = payee(&app).await;
    let asked = async |amount| app.post_keyed("p1", "/payouts", &payout(&customer, amount)).await;
    for _ in 0..2 {
        asked("50").await.assert_problem(409, "insufficient_balance");
    }
    app.paid("10", "settled").await;
    // A refusal does not bind the key: the request may be repeated.
    let first = asked("4.5").await.ok(202);
    assert_eq!(first.header("idempotent-replayed"), None);
    asked("4.5").await.assert_replays(&first);
    asked("50").await.assert_problem(422, "idempotency_key_reused");
    assert_eq!(app.get("/payouts").await["total"], 1);
}

#[tokio::test]
async fn answers_are_stored_encrypted_for_a_day() {
    let app = TestApp::start().await;
    sync(&app, "k1", &batch("shop-secret")).send().await;
    let row = idempotency_keys::Entity::find().one(app.writer()).await.unwrap().unwrap();
    let stored = format!("{row:?}");
    assert!(!stored.contains("merch_") && !stored.contains("shop-secret") && !stored.contains("biz-7"), "{stored}");
    app.state.clock().advance_secs(KEPT_SECS - 5);
    assert!(sync(&app, "k1", &batch("shop-secret")).send().await.header("idempotent-replayed").is_some());
    app.state.clock().advance_secs(10);
    let fresh = sync(&app, "k1", &batch("another")).send().await;
    assert_eq!((&fresh["created"], fresh.header("idempotent-replayed")), (&json!(1), None));
    app.state.clock().advance_secs(KEPT_SECS + 1);
    let deleted = payferry_httpkit::idempotency::prune(app.state.database(), app.state.clock().now()).await.unwrap();
    assert_eq!(deleted, 1);
}

#[tokio::test]
async fn stored_answers_are_bound_to_their_psp_and_earlier_ones_still_match() {
    let app = TestApp::start().await;
    let first = sync(&app, "k1", &batch("a")).send().await;
    let row = idempotency_keys::Entity::find().one(app.writer()).await.unwrap().unwrap();
    // Another PSP's row with this answer does not open.
    let other = app.add_psp().await;
    let key = app.add_key(other, &[Scope::Full]).await;
    app.insert(idempotency_keys::Model { psp_id: other.to_string(), ..row.clone() }).await;
    sync(&app, "k1", &batch("a")).key(&key).send().await.assert_problem(500, "internal_error");
    // An earlier version sealed without the PSP.
    let sealer = app.state.sealer();
    let body = sealer.open(&["idempotency_keys", &row.psp_id, &row.route, &row.key], &row.response_body).unwrap();
    let former = sealer.seal(&["idempotency_keys", &row.route, &row.key], &body);
    let mut row = row.into_active_model();
    row.response_body = sea_orm::Set(former);
    row.update(app.writer()).await.unwrap();
    sync(&app, "k1", &batch("a")).send().await.assert_replays(&first);
    // It hashed the bytes of the body.
    let hash_of = |body: &Value| sealer.keyed_hash(&[b"idempotency", b"/merchants/sync", body.to_string().as_bytes()]);
    let row = idempotency_keys::Entity::find().filter(idempotency_keys::Column::PspId.eq(app.psp_id.to_string()));
    let mut row = row.one(app.writer()).await.unwrap().unwrap().into_active_model();
    row.request_hash = sea_orm::Set(hash_of(&batch("a")));
    row.update(app.writer()).await.unwrap();
    sync(&app, "k1", &batch("a")).send().await.assert_replays(&first);
    sync(&app, "k1", &batch("b")).send().await.assert_problem(422, "idempotency_key_reused");
}

async fn one_of_many_concurrent_requests_is_executed(app: &TestApp) {
    let calls = (0..20).map(|_| sync(app, "k1", &batch("a")).send());
    let replies = futures::future::join_all(calls).await;
    let (mut first, mut replayed, mut running) = (0, 0, 0);
    for reply in &replies {
        match (reply.status.as_u16(), reply.header("idempotent-replayed")) {
            (200, None) => first += 1,
            (200, Some(_)) => replayed += 1,
            _ => {
                reply.assert_problem(409, "idempotency_request_running");
                assert_eq!(reply.header("retry-after"), Some("1"));
                running += 1;
            }
        }
    }
    assert_eq!((first, first + replayed + running), (1, 20));
    // No request remains marked as running.
    assert_eq!(sync(app, "k1", &batch("a")).send().await.header("idempotent-replayed"), Some("true"));
}

/// Another node executed the same request meanwhile, so this one refuses to repeat the change.
#[tokio::test]
async fn refusal_after_another_node_has_answered_becomes_its_answer() {
    async fn late(State(app): State<AppState>, request: Submission<Money>) -> Result<Response, ApiError> {
        let row = request.idempotency.row(&Answer::accepted(&json!({"done": true}))?).unwrap();
        let insert = idempotency_keys::Entity::insert(row.into_active_model());
        insert.exec_without_returning(app.system.database().writer()).await.unwrap();
        Err(ApiError::NotFound("payment"))
    }
    let routes = Router::new().route("/late", post(late));
    let app = TestApp::start_with(TestConfig { routes, ..TestConfig::default() }).await;
    // The route is not in the document, so its answer is not compared with it.
    let answer = app.request(Method::POST, "/late").idempotency_key("k1").json(&json!({})).begin().await;
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["idempotent-replayed"]),
        (202, &HeaderValue::from_static("true"))
    );
    let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    assert_eq!(body, r#"{"done":true}"#);
}
