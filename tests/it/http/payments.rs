//! Payments: creation, reads, lists, cancellation.

use axum::http::Method;
use payferry::http::payments::initiate::METADATA_LEVELS_MAX;
use payferry_domain::{Address, Chain, Token};
use payferry_entities::{idempotency_keys, payment_transitions, payments};
use payferry_evm::wallet::checksummed;
use sea_orm::{EntityTrait, PaginatorTrait};
use serde_json::{Value, json};

use crate::app::{Reply, TestApp, TestConfig};

fn asked(merchant_id: &str) -> Value {
    json!({ "merchant_id": merchant_id, "amount": "10", "currency": "USDC", "chain": "polygon" })
}

fn with(merchant_id: &str, changes: &Value) -> Value {
    let mut body = asked(merchant_id);
    body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn payment_is_created_read_and_paid() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let details = json!({ "amount": "25.5", "metadata": { "order": { "n": 7, "nul": "\u{0}" } }, "reference": "R-1", "expires_in": 60 });
    let made = app.post("/payments/initiate", &with(&merchant, &details)).await;
    insta::assert_json_snapshot!("initiate", made.redacted());
    let wallet = made.json["intermediary_wallet"].as_str().unwrap();
    assert_eq!(checksummed(wallet.parse::<Address>().unwrap()), wallet, "EIP-55");
    let token = made.json["token_address"].as_str().unwrap();
    let uri = format!("ethereum:{token}@137/transfer?address={wallet}&uint256=25500000");
    assert_eq!(made.json["payment_uri"], uri);

    let id = made.json["payment_id"].as_str().unwrap();
    let fresh = app.get(&format!("/payments/{id}")).await;
    insta::assert_json_snapshot!("get_payment_pending", fresh.redacted());
    assert_eq!(app.get(&format!("/api/v1/payments/{id}")).await.json, fresh.json);

    app.pay(&made, "25.5").await;
    let settled = app.payment_when(&made, "settled").await;
    insta::assert_json_snapshot!("get_payment_settled", settled.redacted());
    assert_eq!(settled.json["payment_uri"], Value::Null, "no second payment is requested");
    let log = app.get(&format!("/payments/{id}/webhooks")).await;
    let events: Vec<_> = log.json["deliveries"].as_array().unwrap().iter().map(|entry| &entry["event"]).collect();
    assert_eq!(events, ["payment.confirmed", "payin.confirmed", "payment.settled", "payin.settled"]);
    insta::assert_json_snapshot!("delivery_log_entry", redacted_entry(&log));
}

/// First entry only, without the times.
fn redacted_entry(log: &Reply) -> Value {
    let log = log.redacted();
    json!({ "first": log["body"]["deliveries"][0], "message": log["body"]["message"], "status": log["status"] })
}

#[tokio::test]
async fn best_returns_its_candidates() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let made = app.post("/api/v1/payments/initiate", &with(&merchant, &json!({ "chain": "best" }))).await;
    assert_eq!(made.status, 201);
    let candidates = made.json["chain_candidates"].as_array().unwrap();
    let chosen: Vec<_> = candidates.iter().filter(|candidate| candidate["chosen"] == true).collect();
    assert_eq!((candidates.len(), chosen.len()), (3, 1));
    assert_eq!(chosen[0]["chain"], made.json["chain"]);
    assert!(candidates.iter().all(|candidate| !candidate["reason"].as_str().unwrap().is_empty()));
    let read = app.get(&format!("/payments/{}", made.json["payment_id"].as_str().unwrap())).await;
    assert_eq!(read.json["chain_candidates"], made.json["chain_candidates"]);
}

