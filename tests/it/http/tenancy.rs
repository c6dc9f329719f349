//! Every documented route: without a key, with too little scope, and with another PSP's key.

use axum::http::Method;
use payferry_domain::KeyScope as Scope;
use serde_json::{Value, json};

use crate::app::TestApp;
use crate::cli::customers::{make_ready, person};
use crate::http::customers::paid_out::{payee, register};
use crate::process::{Home, Running};

/// A ULID without an object.
const NOWHERE: &str = "01J9Z3K4M5N6P7Q8R9S0T1V2W3";

/// Returns every method and path.
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
async fn every_route_requires_a_key_and_sufficient_scope() {
    let app = TestApp::start().await;
    let routes = routes(&app).await;
    assert!(routes.len() >= 22, "{routes:?}");
    let nothing_to_read = app.add_key(app.psp_id, &[Scope::Money, Scope::Customers]).await;
    let only_read = app.add_key(app.psp_id, &[Scope::Read, Scope::Money, Scope::Customers]).await;
    let no_customers = app.add_key(app.psp_id, &[Scope::Read, Scope::Money, Scope::Payments, Scope::Webhooks]).await;
    let no_money = app.add_key(app.psp_id, &[Scope::Read, Scope::Payments, Scope::Customers, Scope::Webhooks]).await;
    for (method, template) in routes {
        let path =
            template.replace("{payment_id}", "pay_x").replace("{merchant_id}", "merch_x").replace("{delivery_id}", "x");
        let path =
            path.replace("{customer_id}", "cr_x").replace("{payout_id}", "po_x").replace("{withdrawal_id}", "wd_x");
        let path = path.replace("{transfer_id}", "tr_x");
        let prefixed = format!("/api/v1{path}");
        let spellings = if path.starts_with("/api/v1") { vec![path] } else { vec![path, prefixed] };
        for path in spellings {
            let call = || app.request(method.clone(), &path).json(&json!({}));
            call().without_key().send().await.assert_problem(401, "api_key_missing");
            let key = match method {
                // The scope for lists does not include documents of customers.
                Method::GET if path.contains("/documents/") => &no_customers,
                Method::GET => &nothing_to_read,
                _ if path.contains("/customers") => &no_customers,
                _ if ["/refunds", "/resolve", "/payouts", "/withdrawals", "/transfers"]
                    .iter()
                    .any(|end| path.ends_with(end)) =>
                {
                    &no_money
                }
                _ => &only_read,
            };
            call().key(key).send().await.assert_problem(403, "missing_scope");
        }
    }
}

