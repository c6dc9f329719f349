//! Refunds that payers ask for: signed by the account that sent the money, or claimed and decided by the PSP.

use std::num::NonZeroUsize;

use alloy::hex;
use alloy::primitives::Address as Account;
use alloy::signers::SignerSync as _;
use payferry::sandbox::Payer;
use payferry_actors::pauses;
use payferry_devchain::{DevWallet, Faults};
use payferry_domain::payment::PayerRefunds;
use payferry_entities::audit_log;
use payferry_harness::database::Lock;
use payferry_journal::psps::PspPolicies;
use payferry_journal::replay::{ReplayDifference, replay_all};
use payferry_runtime::observe::ActorKind;
use url::form_urlencoded::Serializer;

use super::mismatches::set_policies;
use crate::chainside::{pay_from_smart_wallet, smart_wallet};
use crate::prelude::*;

/// Accounts used only here.
const ADA: &str = "0x000000000000000000000000000000000000ada2";
const BOB: &str = "0x000000000000000000000000000000000000b0b2";

async fn offering(payer_refunds: PayerRefunds) -> TestApp {
    let app = TestApp::start_with_chains().await;
    set_policies(&app, &PspPolicies { payer_refunds, ..PspPolicies::default() }).await;
    app
}

/// A payment that expired and then received 10 USDC, and the account that sent them.
async fn late(app: &TestApp) -> (Reply, DevWallet) {
    let made = app.initiate(&json!({ "expires_in": 60 })).await.ok(201);
    app.env().advance(90).await.unwrap();
    app.payment_when(&made, "failed").await;
    app.pay(&made, "10").await;
    let late = app.payment_when(&made, "mismatched").await;
    let payer = payer_at(late["transfers"][0]["from"].as_str().unwrap());
    (made, payer)
}

/// The sandbox's payer with this address.
pub(crate) fn payer_at(address: &str) -> DevWallet {
    let payers = (0..1_000).map(|n| DevWallet::from_seed(&format!("payferry sandbox payer {n}")));
    payers.into_iter().find(|payer| payer.address().to_string() == address).expect("a payer of the sandbox")
}

fn page_of(payment: &Reply) -> String {
    format!("{}/refund", payment.page_path())
}

/// A request of the page's script.
async fn script(app: &TestApp, payment: &Reply, what: &str, body: &Value) -> Reply {
    let path = format!("{}/{what}", page_of(payment));
    app.request(Method::POST, &path).without_key().json(body).send().await
}

/// The messages that the account can sign.
async fn messages(app: &TestApp, payment: &Reply, account: &str) -> Vec<Value> {
    let offered = script(app, payment, "messages", &json!({ "account": account })).await.ok(200);
    offered["messages"].as_array().unwrap().clone()
}

/// The body with the signature of a message: its values, by the account.
pub(crate) fn signed_by(signer: &DevWallet, offered: &Value, message: &str) -> Value {
    let signature = signer.signer().sign_message_sync(message.as_bytes()).unwrap();
    with(offered, &json!({ "account": signer.address(), "signature": signature.to_string() }))
}

/// Signs the only message of the account.
async fn signed(app: &TestApp, payment: &Reply, payer: &DevWallet) -> Value {
    let offered = messages(app, payment, &payer.address().to_string()).await;
    assert_eq!(offered.len(), 1, "{offered:?}");
    signed_by(payer, &offered[0], offered[0]["message"].as_str().unwrap())
}

/// Sends the form for payers who paid from an exchange.
async fn claim(app: &TestApp, payment: &Reply, money: &str, address: &str, note: &str) -> Reply {
    let fields = [("money", money), ("address", address), ("note", note)];
    let body = Serializer::new(String::new()).extend_pairs(fields).finish();
    let call = app.request(Method::POST, &page_of(payment)).without_key().bytes(body);
    call.header("content-type", "application/x-www-form-urlencoded").send().await
}

