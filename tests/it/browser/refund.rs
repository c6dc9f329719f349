//! The page on which payers ask for refunds: with a wallet that signs, as a form without scripts, and its accessibility.

use alloy::hex;
use payferry_harness::browser::Browser;

use super::console::AXE;
use super::env::{NARROW, ServiceFixture, WIDE};
use crate::http::payer_refunds::{payer_at, signed_by};
use crate::prelude::*;

/// A wallet that lets the test sign or decline; it records its requests.
const WALLET: &str = "{ window.asked = []; \
    window.ethereum = { request: async ({ method, params }) => { \
      window.asked.push({ method, params }); \
      if (method === 'eth_requestAccounts') return [window.name]; \
      if (method === 'wallet_switchEthereumChain') return null; \
      if (method === 'personal_sign') { \
        return await new Promise((done, refuse) => { window.sign = done; window.decline = () => refuse({ code: 4001 }); }); } \
      throw { code: 4200 }; } }; }";

/// Creates a payment, and pays it after its end. Returns the answer and the record.
async fn late(service: &ServiceFixture) -> (Value, Value) {
    service.psp.ok(Method::PATCH, "/api/v1/settings", json!({ "payer_refunds": "sender" })).await;
    let made = service.psp.initiate("25", Token::Usdc, Chain::Base.as_str()).await;
    let id = made["payment_id"].as_str().unwrap();
    service.psp.ok(Method::POST, "/sandbox/clock/advance", json!({ "seconds": 1_201 })).await;
    service.psp.until_status(id, "failed").await;
    service.pay(id, None).await;
    let late = service.psp.until_status(id, "mismatched").await;
    (made, late)
}