#[tokio::test]
async fn objects_of_another_psp_are_not_found() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let made = app.add_payment(&merchant).await;
    let payment = made.json["payment_id"].as_str().unwrap();
    app.pay(&made, "10").await;
    app.payment_when(&made, "settled").await;
    let customer = json!({ "type": "individual", "country": "NGA", "currency": "NGN", "email": "mine@example.com",
        "first_name": "Ada", "last_name": "L", "dob": "1990-12-10", "government_id_number": "P1",
        "residential_address": { "street_line_1": "1", "city": "Lagos", "country": "NGA" } });
    let customer =
        app.post("/api/v1/customers", &customer).await.json["customers"][0]["id"].as_str().unwrap().to_owned();
    let log = app.get(&format!("/payments/{payment}/webhooks")).await;
    let delivery = log.json["deliveries"][0]["id"].as_str().unwrap();
    let paid = payee(&app).await;
    register(&app).await;
    let ordered = async |path: &str, id: &str, body: Value| {
        let asked = app.post(path, &body).await;
        assert_eq!(asked.status, 202, "{path}: {}", asked.text());
        asked.json[id].as_str().unwrap().to_owned()
    };
    let withdrawal = json!({ "amount": "1", "currency": "USDC", "chain": "base" });
    let to_customer = json!({ "customer_id": paid, "amount": "1", "currency": "USDC", "chain": "base" });
    let refund = json!({ "amount": "1", "address": "0x000000000000000000000000000000000000ada6" });
    let names = [
        ("{payment_id}", payment.to_owned()),
        ("{merchant_id}", merchant.clone()),
        ("{delivery_id}", delivery.to_owned()),
        ("{customer_id}", customer.clone()),
        ("{kind}", "proof_of_residential_address".to_owned()),
        ("{payout_id}", ordered("/payouts", "id", to_customer.clone()).await),
        ("{withdrawal_id}", ordered("/withdrawals", "id", withdrawal).await),
        ("{transfer_id}", ordered("/transfers", "payment_id", to_customer).await),
        ("{refund_id}", ordered(&format!("/payments/{payment}/refunds"), "refund_id", refund).await),
    ];

    let other = app.add_psp().await;
    let key = app.add_key(other, &[Scope::Full]).await;
    let mut walked = 0;
    for (method, template) in routes(&app).await.into_iter().filter(|(_, path)| path.contains('{')) {
        let path = names.iter().fold(template, |path, (name, id)| path.replace(name, id));
        assert!(!path.contains('{'), "{path}");
        let theirs = app.request(method.clone(), &path).key(&key).send().await;
        assert_eq!(theirs.status, 404, "{method} {path}");
        assert!(theirs.code().ends_with("_not_found") && theirs.code() != "route_not_found", "{}", theirs.code());
        // The answer equals that for an object that does not exist.
        let nowhere = names.iter().fold(path.clone(), |path, (_, id)| match id.rsplit_once('_') {
            Some((prefix, ulid)) if ulid.len() == 26 => path.replace(id, &format!("{prefix}_{NOWHERE}")),
            _ => path,
        });
        assert_eq!(app.request(method.clone(), &nowhere).send().await.code(), theirs.code(), "{method} {nowhere}");
        // Its owner finds it, or at least the customer without such a document.
        if method == Method::GET {
            let own = app.request(method, &path);
            if path.contains("/documents/") {
                own.send().await.assert_problem(404, "document_not_found");
            } else {
                assert_eq!(own.begin().await.status(), 200, "{path}");
            }
        }
        walked += 1;
    }
    assert!(walked >= 8);
    let body = json!({ "merchant_id": merchant, "amount": "10", "currency": "USDC", "chain": "base" });
    let initiate = app.request(Method::POST, "/payments/initiate").key(&key).json(&body);
    initiate.send().await.assert_problem(404, "merchant_not_found");
    for list in [
        "/api/v1/customers",
        "/api/v1/customers?search=mine",
        "/merchants",
        "/payments",
        "/payouts",
        "/withdrawals",
        "/transfers",
        "/api/v1/webhook/undelivered",
        "/api/v1/events",
    ] {
        assert_eq!(app.request(Method::GET, list).key(&key).send().await.json["total"], 0, "{list}");
    }
    let theirs = json!({ "merchants": [{ "external_id": "theirs", "name": "Theirs", "email": "t@shop.example",
        "business_id": "2" }] });
    let synced = app.request(Method::POST, "/merchants/sync").key(&key).json(&theirs).send().await;
    let own_merchant = &synced.json["merchants"][0]["merchant_id"];
    let body = json!({ "merchant_id": own_merchant, "customer_id": customer, "amount": "10", "currency": "USDC",
        "chain": "base" });
    let initiate = app.request(Method::POST, "/payments/initiate").key(&key).json(&body);
    initiate.send().await.assert_problem(404, "customer_not_found");
    let details = json!({ "customer_id": customer, "wallet_address": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913" });
    let details = app.request(Method::PATCH, "/api/v1/customers/payment-details").key(&key).json(&details);
    details.send().await.assert_problem(404, "customer_not_found");
    let verify = app.request(Method::POST, "/customers/compliance").key(&key).json(&json!({ "customer_id": customer }));
    verify.send().await.assert_problem(404, "customer_not_found");
    let payout = json!({ "customer_id": customer, "amount": "1", "currency": "USDC", "chain": "base" });
    for path in ["/payouts", "/transfers"] {
        let refused = app.request(Method::POST, path).key(&key).json(&payout).send().await;
        refused.assert_problem(404, "customer_not_found");
    }
    let withdrawal = json!({ "amount": "1", "currency": "USDC", "chain": "base" });
    let withdrawal = app.request(Method::POST, "/withdrawals").key(&key).json(&withdrawal).send().await;
    withdrawal.assert_problem(409, "withdrawal_wallet_missing");
    assert_eq!(app.request(Method::GET, "/ledger/entries").key(&key).send().await.json["entries"], json!([]));
    let balances = app.request(Method::GET, "/balances").key(&key).send().await;
    let balances = balances.json["balances"].as_array().unwrap();
    assert!(balances.iter().all(|balance| balance["available"] == "0.00"), "{balances:?}");
    let by_customer = app.request(Method::GET, &format!("/payments?customer_id={customer}")).key(&key).send().await;
    assert_eq!(by_customer.json["total"], 0);
    let kept = &app.get(&format!("/api/v1/customers/{customer}")).await.json["customer"];
    assert_eq!((&kept["is_active"], &kept["payment_details"]), (&json!(true), &json!(null)), "no other PSP changed it");
    // Routes without an id in the path are tested below; new ones must be added to the list.
    let rest = routes(&app).await.into_iter().filter(|(_, path)| !path.contains('{'));
    let mut rest: Vec<_> = rest.map(|(method, path)| format!("{method} {path}")).collect();
    rest.sort();
    let checked_len = [
        "GET /api/v1/customers",
        "GET /api/v1/events",
        "GET /api/v1/settings",
        "GET /api/v1/webhook",
        "GET /api/v1/webhook/undelivered",
        "GET /balances",
        "GET /ledger/entries",
        "GET /ledger/statement",
        "GET /merchants",
        "GET /payments",
        "GET /payouts",
        "GET /transfers",
        "GET /withdrawals",
        "PATCH /api/v1/customers/payment-details",
        "PATCH /api/v1/customers/uploads",
        "PATCH /api/v1/set_webhook",
        "PATCH /api/v1/settings",
        "POST /api/v1/customers",
        "POST /api/v1/webhook/redeliver",
        "POST /api/v1/webhook/rotate",
        "POST /api/v1/webhook/test",
        "POST /customers/compliance",
        "POST /merchants/sync",
        "POST /payments/initiate",
        "POST /payouts",
        "POST /transfers",
        "POST /withdrawals",
    ];
    assert_eq!(rest, checked_len);
    let hook = json!({ "webhook_url": "http://127.0.0.1:9/mine" });
    let set = app.request(Method::PATCH, "/api/v1/set_webhook").json(&hook).send().await;
    assert_eq!(set.status, 200, "{}", set.text());
    let shown = app.request(Method::GET, "/api/v1/webhook").key(&key).send().await;
    assert!(!shown.text().contains("/mine"), "{}", shown.text());
    let tolerant = app.request(Method::PATCH, "/api/v1/settings").json(&json!({ "tolerance": "0.07" })).send().await;
    assert_eq!(tolerant.status, 200, "{}", tolerant.text());
    let shown = app.request(Method::GET, "/api/v1/settings").key(&key).send().await;
    assert_eq!(shown.json["settings"]["tolerance"], "0.00");
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

#[tokio::test]
async fn sandbox_routes_reject_payments_of_another_psp() {
    let home = Home::new().await;
    let sandbox = Running::start(&home);
    let merchant = sandbox.merchant().await;
    let id = sandbox.payment(&merchant).await;
    let client = reqwest::Client::new();
    let make = async |path: &str, body: &Value| {
        let url = format!("{}{path}", sandbox.text("operator_url"));
        let made = client.post(url).bearer_auth(sandbox.text("operator_token")).json(body).send().await.unwrap();
        made.json::<Value>().await.unwrap()
    };
    let other = make("/ops/psps", &json!({ "name": "Southern Pay" })).await;
    let keys = format!("/ops/psps/{}/keys", other["psp_id"].as_str().unwrap());
    let key = make(&keys, &json!({ "name": "theirs" })).await;
    let key = key["api_key"].as_str().unwrap();
    for what in ["pay", "panic"] {
        let url = format!("{}/sandbox/payments/{id}/{what}", sandbox.text("api_url"));
        let theirs = client.post(url).bearer_auth(key).send().await.unwrap();
        assert_eq!(theirs.status(), 404, "{what}");
        assert_eq!(theirs.json::<Value>().await.unwrap()["code"], "payment_not_found", "{what}");
    }
    let read = sandbox.ok(Method::GET, &format!("/payments/{id}"), None).await;
    assert_eq!((&read["status"], &read["transfers"]), (&json!("pending"), &json!([])));
    for what in ["panic", "pay"] {
        sandbox.ok(Method::POST, &format!("/sandbox/payments/{id}/{what}"), None).await;
    }
    sandbox.until(&format!("/payments/{id}"), |payment| payment["status"] == "settled").await;
    sandbox.stop();
}

#[tokio::test]
async fn sandbox_routes_find_a_payment_by_its_own_id_only() {
    let home = Home::new().await;
    let sandbox = Running::start(&home);
    let payment = sandbox.payment(&sandbox.merchant().await).await;
    let customer = person(&sandbox).await;
    let wallet = json!({ "customer_id": customer, "wallet_address": "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359" });
    sandbox.ok(Method::PATCH, "/api/v1/customers/payment-details", Some(wallet)).await;
    make_ready(&home, &sandbox, &customer).await;
    let approved = json!({ "outcome": "approved" });
    sandbox.ok(Method::POST, &format!("/sandbox/customers/{customer}/kyc"), Some(approved)).await;
    let asked = json!({ "customer_id": customer, "amount": "5", "currency": "USDC", "chain": "base" });
    let made = sandbox.ok(Method::POST, "/transfers", Some(asked)).await;
    let transfer = made["payment_id"].as_str().unwrap().to_owned();
    let (as_transfer, as_payment) = (payment.replacen("pay_", "tr_", 1), transfer.replacen("tr_", "pay_", 1));
    for (id, no_id) in [(payment, as_transfer), (transfer, as_payment)] {
        for what in ["panic", "pay"] {
            let path = format!("/sandbox/payments/{no_id}/{what}");
            let (status, problem) = sandbox.call(Method::POST, &path, None).await;
            assert_eq!((status.as_u16(), &problem["code"]), (404, &json!("payment_not_found")), "{path}");
            let done = sandbox.ok(Method::POST, &format!("/sandbox/payments/{id}/{what}"), None).await;
            assert_eq!(done["payment_id"], id, "{what}");
        }
        sandbox.until(&format!("/payments/{id}"), |payment| payment["status"] == "settled").await;
    }
    sandbox.stop();
}
