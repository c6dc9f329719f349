//! Every documented route: without a key, with too little scope, and with another PSP's key.

use crate::cli::customers::{make_ready, person};
use crate::http::checkout::picture;
use crate::http::customers::paid_out::{payee, payout, register, withdrawal};
use crate::http::customers::{add, individual};
use crate::http::payer_refunds::claimed;
use crate::prelude::*;
use crate::process::Running;

/// A ULID without an object.
pub(super) const NOWHERE: &str = "01J9Z3K4M5N6P7Q8R9S0T1V2W3";

/// Returns every method and path.
pub(super) async fn routes(app: &TestApp) -> Vec<(Method, String)> {
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
    let money = ["/refunds", "/resolve", "/payouts", "/withdrawals", "/transfers", "/approve", "/decline"];
    for (method, template) in routes {
        let ids = [("payment", "pay_x"), ("merchant", "merch_x"), ("delivery", "x"), ("customer", "cr_x")];
        let ids = ids.into_iter().chain([("payout", "po_x"), ("withdrawal", "wd_x"), ("transfer", "tr_x")]);
        let path = ids.fold(template, |path, (name, id)| path.replace(&format!("{{{name}_id}}"), id));
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
                _ if money.iter().any(|end| path.ends_with(end)) => &no_money,
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
    app.patch("/api/v1/settings", &json!({ "payer_refunds": "approve" })).await.ok(200);
    let made = app.paid("10", "settled").await;
    app.pay(&made, "1").await;
    let is_again = |read: &Reply| read["excess_received"] == "1.00" && read["transfers"][1]["status"] == "final";
    app.get_until(&made.path(), is_again).await;
    let request = claimed(&app, &made, "0x000000000000000000000000000000000000ada6").await;
    let payment = made.id();
    let customer = add(&app, &with(&individual(), &json!({ "email": "mine@example.com" }))).await;
    let log = app.get(&format!("/payments/{payment}/webhooks")).await;
    let delivery = log["deliveries"][0]["id"].as_str().unwrap();
    let paid = payee(&app).await;
    register(&app).await;
    let ordered = async |path: &str, id: &str, body: Value| app.post(path, &body).await.ok(202).string(id).to_owned();
    let (to_customer, withdrawal) = (payout(&paid, "1"), withdrawal("1"));
    let refund = json!({ "amount": "1", "address": "0x000000000000000000000000000000000000ada6" });
    let endpoint = app.post("/api/v1/webhook-endpoints", &json!({ "url": "https://psp.example/" })).await.ok(201);
    let names = [
        ("{payment_id}", payment.to_owned()),
        ("{merchant_id}", merchant.clone()),
        ("{delivery_id}", delivery.to_owned()),
        ("{endpoint_id}", endpoint.string("id").to_owned()),
        ("{event_id}", log["deliveries"][0]["event_id"].as_str().unwrap().to_owned()),
        ("{customer_id}", customer.clone()),
        ("{key_id}", app.add_key_as(app.psp_id, &[Scope::Read], |_| {}).await.0.to_string()),
        ("{kind}", "proof_of_residential_address".to_owned()),
        ("{payout_id}", ordered("/payouts", "id", to_customer.clone()).await),
        ("{withdrawal_id}", ordered("/withdrawals", "id", withdrawal.clone()).await),
        ("{transfer_id}", ordered("/transfers", "payment_id", to_customer.clone()).await),
        ("{refund_request_id}", request),
        ("{refund_id}", ordered(&format!("/payments/{payment}/refunds"), "refund_id", refund).await),
    ];

    let key = app.stranger().await;
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
    app.post_as(&key, "/payments/initiate", &body).await.assert_problem(404, "merchant_not_found");
    for list in [
        "/api/v1/customers",
        "/api/v1/customers?search=mine",
        "/merchants",
        "/payments",
        "/payouts",
        "/refunds",
        "/refund-requests",
        "/withdrawals",
        "/transfers",
        "/api/v1/webhook/undelivered",
        "/api/v1/events",
    ] {
        assert_eq!(app.get_as(&key, list).await["total"], 0, "{list}");
    }
    let merchant_of = async |external_id: &str| {
        let theirs =
            json!({ "external_id": external_id, "name": "Theirs", "email": "t@shop.example", "business_id": "2" });
        let synced = app.post_as(&key, "/merchants/sync", &json!({ "merchants": [theirs] })).await;
        synced["merchants"][0]["merchant_id"].clone()
    };
    let body = with(&body, &json!({ "merchant_id": merchant_of("theirs").await, "customer_id": customer }));
    app.post_as(&key, "/payments/initiate", &body).await.assert_problem(404, "customer_not_found");
    let details = json!({ "customer_id": customer, "wallet_address": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913" });
    let details = app.request(Method::PATCH, "/api/v1/customers/payment-details").key(&key).json(&details);
    details.send().await.assert_problem(404, "customer_not_found");
    let payout = with(&to_customer, &json!({ "customer_id": customer }));
    for (path, body) in
        [("/customers/compliance", &json!({ "customer_id": customer })), ("/payouts", &payout), ("/transfers", &payout)]
    {
        app.post_as(&key, path, body).await.assert_problem(404, "customer_not_found");
    }
    app.post_as(&key, "/withdrawals", &withdrawal).await.assert_problem(409, "withdrawal_wallet_missing");
    assert_eq!(app.get_as(&key, "/ledger/entries").await["entries"], json!([]));
    let balances = app.get_as(&key, "/balances").await;
    let balances = balances["balances"].as_array().unwrap();
    assert!(balances.iter().all(|balance| balance["available"] == "0.00"), "{balances:?}");
    assert_eq!(app.get_as(&key, &format!("/payments?customer_id={customer}")).await["total"], 0);
    let kept = &app.get(&format!("/api/v1/customers/{customer}")).await["customer"];
    assert_eq!((&kept["is_active"], &kept["payment_details"]), (&json!(true), &json!(null)), "no other PSP changed it");
    // Routes without an id in the path are tested below; new ones must be added to the list.
    let rest = routes(&app).await.into_iter().filter(|(_, path)| !path.contains('{'));
    let mut rest: Vec<_> = rest.map(|(method, path)| format!("{method} {path}")).collect();
    rest.sort();
    let checked_len = [
        "DELETE /api/v1/settings/logo",
        "GET /api/v1/customers",
        "GET /api/v1/events",
        "GET /api/v1/keys",
        "GET /api/v1/keys/current",
        "GET /api/v1/settings",
        "GET /api/v1/webhook",
        "GET /api/v1/webhook-endpoints",
        "GET /api/v1/webhook/undelivered",
        "GET /balances",
        "GET /ledger/entries",
        "GET /ledger/statement",
        "GET /merchants",
        "GET /payments",
        "GET /payouts",
        "GET /refund-requests",
        "GET /refunds",
        "GET /transfers",
        "GET /withdrawals",
        "PATCH /api/v1/customers/payment-details",
        "PATCH /api/v1/customers/uploads",
        "PATCH /api/v1/set_webhook",
        "PATCH /api/v1/settings",
        "POST /api/v1/customers",
        "POST /api/v1/keys",
        "POST /api/v1/webhook-endpoints",
        "POST /api/v1/webhook/redeliver",
        "POST /api/v1/webhook/rotate",
        "POST /api/v1/webhook/test",
        "POST /customers/compliance",
        "POST /merchants/sync",
        "POST /payments/initiate",
        "POST /payouts",
        "POST /transfers",
        "POST /withdrawals",
        "PUT /api/v1/settings/logo",
    ];
    assert_eq!(rest, checked_len);
    assert_eq!(app.get_as(&key, "/api/v1/webhook-endpoints").await["total"], 0);
    assert_eq!(column(&app.get_as(&key, "/api/v1/keys").await["keys"], "is_current"), [true]);
    assert_ne!(app.get_as(&key, "/api/v1/keys/current").await["psp_id"], app.psp_id.to_string());
    app.patch("/api/v1/set_webhook", &json!({ "webhook_url": "http://127.0.0.1:9/mine" })).await.ok(200);
    app.get_as(&key, "/api/v1/webhook").await.assert_hides(&["/mine"]);
    app.patch("/api/v1/settings", &json!({ "tolerance": "0.07" })).await.ok(200);
    let shown = app.get_as(&key, "/api/v1/settings").await;
    assert_eq!(shown["settings"]["tolerance"], "0.00");
    let logo = picture(8, image::ImageFormat::Png);
    let set = app.request(Method::PUT, "/api/v1/settings/logo").bytes(logo).send().await.ok(200);
    let theirs = app.request(Method::DELETE, "/api/v1/settings/logo").key(&key).send().await.ok(200);
    assert!(set["checkout"]["logo_url"].is_string() && theirs["checkout"]["logo_url"].is_null(), "{theirs:?}");
    assert_eq!(app.get("/api/v1/settings").await["checkout"], set["checkout"], "no other PSP deletes it");
    for path in ["/api/v1/webhook/rotate", "/api/v1/webhook/test"] {
        app.post_as(&key, path, &json!({})).await.assert_problem(409, "webhook_not_set");
    }
    assert_ne!(merchant_of("shop").await, merchant.as_str());
    assert_eq!(app.get(&format!("/merchants/{merchant}")).await["merchant"]["name"], "Shop");
    let event = log["deliveries"][0]["event_id"].as_str().unwrap();
    for list in [format!("/payments?after={payment}"), format!("/api/v1/events?after={event}")] {
        app.get_as(&key, &list).await.assert_problem(400, "invalid_parameters");
    }
}

shared!(#[tokio::test] sandbox_routes, sandbox = Running::new().await, async {} =>
    sandbox_routes_reject_payments_of_another_psp, sandbox_routes_find_a_payment_by_its_own_id_only);

async fn sandbox_routes_reject_payments_of_another_psp(sandbox: &Running) {
    let id = sandbox.payment().await;
    let client = reqwest::Client::new();
    let make = async |path: &str, body: Value| sandbox.operator(Method::POST, path, Some(body)).await.1;
    let other = make("/ops/psps", json!({ "name": "Southern Pay" })).await;
    let keys = format!("/ops/psps/{}/keys", other["psp_id"].as_str().unwrap());
    let key = make(&keys, json!({ "scopes": ["full"], "expires_days": "never" })).await;
    let key = key["api_key"].as_str().unwrap();
    for what in ["pay", "panic"] {
        let url = format!("{}/sandbox/payments/{id}/{what}", sandbox.text("api_url"));
        let theirs = client.post(url).bearer_auth(key).send().await.unwrap();
        assert_eq!(theirs.status(), 404, "{what}");
        assert_eq!(theirs.json::<Value>().await.unwrap()["code"], "payment_not_found", "{what}");
    }
    let read = sandbox.ok(Method::GET, &format!("/payments/{id}"), None).await;
    assert_has(&read, json!({ "status": "pending", "transfers": [] }));
    for what in ["panic", "pay"] {
        sandbox.ok(Method::POST, &format!("/sandbox/payments/{id}/{what}"), None).await;
    }
    sandbox.until_settled(&id).await;
}

async fn sandbox_routes_find_a_payment_by_its_own_id_only(sandbox: &Running) {
    let payment = sandbox.payment().await;
    let customer = person(sandbox).await;
    let wallet = json!({ "customer_id": customer, "wallet_address": "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359" });
    sandbox.ok(Method::PATCH, "/api/v1/customers/payment-details", Some(wallet)).await;
    make_ready(sandbox, &customer).await;
    let approved = json!({ "outcome": "approved" });
    sandbox.ok(Method::POST, &format!("/sandbox/customers/{customer}/kyc"), Some(approved)).await;
    let made = sandbox.ok(Method::POST, "/transfers", Some(payout(&customer, "5"))).await;
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
        sandbox.until_settled(&id).await;
    }
}
