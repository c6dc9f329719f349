//! `/ops/payments`: manual decisions about money in review, blocked money and failed settlements.

use payferry::sandbox::Payer;
use payferry_accounts::operators::OperatorRole;
use payferry_devchain::DevWallet;
use payferry_domain::payment::{Decision, MISDIRECTED_LISTED_MAX};
use payferry_evm::wallet::checksummed;

use super::admission::create;
use super::attention::until_stuck;
use super::reply;
use crate::http::authorizations::{payer, signed_by, typed_data};
use crate::prelude::*;

pub(super) const ADA: &str = "0x000000000000000000000000000000000000ada3";

async fn fixture_with_reviews() -> ServiceFixture {
    ServiceFixture::over(TestApp::start_with_screener(&FixedScreener::new(Some(Decision::Review))).await).await
}

fn ops(payment: &Reply, what: &str) -> String {
    format!("/ops/payments/{}{what}", payment.id())
}

/// Creates a payment with a transfer in review; returns it with the request body that decides about the transfer.
async fn in_review(service: &ServiceFixture) -> (Reply, Value) {
    let made = service.app.add_payment().await;
    service.app.pay(&made, "10").await;
    let is_in_review =
        |read: &Reply| read["transfers"][0]["status"] == "final" && read["transfers"][0]["verdict"] == "review";
    let read = service.get_until(&ops(&made, ""), is_in_review).await;
    let transfer = &read["transfers"][0];
    let decision = json!({ "chain": "base", "tx_hash": transfer["tx_hash"], "log_index": transfer["log_index"],
        "decision": "allow", "reason": "the payer showed its invoices" });
    (made, decision)
}

async fn stuck(service: &ServiceFixture, kind: &str) -> Value {
    service.stuck(&format!("kind={kind}")).await["items"][0].clone()
}

