//! Refunds: requested, sent on the chain, refused, failed and requested again.

use payferry_devchain::Faults;
use payferry_entities::{audit_log, idempotency_keys, sends_per_day};
use payferry_harness::database::Lock;
use payferry_journal::psps::PspPolicies;
use payferry_runtime::observe::ActorKind;

use super::mismatches::set_policies;
use crate::prelude::*;

/// Accounts used only here.
const ADA: &str = "0x000000000000000000000000000000000000ada1";
const BOB: &str = "0x000000000000000000000000000000000000b0b1";

fn refunds_of(payment: &Reply) -> String {
    format!("{}/refunds", payment.path())
}

/// Waits until the refund has this status.
async fn refund_when(app: &TestApp, payment: &Reply, refund: &Reply, status: &str) -> Reply {
    let path = format!("{}/{}", refunds_of(payment), refund["refund_id"].as_str().unwrap());
    app.get_until(&path, |reply| reply["status"] == status).await
}

#[tokio::test]
async fn excess_is_refunded_and_the_rest_accepted() {
    let app = TestApp::start_with_chains().await;
    let made = app.paid("12.5", "mismatched").await;

    let path = refunds_of(&made);
    let body = json!({ "amount": "2.5", "address": ADA });
    let asked = app.post_keyed("r1", &path, &body).await;
    insta::assert_json_snapshot!("refund_asked", asked.redacted());
    app.post_keyed("r1", &format!("/api/v1{path}"), &body).await.assert_replays(&asked);
    let other = json!({ "amount": "2.4", "address": ADA });
    app.post_keyed("r1", &path, &other).await.assert_problem(422, "idempotency_key_reused");

    let sent = refund_when(&app, &made, &asked, "sent").await;
    insta::assert_json_snapshot!("refund_sent", sent.redacted());
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, ADA).await, 2_500_000);
    let listed = app.get(&format!("/api/v1{path}")).await;
    assert_has(&listed, json!({ "total": 1, "refunds/0": sent.json }));
    assert_eq!(app.get(&format!("{path}?offset=1")).await["refunds"], json!([]));
    let read = app.get(&format!("/payments/{}", made.id())).await;
    assert_eq!(read["refunds"], listed["refunds"], "the same records everywhere");

    let accept = json!({ "action": "accept", "expected_received": "12.5" });
    let accepted = app.post(&format!("{}/resolve", made.path()), &accept).await;
    accepted.assert(200, json!({ "status": "confirmed" }));
    let settled = app.payment_when(&made, "settled").await;
    assert_eq!(settled["settlement"]["amount"], "10.00");
    let taken = ["payment.mismatched", "payin.mismatched", "refund.sent", "payment.confirmed", "payin.confirmed"];
    let notified = [taken.as_slice(), &["payment.settled", "payin.settled"]].concat();
    assert_eq!(app.events_of(&made).await, notified);
    let entries: Vec<_> = audit_log::Entity::find().all(app.reader()).await.unwrap();
    let actions: Vec<_> = entries.iter().map(|entry| (entry.actor_kind.as_str(), entry.action.as_str())).collect();
    assert_eq!(actions, [("api_key", "payment.refund_requested"), ("api_key", "payment.accepted")]);
    assert_eq!(entries[0].subject, made.id());
}

#[tokio::test]
async fn refund_after_settlement_comes_from_the_psp_vault_and_is_limited() {
    let app = TestApp::start_with_chains().await;
    let (made, _other) = (app.paid("10", "settled").await, app.paid("10", "settled").await);
    let path = refunds_of(&made);
    let over = app.post(&path, &json!({ "amount": "10.000001", "address": ADA })).await;
    over.assert_problem(409, "refund_too_large");
    assert_eq!(over.faults(), "amount: refund_too_large");
    let asked = app.post(&path, &json!({ "amount": "4", "address": ADA })).await;
    asked.assert(202, json!({ "source": "psp" }));
    // Pending refunds are reserved.
    app.post(&path, &json!({ "amount": "6.01", "address": ADA })).await.assert_problem(409, "refund_too_large");
    let rest = app.post(&path, &json!({ "address": ADA })).await;
    assert_eq!(rest["amount"], "6.00");
    refund_when(&app, &made, &asked, "sent").await;
    refund_when(&app, &made, &rest, "sent").await;
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, ADA).await, 10_000_000);
    app.post(&path, &json!({ "address": ADA })).await.assert_problem(409, "nothing_to_refund");
    assert_eq!(app.get(&format!("/payments/{}", made.id())).await["status"], "settled");
}