#[tokio::test]
async fn invalid_requests_list_all_errors_and_create_nothing() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let forty = "1".repeat(40);
    for (changes, fault) in [
        (json!({ "amount": "0" }), "amount: amount_too_small"),
        (json!({ "amount": "0.009999" }), "amount: amount_too_small"),
        (json!({ "amount": "-1" }), "amount: amount_malformed"),
        (json!({ "amount": "1e3" }), "amount: amount_malformed"),
        (json!({ "amount": "NaN" }), "amount: amount_malformed"),
        (json!({ "amount": "" }), "amount: amount_malformed"),
        (json!({ "amount": " 1" }), "amount: amount_malformed"),
        (json!({ "amount": "1." }), "amount: amount_malformed"),
        (json!({ "amount": "1,000" }), "amount: amount_malformed"),
        (json!({ "amount": "٣" }), "amount: amount_malformed"),
        (json!({ "amount": "0.0000001" }), "amount: too_many_decimals"),
        (json!({ "amount": forty }), "amount: amount_too_large"),
        (json!({ "amount": "1000000.000001" }), "amount: amount_too_large"),
        (json!({ "amount": 10 }), "amount: wrong_type"),
        (json!({ "amount": null }), "amount: required"),
        (json!({ "currency": "usdc" }), "currency: unknown_value"),
        (json!({ "currency": "EUR" }), "currency: unknown_value"),
        (json!({ "currency": 1 }), "currency: wrong_type"),
        (json!({ "chain": "solana" }), "chain: unknown_value"),
        (json!({ "chain": ["base"] }), "chain: wrong_type"),
        (json!({ "merchant_id": "shop" }), "merchant_id: invalid_id"),
        (json!({ "merchant_id": "pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3" }), "merchant_id: invalid_id"),
        (json!({ "customer_id": "someone" }), "customer_id: invalid_id"),
        (json!({ "metadata": [] }), "metadata: wrong_type"),
        (json!({ "metadata": { "a": "x".repeat(16 * 1024) } }), "metadata: too_large"),
        (json!({ "expires_in": 59 }), "expires_in: out_of_range"),
        (json!({ "expires_in": 86_401 }), "expires_in: out_of_range"),
        (json!({ "expires_in": "60" }), "expires_in: wrong_type"),
        (json!({ "expires_in": 60.5 }), "expires_in: wrong_type"),
        (json!({ "reference": "" }), "reference: empty"),
        (json!({ "reference": "a\u{0}" }), "reference: invalid_characters"),
    ] {
        let call =
            app.request(Method::POST, "/payments/initiate").idempotency_key("k").json(&with(&merchant, &changes));
        let reply = call.send().await;
        reply.assert_problem(422, "validation_failed");
        assert_eq!(reply.faults(), [fault], "{changes}");
    }
    let missing = app.post("/payments/initiate", &json!({})).await;
    insta::assert_json_snapshot!("initiate_missing", missing.redacted());
    let all_wrong = json!({ "merchant_id": 1, "amount": 2, "currency": 3, "chain": 4, "metadata": 5, "expires_in": "6",
        "reference": 7, "customer_id": 8 });
    assert_eq!(app.post("/payments/initiate", &all_wrong).await.faults().len(), 8);

    let unknown = with("merch_01J9Z3K4M5N6P7Q8R9S0T1V2W3", &json!({}));
    let reply = app.post("/payments/initiate", &unknown).await;
    insta::assert_json_snapshot!("initiate_unknown_merchant", reply.redacted());
    let customer = with(&merchant, &json!({ "customer_id": "cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3" }));
    app.post("/payments/initiate", &customer).await.assert_problem(404, "customer_not_found");
    let large = with(&merchant, &json!({ "metadata": { "a": "x".repeat(300 * 1024) } }));
    app.post("/payments/initiate", &large).await.assert_problem(413, "body_too_large");
    app.request(Method::POST, "/payments/initiate")
        .bytes("{\"amount\":")
        .send()
        .await
        .assert_problem(400, "malformed_json");

    let reader = app.state.database().reader();
    assert_eq!(payments::Entity::find().count(reader).await.unwrap(), 0);
    assert_eq!(payment_transitions::Entity::find().count(reader).await.unwrap(), 0);
    assert_eq!(idempotency_keys::Entity::find().count(reader).await.unwrap(), 0);
    let edges = [json!({ "amount": "0.01" }), json!({ "amount": "1000000" }), json!({ "amount": "10.123456" })];
    for (edge, shown) in edges.iter().zip(["0.01", "1000000.00", "10.123456"]) {
        assert_eq!(app.post("/payments/initiate", &with(&merchant, edge)).await.json["amount"], shown);
    }
}

#[tokio::test]
async fn disabled_token_and_halted_chain_are_refused() {
    let token_off = Some((Chain::Base, Token::Usdt));
    let app = TestApp::start_with(TestConfig { chains: true, token_off, ..TestConfig::default() }).await;
    let merchant = app.add_merchant().await;
    let usdt = |chain: &str| with(&merchant, &json!({ "currency": "USDT", "chain": chain }));
    let reply = app.post("/payments/initiate", &usdt("base")).await;
    insta::assert_json_snapshot!("initiate_token_unavailable", reply.redacted());
    let best = app.post("/payments/initiate", &usdt("best")).await;
    assert_eq!(best.status, 201);
    assert_ne!(best.json["chain"], "base");

    // The service's clock advances and the chains' clocks do not: they appear halted.
    app.state.clock().advance_secs(120);
    for chain in ["polygon", "best"] {
        let reply = app.post("/payments/initiate", &with(&merchant, &json!({ "chain": chain }))).await;
        reply.assert_problem(503, "chain_unavailable");
        assert_eq!(reply.header("retry-after"), Some("2"));
    }
}

