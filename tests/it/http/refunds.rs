//! Refunds: requested, sent on the chain, refused, failed and requested again.

use axum::http::Method;
use payferry_domain::{Chain, KeyScope as Scope, PaymentId, Token};
use payferry_entities::{audit_log, idempotency_keys};
use payferry_harness::database::Lock;
use payferry_runtime::observe::ActorKind;
use sea_orm::{EntityTrait, PaginatorTrait};
use serde_json::{Value, json};

use crate::app::{Reply, TestApp};
use crate::chainside::{balance, blacklist};

/// Accounts used only here.
const ADA: &str = "0x000000000000000000000000000000000000ada1";
const BOB: &str = "0x000000000000000000000000000000000000b0b1";

fn id_of(payment: &Reply) -> &str {
    payment.json["payment_id"].as_str().unwrap()
}

fn refunds_of(payment: &Reply) -> String {
    format!("/payments/{}/refunds", id_of(payment))
}

/// Waits until the refund has this status.
async fn refund_when(app: &TestApp, payment: &Reply, refund: &Reply, status: &str) -> Reply {
    let path = format!("{}/{}", refunds_of(payment), refund.json["refund_id"].as_str().unwrap());
    let ask = async |app: &TestApp| Some(app.get(&path).await).filter(|reply| reply.json["status"] == status);
    app.until(&format!("the refund is {status}"), ask).await
}

async fn events_of(app: &TestApp, payment: &Reply) -> Vec<String> {
    let log = app.get(&format!("/payments/{}/webhooks", id_of(payment))).await;
    let entries = log.json["deliveries"].as_array().unwrap().iter();
    entries.map(|entry| entry["event"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn excess_is_refunded_and_the_rest_accepted() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let made = app.add_payment(&merchant).await;
    app.pay(&made, "12.5").await;
    app.payment_when(&made, "mismatched").await;

    let path = refunds_of(&made);
    let body = json!({ "amount": "2.5", "address": ADA });
    let asked = app.request(Method::POST, &path).idempotency_key("r1").json(&body).send().await;
    insta::assert_json_snapshot!("refund_asked", asked.redacted());
    let again = app.request(Method::POST, &format!("/api/v1{path}")).idempotency_key("r1").json(&body).send().await;
    assert_eq!((again.header("idempotent-replayed"), &again.bytes), (Some("true"), &asked.bytes));
    let other = json!({ "amount": "2.4", "address": ADA });
    let reused = app.request(Method::POST, &path).idempotency_key("r1").json(&other).send().await;
    reused.assert_problem(422, "idempotency_key_reused");

    let sent = refund_when(&app, &made, &asked, "sent").await;
    insta::assert_json_snapshot!("refund_sent", sent.redacted());
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, ADA).await, 2_500_000);
    let listed = app.get(&format!("/api/v1{path}")).await;
    assert_eq!((&listed.json["total"], &listed.json["refunds"][0]), (&json!(1), &sent.json));
    assert_eq!(app.get(&format!("{path}?offset=1")).await.json["refunds"], json!([]));
    let read = app.get(&format!("/payments/{}", id_of(&made))).await;
    assert_eq!(read.json["refunds"], listed.json["refunds"], "the same records everywhere");

    let accept = json!({ "action": "accept", "expected_received": "12.5" });
    let resolve = format!("/payments/{}/resolve", id_of(&made));
    let accepted = app.post(&resolve, &accept).await;
    assert_eq!((accepted.status.as_u16(), &accepted.json["status"]), (200, &json!("confirmed")), "{}", accepted.text());
    let settled = app.payment_when(&made, "settled").await;
    assert_eq!(settled.json["settlement"]["amount"], "10.00");
    let notified = [
        "payment.mismatched",
        "payin.mismatched",
        "refund.sent",
        "payment.confirmed",
        "payin.confirmed",
        "payment.settled",
        "payin.settled",
    ];
    assert_eq!(events_of(&app, &made).await, notified);
    let entries: Vec<_> = audit_log::Entity::find().all(app.state.database().reader()).await.unwrap();
    let actions: Vec<_> = entries.iter().map(|entry| (entry.actor_kind.as_str(), entry.action.as_str())).collect();
    assert_eq!(actions, [("api_key", "payment.refund_requested"), ("api_key", "payment.accepted")]);
    assert_eq!(entries[0].subject, id_of(&made));
}

