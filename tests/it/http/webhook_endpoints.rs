//! Several webhook endpoints of one account.

use payferry_harness::receiver::Receiver;

use crate::prelude::*;

const ENDPOINTS: &str = "/api/v1/webhook-endpoints";

shared!(#[tokio::test] endpoints, app = TestApp::start().await, app.renew_psp() =>
    an_endpoint_is_created_read_changed_and_deleted, invalid_endpoints_are_refused, the_first_endpoint_is_that_of_set_webhook,
    endpoints_are_listed_and_limited);

async fn create(app: &TestApp, body: &Value) -> Reply {
    app.post(ENDPOINTS, body).await
}

async fn delete(app: &TestApp, id: &str) -> Reply {
    app.request(Method::DELETE, &format!("{ENDPOINTS}/{id}")).send().await
}

async fn an_endpoint_is_created_read_changed_and_deleted(app: &TestApp) {
    let body = json!({ "url": "https://psp.example/hooks", "events": ["refund.*"], "description": "accounting" });
    let created = create(app, &body).await.ok(201);
    insta::assert_json_snapshot!("endpoint_created", created.redacted());
    let path = format!("{ENDPOINTS}/{}", created.string("id"));
    let read = app.get(&path).await.ok(200);
    read.assert_hides(&["whsec_"]);
    assert_eq!(
        (&read["events"], &read["schedule"], &read["status"]),
        (&json!(["refund.*"]), &json!("default"), &json!("enabled"))
    );

    let changed = app.patch(&path, &json!({ "status": "disabled", "schedule": "extended" })).await.ok(200);
    assert_has(
        &changed,
        json!({ "status": "disabled", "schedule": "extended", "events": ["refund.*"], "description": "accounting" }),
    );
    let changed = app.patch(&path, &json!({ "status": "enabled", "url": "https://psp.example/new" })).await.ok(200);
    assert_has(&changed, json!({ "status": "enabled", "schedule": "extended", "url": "https://psp.example/new" }));

    let rotated = app.request(Method::POST, &format!("{path}/rotate")).send().await.ok(200);
    assert!(rotated["signing_secret"].is_string() && rotated["signing_secret"] != created["signing_secret"]);
    assert!(app.get(&path).await["previous_secret_expires_at"].is_string());

    let deleted = delete(app, created.string("id")).await.ok(200);
    assert_eq!(deleted.string("id"), created.string("id"));
    for gone in [app.get(&path).await, app.patch(&path, &json!({})).await, delete(app, created.string("id")).await] {
        gone.assert_problem(404, "endpoint_not_found");
    }
    assert_eq!(app.get(ENDPOINTS).await["total"], 0);
}

async fn invalid_endpoints_are_refused(app: &TestApp) {
    let cases = [
        (json!({}), "url: required"),
        (
            json!({ "url": 7, "events": [], "schedule": "never", "status": "gone", "description": "" }),
            "url: wrong_type, description: empty, events: empty, schedule: unknown_value, status: unknown_value",
        ),
        (json!({ "url": "ftp://psp.example/" }), "url: url_not_https"),
        (json!({ "url": "https://psp.example/", "events": ["nothing.*"] }), "events: unknown_value"),
    ];
    assert_refused(&cases, async |body| create(app, body).await).await;
    let id = create(app, &json!({ "url": "https://psp.example/" })).await.ok(201).string("id").to_owned();
    let change = async |body: &Value| app.patch(&format!("{ENDPOINTS}/{id}"), body).await;
    assert_refused(&[(json!({ "url": "https://u:p@psp.example/" }), "url: url_credentials")], change).await;
    assert_eq!(app.get(&format!("{ENDPOINTS}/{id}")).await["url"], "https://psp.example/", "nothing was written");
}

async fn the_first_endpoint_is_that_of_set_webhook(app: &TestApp) {
    let set = app.patch("/api/v1/set_webhook", &json!({ "webhook_url": "https://psp.example/one" })).await.ok(200);
    let second = create(app, &json!({ "url": "https://psp.example/two" })).await.ok(201);
    assert_ne!(second.string("id"), set.string("id"));
    let first = app.get(&format!("{ENDPOINTS}/{}", set.string("id"))).await.ok(200);
    assert_eq!(first["url"], "https://psp.example/one");
    delete(app, set.string("id")).await.ok(200);
    assert_eq!(app.get("/api/v1/webhook").await["webhook_url"], Value::Null);
    app.request(Method::POST, "/api/v1/webhook/test").send().await.assert_problem(409, "webhook_not_set");
    // It can be set again, with a new secret.
    let again = app.patch("/api/v1/set_webhook", &json!({ "webhook_url": "https://psp.example/three" })).await.ok(200);
    assert!(again["signing_secret"].is_string() && again["signing_secret"] != set["signing_secret"]);
    assert_eq!(app.get(ENDPOINTS).await["total"], 2);
}

