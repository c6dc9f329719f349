//! Payments by signature: collected, refused and ended, on real chains with a real EIP-3009 token.

use alloy::primitives::{Address as Account, B256, U256};
use alloy::signers::SignerSync as _;
use alloy::sol_types::{Eip712Domain, SolCall, SolStruct};
use payferry_actors::pauses;
use payferry_contracts::{
    CancelAuthorization, Erc3009, ReceiveWithAuthorization, SignedAuthorization, TransferWithAuthorization,
};
use payferry_devchain::DevWallet;

use crate::chainside::{node, token_of};
use crate::prelude::*;

/// Kind of message of the payer's page.
const RECEIVE: &str = "receive_with_authorization";
const GAS: u64 = 300_000;
const MAX_FEE_WEI: u128 = 100_000_000_000;
/// Above the tip of the settler, so that the transaction is mined first.
const TIP_WEI: u128 = 50_000_000_000;
/// Events of a payment that is paid once.
const NOTIFIED: [&str; 4] = ["payment.confirmed", "payin.confirmed", "payment.settled", "payin.settled"];
const ADA: &str = "0x000000000000000000000000000000000000ada1";

pub(crate) fn payer() -> DevWallet {
    DevWallet::from_seed("payferry sandbox payer 0")
}

/// Typed data of the payment's authorization.
pub(crate) fn typed_data(payment: &Value) -> Value {
    let methods = payment["payment_methods"].as_array().unwrap();
    let method = methods.iter().find(|method| method["type"] == "authorization").expect("an authorization");
    method["typed_data"].clone()
}

pub(crate) fn domain(typed_data: &Value) -> Eip712Domain {
    let domain = &typed_data["domain"];
    let text = |name: &str| domain[name].as_str().unwrap().to_owned();
    Eip712Domain::new(
        Some(text("name").into()),
        Some(text("version").into()),
        Some(U256::from(domain["chainId"].as_u64().unwrap())),
        Some(text("verifyingContract").parse().unwrap()),
        None,
    )
}

fn number(value: &Value) -> U256 {
    value.as_str().unwrap().parse().unwrap()
}

/// Signs the typed data as the payer, and returns the body of the request.
fn signed(typed_data: &Value) -> Value {
    signed_by(&payer(), typed_data)
}

/// Signs the typed data as this payer.
pub(crate) fn signed_by(payer: &DevWallet, typed_data: &Value) -> Value {
    signed_for(payer.address(), payer, typed_data)
}

/// Signs the typed data as the owner of the account that pays.
pub(crate) fn signed_for(from: Account, owner: &DevWallet, typed_data: &Value) -> Value {
    let message = &typed_data["message"];
    let receive = ReceiveWithAuthorization {
        from,
        to: message["to"].as_str().unwrap().parse().unwrap(),
        value: number(&message["value"]),
        validAfter: number(&message["validAfter"]),
        validBefore: number(&message["validBefore"]),
        nonce: message["nonce"].as_str().unwrap().parse().unwrap(),
    };
    let hash = receive.eip712_signing_hash(&domain(typed_data));
    json!({
        "type": RECEIVE,
        "from": from,
        "value": message["value"],
        "valid_after": 0,
        "valid_before": receive.validBefore.to::<u64>(),
        "nonce": message["nonce"],
        "signature": owner.signer().sign_hash_sync(&hash).unwrap().to_string(),
    })
}

/// Signs a transfer of the amount to any account, with a nonce of the payer's choice.
fn signed_transfer(typed_data: &Value, to: &str, nonce: B256) -> Value {
    let (from, message) = (payer().address(), &typed_data["message"]);
    let transfer = TransferWithAuthorization {
        from,
        to: to.parse().unwrap(),
        value: number(&message["value"]),
        validAfter: U256::ZERO,
        validBefore: number(&message["validBefore"]),
        nonce,
    };
    let hash = transfer.eip712_signing_hash(&domain(typed_data));
    json!({
        "type": "transfer_with_authorization", "from": from, "value": message["value"], "valid_after": 0,
        "valid_before": transfer.validBefore.to::<u64>(), "nonce": nonce,
        "signature": payer().signer().sign_hash_sync(&hash).unwrap().to_string(),
    })
}

