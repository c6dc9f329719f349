//! The payer's page on a desktop and on a phone, with and without scripts.

use alloy::primitives::{Address, Bytes, U256};
use alloy::sol_types::SolCall;
use payferry_contracts::Token as TokenContract;
use payferry_devchain::DevWallet;
use payferry_harness::browser::Browser;
use payferry_harness::free_ports;

use super::env::{ServiceFixture, WIDE};
use crate::http::authorizations::signed_by;
use crate::prelude::*;
use crate::process::Running;

/// Width of a narrow phone.
const PHONE: u32 = 360;
/// A wallet like a browser extension's, on another chain at first, that cannot sign messages; it records its requests.
const WALLET: &str = "{ window.asked = []; window.refusal = null; let chain = '0x1'; \
    window.ethereum = { request: async ({ method, params }) => { \
      window.asked.push({ method, params }); \
      if (window.refusal && method === 'eth_sendTransaction') throw { code: window.refusal }; \
      if (method === 'eth_requestAccounts') return ['0x1111111111111111111111111111111111111111']; \
      if (method === 'eth_chainId') return chain; \
      if (method === 'wallet_switchEthereumChain') { chain = params[0].chainId; return null; } \
      if (method === 'eth_signTypedData_v4') throw { code: 4200 }; \
      return '0x' + '12'.repeat(32); } }; }";

/// Id of the sandbox's Base.
const CHAIN_ID: u64 = 7_700_008_453;

/// A wallet that lets the test sign; it records the typed data.
const SIGNING_WALLET: &str = "{ let chain = '0x1'; window.typed = null; \
    window.ethereum = { request: async ({ method, params }) => { \
      if (method === 'eth_requestAccounts') return [window.name]; \
      if (method === 'eth_chainId') return chain; \
      if (method === 'wallet_switchEthereumChain') { chain = params[0].chainId; return null; } \
      if (method === 'eth_signTypedData_v4') { \
        window.typed = params[1]; \
        return await new Promise((done, refuse) => { window.sign = done; window.decline = () => refuse({ code: 4001 }); }); } \
      throw { code: 4200 }; } }; }";

/// Creates a payment of 25 USDC on Base and opens its page; returns its id and the API's answer.
async fn opened(service: &ServiceFixture) -> (String, Value) {
    opened_in(service, Token::Usdc).await
}

async fn opened_in(service: &ServiceFixture, token: Token) -> (String, Value) {
    let made = service.psp.initiate("25", token, Chain::Base.as_str()).await;
    service.browser.open(made["magic_link"].as_str().unwrap()).await;
    service.browser.until("h1", |text| text == "Waiting for your payment").await;
    (made["payment_id"].as_str().unwrap().to_owned(), made)
}

async fn mining(service: &ServiceFixture, paused: bool) {
    service.psp.ok(Method::POST, "/sandbox/chains/base/mining", json!({ "paused": paused })).await;
}

async fn mine(service: &ServiceFixture) {
    service.psp.ok(Method::POST, "/sandbox/chains/base/mine", json!({ "blocks": 1 })).await;
}

shared!(#[tokio::test(flavor = "multi_thread")]
    payer_page, service = ServiceFixture::start().await, service.assert_calm() =>
    payer_sees_each_step_without_a_reload, page_explains_every_other_outcome,
    browser_wallet_gets_exactly_this_transfer_request, payer_without_coins_signs_and_pays);

async fn payer_sees_each_step_without_a_reload(service: &ServiceFixture) {
    let browser = &service.browser;
    let (id, made) = opened(service).await;
    let wallet = made["intermediary_wallet"].as_str().unwrap();
    browser.until("#value-address", |text| text == wallet).await;
    browser.until("#value-amount", |text| text == "25.00").await;
    browser.until("[role=timer]", |text| text.starts_with("19:") || text == "20:00").await;
    browser.until("#link", |text| text.contains("updates by itself")).await;
    browser.until("#test", |text| text == "TEST Do not send real money.").await;
    assert_eq!(browser.count("svg.qr path").await, 1);
    assert_eq!(browser.count("#wallet:not([hidden])").await, 0, "this browser has no wallet");
    service.pictured("pay", true).await;
    service.mark().await;

    let copied = "Object.defineProperty(navigator, 'clipboard', { value: { writeText: async text => { \
        window.copied = text; } } })";
    browser.run(copied).await;
    browser.click("[data-copy^='0x'][aria-label='Copy the address']").await;
    browser.until("[aria-label='Copy the address']", |text| text == "Copied").await;
    assert_eq!(browser.run("return window.copied").await, wallet);

    // A partial payment, block by block, and then the rest.
    mining(service, true).await;
    service.pay(&id, Some("10")).await;
    mine(service).await;
    browser.until("h1", |text| text == "Part of the payment seen").await;
    browser.until("li[aria-current=step]", |text| text.contains("1 of 2 confirmations")).await;
    browser.until("#value-amount", |text| text == "15.00").await;
    service.pictured("pay-seen", false).await;
    mine(service).await;
    browser.until("h1", |text| text == "Payment incomplete").await;
    browser.until("#explanation", |text| text.contains("10.00 USDC of 25.00 USDC")).await;
    service.pictured("pay-incomplete", true).await;
    mining(service, false).await;
    service.pay(&id, Some("15")).await;
    browser.until("h1", |text| text == "Payment complete").await;
    browser.until("#announcer", |text| text.contains("Payment complete")).await;
    assert_eq!(browser.count("#asking").await, 0, "no payment is requested any more");
    assert_eq!(browser.count(".steps .done").await, 4);
    service.pictured("pay-complete", true).await;
    assert!(service.is_marked().await, "the page was not reloaded");
}

