//! The payer's page on a desktop and on a phone, with and without scripts.

use alloy::primitives::{Address, Bytes, U256};
use alloy::sol_types::SolCall;
use payferry_contracts::Token as TokenContract;
use payferry_devchain::DevWallet;
use payferry_harness::browser::Browser;
use payferry_harness::free_ports;

use super::console::AXE;
use super::env::{NARROW, ServiceFixture, WIDE};
use crate::http::authorizations::signed_by;
use crate::http::checkout::picture;
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

/// Two wallets that announce themselves (EIP-6963), and an injected one. They record their requests and cannot sign messages.
/// The icon of the second one is no data: URI.
const ANNOUNCED: &str = "{ window.asked = []; \
    const provider = name => ({ request: async ({ method }) => { \
      window.asked.push(name + ' ' + method); \
      if (method === 'eth_requestAccounts') return ['0x1111111111111111111111111111111111111111']; \
      if (method === 'eth_chainId') return '0x1caf4ce05'; \
      if (method === 'eth_signTypedData_v4') throw { code: 4200 }; \
      return '0x' + '12'.repeat(32); } }); \
    const announce = (uuid, name, icon) => { \
      const detail = Object.freeze({ info: Object.freeze({ uuid, name, icon, rdns: 'example.wallet' }), provider: provider(name) }); \
      const event = () => dispatchEvent(new CustomEvent('eip6963:announceProvider', { detail })); \
      addEventListener('eip6963:requestProvider', event); event(); }; \
    const circle = \"%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 2 2'%3E%3Ccircle cx='1' cy='1' r='1'/%3E%3C/svg%3E\"; \
    announce('1', 'Alpha $& <b>', 'data:image/svg+xml,' + circle); \
    announce('2', 'Beta', 'https://icons.example/beta.png'); \
    announce('', 'Nameless', ''); \
    window.ethereum = provider('Injected'); }";

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
    browser_wallet_gets_exactly_this_transfer_request, payer_without_coins_signs_and_pays,
    payer_chooses_one_of_several_wallets, payer_chooses_the_code_that_the_wallet_reads, payer_chooses_the_chain);

async fn payer_chooses_the_chain(service: &ServiceFixture) {
    let browser = &service.browser;
    let made = service.psp.initiate("25", Token::Usdc, "payer").await;
    let (id, link) = (made["payment_id"].as_str().unwrap(), made["magic_link"].as_str().unwrap());
    browser.open(link).await;
    browser.until("h1", |text| text == "Choose a chain").await;
    assert_eq!(browser.count("#scan, #asking").await, 0, "no address is shown before the choice");
    browser.until_count("#choice button", 3).await;
    assert_visible_on_a_phone(service, "#choice button[value=polygon]").await;
    service.pictured("pay-choice", true).await;
    browser.click("#choice button[value=polygon]").await;
    browser.until("h1", |text| text == "Waiting for your payment").await;
    browser.until("#order", |text| text.contains("on Polygon")).await;
    assert_eq!(browser.count("#choice").await, 0);
    // Another device that still shows the choice.
    let form = reqwest::Client::new().post(format!("{link}/chain")).body("chain=base");
    let form = form.header("content-type", "application/x-www-form-urlencoded").send().await.unwrap();
    assert!(form.text().await.unwrap().contains("on Polygon"), "the first choice stays");
    service.pay(id, None).await;
    browser.until("h1", |text| text == "Payment complete").await;
    assert_eq!(service.psp.ok(Method::GET, &format!("/payments/{id}"), Value::Null).await["chain"], "polygon");
}

