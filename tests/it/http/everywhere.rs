//! Properties of every route.

use super::customers::individual;
use crate::openapi::{self, WrongBody};
use crate::prelude::*;

shared!(#[tokio::test] every_route, app = TestApp::start().await, app.renew_psp() =>
    requests_have_ids_and_answers_are_not_cacheable, unknown_routes_return_a_problem_document,
    openapi_document_is_sound_and_its_page_loads_nothing_else, described_records_have_ids_and_times);

async fn requests_have_ids_and_answers_are_not_cacheable(app: &TestApp) {
    let own = app.get("/merchants").await;
    assert!(own.header("x-request-id").unwrap().starts_with("req_"));
    let given = app.request(Method::GET, "/merchants").header("x-request-id", "trace-1.2:3_4").send().await;
    assert_eq!(given.header("x-request-id"), Some("trace-1.2:3_4"));
    for insane in ["", "a b", "<script>", &"x".repeat(129)] {
        let reply = app.request(Method::GET, "/nowhere").header("x-request-id", insane).send().await;
        assert!(reply.header("x-request-id").unwrap().starts_with("req_"), "{insane}");
        assert_eq!(reply["request_id"].as_str(), reply.header("x-request-id"));
    }
    assert_eq!(own.header("cache-control"), Some("no-store"));
    assert_eq!(own.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(own.header("content-type"), Some("application/json"));
}

async fn unknown_routes_return_a_problem_document(app: &TestApp) {
    let reply = app.open("/nowhere").await;
    reply.assert_problem(404, "route_not_found");
    insta::assert_json_snapshot!("route_not_found", reply.redacted());
    for path in ["/", "/api/v1", "/api/v1/nowhere", "/merchants/", "/api/v1/docs", "/api/v1x/merchants"] {
        app.get(path).await.assert_problem(404, "route_not_found");
    }
    let reply = app.request(Method::DELETE, "/merchants").send().await;
    reply.assert_problem(405, "method_not_allowed");
    assert_eq!(reply.header("allow"), Some("GET,HEAD"));
    let reply = app.get("/api/v1/merchants/sync").await;
    // A merchant's path, but "sync" is not a merchant.
    assert_eq!(reply.header("allow"), Some("POST"));
    reply.assert_problem(405, "method_not_allowed");
}

async fn openapi_document_is_sound_and_its_page_loads_nothing_else(app: &TestApp) {
    let reply = app.open("/openapi.json").await;
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_has(&reply, json!({ "openapi": "3.1.0", "servers": [{ "url": "https://pay.example" }] }));
    openapi::assert_sound(&reply, 500);
    // The reference page has no inline script and loads no external resources.
    let reply = app.open("/docs").await;
    assert_eq!(reply.header("content-type"), Some("text/html; charset=utf-8"));
    reply.assert_hides(&["http:", "https:", "<script>", "style", "url("]);
    let policy = reply.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; "), "{policy}");
    assert!(!policy.contains("http") && !policy.contains("eval"), "{policy}");
    let scripts: Vec<_> =
        reply.text().split("src=\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect();
    assert_eq!(scripts, ["/docs/docs.js", "/docs/scalar.js"]);
    for script in scripts {
        let script = app.open(&script).await.ok(200);
        assert_eq!(script.header("content-type"), Some("text/javascript; charset=utf-8"));
        script.assert_shows(&["createApiReference"]);
    }
}

/// Records in the document: their names and times, and the place of a record in the answer to its read.
async fn described_records_have_ids_and_times(app: &TestApp) {
    /// Schemas that are no records: parts of the answers to a change.
    const OTHERS: [&str; 3] = ["Synced", "DeletedEndpoint", "SetWebhookAnswer"];

    let document = app.open("/openapi.json").await.json;
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let has = |schema: &Value, field: &str| schema["properties"].get(field).is_some();
    let mut records = 0;
    for (name, schema) in schemas.iter().filter(|(name, schema)| has(schema, "id") && !OTHERS.contains(&name.as_str()))
    {
        assert!(has(schema, "created_at") && has(schema, "updated_at"), "{name}");
        assert_eq!(has(schema, "failure_reason"), has(schema, "failure"), "{name}");
        records += 1;
    }
    assert!(records >= 7, "{records}");
    for (path, item) in document["paths"].as_object().unwrap().iter().filter(|(path, _)| path.ends_with("_id}")) {
        let Some(read) = item.get("get") else { continue };
        let schema = read["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].as_str().unwrap();
        let wrapped = ["customer", "merchant"].into_iter().find(|name| path.ends_with(&format!("{name}_id}}")));
        let said = wrapped.map_or("Returns the record itself.".to_owned(), |name| format!("ecord is in `{name}`"));
        assert!(read["description"].as_str().unwrap().contains(&said), "{path}: {}", read["description"]);
        let schema = document.pointer(schema.trim_start_matches('#')).unwrap();
        assert_eq!(wrapped.is_some(), has(schema, "message"), "{path}");
        assert!(wrapped.is_none_or(|name| has(schema, name)), "{path}");
    }
}

/// Sends each described field with a value of a wrong type. The error names all of them, and nothing else.
#[tokio::test]
async fn every_described_field_is_read() {
    let app = TestApp::start_with_chains().await;
    let document = app.open("/openapi.json").await.json;
    let payment = app.add_payment().await;
    let customer = app.post("/api/v1/customers", &individual()).await.ok(201);
    let customer = customer["customers"][0]["id"].as_str().unwrap();
    let mut bodies = 0;
    for WrongBody { method, path, body, fields } in openapi::wrong_bodies(&document) {
        let path = path.replace("{payment_id}", payment.id()).replace("{customer_id}", customer);
        if path.contains('{') {
            continue;
        }
        let reply = app.request(method.clone(), &path).json(&body).send().await;
        openapi::assert_names(&reply, &fields);
        bodies += 1;
    }
    assert!(bodies >= 12, "{bodies} bodies");
}

/// A database outage is not the client's error: every route asks the client to retry.
#[tokio::test]
async fn every_route_reports_a_database_outage() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let made = app.add_payment().await;
    let payment = made.id();
    let described = app.get("/openapi.json").await.json;
    app.state.database().clone().close().await.unwrap();

    let paths = described["paths"].as_object().unwrap();
    let read = paths.iter().filter(|(_, methods)| methods.get("get").is_some()).map(|(path, _)| path);
    let mut away = 0;
    for path in read {
        let path = path.replace("{payment_id}", payment);
        let reply = app.get(&path).await;
        assert_ne!(reply.status, 500, "{path}: {}", reply.text());
        away += usize::from(reply.status == 503);
    }
    assert!(away >= 10, "{away} of them read the database");

    let refund = format!("/payments/{payment}/refunds");
    let money = json!({ "amount": "1", "currency": "USDC", "chain": "base" });
    let customer = with(&money, &json!({ "customer_id": CustomerId::generate().to_string() }));
    let initiation = with(&money, &json!({ "merchant_id": merchant }));
    let back = json!({ "amount": "1", "address": "0x70997970C51812dc3A010C7d01b50e0d17dc79C8" });
    for (path, body) in [
        ("/withdrawals", &money),
        ("/payouts", &customer),
        ("/transfers", &customer),
        ("/payments/initiate", &initiation),
        (refund.as_str(), &back),
    ] {
        let reply = app.post_keyed(path, path, body).await;
        assert_eq!(reply.status, 503, "{path}: {}", reply.text());
    }
}