#[tokio::test]
async fn money_in_review_is_allowed_or_blocked_and_refunded() {
    let service = fixture_with_reviews().await;
    let (allowed, allow) = in_review(&service).await;
    let (blocked, block) = in_review(&service).await;
    let block = with(&block, &json!({ "decision": "block" }));
    insta::assert_json_snapshot!("decisions", service.get(&ops(&allowed, "")).await.redacted());
    let path = ops(&allowed, "/screen");
    assert_eq!(stuck(&service, "in_review").await["can"], json!([{ "action": "screen", "path": path }]));

    let bad = json!({ "decision": "review", "tx_hash": "0x1", "log_index": -1, "note": "x" });
    let faults = service.post(&path, &bad).await.faults_sorted();
    let expected = "chain: required, decision: unknown_value, log_index: out_of_range, note: unknown_field, \
        reason: required, tx_hash: invalid_hash";
    assert_eq!(faults, expected);
    service.post(&path, &with(&allow, &json!({ "log_index": 99 }))).await.assert_problem(404, "transfer_not_found");
    let nobody = format!("/ops/payments/{}/screen", PaymentId::generate());
    service.post(&nobody, &allow).await.assert_problem(404, "payment_not_found");
    service.post("/ops/payments/x/screen", &allow).await.assert_problem(400, "invalid_parameters");
    reply(service.bare(Method::POST, &path).json(&allow)).await.assert_problem(401, "operator_token_missing");
    let retry = ops(&allowed, "/retry_settlement");
    service.post(&retry, &json!({ "reason": "x" })).await.assert_problem(409, "settlement_not_failed");

    let decided = service.post(&path, &allow).await;
    decided.assert(200, json!({ "transfers/0/verdict": "allow" }));
    let entry = json!({ "actor_kind": "operator", "action": "payment.transfer_screened_by_hand", "detail": allow });
    assert_has(&decided["history"][0], entry);
    let settled = service.app.payment_when(&allowed, "settled").await;
    assert_has(&settled["kyt"], json!({ "provider": "operator", "flags": ["mixer"] }));
    service.post(&path, &with(&allow, &json!({ "decision": "block" }))).await.assert_problem(409, "not_in_review");

    let decided = service.post(&ops(&blocked, "/screen"), &block).await;
    assert_eq!(decided["blocked_held"], "10.00", "{}", decided.text());
    assert_eq!(service.app.payment_when(&blocked, "failed").await["failure_reason"], "kyt_blocked");
    let path = ops(&blocked, "/refund_blocked");
    let item = stuck(&service, "funds_blocked").await;
    assert_has(&item, json!({ "payment_id": blocked.id(), "can/0/path": path }));
    // The PSP must not refund it.
    let refunds = format!("{}/refunds", blocked.path());
    service.app.post(&refunds, &json!({ "address": ADA })).await.assert_problem(409, "funds_blocked");
    let wallet = &blocked["intermediary_wallet"];
    let bad = service.post(&path, &json!({ "address": wallet, "amount": "0", "reason": "" })).await;
    assert_eq!(bad.faults_sorted(), "address: service_vault, amount: amount_too_small, reason: empty");
    let too_much = json!({ "address": ADA, "amount": "10.01", "reason": "ordered by the court" });
    service.post(&path, &too_much).await.assert_problem(409, "refund_too_large");
    service.post(&path, &json!({ "address": ADA, "reason": "ordered by the court" })).await.ok(202);
    // The refund's address is screened too, and this screener puts it into review.
    let read = service.get_until(&ops(&blocked, ""), |read| read["refunds"][0]["verdict"] == "review").await;
    let line = &read["refunds"][0];
    assert_has(line, json!({ "may": ["allow", "block"], "flags": ["mixer"] }));
    assert_eq!(balance(&service.app, Chain::Base, Token::Usdc, ADA).await, 0, "nothing is sent before it is allowed");
    let path = ops(&blocked, "/screen_refund");
    let faults = service.post(&path, &json!({ "decision": "maybe", "refund_id": "x" })).await.faults_sorted();
    assert_eq!(faults, "decision: unknown_value, reason: required, refund_id: invalid_id");
    let nobody = json!({ "refund_id": "rf_01J9Z3K4M5N6P7Q8R9S0T1V2W3", "decision": "allow", "reason": "x" });
    service.post(&path, &nobody).await.assert_problem(404, "refund_not_found");
    let lift_pause =
        json!({ "refund_id": line["refund_id"], "decision": "allow", "reason": "the court's own account" });
    service.post(&path, &lift_pause).await.assert(200, json!({ "refunds": [] }));
    let sent = service.app.get_until(&refunds, |listed| listed["refunds"][0]["status"] == "sent").await;
    let refund = &sent["refunds"][0];
    assert_has(refund, json!({ "funds": "blocked", "requested_by": "operator" }));
    assert_eq!(balance(&service.app, Chain::Base, Token::Usdc, ADA).await, 10_000_000);
    service.post(&path, &lift_pause).await.assert_problem(409, "not_in_review");
}

#[tokio::test]
async fn blocked_money_of_another_token_is_refunded_by_its_contract() {
    let service = ServiceFixture::start_with_chains().await;
    let made = service.app.add_payment().await;
    service.app.send(&made, Payer::Sanctioned, Chain::Base, Token::Usdt, "7").await;
    let item = until_stuck(&service, "funds_blocked", true).await;
    let path = ops(&made, "/refund_blocked");
    assert!(item["can"].as_array().unwrap().contains(&json!({ "action": "refund_blocked", "path": path })), "{item:#}");
    let line = service.get(&ops(&made, "")).await["blocked"][0].clone();
    let usdt = service.app.env().chain(Chain::Base).spec().token_address(Token::Usdt).unwrap();
    let contract = checksummed(usdt);
    assert_eq!(line, json!({ "chain": "base", "currency": "USDT", "amount": "7.00", "misdirected": contract }));

    // The PSP must not refund it, it is not the due asset, and there is no more of it.
    let refunds = format!("{}/refunds", made.path());
    let by_psp = json!({ "address": ADA, "token_address": usdt });
    service.app.post(&refunds, &by_psp).await.assert_problem(409, "funds_blocked");
    let asked = json!({ "address": ADA, "chain": "base", "token_address": contract, "reason": "ordered by the court" });
    let of_what_is_due = json!({ "address": ADA, "reason": "ordered by the court" });
    service.post(&path, &of_what_is_due).await.assert_problem(409, "nothing_to_refund");
    service.post(&path, &with(&asked, &json!({ "chain": "polygon" }))).await.assert_problem(409, "nothing_to_refund");
    service.post(&path, &with(&asked, &json!({ "amount": "7.000001" }))).await.assert_problem(409, "refund_too_large");
    let bad = json!({ "address": usdt, "token_address": usdt, "reason": "x" });
    assert_eq!(service.post(&path, &bad).await.faults_sorted(), "address: token_contract, chain: required");
    assert_eq!(balance(&service.app, Chain::Base, Token::Usdt, ADA).await, 0, "nothing was moved");

    service.post(&path, &asked).await.ok(202);
    let sent = service.app.get_until(&refunds, |listed| listed["refunds"][0]["status"] == "sent").await;
    let expected = json!({ "currency": "USDT", "amount": "7.00", "funds": "blocked", "requested_by": "operator" });
    assert_has(&sent["refunds"][0], expected);
    assert_eq!(balance(&service.app, Chain::Base, Token::Usdt, ADA).await, 7_000_000);
    service.post(&path, &asked).await.assert_problem(409, "nothing_to_refund");
    assert_eq!(stuck(&service, "funds_blocked").await, Value::Null);
    // The due amount can still be paid.
    service.app.pay(&made, "10").await;
    service.app.payment_when(&made, "settled").await;
}