#[tokio::test]
async fn unconfigured_chain_has_no_token() {
    let app = TestApp::start().await;
    let merchant = app.add_merchant().await;
    for chain in ["base", "best"] {
        let reply = app.post("/payments/initiate", &with(&merchant, &json!({ "chain": chain }))).await;
        reply.assert_problem(422, "token_unavailable");
    }
}

#[tokio::test]
async fn accepted_metadata_is_readable_at_any_depth() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let mut taken = Vec::new();
    for levels in [1, METADATA_LEVELS_MAX, METADATA_LEVELS_MAX + 1, 64, 122, 123, 124, 125, 126] {
        let metadata = (1..levels).fold(json!({}), |inner, _| json!({ "in": inner }));
        let made = app.post("/payments/initiate", &with(&merchant, &json!({ "metadata": metadata }))).await;
        if made.status != 201 {
            made.assert_problem(422, "validation_failed");
            assert_eq!(made.faults(), ["metadata: too_deep"]);
            continue;
        }
        let read = app.get(&format!("/payments/{}", made.json["payment_id"].as_str().unwrap())).await;
        assert_eq!((read.status.as_u16(), &read.json["metadata"]), (200, &metadata), "{levels} levels");
        taken.push(levels);
    }
    assert_eq!(taken, [1, METADATA_LEVELS_MAX]);
    assert_eq!(app.get("/payments").await.json["total"], 2);
}

#[tokio::test]
async fn metadata_numbers_are_exact_or_refused() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let initiate = async |number: &str| {
        let body = asked(&merchant).to_string().replacen('{', &format!("{{\"metadata\":{{\"order\":{number}}},"), 1);
        app.request(Method::POST, "/payments/initiate").bytes(body).send().await
    };
    for exact in
        ["9007199254740993", "18446744073709551615", "-9223372036854775808", "0.1", "\"123456789012345678901\""]
    {
        let made = initiate(exact).await;
        assert_eq!(made.status, 201, "{}", made.text());
        let read = app.get(&format!("/payments/{}", made.json["payment_id"].as_str().unwrap())).await;
        assert!(read.text().contains(&format!("{{\"order\":{exact}}}")), "{}", read.text());
    }
    initiate("123456789012345678901").await.assert_problem(400, "malformed_json");
    assert_eq!(app.get("/payments").await.json["total"], 5);
}

#[tokio::test]
async fn repeated_request_creates_one_payment() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let initiate = |body: &Value| app.request(Method::POST, "/payments/initiate").idempotency_key("order-7").json(body);
    let calls = (0..16).map(|_| initiate(&asked(&merchant)).send());
    let replies = futures::future::join_all(calls).await;
    let made: Vec<_> = replies.iter().filter(|reply| reply.status == 201).collect();
    assert!(replies.iter().filter(|reply| reply.status != 201).all(|reply| reply.status == 409));
    let again = initiate(&asked(&merchant)).send().await;
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert!(made.iter().all(|reply| reply.bytes == again.bytes && reply.status == again.status));
    assert_eq!(payments::Entity::find().count(app.state.database().reader()).await.unwrap(), 1);
    let other = with(&merchant, &json!({ "amount": "11" }));
    initiate(&other).send().await.assert_problem(422, "idempotency_key_reused");
    let row = idempotency_keys::Entity::find().one(app.state.database().reader()).await.unwrap().unwrap();
    let wallet = again.json["intermediary_wallet"].as_str().unwrap();
    assert!(!format!("{row:?}").contains(wallet) && !format!("{row:?}").contains("pay_"), "answers are sealed");
}