/// Call of the token that makes a signed transfer. Anyone can submit it.
fn transfer_call(signed: &Value, to: &str) -> Vec<u8> {
    let text = |name: &str| signed[name].as_str().unwrap();
    let authorization = SignedAuthorization {
        from: text("from").parse().unwrap(),
        value: text("value").parse().unwrap(),
        valid_after: 0,
        valid_before: signed["valid_before"].as_u64().unwrap(),
        nonce: text("nonce").parse().unwrap(),
        signature: text("signature").parse().unwrap(),
        by_contract: false,
    };
    authorization.transfer_call(to.parse().unwrap())
}

/// Call of the token that makes the nonce unusable, as the payer's wallet can.
fn cancel_call(typed_data: &Value) -> Vec<u8> {
    let (payer, nonce): (_, B256) = (payer(), typed_data["message"]["nonce"].as_str().unwrap().parse().unwrap());
    let authorizer = payer.address();
    let hash = CancelAuthorization { authorizer, nonce }.eip712_signing_hash(&domain(typed_data));
    let signature = payer.signer().sign_hash_sync(&hash).unwrap();
    let (v, r, s) = (27 + u8::from(signature.v()), signature.r().into(), signature.s().into());
    Erc3009::cancelAuthorization_0Call { authorizer, nonce, v, r, s }.abi_encode()
}

async fn read(app: &TestApp, payment: &Reply) -> Value {
    app.get(&payment.path()).await.json
}

async fn authorize(app: &TestApp, payment: &Reply, body: &Value) -> Reply {
    app.post(&format!("{}/authorization", payment.path()), body).await
}

/// Waits until the authorization of the payment has this state.
async fn authorization_when(app: &TestApp, payment: &Reply, state: &str) -> Reply {
    app.get_until(&payment.path(), |reply| reply["authorization"]["state"] == state).await
}

/// Sends a call of the token, to be mined before the settler's transactions.
async fn send(app: &TestApp, input: Vec<u8>) -> B256 {
    let (node, token) = (node(app, Chain::Base).await, token_of(app, Chain::Base, Token::Usdc));
    let sender = DevWallet::from_seed("payferry sandbox test account 0");
    let nonce = node.nonce(sender.address(), "pending").await;
    let (raw, _) = sender.sign_call(node.chain_id(), nonce, token, input.into(), GAS, MAX_FEE_WEI, TIP_WEI);
    node.send_raw(&raw).await.unwrap()
}

async fn until_mined(app: &TestApp, hash: B256) {
    let node = node(app, Chain::Base).await;
    let receipt = until("the call is mined", async || node.receipt(hash).await).await;
    assert!(receipt.status(), "{receipt:#?}");
}

/// Submits an authorization. While its collection is in the mempool, another call of the token overtakes it.
async fn overtaken(app: &TestApp, payment: &Reply, body: &Value, input: Vec<u8>) {
    let chain = app.env().chain(Chain::Base).devchain();
    chain.pause_mining();
    authorize(app, payment, body).await.assert(202, json!({}));
    authorization_when(app, payment, "submitted").await;
    let hash = send(app, input).await;
    chain.resume_mining();
    until_mined(app, hash).await;
}

async fn held(app: &TestApp, account: &str) -> u64 {
    balance(app, Chain::Base, Token::Usdc, account).await
}

#[tokio::test]
async fn signed_payment_is_collected_and_settled_in_one_transaction() {
    let app = TestApp::start_with_chains().await;
    let made = app.add_payment().await;
    let payment = read(&app, &made).await;
    let before = held(&app, &payer().address().to_string()).await;
    let body = signed(&typed_data(&payment));
    let accepted = authorize(&app, &made, &body).await;
    accepted.assert(202, json!({ "status": "pending", "labels": ["AUTHORIZED"] }));
    assert_eq!(accepted["authorization"]["from"], payer().address().to_string());

    let settled = app.payment_when(&made, "settled").await;
    insta::assert_json_snapshot!("payment_settled", settled.redacted());
    assert_eq!(settled["settlement"]["tx_hash"], settled["authorization"]["tx_hash"]);
    assert_eq!(settled["transfers"][0]["tx_hash"], settled["authorization"]["tx_hash"]);
    assert_eq!(app.events_of(&made).await, NOTIFIED);
    assert_eq!(held(&app, &payer().address().to_string()).await, before - 10_000_000);
    assert_eq!(held(&app, made.wallet()).await, 0, "no money goes through the payment's wallet");
    // The PSP has its share at once, and can refund it.
    let back = json!({ "amount": "4", "address": ADA });
    assert_eq!(app.refunded(&made, &back).await["source"], "psp");
    authorize(&app, &made, &body).await.assert_problem(409, "payment_not_pending");
}