#[tokio::test]
async fn settlement_is_retried_after_its_cause_is_fixed() {
    let service = ServiceFixture::start_with_chains().await;
    let treasury = service.app.env().chain(Chain::Base).spec().treasury.to_string();
    blacklist(&service.app, Chain::Base, &treasury, true).await;
    let made = service.app.add_payment().await;
    service.app.pay(&made, "10").await;
    let item = until_stuck(&service, "settlement_failed", true).await;
    let path = ops(&made, "/retry_settlement");
    assert_eq!(item["can"], json!([{ "action": "retry_settlement", "path": path }]));
    assert!(item["reason"].as_str().unwrap().contains("blacklisted"), "{item:#}");
    blacklist(&service.app, Chain::Base, &treasury, false).await;
    assert_eq!(service.post(&path, &json!({})).await.faults(), "reason: required");
    service.post(&path, &json!({ "reason": "the issuer took the treasury off its list" })).await.ok(202);
    service.app.payment_when(&made, "settled").await;
    assert_eq!(balance(&service.app, Chain::Base, Token::Usdc, &treasury).await, 100_000);
}

#[tokio::test]
async fn set_aside_transfers_are_listed_and_refundable() {
    let service = ServiceFixture::start_with_chains().await;
    let made = service.app.add_payment().await;
    let path = ops(&made, "/take_in");
    service.post(&path, &json!({ "reason": "x" })).await.assert_problem(409, "nothing_set_aside");
    for _ in 0..MISDIRECTED_LISTED_MAX + 2 {
        service.app.send(&made, Payer::Clean, Chain::Base, Token::Usdt, "1").await;
    }
    let all_aside = async || {
        let item = stuck(&service, "transfer_set_aside").await;
        (item["reason"] == "2 transfers of 2.00 USDT on base").then_some(item)
    };
    let item = until("two transfers are set aside", all_aside).await;
    assert_eq!(item["can"], json!([{ "action": "take_in", "path": path }]));
    let read = service.get(&ops(&made, "")).await.json;
    assert_has(&read["set_aside"][0], json!({ "transfers": 2, "amount": "2.00" }));
    assert_eq!(read["can"].as_array().unwrap().last(), item["can"].get(0));
    // No other decision is pending, but the payment's page still links to the form.
    let view = service.get(&format!("/ops/view/payments/{}", made.id())).await;
    view.assert_shows(&["2 transfers of 2.00 USDT on base"]);
    view.assert_shows(&[&format!("{}/decide\"", made.id())]);
    assert_eq!(service.get(&format!("/ops/actors/{}", made.id())).await["set_aside"], read["set_aside"]);
    let page = service.get(&format!("/ops/view/payments/{}/decide", made.id())).await;
    page.assert_shows(&["id=\"take-in\"", "2.00 USDT"]);

    let faults = service.post(&path, &json!({ "amount": "2" })).await.faults_sorted();
    assert_eq!(faults, "amount: unknown_field, reason: required");
    // The command is queued behind the transfers, of which a hundred are screened and finalised one by one.
    let is_final = |read: &Reply| column(&read["transfers"], "status").iter().all(|status| status == "final");
    service.get_until(&ops(&made, ""), is_final).await;
    let taken = service.post(&path, &json!({ "reason": "the payer has paid in small coin" })).await;
    taken.assert(200, json!({ "set_aside": [] }));
    assert_eq!(taken["transfers"].as_array().unwrap().len(), MISDIRECTED_LISTED_MAX + 2);
    let last = taken["history"].as_array().unwrap().last().unwrap();
    assert_has(last, json!({ "action": "payment.set_aside_taken_in", "detail/transfers_max": 2 }));
    assert_eq!(stuck(&service, "transfer_set_aside").await, Value::Null);
    service.post(&path, &json!({ "reason": "again" })).await.assert_problem(409, "nothing_set_aside");

    // The whole amount can be refunded to the payer.
    let usdt = service.app.env().chain(Chain::Base).spec().token_address(Token::Usdt).unwrap();
    let refunds = format!("{}/refunds", made.path());
    let back = json!({ "token_address": usdt, "amount": (MISDIRECTED_LISTED_MAX + 2).to_string(), "address": ADA });
    let asked = async || Some(service.app.post(&refunds, &back).await).filter(|reply| reply.status == 202);
    until("the whole amount is final and refundable", asked).await;
    let arrived = async || (balance(&service.app, Chain::Base, Token::Usdt, ADA).await == 102_000_000).then_some(());
    until("the refund has arrived", arrived).await;
}

