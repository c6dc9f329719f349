//! Query parameters: unknown ones, and the filters of every list.

use super::customers::paid_out::{payee, payout};
use super::tenancy::{NOWHERE, routes};
use crate::prelude::*;
use crate::process::Running;

#[tokio::test]
async fn unknown_parameters_are_refused_by_every_operation_and_all_named() {
    let app = TestApp::start().await;
    let routes = routes(&app).await;
    assert!(routes.len() >= 22, "{routes:?}");
    for (method, template) in routes {
        let path = template.replace("{kind}", "proof_of_residential_address").replace('{', "").replace("_id}", "");
        for path in [path.clone(), format!("/api/v1{}", path.trim_start_matches("/api/v1"))] {
            let call = |query: &str| app.request(method.clone(), &format!("{path}?{query}")).json(&json!({}));
            call("nope=1").without_key().send().await.assert_problem(401, "api_key_missing");
            let refused = call("zero=&nope=1&nope=2").send().await;
            refused.assert_problem(400, "invalid_parameters");
            let faults = refused.faults();
            assert!(faults.contains("nope: unknown_parameter, zero: unknown_parameter"), "{method} {path}: {faults}");
        }
    }
    let refused = app.get("/payments?state=paid&status=paid&limit=0").await;
    assert_eq!(refused.faults(), "state: unknown_parameter, status: unknown_value, limit: out_of_range");
    assert_eq!(app.request(Method::HEAD, "/payments?nope=1").send().await.status, 400);
    assert_eq!(app.request(Method::HEAD, "/payments?limit=1").send().await.status, 200);
    // Payers and providers use these, and other programs may add parameters to their links.
    for path in [format!("/pay/{NOWHERE}"), "/consent".to_owned()] {
        let (plain, tagged) = (app.open(&path).await, app.open(&format!("{path}?utm=1")).await);
        assert_eq!((plain.status, plain.text()), (tagged.status, tagged.text()), "{path}");
    }
    let called = app.request(Method::POST, "/compliance/callbacks/nobody?utm=1").without_key().send().await;
    assert_ne!(called.status, 400);
}

#[tokio::test]
async fn sandbox_routes_refuse_unknown_parameters_except_the_inbox() {
    let sandbox = Running::new().await;
    let (status, problem) = sandbox.call(Method::GET, "/sandbox?nope=1", None).await;
    assert_eq!((status.as_u16(), &problem["errors"][0]["field"]), (400, &json!("nope")));
    let inbox = sandbox.ok(Method::GET, "/sandbox/inbox/filters?anything=1&limit=5", None).await;
    assert_eq!(inbox["webhooks"], json!([]));
}

/// Asserts the ids in a list for each query, also with the key of another PSP, which finds none.
async fn assert_lists(app: &TestApp, list: &str, (items, id): (&str, &str), cases: &[(String, Vec<&str>)]) {
    let stranger = app.stranger().await;
    for (query, expected) in cases {
        let path = format!("{list}?{query}");
        let found = app.get(&path).await.ok(200);
        assert_eq!(column(&found[items], id), *expected, "{path}");
        assert_eq!(found["total"], expected.len(), "{path}");
        let theirs = app.get_as(&stranger, &path).await.ok(200);
        assert_eq!((&theirs[items], &theirs["total"]), (&json!([]), &json!(0)), "{path}");
    }
}