#[tokio::test]
async fn cancelled_payment_has_ended() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let made = app.add_payment(&merchant).await;
    let path = format!("/payments/{}/cancel", made.json["payment_id"].as_str().unwrap());
    let cancel = || app.request(Method::POST, &path).idempotency_key("c");
    let cancelled = cancel().send().await;
    assert_eq!(cancelled.status, 200);
    assert_eq!((&cancelled.json["status"], &cancelled.json["failure_reason"]), (&json!("failed"), &json!("cancelled")));
    let again = cancel().send().await;
    assert_eq!((again.header("idempotent-replayed"), &again.bytes), (Some("true"), &cancelled.bytes));
    let reply = app.request(Method::POST, &path).send().await;
    insta::assert_json_snapshot!("cancel_twice", reply.redacted());
    // The same key for another payment is another request.
    let other = app.add_payment(&merchant).await;
    let other = format!("/payments/{}/cancel", other.json["payment_id"].as_str().unwrap());
    let reused = app.request(Method::POST, &other).idempotency_key("c").send().await;
    reused.assert_problem(422, "idempotency_key_reused");

    let paid = app.add_payment(&merchant).await;
    app.pay(&paid, "1").await;
    app.payment_when(&paid, "mismatched").await;
    let path = format!("/api/v1/payments/{}/cancel", paid.json["payment_id"].as_str().unwrap());
    app.request(Method::POST, &path).send().await.assert_problem(409, "payment_not_pending");
}

#[tokio::test]
async fn lists_are_filtered_and_paged() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        let body = with(&merchant, &json!({ "reference": format!("R{}", n % 2) }));
        ids.push(app.post("/payments/initiate", &body).await.json["payment_id"].as_str().unwrap().to_owned());
    }
    let list = async |query: &str| {
        let reply = app.get(&format!("/payments{query}")).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let payments = reply.json["payments"].as_array().unwrap().iter();
        let found: Vec<_> = payments.map(|p| p["payment_id"].as_str().unwrap().to_owned()).collect();
        (found, reply.json)
    };
    let newest: Vec<_> = ids.iter().rev().cloned().collect();
    let (all, json) = list("").await;
    assert_eq!((all, &json["total"], &json["next_after"]), (newest.clone(), &json!(5), &Value::Null));
    assert_eq!(json["payments"][0], app.get(&format!("/payments/{}", newest[0])).await.json);

    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let (page, json) = list(&format!("?limit=2{after}")).await;
        seen.extend(page);
        let Some(next) = json["next_after"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(seen, newest, "pages by cursor neither skip nor repeat");
    assert_eq!(list("?limit=2&offset=3").await.0, newest[3..]);

    assert_eq!(list("?reference=R1").await.0.len(), 2);
    assert_eq!(list("?status=pending").await.0.len(), 5);
    assert_eq!(list("?status=settled").await.0.len(), 0);
    assert_eq!(list(&format!("?merchant_id={merchant}&status=pending")).await.0.len(), 5);
    assert_eq!(list("?customer_id=cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3").await.0.len(), 0);
    let third = json["payments"][2]["created_at"].as_str().unwrap();
    assert_eq!(list(&format!("?created_from={third}")).await.0.len(), 3);
    assert_eq!(list(&format!("?created_to={third}")).await.0, newest[3..]);
    assert_eq!(list("?created_from=2020-01-01T00:00:00%2B02:00").await.0.len(), 5);

    let bad = app.get("/payments?status=paid&merchant_id=x&customer_id=y&created_from=now&after=z&limit=-1").await;
    bad.assert_problem(400, "invalid_parameters");
    assert_eq!(bad.faults().len(), 6, "{:?}", bad.faults());
    let both = app.get(&format!("/payments?after={}&offset=1", ids[0])).await;
    assert_eq!(both.faults(), ["offset: not_with_after"]);
    let unknown = app.get("/payments?after=pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3").await;
    assert_eq!(unknown.faults(), ["after: unknown_value"]);
}

#[tokio::test]
async fn underpaid_payment_shows_the_due_amount() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let made = app.add_payment(&merchant).await;
    app.pay(&made, "4").await;
    let record = app.payment_when(&made, "mismatched").await.json;
    assert_eq!((&record["amount_received"], &record["amount_due"]), (&json!("4.00"), &json!("6.00")));
    assert_eq!(record["labels"], json!(["UNDERPAID"]));
    assert!(record["payment_uri"].as_str().unwrap().ends_with("&uint256=6000000"));
    assert_eq!((&record["kyt_verdict"], &record["kyt"]["verdict"]), (&json!("allow"), &json!("allow")));
    assert_eq!(record["required_confirmations"], 2);
}

#[tokio::test]
async fn database_outage_is_reported() {
    let app = TestApp::start().await;
    app.state.database().clone().close().await.unwrap();
    let reply = app.get("/merchants").await;
    insta::assert_json_snapshot!("database_away", reply.redacted());
    assert_eq!(reply.header("retry-after"), Some("2"));
    assert!(!reply.text().to_lowercase().contains("pool"), "no details of the failure");
}