#[tokio::test]
async fn quarantined_payment_accepts_no_decisions() {
    let service = fixture_with_reviews().await;
    let (made, allow) = in_review(&service).await;
    let id: PaymentId = made.id().parse().unwrap();
    service.quarantine(id).await;
    let before = service.get(&ops(&made, "")).await.json;
    for (action, body) in [
        ("screen", allow.clone()),
        ("take_in", json!({ "reason": "x" })),
        ("retry_settlement", json!({ "reason": "x" })),
        ("refund_blocked", json!({ "address": ADA, "reason": "x" })),
    ] {
        let refused = service.post(&ops(&made, &format!("/{action}")), &body).await;
        refused.assert_problem(409, "payment_quarantined");
        assert!(refused["detail"].as_str().unwrap().contains("has to be released"), "{}", refused.text());
    }
    let form = [("reason", "x"), ("confirm", "true")];
    let page = service.form(&format!("/ops/view/payments/{id}/take_in"), &form).await;
    assert_eq!((page.status.as_u16(), page.header("content-type")), (409, Some("text/html; charset=utf-8")));
    page.assert_shows(&["Nothing was changed: ", "has to be released"]);
    assert_eq!(service.get(&ops(&made, "")).await.json, before, "nothing was done");

    assert_eq!(service.post(&format!("/ops/actors/{id}/release"), &Value::Null).await.status, 200);
    assert_eq!(service.post(&ops(&made, "/screen"), &allow).await.status, 200);
    service.app.payment_when(&made, "settled").await;
}

#[tokio::test]
async fn page_has_a_confirmed_form_for_each_decision() {
    let service = fixture_with_reviews().await;
    let (made, allow) = in_review(&service).await;
    let view = format!("/ops/view/payments/{}", made.id());
    let decide = format!("{view}/decide");
    assert!(service.get(&view).await.text().contains(&decide), "the payment's page links to the form");
    assert!(service.get("/ops/view/stuck").await.text().contains(&decide), "the attention page links to the form");
    let page = service.get(&decide).await.ok(200);
    assert!(page.text().contains(&format!("{view}/screen")) && !page.text().contains("refund_blocked"));
    let (log_index, tx_hash) = (allow["log_index"].to_string(), allow["tx_hash"].as_str().unwrap());
    let send = async |action: &str, pairs: &[(&str, &str)]| service.form(&format!("{view}/{action}"), pairs).await;
    let screen = async |decision: &str, reason: &str, confirm: &[(&str, &str)]| {
        let pairs: &[_] = &[("chain", "base"), ("log_index", &log_index), ("tx_hash", tx_hash)];
        send("screen", &[pairs, &[("decision", decision), ("reason", reason)], confirm].concat()).await
    };
    let confirm = ("confirm", "true");
    let refused = screen("block", "", &[]).await.ok(422);
    refused.assert_shows(&["<code>confirm</code>", "<code>reason</code>"]);
    let blocked = screen("block", "known to the police", &[confirm]).await;
    assert_eq!((blocked.status.as_u16(), blocked.header("location")), (303, Some(&*format!("{decide}?done=decided"))));
    service.app.payment_when(&made, "failed").await;
    let late = screen("allow", "changed my mind", &[confirm]).await;
    assert_eq!(late.status, 409, "it is decided");
    let page = service.get(&format!("{decide}?done=decided")).await;
    page.assert_shows(&["id=\"refund-blocked\"", "known to the police"]);
    let refund =
        async |address: &str| send("refund_blocked", &[("address", address), ("reason", "by order"), confirm]).await;
    refund(made.wallet()).await.ok(422).assert_shows(&["is a vault of this service"]);
    assert_eq!(refund(ADA).await.status, 303);
    service.get(&format!("/ops/view/payments/{}/decide", PaymentId::generate())).await.ok(404);
}