#[tokio::test]
async fn refunds_of_all_payments_are_listed_and_read() {
    let app = TestApp::start_with_chains().await;
    let (first, second) = (app.paid("12.5", "mismatched").await, app.paid("4", "mismatched").await);
    let metadata = json!({ "ticket": { "n": 7 } });
    let body = json!({ "amount": "2.5", "address": ADA, "reference": "T-7", "metadata": metadata });
    let asked = app.post_keyed("r1", &refunds_of(&first), &body).await;
    asked.assert(202, json!({ "reference": "T-7", "metadata": metadata }));
    app.post_keyed("r1", &refunds_of(&first), &body).await.assert_replays(&asked);
    let resolve = json!({ "action": "refund", "address": BOB, "reference": "T-8" });
    let resolved = app.post(&format!("{}/resolve", second.path()), &resolve).await;
    resolved.assert(202, json!({ "refunds/0/reference": "T-8", "refunds/0/metadata": null }));
    let accept = json!({ "action": "accept", "reference": "T-9" });
    let refused = app.post(&format!("{}/resolve", first.path()), &accept).await;
    refused.assert_invalid("reference: not_applicable");

    let (one, two) = (asked.string("id").to_owned(), resolved["refunds"][0]["id"].as_str().unwrap().to_owned());
    for (payment, id) in [(&first, &one), (&second, &two)] {
        app.when(&format!("{}/{id}", refunds_of(payment)), "sent").await;
    }
    let read = app.get(&format!("/refunds/{one}")).await;
    insta::assert_json_snapshot!("refund_resource", read.redacted());
    assert_eq!(app.get(&format!("{}/{one}", refunds_of(&first))).await.json, read.json, "the same record everywhere");
    let log = app.get(&format!("{}/webhooks", first.path())).await;
    let told = &log["deliveries"].as_array().unwrap().last().unwrap()["payload"];
    assert_has(told, json!({ "event": "refund.sent", "refund_reference": "T-7", "refund_metadata": metadata }));

    let listed = async |query: &str| {
        let list = app.get(&format!("/refunds?{query}")).await.ok(200);
        let ids = column(&list["refunds"], "id");
        assert_eq!(list["total"], ids.len(), "{query}");
        ids
    };
    let both = [json!(two), json!(one)];
    for (query, expected) in [
        (String::new(), &both[..]),
        ("status=sent".to_owned(), &both[..]),
        ("status=pending".to_owned(), &[]),
        ("status=pending_approval".to_owned(), &[]),
        ("reference=T-7".to_owned(), &both[1..]),
        ("reference=T-".to_owned(), &[]),
        (format!("payment_id={}", second.id()), &both[..1]),
        (format!("payment_id={}&reference=T-7", second.id()), &[]),
        (format!("payment_id={}", PaymentId::generate()), &[]),
        (format!("created_from={}", read.string("created_at")), &both[..]),
        (format!("created_to={}", read.string("created_at")), &[]),
    ] {
        assert_eq!(listed(&query).await, expected, "{query}");
    }
    let page = app.get("/refunds?limit=1").await;
    assert_has(&page, json!({ "total": 2, "refunds/0/id": two }));
    let next = app.get(&format!("/refunds?limit=1&cursor={}", page.string("next_cursor"))).await;
    assert_has(&next, json!({ "refunds": [read.json], "next_cursor": null }));
    let bad = app.get("/refunds?status=done&payment_id=x&created_from=now&label=LATE").await;
    assert_eq!(
        bad.faults_sorted(),
        "created_from: invalid_timestamp, label: unknown_parameter, payment_id: invalid_id, status: unknown_value"
    );

    let stranger = app.stranger().await;
    app.get_as(&stranger, "/refunds").await.assert(200, json!({ "total": 0, "refunds": [] }));
    app.get_as(&stranger, &format!("/refunds/{one}")).await.assert_problem(404, "refund_not_found");
    app.get("/refunds/rf_01J9Z3K4M5N6P7Q8R9S0T1V2W3").await.assert_problem(404, "refund_not_found");
}

