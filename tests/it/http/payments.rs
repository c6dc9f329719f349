//! Payments: creation, reads, lists, cancellation.

use payferry::http::payments::initiate::METADATA_LEVELS_MAX;
use payferry_domain::Address;
use payferry_entities::{idempotency_keys, payment_transitions, payments};
use payferry_evm::wallet::checksummed;

use crate::prelude::*;

/// Asks for a payment of 10 USDC on Polygon, with these changes of the request.
async fn initiate(app: &TestApp, changes: &Value) -> Reply {
    app.initiate(&with(&json!({ "chain": "polygon" }), changes)).await
}

#[tokio::test]
async fn payment_is_created_read_and_paid() {
    let app = TestApp::start_with_chains().await;
    let metadata = json!({ "order": { "n": 7, "nul": "\u{0}" } });
    let details = json!({ "amount": "25.5", "metadata": metadata, "reference": "R-1", "expires_in": 60 });
    let made = initiate(&app, &details).await;
    insta::assert_json_snapshot!("initiate", made.redacted());
    let wallet = made.wallet();
    assert_eq!(checksummed(wallet.parse::<Address>().unwrap()), wallet, "EIP-55");
    let token = made["token_address"].as_str().unwrap();
    let uri = format!("ethereum:{token}@7700000137/transfer?address={wallet}&uint256=25500000");
    assert_eq!(made["payment_uri"], uri);

    let id = made.id();
    let fresh = app.get(&format!("/payments/{id}")).await;
    assert_eq!(fresh.json, made.json, "the initiation answers with the whole record");
    assert_eq!(app.get(&format!("/api/v1/payments/{id}")).await.json, fresh.json);

    app.pay(&made, "25.5").await;
    let settled = app.payment_when(&made, "settled").await;
    insta::assert_json_snapshot!("get_payment_settled", settled.redacted());
    assert_eq!(settled["payment_uri"], Value::Null, "no second payment is requested");
    let log = app.get(&format!("/payments/{id}/webhooks")).await;
    let events = ["payment.confirmed", "payin.confirmed", "payment.settled", "payin.settled"];
    assert_eq!(column(&log["deliveries"], "event"), events);
    // First entry only, without the times.
    let log = log.redacted();
    let entry =
        json!({ "first": log["body"]["deliveries"][0], "message": log["body"]["message"], "status": log["status"] });
    insta::assert_json_snapshot!("delivery_log_entry", entry);
}

shared!(#[tokio::test] payments, app = TestApp::start_with_chains().await, app.renew_psp() =>
    invalid_requests_list_all_errors_and_create_nothing,
    best_returns_its_candidates_and_an_underpaid_payment_its_due_amount,
    accepted_metadata_is_readable_at_any_depth_with_exact_numbers, cancelled_payment_has_ended,
    lists_are_filtered_and_paged);

async fn best_returns_its_candidates_and_an_underpaid_payment_its_due_amount(app: &TestApp) {
    let good = json!({ "merchant_id": app.add_merchant().await, "amount": "10", "currency": "USDC", "chain": "best" });
    let made = app.post("/api/v1/payments/initiate", &good).await.ok(201);
    let candidates = made["chain_candidates"].as_array().unwrap();
    let chosen: Vec<_> = candidates.iter().filter(|candidate| candidate["chosen"] == true).collect();
    assert_eq!((candidates.len(), chosen.len()), (3, 1));
    assert_eq!(chosen[0]["chain"], made["chain"]);
    assert!(candidates.iter().all(|candidate| !candidate["reason"].as_str().unwrap().is_empty()));
    let read = app.get(&made.path()).await;
    assert_eq!(read["chain_candidates"], made["chain_candidates"]);
    // An underpaid payment shows the due amount.
    let record = app.get(&app.paid("4", "mismatched").await.path()).await;
    assert_has(&record, json!({ "amount_received": "4.00", "amount_due": "6.00", "labels": ["UNDERPAID"] }));
    assert!(record.string("payment_uri").ends_with("&uint256=6000000"));
    assert_has(&record, json!({ "kyt_verdict": "allow", "kyt/verdict": "allow", "required_confirmations": 2 }));
}