async fn payer_chooses_one_of_several_wallets(service: &ServiceFixture) {
    let browser = &service.browser;
    browser.run_first(ANNOUNCED).await;
    opened(service).await;
    browser.until_count("#wallets:not([hidden]) label", 2).await;
    browser.until("#wallets", |text| text.contains("Alpha $& <b>") && text.contains("Beta")).await;
    assert_eq!(browser.count("#wallets img[src^='data:image/']").await, 1);
    assert_eq!(browser.count("img:not([src^='data:image/'])").await, 0);
    browser.until("#sign", |text| text == "Pay with Alpha $& <b>, without gas").await;
    assert_eq!(browser.count("#sign img").await, 1);
    assert_visible_on_a_phone(service, "#sign").await;
    service.pictured("pay-wallets", false).await;

    browser.click("#wallets input[value='2']").await;
    browser.until("#sign", |text| text == "Pay with Beta, without gas").await;
    assert_eq!(browser.run("return document.activeElement.value").await, "2", "the focus stays on the choice");
    assert_eq!(browser.run("return window.asked").await, json!([]), "no wallet is asked before the payer pays");
    browser.click("#sign").await;
    browser.until("#told", |text| text == "Your wallet could not sign. Send the amount instead.").await;
    browser.until("#wallet", |text| text == "Pay with Beta").await;
    browser.click("#wallet").await;
    browser.until("#told", |text| text.contains("has sent the payment")).await;
    let asked = ["requestAccounts", "chainId", "signTypedData_v4", "requestAccounts", "chainId", "sendTransaction"];
    assert_eq!(browser.run("return window.asked").await, json!(asked.map(|method| format!("Beta eth_{method}"))));
    // The other one is not known to be unable to sign.
    browser.click("#wallets input[value='1']").await;
    browser.until("#sign", |text| text == "Pay with Alpha $& <b>, without gas").await;
    assert_eq!(browser.count("#wallet:not([hidden])").await, 0);
}

/// Returns true if the element is displayed.
async fn is_displayed(browser: &Browser, css: &str) -> bool {
    browser.run(&format!("return document.querySelector('{css}').getBoundingClientRect().height > 0")).await == true
}

/// Chooses the code with the address only, which shows it instead of the other one.
async fn choose_address(browser: &Browser) {
    assert!(is_displayed(browser, ".request .qr").await && !is_displayed(browser, ".address .qr").await);
    browser.click("#code-address").await;
    assert!(is_displayed(browser, ".address .qr").await && !is_displayed(browser, ".request .qr").await);
    browser.until("figure.address", |text| text == "In the app, choose Base and enter exactly 25.00 USDC.").await;
}

async fn payer_chooses_the_code_that_the_wallet_reads(service: &ServiceFixture) {
    let browser = &service.browser;
    let (id, _) = opened(service).await;
    let place = async |css: &str| {
        let script =
            format!("const box = document.querySelector('{css}').getBoundingClientRect(); return [box.left, box.top]");
        let place = browser.run(&script).await;
        (place[0].as_f64().unwrap(), place[1].as_f64().unwrap())
    };
    // On a phone, the code is first; else it is beside the state.
    service.assert_fits(PHONE).await;
    assert!(place(".qr").await.1 < place("#headline").await.1);
    assert!(place(".amount").await.1 < place(".qr").await.1);
    service.assert_fits(WIDE).await;
    assert!(place(".qr").await.0 > place("#headline").await.0);
    choose_address(browser).await;
    service.assert_fits(PHONE).await;
    service.assert_fits(WIDE).await;
    // The choice stays when the amount changes.
    service.pay(&id, Some("10")).await;
    browser.until("figure.address", |text| text.contains("exactly 15.00 USDC")).await;
    assert!(is_displayed(browser, ".address .qr").await && !is_displayed(browser, ".request .qr").await);
    assert_eq!(browser.count("#code-address:checked").await, 1);
}