async fn endpoints_are_listed_and_limited(app: &TestApp) {
    let body = json!({ "url": "https://psp.example/" });
    for _ in 0..16 {
        create(app, &body).await.ok(201);
    }
    create(app, &body).await.assert_problem(409, "too_many_endpoints");
    let list = app.get(&format!("{ENDPOINTS}?limit=10")).await.ok(200);
    assert_eq!((&list["total"], list["webhook_endpoints"].as_array().unwrap().len()), (&json!(16), 10));
    let next = app.get(&format!("{ENDPOINTS}?limit=10&cursor={}", list.string("next_cursor"))).await.ok(200);
    assert_eq!((next["webhook_endpoints"].as_array().unwrap().len(), &next["next_cursor"]), (6, &Value::Null));
}

/// Each endpoint gets the events of its filter, signed with its own secret.
#[tokio::test(flavor = "multi_thread")]
async fn each_endpoint_gets_the_events_that_it_subscribed_to() {
    let app = TestApp::start_with_chains().await;
    let (all, few) = (Receiver::start().await, Receiver::start().await);
    let set = app.patch("/api/v1/set_webhook", &json!({ "webhook_url": all.url() })).await.ok(200);
    let body = json!({ "url": few.url(), "events": ["payment.settled", "payment.failed"] });
    let second = create(&app, &body).await.ok(201);
    all.verify_with(set.string("signing_secret"));
    few.verify_with(second.string("signing_secret"));
    let payment = app.paid("10", "settled").await;
    assert_eq!(all.until(4).await.len(), 4);
    let received = few.until(1).await;
    let names: Vec<_> = received.values().flatten().map(|body| body["event"].clone()).collect();
    assert_eq!(names, ["payment.settled"]);

    let is_done = |log: &Reply| {
        let deliveries = log["deliveries"].as_array().unwrap();
        deliveries.len() == 5 && deliveries.iter().all(|delivery| delivery["delivery_status"] == "delivered")
    };
    let log = app.get_until(&format!("/payments/{}/webhooks", payment.id()), is_done).await;
    let to = |id: &str| log["deliveries"].as_array().unwrap().iter().filter(|it| it["endpoint_id"] == *id).count();
    assert_eq!((to(set.string("id")), to(second.string("id"))), (4, 1));

    // A redelivery in bulk can name an endpoint.
    let again = json!({ "from": "2000-01-01", "to": "2100-01-01", "endpoint_id": second.string("id") });
    assert_eq!(app.post("/api/v1/webhook/redeliver", &again).await.ok(202)["redelivered"], 1);

    // The deliveries of a deleted endpoint cannot be sent again.
    delete(&app, second.string("id")).await.ok(200);
    let deliveries = log["deliveries"].as_array().unwrap();
    let delivery = deliveries.iter().find(|delivery| delivery["endpoint_id"] == second.string("id")).unwrap();
    let path = format!("/payments/{}/webhooks/{}/redeliver", payment.id(), delivery["id"].as_str().unwrap());
    app.request(Method::POST, &path).send().await.assert_problem(409, "endpoint_deleted");

    // Without an endpoint, events wait for the first one.
    delete(&app, set.string("id")).await.ok(200);
    let payment = app.paid("10", "settled").await;
    let log = app.get(&format!("/payments/{}/webhooks", payment.id())).await;
    let states: Vec<_> = log["deliveries"].as_array().unwrap().iter().map(|it| it["delivery_status"].clone()).collect();
    assert_eq!(states, ["queued"; 4]);
    let set = app.patch("/api/v1/set_webhook", &json!({ "webhook_url": few.url() })).await.ok(200);
    few.verify_with(set.string("signing_secret"));
    let is_done = |log: &Reply| {
        log["deliveries"].as_array().unwrap().iter().all(|delivery| delivery["delivery_status"] == "delivered")
    };
    app.get_until(&format!("/payments/{}/webhooks", payment.id()), is_done).await;
}