async fn browser_wallet_gets_exactly_this_transfer_request(service: &ServiceFixture) {
    let browser = &service.browser;
    browser.run_first(WALLET).await;
    for token in Token::ALL {
        let (id, made) = opened_in(service, token).await;
        // The fallback for a token without signatures, and for a wallet that cannot sign.
        if token == Token::Usdc {
            assert_visible_on_a_phone(service, "#sign").await;
            assert_eq!(browser.count("#wallet:not([hidden])").await, 0);
            browser.click("#sign").await;
            browser.until("#told", |text| text == "Your wallet could not sign. Send the amount instead.").await;
        } else {
            assert_eq!(browser.count("#sign, #signed").await, 0, "the USDT-like token has no EIP-3009");
        }
        assert_visible_on_a_phone(service, "#wallet").await;
        browser.run("window.refusal = 4001").await;
        browser.click("#wallet").await;
        browser.until("#told", |text| text.contains("declined")).await;
        browser.run("window.refusal = null; window.asked = []").await;
        browser.click("#wallet").await;
        browser.until("#told", |text| text.contains("has sent the payment")).await;
        let asked = browser.run("return window.asked").await;
        let methods: Vec<_> = asked.as_array().unwrap().iter().map(|call| call["method"].as_str().unwrap()).collect();
        // The chain was switched during the first click.
        assert_eq!(methods, ["eth_requestAccounts", "eth_chainId", "eth_sendTransaction"]);
        let sent = &asked[2]["params"][0];
        let bare = |value: &Value| value.as_str().unwrap().trim_start_matches("0x").to_lowercase();
        assert_eq!(sent["to"], made["token_address"]);
        let transfer = format!("a9059cbb{:0>64}{:064x}", bare(&made["intermediary_wallet"]), 25_000_000);
        assert_eq!(bare(&sent["data"]), transfer, "transfer(wallet, 25)");
        let uri = made["payment_uri"].as_str().unwrap();
        assert!(uri.contains("@7700008453/"), "{uri}");
        assert_eq!(browser.run("return ethereum.request({method: 'eth_chainId'})").await, format!("{CHAIN_ID:#x}"));
        service.pay(&id, None).await;
        browser.until("h1", |text| text == "Payment complete").await;
    }
}

/// Asserts that the page fits a narrow phone, and that the button of the wallet is visible there without scrolling sideways.
async fn assert_visible_on_a_phone(service: &ServiceFixture, button: &str) {
    let browser = &service.browser;
    browser.until_count(&format!("{button}:not([hidden])"), 1).await;
    service.assert_fits(PHONE).await;
    let script = format!(
        "const box = document.querySelector('{button}').getBoundingClientRect(); \
         return box.width > 0 && box.height > 0 && box.left >= 0 && box.right <= innerWidth"
    );
    assert_eq!(browser.run(&script).await, true, "{button}");
    service.assert_fits(WIDE).await;
}