/// The page of a PSP with a name, a colour, a logo and a link back, in every language.
#[tokio::test(flavor = "multi_thread")]
async fn page_with_an_appearance_fits_and_is_accessible_in_every_language() {
    let axe = std::fs::read_to_string(AXE).expect("tests/tools installs axe");
    let service = ServiceFixture::start().await;
    let browser = &service.browser;
    let checkout = json!({ "name": "Harbour Tickets", "color": "#142c42",
        "return_url": "https://shop.example/orders/{payment_id}" });
    service.psp.ok(Method::PATCH, "/api/v1/settings", json!({ "checkout": checkout })).await;
    let logo = format!("{}/api/v1/settings/logo", service.running.text("api_url"));
    let upload = reqwest::Client::new().put(logo).bearer_auth(service.running.text("api_key"));
    let uploaded = upload.body(picture(96, image::ImageFormat::Png)).send().await.unwrap();
    assert_eq!(uploaded.status(), 200);
    let merchant = service.running.merchant().await;
    let order = json!({ "merchant_id": merchant, "amount": "25", "currency": "USDC", "chain": "base",
        "description": "Order 1042: two day tickets to the island" });
    let make = async || {
        let made = service.psp.ok(Method::POST, "/payments/initiate", order.clone()).await;
        let of = |field: &str| made[field].as_str().unwrap().to_owned();
        (of("payment_id"), of("magic_link"))
    };
    let ((_, waiting), (paid, complete), (over, overpaid)) = (make().await, make().await, make().await);
    service.pay(&paid, None).await;
    service.pay(&over, Some("30")).await;
    service.psp.until_status(&paid, "settled").await;
    service.psp.until_status(&over, "mismatched").await;
    let is_loaded = "const logo = document.querySelector('.payee img'); return logo.complete && logo.naturalWidth";
    let logo_is_loaded = async || (browser.run(is_loaded).await == 96).then_some(());
    for (language, name) in [("ja", "pay-branded-ja"), ("en", "pay-branded")] {
        browser.prefer_languages(language).await;
        browser.open(&waiting).await;
        until("the logo is loaded", logo_is_loaded).await;
        service.pictured(name, true).await;
    }

    browser.run_first(ANNOUNCED).await;
    let mut violations = Vec::new();
    for (language, headline) in [
        ("en", "Waiting for your payment"),
        ("de", "Warten auf Ihre Zahlung"),
        ("es", "Esperando su pago"),
        ("fr", "En attente de votre paiement"),
        ("pt-BR", "Aguardando o seu pagamento"),
        ("ja", "お支払いをお待ちしています"),
    ] {
        browser.prefer_languages(language).await;
        browser.open(&waiting).await;
        browser.until("h1", |text| text == headline).await;
        browser.until_count("#wallets:not([hidden]) label", 2).await;
        assert_eq!(browser.run("return document.documentElement.lang").await, language[..2]);
        for page in [&waiting, &complete, &overpaid] {
            browser.open(page).await;
            browser.until("h1", |_| true).await;
            assert_eq!(browser.count("#back").await, usize::from(page != &waiting), "{language}");
            service.assert_fits(PHONE).await;
            for width in [NARROW, WIDE] {
                browser.resize(width, 900, 1).await;
                for is_dark in [false, true] {
                    browser.prefer_dark(is_dark).await;
                    browser.run("document.querySelectorAll('details').forEach(one => one.open = true)").await;
                    let found = browser.violations(&axe).await;
                    violations
                        .extend(found.into_iter().map(|one| format!("{language}, {width}, dark {is_dark}: {one}")));
                }
            }
            browser.prefer_dark(false).await;
        }
    }
    assert_eq!(violations, Vec::<String>::new());
    service.end().await;
}

async fn payer_sees_each_step_without_a_reload(service: &ServiceFixture) {
    let browser = &service.browser;
    let (id, made) = opened(service).await;
    let wallet = made["intermediary_wallet"].as_str().unwrap();
    browser.until("#value-address", |text| text == wallet).await;
    browser.until("#value-amount", |text| text == "25.00").await;
    browser.until("[role=timer]", |text| text.starts_with("19:") || text == "20:00").await;
    browser.until("#link", |text| text.contains("updates by itself")).await;
    browser.until("#test", |text| text == "TEST Do not send real money.").await;
    assert_eq!(browser.count("svg.qr path").await, 2);
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
    choose_address(browser).await;
    browser.click("#code-request").await;
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