#[tokio::test]
async fn refund_after_settlement_comes_from_the_psp_vault_and_is_limited() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let (made, other) = (app.add_payment(&merchant).await, app.add_payment(&merchant).await);
    for payment in [&made, &other] {
        app.pay(payment, "10").await;
        app.payment_when(payment, "settled").await;
    }
    let path = refunds_of(&made);
    let over = app.post(&path, &json!({ "amount": "10.000001", "address": ADA })).await;
    over.assert_problem(409, "refund_too_large");
    assert_eq!(over.faults(), ["amount: refund_too_large"]);
    let asked = app.post(&path, &json!({ "amount": "4", "address": ADA })).await;
    assert_eq!((asked.status.as_u16(), &asked.json["source"]), (202, &json!("psp")), "{}", asked.text());
    // Pending refunds are reserved.
    app.post(&path, &json!({ "amount": "6.01", "address": ADA })).await.assert_problem(409, "refund_too_large");
    let rest = app.post(&path, &json!({ "address": ADA })).await;
    assert_eq!(rest.json["amount"], "6.00");
    refund_when(&app, &made, &asked, "sent").await;
    refund_when(&app, &made, &rest, "sent").await;
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, ADA).await, 10_000_000);
    app.post(&path, &json!({ "address": ADA })).await.assert_problem(409, "nothing_to_refund");
    assert_eq!(app.get(&format!("/payments/{}", id_of(&made))).await.json["status"], "settled");
}

#[tokio::test]
async fn refund_rejected_by_the_token_can_go_elsewhere() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let made = app.add_payment(&merchant).await;
    app.pay(&made, "4").await;
    app.payment_when(&made, "mismatched").await;
    blacklist(&app, Chain::Base, ADA, true).await;
    let path = refunds_of(&made);
    let asked = app.post(&path, &json!({ "address": ADA })).await;
    assert_eq!(asked.status, 202, "{}", asked.text());
    app.post(&path, &json!({ "address": BOB })).await.assert_problem(409, "nothing_to_refund");
    let failed = refund_when(&app, &made, &asked, "failed").await;
    insta::assert_json_snapshot!("refund_failed", failed.redacted());
    assert!(failed.json["failure"].as_str().unwrap().contains("blacklisted"), "{}", failed.text());
    let notified = ["payment.mismatched", "payin.underpaid", "payin.mismatched", "refund.failed"];
    assert_eq!(events_of(&app, &made).await, notified);
    // The reserve is released.
    let again = app.post(&path, &json!({ "address": BOB })).await;
    assert_eq!((again.status.as_u16(), &again.json["amount"]), (202, &json!("4.00")), "{}", again.text());
    refund_when(&app, &made, &again, "sent").await;
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, BOB).await, 4_000_000);
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, ADA).await, 0);
    let wallet = made.json["intermediary_wallet"].as_str().unwrap();
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, wallet).await, 0);
    let all = app.get(&path).await;
    let states: Vec<_> = all.json["refunds"].as_array().unwrap().iter().map(|refund| &refund["status"]).collect();
    assert_eq!(states, ["failed", "sent"]);
}

#[tokio::test]
async fn refund_with_an_unknown_result_is_made_once() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let made = app.add_payment(&merchant).await;
    app.pay(&made, "4").await;
    app.payment_when(&made, "mismatched").await;
    let id: PaymentId = id_of(&made).parse().unwrap();
    let path = refunds_of(&made);
    let body = json!({ "amount": "2", "address": ADA });
    let ask = || app.request(Method::POST, &path).idempotency_key("r1").json(&body).send();

    let held = app.database.lock(Lock::Writes).await;
    let dies = async {
        // It is decided and waits for the commit: the actor is too busy to answer.
        let busy =
            async |app: &TestApp| app.state.system.observe_payment(id).await.filter(|view| view.memory.is_none());
        app.until("the refund waits for the commit", busy).await;
        app.state.system.inject_crash(ActorKind::Shard);
    };
    let (asked, ()) = tokio::join!(ask(), dies);
    held.release().await;
    asked.assert_problem(503, "timed_out");
    let detail = asked.json["detail"].as_str().unwrap();
    assert!(detail.contains("may have been carried out") && detail.contains("Idempotency-Key"), "{detail}");

    let listed = async |app: &TestApp| Some(app.get(&path).await).filter(|reply| reply.json["total"] != 0);
    let listed = app.until("the refund exists", listed).await;
    let again = ask().await;
    assert_eq!((again.status.as_u16(), again.header("idempotent-replayed")), (202, Some("true")), "{}", again.text());
    assert_eq!(again.json["refund_id"], listed.json["refunds"][0]["refund_id"]);
    refund_when(&app, &made, &again, "sent").await;
    assert_eq!(app.get(&path).await.json["total"], 1);
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, ADA).await, 2_000_000);
}