/// Creates a payment with an authorization whose payer is in review.
async fn payer_in_review(service: &ServiceFixture) -> Reply {
    let made = service.app.add_payment().await;
    let body = signed_by(&payer(), &typed_data(&service.app.get(&made.path()).await.json));
    service.app.post(&format!("{}/authorization", made.path()), &body).await.ok(202);
    service.app.get_until(&made.path(), |read| read["authorization"]["state"] == "review").await;
    made
}

#[tokio::test]
async fn payer_of_an_authorization_in_review_is_allowed_or_blocked() {
    let service = fixture_with_reviews().await;
    let (allowed, blocked) = (payer_in_review(&service).await, payer_in_review(&service).await);
    let path = ops(&allowed, "/screen_payer");
    let item = until_stuck(&service, "in_review", true).await;
    let can = json!([{ "action": "screen_payer", "path": path }]);
    assert_has(&item, json!({ "payment_id": allowed.id(), "reason": "doubtful says mixer", "can": can }));
    let page = service.get(&format!("/ops/view/payments/{}/decide", allowed.id())).await;
    page.assert_shows(&["id=\"screen-payer\"", "mixer"]);

    let allow = json!({ "decision": "allow", "reason": "the payer showed its invoices" });
    let viewer = create(&service, "vic", OperatorRole::Viewer).await;
    let by_viewer = service.bare(Method::POST, &path).bearer_auth(&viewer).json(&allow);
    reply(by_viewer).await.assert_problem(403, "operator_role_missing");
    let faults = service.post(&path, &json!({ "decision": "review", "payer": "0x1" })).await.faults_sorted();
    assert_eq!(faults, "decision: unknown_value, payer: unknown_field, reason: required");
    let unsigned = service.app.add_payment().await;
    let refused = service.post(&ops(&unsigned, "/screen_payer"), &allow).await;
    refused.assert_problem(404, "authorization_not_found");

    let alice = create(&service, "alice", OperatorRole::Operator).await;
    let decided = reply(service.bare(Method::POST, &path).bearer_auth(&alice).json(&allow)).await.ok(200);
    let detail = with(&allow, &json!({ "attempt": 1 }));
    let entry = json!({ "actor_kind": "operator", "actor": "alice", "action": "payment.payer_screened_by_hand", "detail": detail });
    assert_has(decided["history"].as_array().unwrap().last().unwrap(), entry);
    let settled = service.app.payment_when(&allowed, "settled").await;
    assert_has(&settled["kyt"], json!({ "provider": "operator", "flags": ["mixer"] }));
    service.post(&path, &allow).await.assert_problem(409, "not_in_review");

    let block = with(&allow, &json!({ "decision": "block" }));
    service.post(&ops(&blocked, "/screen_payer"), &block).await.ok(200);
    let read = service.app.get(&blocked.path()).await;
    let refused = json!({ "status": "pending", "transfers": [], "authorization/state": "failed",
        "authorization/failure_reason": "payer_blocked" });
    assert_has(&read, refused);
    assert_eq!(stuck(&service, "in_review").await, Value::Null);
    assert_eq!(balance(&service.app, Chain::Base, Token::Usdc, blocked.wallet()).await, 0);
    let again = signed_by(&DevWallet::from_seed("payferry sandbox payer 1"), &typed_data(&read));
    service.app.post(&format!("{}/authorization", blocked.path()), &again).await.ok(202);
}