async fn open(service: &ServiceFixture, made: &Value) {
    service.browser.open(&format!("{}/refund", made["magic_link"].as_str().unwrap())).await;
    service.browser.until("h1", |text| text == "Get money back").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payer_signs_and_gets_late_money_back() {
    let service = ServiceFixture::start().await;
    let browser = &service.browser;
    browser.run_first(WALLET).await;
    let (made, late) = late(&service).await;
    let payer = payer_at(late["transfers"][0]["from"].as_str().unwrap());
    browser.open(made["magic_link"].as_str().unwrap()).await;
    browser.until("h1", |text| text == "Payment arrived late").await;
    browser.click("a#refund").await;
    browser.until("h1", |text| text == "Get money back").await;
    browser.until("#money", |text| text.contains("25.00 USDC on Base")).await;
    browser.until_count("#sign:not([hidden])", 1).await;
    assert_eq!(browser.count("#no-wallet:not([hidden])").await, 0);

    // An account that sent nothing.
    browser.run("window.name = '0x1111111111111111111111111111111111111111'").await;
    browser.click("#sign").await;
    browser.until("#told", |text| text.starts_with("This account sent none")).await;
    browser.run(&format!("window.name = '{}'; window.asked = []", payer.address())).await;
    browser.click("#sign").await;
    let asked = async || {
        let asked = browser.run("return window.asked.find(one => one.method === 'personal_sign') ?? null").await;
        (!asked.is_null()).then_some(asked)
    };
    let asked = until("the wallet is asked", asked).await;
    browser.run("window.decline()").await;
    browser.until("#told", |text| text.starts_with("You declined")).await;

    let (message, account) = (asked["params"][0].as_str().unwrap(), asked["params"][1].as_str().unwrap());
    assert_eq!(account, payer.address().to_string());
    let message = String::from_utf8(hex::decode(message).unwrap()).unwrap();
    let shown = browser.run("return document.getElementById('text').textContent").await;
    assert_eq!(shown, message, "the page shows what is signed");
    assert!(message.contains("Amount: 25.00") && message.contains(made["payment_id"].as_str().unwrap()), "{message}");
    browser.run("window.asked = []").await;
    browser.click("#sign").await;
    let again = async || {
        let asked =
            browser.run("return window.asked.find(one => one.method === 'personal_sign')?.params[0] ?? null").await;
        asked.as_str().map(|hexed| String::from_utf8(hex::decode(hexed).unwrap()).unwrap())
    };
    let message = until("the wallet is asked again", again).await;
    let signature = signed_by(&payer, &json!({}), &message)["signature"].as_str().unwrap().to_owned();
    browser.run(&format!("window.sign('{signature}')")).await;
    browser.until("#requests li", |text| text.contains("25.00 USDC on Base")).await;
    browser.until(".good", |text| text == "Your request was received.").await;
    assert_eq!(browser.count("#sign, #claim").await, 0, "there is nothing left to ask for");
    let is_sent = async || {
        browser.reload().await;
        browser.text("#requests li").await.filter(|text| text.contains("It was sent."))
    };
    until("the page says that it was sent", is_sent).await;
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn form_works_without_javascript() {
    let service = ServiceFixture::start_with(Browser::without_javascript().await, [0, 0]).await;
    let browser = &service.browser;
    let (made, _) = late(&service).await;
    open(&service, &made).await;
    browser.until("#no-wallet", |text| text.starts_with("To sign, open this page")).await;
    assert_eq!(browser.count("button:not([hidden])").await, 1, "no button without function");
    browser.fill("input[name=address]", "nowhere").await;
    browser.click("#claim button").await;
    browser.until("[role=alert]", |text| text.contains("cannot be used")).await;
    browser.fill("input[name=address]", "0x000000000000000000000000000000000000ada3").await;
    browser.fill("input[name=note]", "from my exchange").await;
    browser.click("#claim button").await;
    browser.until("#requests li", |text| text.contains("The merchant has been asked")).await;
    let list = service.psp.ok(Method::GET, "/refund-requests", Value::Null).await;
    let expected = json!({ "status": "requested", "address_proof": "none", "note": "from my exchange" });
    assert_has(&list["refund_requests"][0], expected);

    // The PSP decides in the dashboard.
    service.sign_in().await;
    service.visit(&format!("/dashboard/payments/{}", made["payment_id"].as_str().unwrap())).await;
    browser.until("section[aria-labelledby=refund-requests]", |text| text.contains("address not proven")).await;
    let approve = "details.act:has(form[action$='/approve'])";
    browser.click(&format!("{approve} summary")).await;
    browser.click(&format!("{approve} input[name=confirm]")).await;
    browser.click(&format!("{approve} button")).await;
    browser.until(".notice.good", |text| text.contains("The request is approved")).await;
    service
        .psp
        .until(made["payment_id"].as_str().unwrap(), "refunded", |payment| payment["refunds"][0]["status"] == "sent")
        .await;
    open(&service, &made).await;
    browser.until("#requests li", |text| text.contains("It was sent.")).await;
    service.browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_is_accessible_in_both_themes_and_sizes() {
    let axe = std::fs::read_to_string(AXE).expect("tests/tools installs axe");
    let service = ServiceFixture::start().await;
    let browser = &service.browser;
    browser.run_first(WALLET).await;
    let (made, _) = late(&service).await;
    let mut violations = Vec::new();
    let mut check = async |page: &str| {
        service.assert_fits_both().await;
        for width in [NARROW, WIDE] {
            browser.resize(width, 900, 1).await;
            for is_dark in [false, true] {
                browser.prefer_dark(is_dark).await;
                let found = browser.violations(&axe).await;
                violations.extend(found.into_iter().map(|one| format!("{page}, {width}, dark {is_dark}: {one}")));
            }
        }
    };
    open(&service, &made).await;
    browser.until_count("#sign:not([hidden])", 1).await;
    browser.run("document.getElementById('message').hidden = false").await;
    browser.run("document.getElementById('text').textContent = 'Request for a refund'").await;
    check("offer").await;
    browser.fill("input[name=address]", "nowhere").await;
    browser.click("#claim button").await;
    browser.until("[role=alert]", |_| true).await;
    check("refused form").await;
    browser.fill("input[name=address]", "0x000000000000000000000000000000000000ada3").await;
    browser.click("#claim button").await;
    browser.until("#requests li", |_| true).await;
    check("request").await;
    service.sign_in().await;
    service.visit(&format!("/dashboard/payments/{}", made["payment_id"].as_str().unwrap())).await;
    browser.run("document.querySelectorAll('details').forEach(one => one.open = true)").await;
    check("dashboard").await;
    assert_eq!(violations, Vec::<String>::new());
    service.browser.close().await;
}