/// Limits so low that only a refund without a limit passes them.
async fn limit_refunds(app: &TestApp, daily: &str) {
    let (send_max, limit) = (Some("5".parse().unwrap()), Some(daily.parse().unwrap()));
    let policies = PspPolicies { send_max, refund_elsewhere_daily_max: limit, ..PspPolicies::default() };
    set_policies(app, &policies).await;
}

#[tokio::test]
async fn refund_to_the_only_plain_sender_has_no_limit() {
    let app = TestApp::start_with_chains().await;
    limit_refunds(&app, "1").await;
    let made = app.paid("10", "settled").await;
    let other = app.paid("10", "settled").await;
    let sender = app.get(&made.path()).await["transfers"][0]["from"].clone();
    let to_sender = json!({ "amount": "9", "address": sender });
    // Without an answer of the chain, the service does not know if the sender is a plain account.
    let chain = app.env().chain(Chain::Base).devchain();
    chain.set_faults(Faults { unavailable_rate: 1.0, ..Faults::default() });
    app.post(&refunds_of(&made), &to_sender).await.assert_problem(503, "chain_unavailable");
    app.post(&refunds_of(&other), &json!({ "amount": "1", "address": ADA })).await.ok(202);
    chain.set_faults(Faults::default());
    app.refunded(&made, &to_sender).await;
    assert_eq!(app.count::<sends_per_day::Entity>().await, 1, "only the refund to another address counts");

    // A contract may be an exchange, whose addresses belong to no single payer.
    let by_contract = app.add_payment().await;
    pay_from_contract(&app, &by_contract, "10").await;
    app.payment_when(&by_contract, "settled").await;
    let sender = app.get(&by_contract.path()).await["transfers"][0]["from"].clone();
    let asked = app.post(&refunds_of(&by_contract), &json!({ "amount": "1", "address": sender })).await;
    asked.assert(202, json!({ "status": "pending_approval" }));
}

#[tokio::test]
async fn concurrent_refunds_do_not_pass_the_daily_limit() {
    let app = TestApp::start_with_chains().await;
    limit_refunds(&app, "5").await;
    let made = app.paid("10", "settled").await;
    app.paid("10", "settled").await;
    let path = refunds_of(&made);
    let ask = async |_| app.post(&path, &json!({ "amount": "2", "address": ADA })).await.ok(202);
    let asked = futures::future::join_all((0..5).map(ask)).await;
    let held = asked.iter().filter(|reply| reply["status"] == "pending_approval").count();
    assert_eq!(held, 3, "two of five refunds are within the limit");
    for reply in asked.iter().filter(|reply| reply["status"] == "pending") {
        refund_when(&app, &made, reply, "sent").await;
    }
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, ADA).await, 4_000_000);
}

#[tokio::test]
async fn refund_rejected_by_the_token_can_go_elsewhere() {
    let app = TestApp::start_with_chains().await;
    let made = app.paid("4", "mismatched").await;
    blacklist(&app, Chain::Base, ADA, true).await;
    let path = refunds_of(&made);
    let asked = app.post(&path, &json!({ "address": ADA })).await.ok(202);
    app.post(&path, &json!({ "address": BOB })).await.assert_problem(409, "nothing_to_refund");
    let failed = refund_when(&app, &made, &asked, "failed").await;
    insta::assert_json_snapshot!("refund_failed", failed.redacted());
    assert!(failed["failure"].as_str().unwrap().contains("blacklisted"), "{}", failed.text());
    let notified = ["payment.mismatched", "payin.underpaid", "payin.mismatched", "refund.failed"];
    assert_eq!(app.events_of(&made).await, notified);
    // The reserve is released.
    let again = app.post(&path, &json!({ "address": BOB })).await;
    again.assert(202, json!({ "amount": "4.00" }));
    refund_when(&app, &made, &again, "sent").await;
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, BOB).await, 4_000_000);
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, ADA).await, 0);
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, made.wallet()).await, 0);
    let all = app.get(&path).await;
    assert_eq!(column(&all["refunds"], "status"), ["failed", "sent"]);
}