async fn invalid_requests_list_all_errors_and_create_nothing(app: &TestApp) {
    let values = [
        ("amount: amount_too_small", json!(["0", "0.009999"])),
        ("amount: amount_malformed", json!(["-1", "1e3", "NaN", "", " 1", "1.", "1,000", "٣"])),
        ("amount: too_many_decimals", json!(["0.0000001"])),
        ("amount: amount_too_large", json!(["1".repeat(40), "1000000.000001"])),
        ("amount: wrong_type", json!([10])),
        ("amount: required", json!([null])),
        ("currency: unknown_value", json!(["usdc", "EUR"])),
        ("currency: wrong_type", json!([1])),
        ("chain: unknown_value", json!(["solana"])),
        ("chain: wrong_type", json!([["base"]])),
        ("merchant_id: invalid_id", json!(["shop", "pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3"])),
        ("customer_id: invalid_id", json!(["someone"])),
        ("metadata: wrong_type", json!([[]])),
        ("metadata: too_large", json!([{ "a": "x".repeat(16 * 1024) }])),
        ("expires_in: out_of_range", json!([59, 86_401])),
        ("expires_in: wrong_type", json!(["60", 60.5])),
        ("reference: empty", json!([""])),
        ("reference: invalid_characters", json!(["a\u{0}"])),
    ];
    let good =
        json!({ "merchant_id": app.add_merchant().await, "amount": "10", "currency": "USDC", "chain": "polygon" });
    assert_values_refused(&values, async |changes| {
        app.post_keyed("k", "/payments/initiate", &with(&good, changes)).await
    })
    .await;
    let missing = app.post("/payments/initiate", &json!({})).await;
    insta::assert_json_snapshot!("initiate_missing", missing.redacted());
    let all_wrong = json!({ "merchant_id": 1, "amount": 2, "currency": 3, "chain": 4, "metadata": 5, "expires_in": "6",
        "reference": 7, "customer_id": 8 });
    assert_eq!(app.post("/payments/initiate", &all_wrong).await["errors"].as_array().unwrap().len(), 8);

    let reply = initiate(app, &json!({ "merchant_id": "merch_01J9Z3K4M5N6P7Q8R9S0T1V2W3" })).await;
    insta::assert_json_snapshot!("initiate_unknown_merchant", reply.redacted());
    let customer = json!({ "customer_id": "cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3" });
    initiate(app, &customer).await.assert_problem(404, "customer_not_found");
    let large = json!({ "metadata": { "a": "x".repeat(300 * 1024) } });
    initiate(app, &large).await.assert_problem(413, "body_too_large");
    let cut = app.request(Method::POST, "/payments/initiate").bytes("{\"amount\":");
    cut.send().await.assert_problem(400, "malformed_json");

    assert_eq!(app.count::<payments::Entity>().await, 0);
    assert_eq!(app.count::<payment_transitions::Entity>().await, 0);
    assert_eq!(app.count::<idempotency_keys::Entity>().await, 0);
    for (edge, shown) in [("0.01", "0.01"), ("1000000", "1000000.00"), ("10.123456", "10.123456")] {
        assert_eq!(initiate(app, &json!({ "amount": edge })).await["amount"], shown);
    }
}

#[tokio::test]
async fn disabled_token_and_halted_chain_are_refused() {
    let token_off = Some((Chain::Base, Token::Usdt));
    let app = TestApp::start_with(TestConfig { chains: true, token_off, ..TestConfig::default() }).await;
    let usdt = async |chain: &str| app.initiate(&json!({ "currency": "USDT", "chain": chain })).await;
    insta::assert_json_snapshot!("initiate_token_unavailable", usdt("base").await.redacted());
    let best = usdt("best").await.ok(201);
    assert_ne!(best["chain"], "base");

    // The service's clock advances and the chains' clocks do not: they appear halted.
    app.state.clock().advance_secs(120);
    for chain in ["polygon", "best"] {
        let reply = initiate(&app, &json!({ "chain": chain })).await;
        reply.assert_problem(503, "chain_unavailable");
        assert_eq!(reply.header("retry-after"), Some("2"));
    }
}

#[tokio::test]
async fn unconfigured_chain_and_database_outage_are_reported() {
    let app = TestApp::start().await;
    for chain in ["base", "best"] {
        initiate(&app, &json!({ "chain": chain })).await.assert_problem(422, "token_unavailable");
    }
    // A database outage is reported.
    app.state.database().clone().close().await.unwrap();
    let reply = app.get("/merchants").await;
    insta::assert_json_snapshot!("database_away", reply.redacted());
    assert_eq!(reply.header("retry-after"), Some("2"));
    assert!(!reply.text().to_lowercase().contains("pool"), "no details of the failure");
}

async fn accepted_metadata_is_readable_at_any_depth_with_exact_numbers(app: &TestApp) {
    let mut taken = Vec::new();
    for levels in [1, METADATA_LEVELS_MAX, METADATA_LEVELS_MAX + 1, 64, 122, 123, 124, 125, 126] {
        let metadata = (1..levels).fold(json!({}), |inner, _| json!({ "in": inner }));
        let made = initiate(app, &json!({ "metadata": metadata })).await;
        if made.status != 201 {
            made.assert_invalid("metadata: too_deep");
            continue;
        }
        app.get(&made.path()).await.assert(200, json!({ "metadata": metadata }));
        taken.push(levels);
    }
    assert_eq!(taken, [1, METADATA_LEVELS_MAX]);
    assert_eq!(app.get("/payments").await["total"], 2);
    // Numbers are exact or refused.
    let initiate = async |number: &str| {
        let good =
            json!({ "merchant_id": app.add_merchant().await, "amount": "10", "currency": "USDC", "chain": "base" });
        let body = good.to_string().replacen('{', &format!("{{\"metadata\":{{\"order\":{number}}},"), 1);
        app.request(Method::POST, "/payments/initiate").bytes(body).send().await
    };
    for exact in
        ["9007199254740993", "18446744073709551615", "-9223372036854775808", "0.1", "\"123456789012345678901\""]
    {
        let made = initiate(exact).await.ok(201);
        app.get(&made.path()).await.assert_shows(&[&format!("{{\"order\":{exact}}}")]);
    }
    initiate("123456789012345678901").await.assert_problem(400, "malformed_json");
    assert_eq!(app.get("/payments").await["total"], 7);
}

