//! Routes of the sandbox with which a PSP brings about what it wants to test, with its own key alone.

use std::collections::BTreeSet;

use alloy::primitives::{Address, U256};
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::SolCall;
use payferry_contracts::Token as TokenContract;

use super::Running;
use crate::conformance::Document;
use crate::prelude::*;

/// An account without a role in the sandbox.
pub(super) const NOBODY: &str = "0x00000000000000000000000000000000DeaDBeef";

/// Result of a JSON-RPC request to a chain.
pub(super) async fn rpc(sandbox: &Running, chain: &str, method: &str, params: Value) -> Value {
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let mut answer = sandbox.ok(Method::POST, &format!("/sandbox/rpc/{chain}"), Some(call)).await;
    assert!(answer.get("error").is_none(), "{method}: {answer:#}");
    answer["result"].take()
}

/// Balance of an account in a token, base units.
async fn tokens(sandbox: &Running, chain: &str, token: &Value, of: &str) -> U256 {
    let account: Address = of.parse().unwrap();
    let data = alloy::hex::encode_prefixed(TokenContract::balanceOfCall { account }.abi_encode());
    let answer = rpc(sandbox, chain, "eth_call", json!([{"to": token, "data": data}, "latest"])).await;
    answer.as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn accounts_of_the_sandbox_hold_funds_and_have_their_keys() {
    let sandbox = Running::new().await;
    let facts = sandbox.ok(Method::GET, "/sandbox", None).await;
    let accounts = facts["accounts"].as_array().unwrap();
    let usdc = &facts["chains"]["base"]["tokens"]["USDC"];
    for account in accounts {
        let (address, key) = (account["address"].as_str().unwrap(), account["private_key"].as_str().unwrap());
        assert_eq!(key.parse::<PrivateKeySigner>().unwrap().address().to_string(), address);
        assert!(tokens(&sandbox, "base", usdc, address).await > U256::ZERO);
        let coins = rpc(&sandbox, "base", "eth_getBalance", json!([address, "latest"])).await;
        assert_ne!(coins, "0x0");
    }
    assert_eq!(column(&facts["accounts"], "screening"), ["allow", "allow", "allow", "allow", "block", "review"]);
    assert_eq!(facts["sanctioned_address"], accounts[4]["address"]);
    assert_eq!(facts["review_address"], accounts[5]["address"]);

    let body = json!({"chain": "polygon", "address": NOBODY, "amount": "25"});
    let sent = sandbox.ok(Method::POST, "/sandbox/faucet", Some(body)).await;
    assert_eq!(column(&sent["sent"], "currency"), ["native", "USDC", "USDT"]);
    assert_eq!(column(&sent["sent"], "amount"), ["1", "25.00", "25.00"]);
    for transfer in sent["sent"].as_array().unwrap() {
        let receipt = async || {
            let receipt = rpc(&sandbox, "polygon", "eth_getTransactionReceipt", json!([transfer["tx_hash"]])).await;
            (!receipt.is_null()).then_some(receipt)
        };
        assert_eq!(until("the transfer is mined", receipt).await["status"], "0x1");
    }
    let polygon = &facts["chains"]["polygon"]["tokens"];
    assert_eq!(tokens(&sandbox, "polygon", &polygon["USDT"], NOBODY).await, U256::from(25_000_000));
    assert_eq!(rpc(&sandbox, "polygon", "eth_getBalance", json!([NOBODY, "latest"])).await, "0xde0b6b3a7640000");
}

/// The screening of the sandbox leaves the money of one payer to the operator.
#[tokio::test]
async fn money_of_the_review_account_waits_for_the_operator() {
    let sandbox = Running::new().await;
    let id = sandbox.payment().await;
    sandbox.ok(Method::POST, &format!("/sandbox/payments/{id}/pay"), Some(json!({"from": "review"}))).await;
    let path = format!("/payments/{id}");
    let waiting = sandbox.until(&path, |payment| has_label(payment, "IN_REVIEW")).await;
    assert_eq!((&waiting["status"], &waiting["kyt_verdict"]), (&json!("pending"), &json!("review")));
}

/// An advance of a day responds when payments are possible again, on every chain and without a wait.
#[tokio::test]
async fn chains_are_usable_when_an_advance_responds() {
    let sandbox = Running::new().await;
    let mut psp = sandbox.psp();
    psp.merchant_id = psp.merchant("m").await;
    for _ in 0..3 {
        sandbox.ok(Method::POST, "/sandbox/clock/advance", Some(json!({"seconds": 24 * 3_600}))).await;
        let facts = sandbox.ok(Method::GET, "/sandbox", None).await;
        for chain in Chain::ALL {
            assert_eq!(facts["chains"][chain.as_str()]["usable"], true, "{facts:#}");
            psp.payment("10", Token::Usdc, chain).await;
        }
    }
    // A chain that its faults hold back is not waited for.
    let broken = json!({"unavailable_rate": 1.0});
    sandbox.ok(Method::POST, "/sandbox/chains/base/faults", Some(broken)).await;
    sandbox.ok(Method::POST, "/sandbox/clock/advance", Some(json!({"seconds": 60}))).await;
    let facts = sandbox.ok(Method::GET, "/sandbox", None).await;
    assert_eq!(column(&json!([facts["chains"]["base"], facts["chains"]["polygon"]]), "usable"), [false, true]);
}

/// The events of the interface.
const EVENTS: [&str; 23] = [
    "customer.consent_accepted",
    "customer.deactivated",
    "customer.kyc_updated",
    "payin.confirmed",
    "payin.failed",
    "payin.mismatched",
    "payin.settled",
    "payin.settlement_failed",
    "payin.underpaid",
    "payment.confirmed",
    "payment.failed",
    "payment.mismatched",
    "payment.settled",
    "payout.failed",
    "payout.pending",
    "payout.sent",
    "refund.failed",
    "refund.sent",
    "transfer.failed",
    "transfer.settled",
    "transfer.underpaid",
    "withdraw.failed",
    "withdraw.sent",
];

/// Uploads the document that a person needs.
pub(crate) async fn upload_document(sandbox: &Running, customer: &str) {
    let part =
        |name: &str, content: &str| format!("--b\r\nContent-Disposition: form-data; {name}\r\n\r\n{content}\r\n");
    let file = r#"name="proof_of_residential_address"; filename="residence.pdf""#;
    let body = format!("{}{}--b--\r\n", part(r#"name="customer_id""#, customer), part(file, "%PDF-1.7\n%%EOF"));
    let upload = reqwest::Client::new().patch(format!("{}/api/v1/customers/uploads", sandbox.text("api_url")));
    let upload = upload.bearer_auth(sandbox.text("api_key")).body(body);
    let sent = upload.header("content-type", "multipart/form-data; boundary=b").send().await.unwrap();
    assert!(sent.status().is_success(), "{}", sent.text().await.unwrap());
}

/// Nothing here uses the operator's token, a command, or the database.
#[tokio::test]
async fn the_key_of_the_psp_alone_produces_every_event() {
    let sandbox = Running::new().await;
    let mut psp = sandbox.psp();
    psp.merchant_id = psp.merchant("m").await;
    let post = async |path: &str, body: Value| sandbox.ok(Method::POST, path, Some(body)).await;
    let patch = async |path: &str, body: Value| sandbox.ok(Method::PATCH, path, Some(body)).await;
    let pay = async |id: &str, body: Value| post(&format!("/sandbox/payments/{id}/pay"), body).await;
    let until = async |path: String, status: &str| sandbox.until(&path, |read| read["status"] == status).await;
    let id = |made: &Value, name: &str| made[name].as_str().unwrap().to_owned();
    let url = format!("{}/sandbox/inbox/all", sandbox.text("api_url"));
    patch("/api/v1/set_webhook", json!({"webhook_url": url, "events": ["*", "customer.*"]})).await;

    // Money in.
    let paid = psp.payment("100", Token::Usdc, Chain::Base).await;
    pay(&paid, json!({})).await;
    until(format!("/payments/{paid}"), "settled").await;
    let underpaid = psp.payment("10", Token::Usdc, Chain::Base).await;
    pay(&underpaid, json!({"amount": "4"})).await;
    let sanctioned = psp.payment("10", Token::Usdc, Chain::Base).await;
    pay(&sanctioned, json!({"from": "sanctioned"})).await;
    until(format!("/payments/{underpaid}"), "mismatched").await;
    until(format!("/payments/{sanctioned}"), "failed").await;
    post("/sandbox/chains/polygon/settlements", json!({"revert": true})).await;
    let reverted = psp.payment("10", Token::Usdc, Chain::Polygon).await;
    pay(&reverted, json!({})).await;
    let has_failed = |read: &Value| has_label(read, "SETTLEMENT_FAILED");
    sandbox.until(&format!("/payments/{reverted}"), has_failed).await;
    post("/sandbox/chains/polygon/settlements", json!({"revert": false})).await;
    // The settlement is retried after half a minute.
    post("/sandbox/clock/advance", json!({"seconds": 31})).await;
    until(format!("/payments/{reverted}"), "settled").await;

    // Money out: each recipient is accepted first and refused then.
    let customer = super::customers::person(&sandbox).await;
    psp.accept_terms(&customer).await;
    upload_document(&sandbox, &customer).await;
    patch("/api/v1/customers/payment-details", json!({"customer_id": customer, "wallet_address": NOBODY})).await;
    post(&format!("/sandbox/customers/{customer}/kyc"), json!({"outcome": "approved"})).await;
    let facts = sandbox.ok(Method::GET, "/sandbox", None).await;
    let wallet = &facts["accounts"][0]["address"];
    post("/sandbox/withdrawal-wallet", json!({"address": wallet})).await;
    let out = json!({"customer_id": customer, "amount": "5", "currency": "USDC", "chain": "base"});
    let own = json!({"amount": "5", "currency": "USDC", "chain": "base"});
    let refunds = format!("/payments/{underpaid}/refunds");
    for (is_refused, outcome) in [(false, "sent"), (true, "failed")] {
        for address in [&json!(NOBODY), wallet] {
            let body = json!({"address": address, "refused": is_refused});
            post("/sandbox/chains/base/recipients", body).await;
        }
        let payout = post("/payouts", out.clone()).await;
        until(format!("/payouts/{}", id(&payout, "id")), outcome).await;
        let withdrawal = post("/withdrawals", own.clone()).await;
        until(format!("/withdrawals/{}", id(&withdrawal, "id")), outcome).await;
        let refund = post(&refunds, json!({"amount": "1", "address": wallet})).await;
        until(format!("{refunds}/{}", id(&refund, "refund_id")), outcome).await;
        let transfer = id(&post("/transfers", out.clone()).await, "payment_id");
        pay(&transfer, json!({})).await;
        until(format!("/transfers/{transfer}"), if is_refused { "failed" } else { "settled" }).await;
    }
    let short = id(&post("/transfers", out.clone()).await, "payment_id");
    pay(&short, json!({"amount": "4"})).await;
    until(format!("/transfers/{short}"), "underpaid").await;
    sandbox.ok(Method::DELETE, &format!("/api/v1/customers/{customer}"), None).await;

    let names = |inbox: &Value| -> BTreeSet<String> {
        let webhooks = inbox["webhooks"].as_array().unwrap().iter();
        assert!(webhooks.clone().all(|webhook| webhook["verified"] == true));
        webhooks.map(|webhook| webhook["body"]["event"].as_str().unwrap().to_owned()).collect()
    };
    let all = |inbox: &Value| EVENTS.iter().all(|event| names(inbox).contains(*event));
    sandbox.until("/sandbox/inbox/all?limit=1000", all).await;
    let document = Document::new(sandbox.ok(Method::GET, "/openapi.json", None).await);
    post("/api/v1/webhook/test", json!({})).await;
    let has_test = |inbox: &Value| names(inbox).contains("webhook.test");
    let inbox = sandbox.until("/sandbox/inbox/all?limit=1000", has_test).await;
    for webhook in inbox["webhooks"].as_array().unwrap() {
        document.assert_describes(&webhook["body"]);
    }
    let feed: BTreeSet<_> = psp.feed().await.iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect();
    let missing: Vec<_> = EVENTS.iter().filter(|event| !feed.contains(**event)).collect();
    assert!(missing.is_empty(), "not in the feed: {missing:?}");
}