#[tokio::test]
async fn invalid_requests_list_all_errors_and_move_nothing() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let (made, other) = (app.add_payment(&merchant).await, app.add_payment(&merchant).await);
    app.pay(&made, "4").await;
    app.payment_when(&made, "mismatched").await;
    let spec = app.env().chain(Chain::Polygon).spec().clone();
    let vault = payferry_evm::wallet::Vaults::new(spec.contract).of_psp(app.psp_id).to_string();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let path = refunds_of(&made);
    for (address, code) in [
        ("0x0000000000000000000000000000000000000000".to_owned(), "zero_address"),
        ("0x0000000000000000000000000000000000000004".to_owned(), "reserved_address"),
        (text(&made.json["intermediary_wallet"]), "service_vault"),
        (text(&other.json["intermediary_wallet"]), "service_vault"),
        (vault, "service_vault"),
        (text(&made.json["token_address"]), "token_contract"),
        (spec.token_address(Token::Usdt).unwrap().to_string(), "token_contract"),
        (spec.contract.to_string(), "service_contract"),
        (spec.treasury.to_string(), "treasury_address"),
        ("0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02914".to_owned(), "wrong_checksum"),
        ("833589fCD6eDb6E08f4c7C32D4f71b54bdA02913".to_owned(), "invalid_address"),
        ("ada.eth".to_owned(), "invalid_address"),
    ] {
        let reply = app.post(&path, &json!({ "address": address, "amount": "1" })).await;
        reply.assert_problem(422, "validation_failed");
        assert_eq!(reply.faults(), [format!("address: {code}")], "{address}");
        let resolve = json!({ "action": "refund", "address": address });
        let reply = app.post(&format!("/payments/{}/resolve", id_of(&made)), &resolve).await;
        assert_eq!(reply.faults(), [format!("address: {code}")], "{address}");
    }
    for (amount, code) in [
        (json!("0"), "amount_too_small"),
        (json!("-1"), "amount_malformed"),
        (json!("1.0000001"), "too_many_decimals"),
        (json!(1), "wrong_type"),
        (json!("99999999999999999999"), "amount_too_large"),
    ] {
        let reply = app.post(&path, &json!({ "address": spec.contract, "amount": amount })).await;
        reply.assert_problem(422, "validation_failed");
        let mut faults = reply.faults();
        faults.sort();
        assert_eq!(faults, ["address: service_contract".to_owned(), format!("amount: {code}")], "all faults together");
    }
    let required = app.post(&path, &json!({})).await;
    insta::assert_json_snapshot!("refund_address_required", required.redacted());
    app.post(&path, &json!({ "address": ADA, "amount": "4.01" })).await.assert_problem(409, "refund_too_large");
    app.post(&refunds_of(&other), &json!({ "address": ADA })).await.assert_problem(409, "payment_pending");
    app.get(&format!("{path}/rf_01J9Z3K4M5N6P7Q8R9S0T1V2W3")).await.assert_problem(404, "refund_not_found");
    app.get(&format!("{path}/x")).await.assert_problem(404, "refund_not_found");

    let nobody = format!("/payments/{}/refunds", PaymentId::generate());
    app.post(&nobody, &json!({ "address": ADA })).await.assert_problem(404, "payment_not_found");
    let stranger = app.add_psp().await;
    let stranger = app.add_key(stranger, &[Scope::Full]).await;
    let reader = app.add_key(app.psp_id, &[Scope::Read, Scope::Payments]).await;
    let resolve = format!("/payments/{}/resolve", id_of(&made));
    for (method, path) in [
        (Method::POST, path.clone()),
        (Method::GET, path.clone()),
        (Method::GET, format!("{path}/x")),
        (Method::POST, resolve),
    ] {
        let call = || app.request(method.clone(), &path).json(&json!({ "address": ADA, "action": "refund" }));
        call().key(&stranger).send().await.assert_problem(404, "payment_not_found");
        if method == Method::POST {
            call().key(&reader).send().await.assert_problem(403, "missing_scope");
        }
    }
    let reader = app.state.database().reader();
    assert_eq!(app.get(&path).await.json["total"], 0);
    assert_eq!(audit_log::Entity::find().count(reader).await.unwrap(), 0);
    assert_eq!(idempotency_keys::Entity::find().count(reader).await.unwrap(), 0);
}