#[tokio::test]
async fn payer_signs_on_the_page_without_an_api_key() {
    let app = TestApp::start_with_chains().await;
    let made = app.add_payment().await;
    let path = format!("{}/authorization", made.page_path());
    let body = signed(&typed_data(&read(&app, &made).await));
    let post = |body: &Value| app.request(Method::POST, &path).without_key().json(body).send();
    let accepted = post(&body).await;
    accepted.assert(202, json!({ "state": "screening" }));
    app.payment_when(&made, "settled").await;
    post(&body).await.assert_problem(409, "payment_not_pending");
    let unknown = app.request(Method::POST, "/pay/unknown/authorization").without_key().json(&body).send().await;
    unknown.assert_problem(404, "payment_not_found");
}

#[tokio::test]
async fn authorizations_of_the_page_are_rate_limited_per_address() {
    let pages_per_minute = std::num::NonZeroU32::new(2);
    let limits = Some(payferry_httpkit::Limits { pages_per_minute, ..payferry_httpkit::Limits::sandbox() });
    let app = TestApp::start_with(TestConfig { chains: true, limits, ..TestConfig::default() }).await;
    let made = app.add_payment().await;
    let body = signed(&typed_data(&read(&app, &made).await));
    let path = format!("{}/authorization", made.page_path());
    let post = async |address, body: &Value| {
        app.request(Method::POST, &path).without_key().client_address(address).json(body).send().await
    };
    for _ in 0..2 {
        post([192, 0, 2, 1], &json!({})).await.assert_problem(422, "validation_failed");
    }
    let refused = post([192, 0, 2, 1], &body).await;
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&wait), "{wait}");
    refused.assert_problem(429, "rate_limited");
    assert_eq!(read(&app, &made).await["authorization"], Value::Null, "nothing was accepted");
    // Another payer, and the PSP with its key, have separate limits.
    post([192, 0, 2, 2], &body).await.assert(202, json!({ "state": "screening" }));
    app.payment_when(&made, "settled").await;
}

#[tokio::test]
async fn signature_for_something_else_is_refused_and_changes_nothing() {
    let app = TestApp::start_with_chains().await;
    let (made, other) = (app.add_payment().await, app.add_payment().await);
    let (payment, other) = (read(&app, &made).await, read(&app, &other).await);
    let (ours, theirs) = (typed_data(&payment), typed_data(&other));
    let refused = |reply: Reply, status, code: &str| reply.assert_problem(status, code);

    let mut typed_data = theirs;
    typed_data["message"]["validBefore"] = ours["message"]["validBefore"].clone();
    refused(authorize(&app, &made, &signed(&typed_data)).await, 422, "authorization_nonce");
    let mut typed_data = ours.clone();
    typed_data["message"]["value"] = json!("9990000");
    refused(authorize(&app, &made, &signed(&typed_data)).await, 409, "authorization_amount");
    let mut body = signed(&typed_data);
    body["value"] = json!("10000000");
    refused(authorize(&app, &made, &body).await, 422, "authorization_signature");
    let mut typed_data = ours.clone();
    typed_data["message"]["to"] = json!(made.wallet());
    refused(authorize(&app, &made, &signed(&typed_data)).await, 422, "authorization_signature");
    let mut typed_data = ours.clone();
    typed_data["domain"]["chainId"] = json!(1);
    refused(authorize(&app, &made, &signed(&typed_data)).await, 422, "authorization_signature");
    let mut body = signed(&ours);
    body["from"] = json!(Account::repeat_byte(1));
    refused(authorize(&app, &made, &body).await, 409, "authorization_balance");
    let mut body = signed(&ours);
    body["valid_after"] = json!(body["valid_before"].as_u64().unwrap() - 1);
    refused(authorize(&app, &made, &body).await, 422, "authorization_not_valid_yet");
    let mut body = signed(&ours);
    body["signature"] = json!("0x00");
    refused(authorize(&app, &made, &body).await, 422, "authorization_signature");
    let mut body = signed(&ours);
    body["valid_before"] = json!(body["valid_before"].as_u64().unwrap() + 1);
    refused(authorize(&app, &made, &body).await, 409, "authorization_too_long");
    assert_eq!(read(&app, &made).await, payment);

    until_mined(&app, send(&app, cancel_call(&ours)).await).await;
    refused(authorize(&app, &made, &signed(&ours)).await, 409, "authorization_used");
    let usdt = app.initiate(&json!({ "currency": "USDT" })).await;
    let methods = read(&app, &usdt).await["payment_methods"].as_array().unwrap().len();
    assert_eq!(methods, 1, "the USDT-like token has no EIP-3009");
    refused(authorize(&app, &usdt, &signed(&ours)).await, 409, "authorization_unsupported");
}