async fn payer_without_coins_signs_and_pays(service: &ServiceFixture) {
    let (browser, payer) = (&service.browser, DevWallet::from_seed("a payer without coins"));
    let rpc = async |method: &str, params: Value| {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        service.psp.ok(Method::POST, "/sandbox/rpc/base", call).await["result"].clone()
    };
    browser.run_first(SIGNING_WALLET).await;
    let (_, made) = opened(service).await;
    let token: Address = made["token_address"].as_str().unwrap().parse().unwrap();
    let call = TokenContract::transferCall { to: payer.address(), value: U256::from(25_000_000) }.abi_encode();
    let funder = DevWallet::from_seed("payferry sandbox test account 3");
    let (raw, hash) = funder.sign_call(CHAIN_ID, 0, token, call.into(), 120_000, 100_000_000_000, 1_000_000);
    assert_eq!(rpc("eth_sendRawTransaction", json!([raw])).await, json!(hash));
    let mined =
        async || Some(rpc("eth_getTransactionReceipt", json!([hash])).await).filter(|receipt| !receipt.is_null());
    assert_eq!(until("the payer has money", mined).await["status"], "0x1");
    browser.run(&format!("window.name = '{}'", payer.address())).await;

    browser.until("#signed summary", |text| text == "What you sign").await;
    assert_eq!(browser.count("#wallet:not([hidden])").await, 0, "the transfer is only the fallback");
    browser.click("#sign").await;
    let typed = until("the wallet is asked", async || {
        let typed = browser.run("return window.typed").await;
        typed.as_str().map(|typed| serde_json::from_str::<Value>(typed).unwrap())
    });
    let typed = typed.await;
    browser.run("window.decline()").await;
    browser.until("#told", |text| text.contains("declined")).await;
    let shown = browser.run("return document.getElementById('signed').textContent").await;
    for part in ["to", "value", "nonce"] {
        assert!(shown.as_str().unwrap().contains(typed["message"][part].as_str().unwrap()), "{part}: {shown}");
    }
    browser.run("window.typed = null").await;
    browser.click("#sign").await;
    until("the wallet is asked", async || (!browser.run("return window.typed").await.is_null()).then_some(())).await;
    let signature = signed_by(&payer, &typed)["signature"].as_str().unwrap().to_owned();
    browser.run(&format!("window.sign('{signature}')")).await;
    browser.until("h1", |text| text == "Payment complete").await;
    let held = TokenContract::balanceOfCall { account: payer.address() }.abi_encode();
    let held = rpc("eth_call", json!([{ "to": token, "data": Bytes::from(held) }, "latest"])).await;
    assert_eq!(held.as_str().unwrap().parse::<U256>().unwrap(), U256::ZERO, "the money was taken");
    assert_eq!(rpc("eth_getBalance", json!([payer.address(), "latest"])).await, "0x0", "it never had a coin");
}

#[tokio::test(flavor = "multi_thread")]
async fn page_without_javascript_is_complete_and_refreshes() {
    let service = ServiceFixture::start_with(Browser::without_javascript().await, [0, 0]).await;
    let browser = &service.browser;
    let (id, made) = opened(&service).await;
    browser.until("#value-address", |text| text == made["intermediary_wallet"].as_str().unwrap()).await;
    browser.until(".clock", |text| text.starts_with("Pay until") && text.ends_with("UTC")).await;
    assert_eq!(browser.count("svg.qr path").await, 1);
    assert_eq!(browser.count(&format!("a.button[href='{}']", made["payment_uri"].as_str().unwrap())).await, 1);
    assert_eq!(browser.count("button:not([hidden])").await, 0, "no button without function");
    service.pictured("pay-without-scripts", false).await;
    service.pay(&id, None).await;
    // Automatically: the page contains a refresh interval.
    browser.until("h1", |text| text == "Payment complete").await;
    service.end().await;
}

async fn page_explains_every_other_outcome(service: &ServiceFixture) {
    let browser = &service.browser;
    let (over, _) = opened(service).await;
    service.pay(&over, Some("30")).await;
    browser.until("h1", |text| text == "More than the amount arrived").await;
    service.pictured("pay-over", false).await;

    let (other, _) = opened(service).await;
    let wrong = json!({ "chain": "polygon" });
    service.psp.ok(Method::POST, &format!("/sandbox/payments/{other}/pay"), wrong).await;
    browser.until(".notice", |text| text.contains("another chain than Base")).await;
    browser.until("h1", |text| text == "Waiting for your payment").await;
    service.pictured("pay-wrong-chain", false).await;

    let (cancelled, _) = opened(service).await;
    service.psp.ok(Method::POST, &format!("/payments/{cancelled}/cancel"), Value::Null).await;
    browser.until("h1", |text| text == "Payment cancelled").await;
    assert_eq!(browser.count("svg.qr").await, 0);

    let (expired, _) = opened(service).await;
    service.psp.ok(Method::POST, "/sandbox/clock/advance", json!({ "seconds": 1_201 })).await;
    browser.until("h1", |text| text == "Payment expired").await;
    assert_eq!(browser.count("#asking").await, 0);
    service.pictured("pay-expired", false).await;
    service.pay(&expired, None).await;
    service.psp.until_status(&expired, "mismatched").await;
    browser.reload().await;
    browser.until("h1", |text| text == "Payment arrived late").await;
    service.assert_calm().await;
    if std::env::var_os("PAYFERRY_SCREENSHOTS").is_none() {
        browser.prefer_dark(true).await;
        opened(service).await;
        service.pictured("pay-dark", false).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn page_reconnects_after_a_restart_of_the_service() {
    let ports = free_ports();
    let service = ServiceFixture::start_with(Browser::start().await, ports).await;
    let browser = &service.browser;
    let (id, _) = opened(&service).await;
    browser.until("#link", |text| text.contains("updates by itself")).await;
    service.mark().await;
    service.kill();
    browser.until("#link", |text| text.contains("Connecting")).await;
    let again = Running::start_with(&service.running.home, ports, &[]);
    service.pay(&id, None).await;
    browser.until("h1", |text| text == "Payment complete").await;
    assert!(service.is_marked().await, "the page was not reloaded");
    again.kill();
    service.browser.close().await;
}
