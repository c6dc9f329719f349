//! A walk over every route that the interface describes: no key, too little scope, somebody else's key.

use axum::http::Method;
use payferry::keys::Scope;
use serde_json::json;

use crate::app::TestApp;

/// Every method and path.
async fn routes(app: &TestApp) -> Vec<(Method, String)> {
    let document = app.get("/openapi.json").await.json;
    let paths = document["paths"].as_object().unwrap();
    let routes = paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().keys().map(|method| method.to_uppercase().parse().unwrap());
        methods.map(move |method| (method, path.clone()))
    });
    routes.collect()
}

#[tokio::test]
async fn nobody_gets_in_without_a_key_or_with_too_little_scope() {
    let app = TestApp::start().await;
    let routes = routes(&app).await;
    assert!(routes.len() >= 16, "{routes:?}");
    let nothing_to_read = app.add_key(app.psp_id, &[Scope::Money, Scope::Customers]).await;
    let only_read = app.add_key(app.psp_id, &[Scope::Read, Scope::Money, Scope::Customers]).await;
    for (method, template) in routes {
        let path =
            template.replace("{payment_id}", "pay_x").replace("{merchant_id}", "merch_x").replace("{delivery_id}", "x");
        let prefixed = format!("/api/v1{path}");
        let spellings = if path.starts_with("/api/v1") { vec![path] } else { vec![path, prefixed] };
        for path in spellings {
            let call = || app.request(method.clone(), &path).json(&json!({}));
            call().without_key().send().await.assert_problem(401, "api_key_missing");
            let key = if method == Method::GET { &nothing_to_read } else { &only_read };
            call().key(key).send().await.assert_problem(403, "missing_scope");
        }
    }
}

#[tokio::test]
async fn somebody_elses_objects_are_not_there() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let made = app.add_payment(&merchant).await;
    let payment = made.json["payment_id"].as_str().unwrap();
    app.pay(&made, "10").await;
    app.payment_when(&made, "settled").await;
    let log = app.get(&format!("/payments/{payment}/webhooks")).await;
    let delivery = log.json["deliveries"][0]["id"].as_str().unwrap();

    let other = app.add_psp().await;
    let key = app.add_key(other, &[Scope::Full]).await;
    let mut walked = 0;
    for (method, template) in routes(&app).await.into_iter().filter(|(_, path)| path.contains('{')) {
        let path = template.replace("{payment_id}", payment).replace("{merchant_id}", &merchant);
        let path = path.replace("{delivery_id}", delivery);
        let theirs = app.request(method.clone(), &path).key(&key).send().await;
        assert_eq!(theirs.status, 404, "{method} {path}");
        assert!(theirs.code().ends_with("_not_found") && theirs.code() != "route_not_found", "{}", theirs.code());
        // It is as if there were no such object at all.
        let nowhere = path.replace(payment, "pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3");
        let nowhere = nowhere.replace(&merchant, "merch_01J9Z3K4M5N6P7Q8R9S0T1V2W3");
        assert_eq!(app.request(method, &nowhere).send().await.code(), theirs.code());
        walked += 1;
    }
    assert!(walked >= 5);
    let body = json!({ "merchant_id": merchant, "amount": "10", "currency": "USDC", "chain": "base" });
    let initiate = app.request(Method::POST, "/payments/initiate").key(&key).json(&body);
    initiate.send().await.assert_problem(404, "merchant_not_found");
    for list in ["/merchants", "/payments", "/api/v1/webhook/undelivered", "/api/v1/events"] {
        assert_eq!(app.request(Method::GET, list).key(&key).send().await.json["total"], 0, "{list}");
    }
    // What has no id in its path: each is looked at here, and a route that is new has to be added.
    let rest = routes(&app).await.into_iter().filter(|(_, path)| !path.contains('{'));
    let mut rest: Vec<_> = rest.map(|(method, path)| format!("{method} {path}")).collect();
    rest.sort();
    let looked_at = [
        "GET /api/v1/events",
        "GET /api/v1/webhook",
        "GET /api/v1/webhook/undelivered",
        "GET /merchants",
        "GET /payments",
        "PATCH /api/v1/set_webhook",
        "POST /api/v1/webhook/redeliver",
        "POST /api/v1/webhook/rotate",
        "POST /api/v1/webhook/test",
        "POST /merchants/sync",
        "POST /payments/initiate",
    ];
    assert_eq!(rest, looked_at);
    let hook = json!({ "webhook_url": "http://127.0.0.1:9/mine" });
    let set = app.request(Method::PATCH, "/api/v1/set_webhook").json(&hook).send().await;
    assert_eq!(set.status, 200, "{}", set.text());
    let shown = app.request(Method::GET, "/api/v1/webhook").key(&key).send().await;
    assert!(!shown.text().contains("/mine"), "{}", shown.text());
    for path in ["/api/v1/webhook/rotate", "/api/v1/webhook/test"] {
        let refused = app.request(Method::POST, path).key(&key).json(&json!({})).send().await;
        refused.assert_problem(409, "webhook_not_set");
    }
    let theirs = json!({ "merchants": [{ "external_id": "shop", "name": "Theirs", "email": "t@shop.example",
        "business_id": "2" }] });
    let synced = app.request(Method::POST, "/merchants/sync").key(&key).json(&theirs).send().await;
    assert_ne!(synced.json["merchants"][0]["merchant_id"], merchant.as_str());
    assert_eq!(app.get(&format!("/merchants/{merchant}")).await.json["merchant"]["name"], "Shop");
    let event = log.json["deliveries"][0]["event_id"].as_str().unwrap();
    for list in [format!("/payments?after={payment}"), format!("/api/v1/events?after={event}")] {
        app.request(Method::GET, &list).key(&key).send().await.assert_problem(400, "invalid_parameters");
    }
}