#[tokio::test]
async fn authorization_cancelled_by_the_payer_fails_and_the_payer_signs_again() {
    let app = TestApp::start_with_chains().await;
    let made = app.add_payment().await;
    app.pause(pauses::Scope::Settlement(None), true).await;
    let first = typed_data(&read(&app, &made).await);
    authorize(&app, &made, &signed(&first)).await.assert(202, json!({}));
    let queued = authorization_when(&app, &made, "queued").await;
    assert!(queued["payment_methods"].as_array().unwrap().iter().all(|method| method["type"] == "transfer"));
    authorize(&app, &made, &signed(&first)).await.assert_problem(409, "authorization_in_progress");
    let cancelled = app.post(&format!("{}/cancel", made.path()), &json!({})).await;
    cancelled.assert_problem(409, "authorization_in_progress");
    until_mined(&app, send(&app, cancel_call(&first)).await).await;
    app.pause(pauses::Scope::Settlement(None), false).await;

    let failed = authorization_when(&app, &made, "failed").await;
    assert_has(&failed, json!({ "status": "pending", "labels": [], "authorization/failure_reason": "nonce_used" }));
    let second = typed_data(&failed);
    assert_ne!(second["message"]["nonce"], first["message"]["nonce"]);
    authorize(&app, &made, &signed(&second)).await.assert(202, json!({}));
    app.payment_when(&made, "settled").await;
}

#[tokio::test]
async fn sanctioned_payer_is_refused_before_the_money_moves() {
    let app = TestApp::start_with_chains().await;
    let made = app.add_payment().await;
    let body =
        signed_by(&DevWallet::from_seed("payferry sandbox sanctioned payer"), &typed_data(&read(&app, &made).await));
    authorize(&app, &made, &body).await.assert(202, json!({ "authorization/state": "screening" }));
    let failed = authorization_when(&app, &made, "failed").await;
    assert_has(
        &failed,
        json!({ "status": "pending", "transfers": [], "authorization/failure_reason": "payer_blocked" }),
    );
}

#[tokio::test]
async fn authorized_transfer_to_the_wallet_is_settled_as_usual() {
    let app = TestApp::start_with_chains().await;
    let made = app.add_payment().await;
    let body = signed_transfer(&typed_data(&read(&app, &made).await), made.wallet(), B256::repeat_byte(7));
    authorize(&app, &made, &body).await.assert(202, json!({}));
    let settled = app.payment_when(&made, "settled").await;
    assert_ne!(settled["settlement"]["tx_hash"], settled["authorization"]["tx_hash"]);
    let settled = authorization_when(&app, &made, "final").await;
    assert_eq!(settled["transfers"][0]["tx_hash"], settled["authorization"]["tx_hash"]);
}

#[tokio::test]
async fn authorized_transfer_overtaken_by_another_with_its_nonce_fails_and_the_payer_pays_by_hand() {
    let app = TestApp::start_with_chains().await;
    let made = app.add_payment().await;
    let (typed_data, nonce) = (typed_data(&read(&app, &made).await), B256::repeat_byte(7));
    let elsewhere = transfer_call(&signed_transfer(&typed_data, ADA, nonce), ADA);
    overtaken(&app, &made, &signed_transfer(&typed_data, made.wallet(), nonce), elsewhere).await;

    let failed = authorization_when(&app, &made, "failed").await;
    let reason = json!({ "status": "pending", "transfers": [], "authorization/failure_reason": "nonce_used",
        "authorization/failure": "the payer used or cancelled the authorization" });
    assert_has(&failed, reason);
    assert_eq!((held(&app, ADA).await, held(&app, made.wallet()).await), (10_000_000, 0));
    app.pay(&made, "10").await;
    let settled = app.payment_when(&made, "settled").await;
    assert_has(&settled, json!({ "amount_received": "10.00", "excess_received": "0.00" }));
}