#[tokio::test]
async fn repeated_request_creates_one_payment() {
    let app = TestApp::start_with_chains().await;
    let good = json!({ "merchant_id": app.add_merchant().await, "amount": "10", "currency": "USDC", "chain": "base" });
    let keyed = async |body: &Value| app.post_keyed("order-7", "/payments/initiate", body).await;
    let replies = futures::future::join_all((0..16).map(|_| keyed(&good))).await;
    let again = keyed(&good).await;
    for reply in replies {
        match reply.status.as_u16() {
            201 => again.assert_replays(&reply),
            status => assert_eq!(status, 409, "{}", reply.text()),
        }
    }
    assert_eq!(app.count::<payments::Entity>().await, 1);
    keyed(&with(&good, &json!({ "amount": "11" }))).await.assert_problem(422, "idempotency_key_reused");
    let row = idempotency_keys::Entity::find().one(app.reader()).await.unwrap().unwrap();
    let row = format!("{row:?}");
    assert!(!row.contains(again.wallet()) && !row.contains("pay_"), "answers are sealed");
}

async fn cancelled_payment_has_ended(app: &TestApp) {
    let made = app.add_payment().await;
    let path = format!("{}/cancel", made.path());
    let cancel = || app.request(Method::POST, &path).idempotency_key("c");
    let cancelled = cancel().send().await.ok(200);
    assert_has(&cancelled, json!({ "status": "failed", "failure_reason": "cancelled" }));
    cancel().send().await.assert_replays(&cancelled);
    let reply = app.request(Method::POST, &path).send().await;
    insta::assert_json_snapshot!("cancel_twice", reply.redacted());
    // The same key for another payment is another request.
    let other = format!("{}/cancel", app.add_payment().await.path());
    app.request(Method::POST, &other).idempotency_key("c").send().await.assert_problem(422, "idempotency_key_reused");

    let path = format!("/api/v1{}/cancel", app.paid("1", "mismatched").await.path());
    app.request(Method::POST, &path).send().await.assert_problem(409, "payment_not_pending");
}

async fn lists_are_filtered_and_paged(app: &TestApp) {
    let (merchant, mut ids) = (app.add_merchant().await, Vec::new());
    for n in 0..5 {
        ids.push(initiate(app, &json!({ "reference": format!("R{}", n % 2) })).await["payment_id"].clone());
    }
    let list = async |query: &str| {
        let reply = app.get(&format!("/payments{query}")).await.ok(200);
        (column(&reply["payments"], "payment_id"), reply.json)
    };
    let newest: Vec<_> = ids.iter().rev().cloned().collect();
    let (all, json) = list("").await;
    assert_eq!((all, &json["total"], &json["next_after"]), (newest.clone(), &json!(5), &Value::Null));
    assert_eq!(json["payments"][0], app.get(&format!("/payments/{}", newest[0].as_str().unwrap())).await.json);

    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let (page, json) = list(&format!("?limit=2{after}")).await;
        seen.extend(page);
        let Some(next) = json["next_after"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(seen, newest, "pages by cursor neither skip nor repeat");
    assert_eq!(list("?limit=2&offset=3").await.0, newest[3..]);

    let third = json["payments"][2]["created_at"].as_str().unwrap();
    for (query, count) in [
        ("reference=R1", 2),
        ("status=pending", 5),
        ("status=settled", 0),
        (&format!("merchant_id={merchant}&status=pending"), 5),
        ("customer_id=cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3", 0),
        (&format!("created_from={third}"), 3),
        ("created_from=2020-01-01T00:00:00%2B02:00", 5),
    ] {
        assert_eq!(list(&format!("?{query}")).await.0.len(), count, "{query}");
    }
    assert_eq!(list(&format!("?created_to={third}")).await.0, newest[3..]);

    let bad = app.get("/payments?status=paid&merchant_id=x&customer_id=y&created_from=now&after=z&limit=-1").await;
    bad.assert_problem(400, "invalid_parameters");
    assert_eq!(bad["errors"].as_array().unwrap().len(), 6, "{}", bad.faults());
    let both = app.get(&format!("/payments?after={}&offset=1", ids[0].as_str().unwrap())).await;
    assert_eq!(both.faults(), "offset: not_with_after");
    let unknown = app.get("/payments?after=pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3").await;
    assert_eq!(unknown.faults(), "after: unknown_value");
}