#[tokio::test]
async fn refund_with_an_unknown_result_is_made_once() {
    let app = TestApp::start_with_chains().await;
    let made = app.paid("4", "mismatched").await;
    let id: PaymentId = made.id().parse().unwrap();
    let path = refunds_of(&made);
    let body = json!({ "amount": "2", "address": ADA });
    let ask = || app.post_keyed("r1", &path, &body);

    let held = app.database.lock(Lock::Writes).await;
    let dies = async {
        // It is decided and waits for the commit: the actor is too busy to answer.
        let busy = async || app.state.system.observe_payment(id).await.filter(|view| view.memory.is_none());
        until("the refund waits for the commit", busy).await;
        app.state.system.inject_crash(ActorKind::Shard);
    };
    let (asked, ()) = tokio::join!(ask(), dies);
    held.release().await;
    asked.assert_problem(503, "timed_out");
    let detail = asked["detail"].as_str().unwrap();
    assert!(detail.contains("may have been carried out") && detail.contains("Idempotency-Key"), "{detail}");

    let listed = app.get_until(&path, |refunds| refunds["total"] != 0).await;
    let again = ask().await.ok(202);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again["refund_id"], listed["refunds"][0]["refund_id"]);
    refund_when(&app, &made, &again, "sent").await;
    assert_eq!(app.get(&path).await["total"], 1);
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, ADA).await, 2_000_000);
}

#[tokio::test]
async fn invalid_requests_list_all_errors_and_move_nothing() {
    let app = TestApp::start_with_chains().await;
    let (made, other) = (app.add_payment().await, app.add_payment().await);
    app.pay(&made, "4").await;
    app.payment_when(&made, "mismatched").await;
    let spec = app.env().chain(Chain::Polygon).spec().clone();
    let vault = payferry_evm::wallet::Vaults::new(spec.contract).of_psp(app.psp_id).to_string();
    let (path, resolve) = (refunds_of(&made), format!("{}/resolve", made.path()));
    for (address, code) in [
        ("0x0000000000000000000000000000000000000000".to_owned(), "zero_address"),
        ("0x0000000000000000000000000000000000000004".to_owned(), "reserved_address"),
        (made.wallet().to_owned(), "service_vault"),
        (other.wallet().to_owned(), "service_vault"),
        (vault, "service_vault"),
        (made.string("token_address").to_owned(), "token_contract"),
        (spec.token_address(Token::Usdt).unwrap().to_string(), "token_contract"),
        (spec.contract.to_string(), "service_contract"),
        (spec.treasury.to_string(), "treasury_address"),
        ("0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02914".to_owned(), "wrong_checksum"),
        ("833589fCD6eDb6E08f4c7C32D4f71b54bdA02913".to_owned(), "invalid_address"),
        ("ada.eth".to_owned(), "invalid_address"),
    ] {
        let fault = format!("address: {code}");
        app.post(&path, &json!({ "address": address, "amount": "1" })).await.assert_invalid(&fault);
        app.post(&resolve, &json!({ "action": "refund", "address": address })).await.assert_invalid(&fault);
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
        assert_eq!(reply.faults_sorted(), format!("address: service_contract, amount: {code}"), "all faults together");
    }
    let required = app.post(&path, &json!({})).await;
    insta::assert_json_snapshot!("refund_address_required", required.redacted());
    app.post(&path, &json!({ "address": ADA, "amount": "4.01" })).await.assert_problem(409, "refund_too_large");
    app.post(&refunds_of(&other), &json!({ "address": ADA })).await.assert_problem(409, "payment_pending");
    app.get(&format!("{path}/rf_01J9Z3K4M5N6P7Q8R9S0T1V2W3")).await.assert_problem(404, "refund_not_found");
    app.get(&format!("{path}/x")).await.assert_problem(404, "refund_not_found");

    let nobody = format!("/payments/{}/refunds", PaymentId::generate());
    app.post(&nobody, &json!({ "address": ADA })).await.assert_problem(404, "payment_not_found");
    let stranger = app.stranger().await;
    let reader = app.add_key(app.psp_id, &[Scope::Read, Scope::Payments]).await;
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
    assert_eq!(app.get(&path).await["total"], 0);
    assert_eq!(app.count::<audit_log::Entity>().await, 0);
    assert_eq!(app.count::<idempotency_keys::Entity>().await, 0);
}