#[tokio::test]
async fn authorized_transfer_that_another_account_submits_first_pays_once() {
    let app = TestApp::start_with_chains().await;
    let made = app.add_payment().await;
    let before = held(&app, &payer().address().to_string()).await;
    let body = signed_transfer(&typed_data(&read(&app, &made).await), made.wallet(), B256::repeat_byte(7));
    overtaken(&app, &made, &body, transfer_call(&body, made.wallet())).await;

    app.payment_when(&made, "settled").await;
    let ended = authorization_when(&app, &made, "failed").await;
    let once = json!({ "status": "settled", "amount_received": "10.00", "excess_received": "0.00",
        "authorization/failure_reason": "nonce_used" });
    assert_has(&ended, once);
    assert_eq!(ended["transfers"].as_array().unwrap().len(), 1);
    assert_eq!(app.events_of(&made).await, NOTIFIED);
    assert_eq!(held(&app, &payer().address().to_string()).await, before - 10_000_000);
}

#[tokio::test]
async fn authorization_cancelled_while_its_collection_is_in_the_mempool_fails_and_the_payer_signs_again() {
    let app = TestApp::start_with_chains().await;
    let made = app.add_payment().await;
    let first = typed_data(&read(&app, &made).await);
    overtaken(&app, &made, &signed(&first), cancel_call(&first)).await;

    let failed = authorization_when(&app, &made, "failed").await;
    assert_has(&failed, json!({ "status": "pending", "transfers": [], "authorization/failure_reason": "nonce_used" }));
    let second = typed_data(&failed);
    assert_ne!(second["message"]["nonce"], first["message"]["nonce"]);
    authorize(&app, &made, &signed(&second)).await.assert(202, json!({}));
    let settled = app.payment_when(&made, "settled").await;
    assert_has(&settled, json!({ "amount_received": "10.00", "excess_received": "0.00" }));
    assert_eq!(app.events_of(&made).await, NOTIFIED);
}

#[tokio::test]
async fn authorization_that_is_not_collected_in_time_expires_and_the_payer_signs_again() {
    let app = TestApp::start_with_chains().await;
    let made = app.add_payment().await;
    app.pause(pauses::Scope::Settlement(None), true).await;
    let whole = typed_data(&read(&app, &made).await);
    let mut short = whole.clone();
    let now = app.state.clock().now::<Timestamp>().as_millis() / 1_000;
    short["message"]["validBefore"] = json!((now + 120).to_string());
    authorize(&app, &made, &signed(&short)).await.assert(202, json!({}));
    authorization_when(&app, &made, "queued").await;
    app.env().advance(150).await.unwrap();

    let expired = authorization_when(&app, &made, "expired").await;
    let reason = json!({ "status": "pending", "labels": [], "authorization/failure_reason": null,
        "authorization/failure": "the authorization expired before it could be collected" });
    assert_has(&expired, reason);
    let again = typed_data(&expired);
    assert_eq!(again["message"]["validBefore"], whole["message"]["validBefore"], "the end of the payment");
    authorize(&app, &made, &signed(&again)).await.assert(202, json!({}));
    authorization_when(&app, &made, "queued").await;
    app.pause(pauses::Scope::Settlement(None), false).await;
    app.payment_when(&made, "settled").await;

    // Without a second signature, the payment expires at its own end.
    let made = app.initiate(&json!({ "expires_in": 120 })).await;
    app.pause(pauses::Scope::Settlement(None), true).await;
    authorize(&app, &made, &signed(&typed_data(&read(&app, &made).await))).await.assert(202, json!({}));
    authorization_when(&app, &made, "queued").await;
    app.env().advance(150).await.unwrap();
    let failed = app.payment_when(&made, "failed").await;
    assert_has(&failed, json!({ "failure_reason": "expired", "authorization/state": "expired" }));
}