#[tokio::test]
async fn payments_and_events_are_filtered() {
    let app = TestApp::start_with_chains().await;
    let settled = app.paid("10", "settled").await;
    let less = app.paid("3", "mismatched").await;
    let more = app.paid("12", "mismatched").await;
    let other = app.initiate(&json!({ "chain": "polygon", "currency": "USDT" })).await.ok(201);
    let [settled, less, more, other] = [&settled, &less, &more, &other].map(Reply::id);
    let read = async |id: &str| app.get(&format!("/payments/{id}")).await.json;
    let (done, under, over) = (read(settled).await, read(less).await, read(more).await);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let cases = [
        ("chain=base".to_owned(), vec![more, less, settled]),
        ("chain=polygon".to_owned(), vec![other]),
        ("currency=USDT".to_owned(), vec![other]),
        ("currency=USDC&chain=polygon".to_owned(), vec![]),
        ("label=UNDERPAID".to_owned(), vec![less]),
        ("label=OVERPAID".to_owned(), vec![more]),
        ("label=IN_REVIEW".to_owned(), vec![]),
        (format!("tx_hash={}", text(&under["transfers"][0]["tx_hash"])), vec![less]),
        (format!("tx_hash={}", text(&done["transfers"][0]["tx_hash"])), vec![settled]),
        (format!("tx_hash={}", text(&done["settlement"]["tx_hash"])), vec![settled]),
        (format!("tx_hash=0x{}", "00".repeat(32)), vec![]),
        (format!("wallet={}", text(&over["intermediary_wallet"])), vec![more]),
        (format!("wallet={}&label=UNDERPAID", text(&over["intermediary_wallet"])), vec![]),
        (format!("updated_from={}", text(&over["updated_at"])), vec![other, more]),
        ("updated_from=2999-01-01T00:00:00Z".to_owned(), vec![]),
    ];
    assert_lists(&app, "/payments", ("payments", "payment_id"), &cases).await;

    // With the cursor.
    let last = app.get(&format!("/payments?chain=base&after={more}&limit=1")).await.ok(200);
    assert_eq!((column(&last["payments"], "payment_id"), &last["next_after"]), (vec![json!(less)], &json!(less)));
    let after = app.get(&format!("/payments?label=UNDERPAID&after={less}")).await.ok(200);
    assert_eq!(after["payments"], json!([]));
    let bad = app.get("/payments?chain=moon&currency=EUR&label=late&tx_hash=0x1&wallet=0x1&updated_from=now").await;
    assert_eq!(
        bad.faults_sorted(),
        "chain: unknown_value, currency: unknown_value, label: unknown_value, tx_hash: invalid_hash, \
         updated_from: invalid_timestamp, wallet: invalid_address"
    );

    let feed = app.get(&format!("/api/v1/events?payment_id={settled}")).await.ok(200);
    assert_eq!((feed["total"].as_u64(), feed["events"].as_array().unwrap().len()), (Some(4), 4), "{}", feed.text());
    assert!(column(&feed["events"], "payment_id").iter().all(|id| id == settled), "{}", feed.text());
    let rest = app
        .get(&format!("/api/v1/events?payment_id={settled}&after={}", feed["events"][0]["event_id"].as_str().unwrap()))
        .await
        .ok(200);
    assert_eq!(rest["events"].as_array().unwrap()[..], feed["events"].as_array().unwrap()[1..]);
    let none = [(format!("payment_id=tr_{NOWHERE}"), vec![]), (format!("payment_id=po_{NOWHERE}"), vec![])];
    assert_lists(&app, "/api/v1/events", ("events", "payment_id"), &none).await;
    let theirs = app.get_as(&app.stranger().await, &format!("/api/v1/events?payment_id={settled}")).await.ok(200);
    assert_eq!((&theirs["total"], &theirs["events"]), (&json!(0), &json!([])));
    assert_eq!(app.get("/api/v1/events?payment_id=x").await.faults(), "payment_id: invalid_id");
}

#[tokio::test]
async fn transfers_payouts_merchants_and_customers_are_filtered() {
    let app = TestApp::start_with_chains().await;
    app.paid("10", "settled").await;
    let (one, two) = (payee(&app).await, payee(&app).await);
    let order = async |path: &str, id: &str, body: Value| app.post(path, &body).await.ok(202).string(id).to_owned();
    let first = order("/payouts", "id", with(&payout(&one, "1"), &json!({ "reference": "R-1" }))).await;
    let second = order("/payouts", "id", payout(&two, "2")).await;
    let cases = [
        (format!("customer_id={one}"), vec![first.as_str()]),
        (format!("customer_id={two}"), vec![second.as_str()]),
        ("reference=R-1".to_owned(), vec![first.as_str()]),
        (format!("reference=R-1&customer_id={two}"), vec![]),
    ];
    assert_lists(&app, "/payouts", ("payouts", "id"), &cases).await;
    let refused = app.get("/withdrawals?customer_id=x").await;
    assert_eq!(refused.faults(), "customer_id: unknown_parameter");
    assert_eq!(app.get("/payouts?customer_id=x").await.faults(), "customer_id: invalid_id");

    let open = order("/transfers", "payment_id", payout(&one, "1")).await;
    let ended = order("/transfers", "payment_id", payout(&one, "2")).await;
    app.post(&format!("/payments/{ended}/cancel"), &json!({})).await.ok(200);
    let cases = [
        ("status=pending".to_owned(), vec![open.as_str()]),
        ("status=failed".to_owned(), vec![ended.as_str()]),
        ("status=settled".to_owned(), vec![]),
    ];
    assert_lists(&app, "/transfers", ("transfers", "payment_id"), &cases).await;
    assert_eq!(app.get("/transfers?status=sent").await.faults(), "status: unknown_value");

    let shop = app.add_merchant().await;
    let merchant = json!({ "external_id": "b", "name": "B", "email": "b@shop.example", "business_id": "2" });
    app.post("/merchants/sync", &json!({ "merchants": [merchant] })).await.ok(200);
    let cases = [("external_id=shop".to_owned(), vec![shop.as_str()]), ("external_id=sho".to_owned(), vec![])];
    assert_lists(&app, "/merchants", ("merchants", "merchant_id"), &cases).await;

    let pending = super::customers::add(&app, &super::customers::individual()).await;
    let cases = [
        ("kyc_status=pending".to_owned(), vec![pending.as_str()]),
        ("kyc_status=approved".to_owned(), vec![two.as_str(), one.as_str()]),
        ("kyc_status=rejected&status=active".to_owned(), vec![]),
    ];
    assert_lists(&app, "/api/v1/customers", ("customers", "id"), &cases).await;
    assert_eq!(app.get("/api/v1/customers?kyc_status=maybe").await.faults(), "kyc_status: unknown_value");
}