/// The first choice of the form.
fn choice(page: &Reply) -> String {
    let (_, rest) = page.text().split_once("<option value=\"").unwrap_or_else(|| panic!("{}", page.text()));
    rest.split_once('"').unwrap().0.to_owned()
}

/// Asks for all of the first money without a signature; returns the id of the request.
pub(crate) async fn claimed(app: &TestApp, payment: &Reply, address: &str) -> String {
    let money = choice(&app.open(&page_of(payment)).await.ok(200));
    claim(app, payment, &money, address, "").await.ok(303);
    let requests = app.get(&payment.path()).await["refund_requests"].as_array().unwrap().clone();
    requests.last().unwrap()["id"].as_str().unwrap().to_owned()
}

async fn refunds(app: &TestApp, payment: &Reply) -> Vec<Value> {
    app.get(&payment.path()).await["refunds"].as_array().unwrap().clone()
}

async fn sent(app: &TestApp, payment: &Reply) -> Reply {
    app.get_until(&payment.path(), |read| read["refunds"][0]["status"] == "sent").await
}

async fn held(app: &TestApp, chain: Chain, account: &str) -> u64 {
    balance(app, chain, Token::Usdc, account).await
}

#[tokio::test]
async fn late_money_goes_back_to_the_account_that_signs() {
    let app = offering(PayerRefunds::Sender).await;
    let (made, payer) = late(&app).await;
    let account = payer.address().to_string();
    app.open(made.page_path()).await.assert_shows(&[&format!("{}/refund\"", made.page_path())]);
    let page = app.open(&page_of(&made)).await.ok(200);
    page.assert_shows(&["Get money back", "10.00 USDC on Base", "arrived after the time to pay was over"]);
    let german =
        app.request(Method::GET, &page_of(&made)).without_key().header("accept-language", "de-AT").send().await;
    german.ok(200).assert_shows(&["<html lang=\"de\"", "Geld zurückfordern", "10.00 USDC auf Base"]);
    page.assert_hides(&[&account, &account.to_lowercase(), &app.psp_id.to_string()]);
    let policy = page.header("content-security-policy").unwrap();
    for part in ["default-src 'none';", "script-src 'sha256-", "form-action 'self'", "frame-ancestors 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }

    let offered = messages(&app, &made, &account).await;
    let message = offered[0]["message"].as_str().unwrap();
    let id = format!("Payment: {}", made.id());
    let lines = [
        "I ask pay.example to send this money back to my account, which sent it.",
        "Service: https://pay.example",
        &id,
        &format!("Chain: Base ({})", app.env().chain(Chain::Base).spec().chain_id),
        &format!("Token: USDC {}", made.string("token_address")),
        "Amount: 10.00",
        &format!("To: {account}"),
        &format!("Issued at: {}", offered[0]["issued_at"].as_str().unwrap()),
    ];
    for line in lines {
        assert!(message.lines().any(|one| one == line), "{line} is missing in {message}");
    }
    let before = held(&app, Chain::Base, &account).await;
    let body = signed_by(&payer, &offered[0], message);
    let taken = script(&app, &made, "signed", &body).await;
    taken.assert(202, json!({ "status": "approved" }));
    let payment = sent(&app, &made).await;
    assert_eq!(held(&app, Chain::Base, &account).await, before + 10_000_000);
    assert_eq!(held(&app, Chain::Base, made.wallet()).await, 0);
    let refund = json!({ "requested_by": "payer", "address": account, "amount": "10.00", "funds": "received" });
    assert_has(&payment["refunds"][0], refund);
    let request = &payment["refund_requests"][0];
    assert_has(
        request,
        json!({ "status": "approved", "address_proof": "signature", "note": null,
        "refund_id": payment["refunds"][0]["id"], "id": taken["refund_request_id"] }),
    );
    let notified = ["payment.failed", "payin.failed", "payment.mismatched", "payin.mismatched"];
    assert_eq!(app.events_of(&made).await, [notified.as_slice(), &["refund.requested", "refund.sent"]].concat());
    let log = app.get(&format!("{}/webhooks", made.path())).await;
    let told = json!({ "refund_request_id": request["id"], "refund_request_status": "approved", "refund_chain": "base",
        "refund_address_proof": "signature", "refund_id": request["refund_id"], "refund_amount": "10.00" });
    assert_has(&log["deliveries"][4]["payload"], told);

    // The same message again, at once or later, is the same request.
    script(&app, &made, "signed", &body).await.assert(202, json!({ "refund_request_id": request["id"] }));
    app.env().advance(1_000).await.unwrap();
    script(&app, &made, "signed", &body).await.assert(202, json!({ "status": "approved" }));
    assert_eq!(refunds(&app, &made).await.len(), 1);
    app.open(&page_of(&made)).await.ok(200).assert_shows(&["There is no money to send back", "It was sent."]);
    assert_eq!(messages(&app, &made, &account).await, [Value::Null; 0]);
    let entries = audit_log::Entity::find().all(app.reader()).await.unwrap();
    let entry = entries.iter().find(|entry| entry.action == "payment.refund_asked").unwrap();
    assert_eq!((entry.actor_kind.as_str(), entry.subject.as_str()), ("customer", made.id()));
    assert_replays(&app).await;
}

/// The rules decide every stored command again as they did.
async fn assert_replays(app: &TestApp) {
    let mut differences = Vec::new();
    let report = |_, found| differences.extend::<Vec<ReplayDifference>>(found);
    let counts = replay_all(app.state.database(), NonZeroUsize::MIN, report).await.unwrap();
    assert!(differences.is_empty() && counts.decided > 0, "{differences:?}");
}

#[tokio::test]
async fn signature_for_something_else_is_refused_and_moves_nothing() {
    let app = offering(PayerRefunds::Sender).await;
    let (made, payer) = late(&app).await;
    let (other, other_payer) = late(&app).await;
    let account = payer.address().to_string();
    let offered = messages(&app, &made, &account).await.remove(0);
    let message = offered["message"].as_str().unwrap();
    let good = signed_by(&payer, &offered, message);
    let refused = async |payment: &Reply, body: Value, status: u16, code: &str| {
        script(&app, payment, "signed", &body).await.assert_problem(status, code);
    };
    // Another key signs for the sender, and for itself.
    let stranger = DevWallet::from_seed("a stranger");
    let forged = with(&signed_by(&stranger, &offered, message), &json!({ "account": account }));
    refused(&made, forged, 422, "refund_signature").await;
    let own = message.replace(&account, &stranger.address().to_string());
    refused(&made, signed_by(&stranger, &offered, &own), 409, "refund_not_sender").await;
    let theirs = message.replace(&account, &other_payer.address().to_string());
    if other_payer.address() != payer.address() {
        refused(&made, signed_by(&other_payer, &offered, &theirs), 409, "refund_not_sender").await;
    }
    // Another amount than the signed one, and more than was sent.
    refused(&made, with(&good, &json!({ "amount": "9.00" })), 422, "refund_signature").await;
    let more = message.replace("Amount: 10.00", "Amount: 10.01");
    let more = with(&signed_by(&payer, &offered, &more), &json!({ "amount": "10.01" }));
    refused(&made, more, 409, "refund_too_large").await;
    // Another payment, chain, token and time.
    let elsewhere = with(&good, &json!({ "account": other_payer.address() }));
    refused(&other, elsewhere, 422, "refund_signature").await;
    refused(&made, with(&good, &json!({ "chain": "polygon" })), 409, "nothing_to_refund").await;
    refused(&made, with(&good, &json!({ "token_address": ADA })), 409, "nothing_to_refund").await;
    let ahead = with(&good, &json!({ "issued_at": "2099-01-01T00:00:00.000Z" }));
    refused(&made, ahead, 422, "refund_message_expired").await;
    refused(&made, with(&good, &json!({ "signature": "0x00" })), 422, "refund_signature").await;
    refused(&made, json!({}), 422, "validation_failed").await;
    let unknown = app.request(Method::POST, "/pay/unknown/refund/signed").without_key().json(&good).send().await;
    unknown.assert_problem(404, "payment_not_found");
    assert_eq!(messages(&app, &made, ADA).await, [Value::Null; 0]);

    app.pause(pauses::Scope::Psp(app.psp_id), true).await;
    refused(&made, good.clone(), 409, "psp_paused").await;
    app.pause(pauses::Scope::Psp(app.psp_id), false).await;
    // The PSP ends the offer for all payments at once.
    set_policies(&app, &PspPolicies::default()).await;
    refused(&made, good.clone(), 409, "payer_refunds_off").await;
    app.open(&page_of(&made)).await.ok(200).assert_shows(&["cannot send money back for this payment"]);
    let offers = PspPolicies { payer_refunds: PayerRefunds::Sender, ..PspPolicies::default() };
    set_policies(&app, &offers).await;
    app.env().advance(901).await.unwrap();
    refused(&made, good, 422, "refund_message_expired").await;
    for payment in [&made, &other] {
        let read = app.get(&payment.path()).await;
        assert_has(&read, json!({ "refunds": [], "refund_requests": [] }));
    }
}

#[tokio::test]
async fn two_requests_at_once_pay_once() {
    let app = offering(PayerRefunds::Sender).await;
    let (made, payer) = late(&app).await;
    let first = signed(&app, &made, &payer).await;
    app.env().advance(2).await.unwrap();
    let second = signed(&app, &made, &payer).await;
    assert_ne!(first["issued_at"], second["issued_at"]);
    let send = |body| script(&app, &made, "signed", body);
    let replies = tokio::join!(send(&first), send(&first), send(&second), send(&second));
    let mut codes = [replies.0, replies.1, replies.2, replies.3].map(|reply| reply.status.as_u16());
    codes.sort_unstable();
    assert_eq!(codes, [202, 202, 409, 409]);
    sent(&app, &made).await;
    assert_eq!(refunds(&app, &made).await.len(), 1);
    assert_eq!(held(&app, Chain::Base, made.wallet()).await, 0);
}

#[tokio::test]
async fn request_with_an_unknown_result_is_carried_out_once() {
    let app = offering(PayerRefunds::Sender).await;
    let (made, payer) = late(&app).await;
    let (id, body): (PaymentId, _) = (made.id().parse().unwrap(), signed(&app, &made, &payer).await);
    let before = held(&app, Chain::Base, &payer.address().to_string()).await;
    let lock = app.database.lock(Lock::Writes).await;
    let dies = async {
        // It is decided and waits for the commit: the actor is too busy to answer.
        let busy = async || app.state.system.observe_payment(id).await.filter(|view| view.memory.is_none());
        until("the request waits for the commit", busy).await;
        app.state.system.inject_crash(ActorKind::Shard);
    };
    let (asked, ()) = tokio::join!(script(&app, &made, "signed", &body), dies);
    lock.release().await;
    asked.assert_problem(503, "timed_out");
    let again = async || Some(script(&app, &made, "signed", &body).await).filter(|reply| reply.status == 202);
    until("the service takes the request", again).await;
    sent(&app, &made).await;
    assert_eq!(refunds(&app, &made).await.len(), 1);
    assert_eq!(held(&app, Chain::Base, &payer.address().to_string()).await, before + 10_000_000);
}

#[tokio::test]
async fn contract_wallet_signs_on_the_chain_where_it_sent_the_money() {
    let app = offering(PayerRefunds::Sender).await;
    let made = app.add_payment().await;
    let owner = DevWallet::from_seed("owner of a contract wallet");
    let wallet = smart_wallet(&app, Chain::Polygon, owner.address()).await;
    pay_from_smart_wallet(&app, Chain::Polygon, (wallet, &owner), made.wallet(), "3").await;
    let is_wrong = |reply: &Reply| has_label(reply, "WRONG_CHAIN") && reply["transfers"][0]["kyt_verdict"] == "allow";
    app.get_until(&made.path(), is_wrong).await;
    app.open(&page_of(&made)).await.assert_shows(&["3.00 USDC on Polygon", "another chain than the one asked for"]);

    let offered = messages(&app, &made, &wallet.to_string()).await;
    assert_has(&offered[0], json!({ "chain": "polygon", "amount": "3.00" }));
    let by_owner = signed_by(&owner, &offered[0], offered[0]["message"].as_str().unwrap());
    let mut body = with(&by_owner, &json!({ "account": wallet }));
    // The wallet wants one more byte.
    script(&app, &made, "signed", &body).await.assert_problem(422, "refund_signature");
    body["signature"] = json!(format!("{}00", body["signature"].as_str().unwrap()));
    let chain = app.env().chain(Chain::Polygon).devchain();
    chain.set_faults(Faults { unavailable_rate: 1.0, ..Faults::default() });
    script(&app, &made, "signed", &body).await.assert_problem(503, "chain_unavailable");
    chain.set_faults(Faults::default());
    // Of another owner.
    let stranger = DevWallet::from_seed("a stranger");
    let forged = signed_by(&stranger, &offered[0], offered[0]["message"].as_str().unwrap());
    let forged = format!("{}00", forged["signature"].as_str().unwrap());
    let forged = with(&body, &json!({ "signature": forged }));
    script(&app, &made, "signed", &forged).await.assert_problem(422, "refund_signature");
    assert!(refunds(&app, &made).await.is_empty());

    script(&app, &made, "signed", &body).await.assert(202, json!({ "status": "approved" }));
    let payment = sent(&app, &made).await;
    let back = json!({ "chain": "polygon", "funds": "misdirected", "address": wallet.to_string(), "amount": "3.00" });
    assert_has(&payment["refunds"][0], back);
    assert_eq!(held(&app, Chain::Polygon, &wallet.to_string()).await, 3_000_000);
    assert_eq!(payment["status"], "pending", "the payment itself is still open");
    app.pay(&made, "10").await;
    app.payment_when(&made, "settled").await;
    assert!(hex::decode(body["signature"].as_str().unwrap()).unwrap().len() == 66);
}

#[tokio::test]
async fn excess_goes_back_after_the_settlement_and_settled_money_does_not() {
    let app = offering(PayerRefunds::Sender).await;
    let made = app.paid("10", "settled").await;
    app.open(made.page_path()).await.assert_hides(&["/refund\""]);
    app.open(&page_of(&made)).await.ok(200).assert_shows(&["There is no money to send back at the moment."]);
    app.pay(&made, "4").await;
    let again = app.get_until(&made.path(), |reply| reply["excess_received"] == "4.00").await;
    let payer = payer_at(again["transfers"][1]["from"].as_str().unwrap());
    app.open(&page_of(&made)).await.ok(200).assert_shows(&["4.00 USDC on Base", "more than the payment needed"]);
    let body = signed(&app, &made, &payer).await;
    assert_eq!(body["amount"], "4.00");
    script(&app, &made, "signed", &body).await.assert(202, json!({}));
    let payment = sent(&app, &made).await;
    assert_has(&payment, json!({ "status": "settled", "refunds/0/source": "payment", "refunds/0/amount": "4.00" }));
}

#[tokio::test]
async fn claims_are_decided_by_the_psp() {
    let app = offering(PayerRefunds::Approve).await;
    let (made, payer) = late(&app).await;
    let page = app.open(&page_of(&made)).await.ok(200);
    page.assert_shows(&["The merchant decides", "You paid from an exchange", "<form"]);
    let money = choice(&page);
    // Invalid forms are shown again.
    for (money, address) in [
        (money.as_str(), "ada.eth"),
        (&money, made.wallet()),
        (&money, "0x0000000000000000000000000000000000000000"),
        ("base/x/10", ADA),
        ("", ADA),
    ] {
        let refused = claim(&app, &made, money, address, "").await.ok(422);
        refused.assert_shows(&["role=\"alert\"", "Check them.", &format!("value=\"{address}\"")]);
    }
    claim(&app, &made, &money, ADA, &"x".repeat(141)).await.ok(422);
    let stale = money.replace("10.00", "12.00");
    claim(&app, &made, &stale, ADA, "").await.ok(409).assert_shows(&["The amount has changed."]);
    let note = "Deposit <address> of my exchange";
    for _ in 0..2 {
        let taken = claim(&app, &made, &money, ADA, note).await.ok(303);
        assert_eq!(taken.header("location"), Some(format!("{}?done=1", page_of(&made)).as_str()));
    }
    let shown = app.open(&format!("{}?done=1", page_of(&made))).await.ok(200);
    shown.assert_shows(&["Your request was received.", "The merchant has been asked and decides."]);
    shown.assert_hides(&[ADA, "Deposit"]);
    let listed = app.get("/refund-requests?status=requested").await;
    listed
        .assert(200, json!({ "total": 1, "refund_requests/0/address_proof": "none", "refund_requests/0/note": note }));
    let first = listed["refund_requests"][0].clone();
    let ada = ADA.parse::<Account>().unwrap().to_string();
    assert_has(&first, json!({ "address": ada, "amount": "10.00", "refund_id": null, "payment_id": made.id() }));
    assert!(refunds(&app, &made).await.is_empty(), "it waits for the PSP");
    assert_eq!(app.events_of(&made).await.last().unwrap(), "refund.requested");

    // A signature waits, too, if the PSP decides about everything.
    let body = signed(&app, &made, &payer).await;
    script(&app, &made, "signed", &body).await.assert(202, json!({ "status": "requested" }));
    let path = format!("/refund-requests/{}", first["id"].as_str().unwrap());
    assert_eq!(app.get(&path).await.json, first);
    assert_eq!(app.get(&made.path()).await["refund_requests"][0], first, "the same record everywhere");
    let (approve, decline) = (format!("{path}/approve"), format!("{path}/decline"));
    let stranger = app.stranger().await;
    app.get_as(&stranger, &path).await.assert_problem(404, "refund_request_not_found");
    app.post_as(&stranger, &approve, &json!({})).await.assert_problem(404, "refund_request_not_found");
    app.get_as(&stranger, "/refund-requests").await.assert(200, json!({ "total": 0 }));
    let weak = app.add_key(app.psp_id, &[Scope::Read, Scope::Payments]).await;
    app.post_as(&weak, &approve, &json!({})).await.assert_problem(403, "missing_scope");
    app.pause(pauses::Scope::Psp(app.psp_id), true).await;
    app.post(&approve, &json!({})).await.assert_problem(409, "psp_paused");
    claim(&app, &made, &money, BOB, "").await.ok(409).assert_shows(&["No money can be sent back at the moment."]);
    app.pause(pauses::Scope::Psp(app.psp_id), false).await;

    let approved = app.post_keyed("a1", &approve, &json!({ "reference": "T-7" })).await;
    approved.assert(202, json!({ "status": "approved", "id": first["id"] }));
    app.post_keyed("a1", &approve, &json!({ "reference": "T-7" })).await.assert_replays(&approved);
    app.post(&approve, &json!({})).await.assert(202, json!({ "refund_id": approved["refund_id"] }));
    app.post(&decline, &json!({})).await.assert_problem(409, "refund_request_closed");
    let payment = sent(&app, &made).await;
    let expected = json!({ "requested_by": "psp", "reference": "T-7", "address": ada, "id": approved["refund_id"] });
    assert_has(&payment["refunds"][0], expected);
    assert_eq!(held(&app, Chain::Base, ADA).await, 10_000_000);
    // The money is gone, so the other request cannot be approved.
    let other = payment["refund_requests"][1]["id"].as_str().unwrap();
    let gone = app.post(&format!("/refund-requests/{other}/approve"), &json!({})).await;
    gone.assert_problem(409, "nothing_to_refund");
    let declined = app.post(&format!("/refund-requests/{other}/decline"), &json!({})).await;
    declined.assert(200, json!({ "status": "declined", "refund_id": null }));
    app.open(&page_of(&made)).await.assert_shows(&["The merchant declined the request.", "It was sent."]);
    assert_has(&app.get("/refund-requests?limit=1").await.json, json!({ "total": 2, "refund_requests/0/id": other }));
    let bad = app.get("/refund-requests?status=done&payment_id=x&label=LATE").await;
    assert_eq!(bad.faults_sorted(), "label: unknown_parameter, payment_id: invalid_id, status: unknown_value");
    assert_replays(&app).await;
}

#[tokio::test]
async fn limits_apply_to_requests_of_payers() {
    let app = TestApp::start_with_chains().await;
    let limit = Some("1".parse().unwrap());
    let policies = PspPolicies {
        payer_refunds: PayerRefunds::Sender,
        refund_elsewhere_daily_max: limit,
        ..PspPolicies::default()
    };
    set_policies(&app, &policies).await;
    let (made, _) = late(&app).await;
    let money = choice(&app.open(&page_of(&made)).await);
    for (n, address) in [ADA, BOB, "0x000000000000000000000000000000000000c0c2"].into_iter().enumerate() {
        let smaller = money.replace("10.00", &format!("{}.00", n + 2));
        claim(&app, &made, &smaller, address, "").await.ok(303);
    }
    claim(&app, &made, &money, ADA, "").await.ok(409).assert_shows(&["Too many requests wait for a decision."]);
    let list = app.get("/refund-requests").await;
    let approve = format!("/refund-requests/{}/approve", list["refund_requests"][0]["id"].as_str().unwrap());
    app.post(&approve, &json!({})).await.assert(202, json!({ "status": "approved" }));
    let refund = refunds(&app, &made).await.remove(0);
    assert_eq!(refund["status"], "pending_approval", "above the limit, the operator approves");
    app.open(&page_of(&made)).await.assert_shows(&["It is sent after a check."]);
}

#[tokio::test]
async fn requests_are_rate_limited_per_address() {
    let pages_per_minute = std::num::NonZeroU32::new(2);
    let limits = Some(payferry_httpkit::Limits { pages_per_minute, ..payferry_httpkit::Limits::sandbox() });
    let app = TestApp::start_with(TestConfig { limits, ..TestConfig::default() }).await;
    let call = async |what: &str| {
        let path = format!("/pay/x/refund/{what}");
        app.request(Method::POST, &path).without_key().client_address([192, 0, 2, 1]).json(&json!({})).send().await
    };
    call("messages").await.assert_problem(404, "payment_not_found");
    call("signed").await.assert_problem(404, "payment_not_found");
    call("signed").await.assert_problem(429, "rate_limited");
    let form = app.request(Method::POST, "/pay/x/refund").without_key().client_address([192, 0, 2, 1]);
    form.bytes(String::new()).send().await.ok(429).assert_shows(&["Too many requests"]);
}

#[tokio::test]
async fn blocked_money_and_a_blocked_address_go_nowhere() {
    let app = offering(PayerRefunds::Sender).await;
    let made = app.add_payment().await;
    app.send(&made, Payer::Sanctioned, Chain::Polygon, Token::Usdc, "3").await;
    app.get_until(&made.path(), |reply| has_label(reply, "FUNDS_BLOCKED")).await;
    app.open(&page_of(&made)).await.ok(200).assert_shows(&["There is no money to send back at the moment."]);
    let sanctioned = DevWallet::from_seed("payferry sandbox sanctioned payer").address().to_string();
    assert_eq!(messages(&app, &made, &sanctioned).await, [Value::Null; 0]);
    // A claim to a blocked address becomes a refund that fails.
    let (made, _) = late(&app).await;
    let approve = format!("/refund-requests/{}/approve", claimed(&app, &made, &sanctioned).await);
    app.post(&approve, &json!({})).await.ok(202);
    let failed = |read: &Reply| read["refunds"][0]["failure_reason"] == "address_blocked";
    app.get_until(&made.path(), failed).await;
    app.open(&page_of(&made)).await.assert_shows(&["It could not be sent.", "10.00 USDC on Base"]);
}
