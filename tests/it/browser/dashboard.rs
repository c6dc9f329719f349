//! The dashboard as a PSP uses it: sign-in, payments and redelivery, endpoints, withdrawals, keys, settings; and
//! accessibility.

use payferry_harness::browser::Browser;
use payferry_harness::psp::Psp;

use super::console::AXE;
use super::env::{NARROW, ServiceFixture, WIDE};
use crate::http::checkout::picture;
use crate::prelude::*;

/// The revocation of the session's own key, whose row has a badge beside the name.
const OWN_REVOCATION: &str = "tr:has(th .badge) details.act:has(form[action$='/revoke'])";

impl ServiceFixture {
    /// Opens a page of the public listener.
    pub(super) async fn visit(&self, path: &str) {
        self.browser.open(&format!("{}{path}", self.running.text("api_url"))).await;
    }

    /// Signs in with the PSP's key; then the overview is open.
    pub(super) async fn sign_in(&self) {
        self.visit("/dashboard").await;
        self.present(self.running.text("api_key")).await;
        self.browser.until("h1", |text| text == "Overview").await;
        // Clears the browser's console message about the 401 answer.
        self.browser.complaints().await;
    }

    /// Submits the sign-in form.
    async fn present(&self, key: &str) {
        self.browser.fill("input[name=key]", key).await;
        self.browser.click("main form button").await;
    }

    /// Opens a section through the navigation bar.
    async fn section(&self, path: &str, heading: &str) {
        self.browser.click(&format!("header nav a[href='{path}']")).await;
        self.browser.until("h1", |text| text == heading).await;
    }

    /// Ticks the confirmation of a form, and sends it.
    async fn confirm(&self, form: &str) {
        self.browser.click(&format!("{form} input[name=confirm]")).await;
        self.browser.click(&format!("{form} button")).await;
    }

    /// Makes the change behind the button in this element.
    async fn fold(&self, details: &str) {
        self.browser.click(&format!("{details} summary")).await;
        self.confirm(&format!("{details} form")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn psp_signs_in_and_out_and_a_wrong_key_shows_the_form_again() {
    let service = ServiceFixture::start().await;
    let browser = &service.browser;
    service.visit("/dashboard/keys").await;
    assert_eq!(browser.status().await, 401);
    assert_eq!(browser.count(".panel").await, 0, "nothing is shown before the sign-in");
    service.present("not a key").await;
    browser.until("[role=alert]", |text| text.contains("not a valid API key")).await;
    service.assert_fits_both().await;
    let key = service.running.text("api_key");
    service.present(key).await;
    browser.until("h1", |text| text == "API keys").await;
    assert_eq!(browser.path().await, "/dashboard/keys", "the requested page");
    assert_eq!(browser.run("return document.cookie").await, "", "scripts cannot read the session");
    let page = browser.run("return document.documentElement.outerHTML + location.href").await;
    assert!(!page.as_str().unwrap().contains(&key[40..]), "the key is on no page");
    browser.click("header .leave button").await;
    browser.until("main form", |_| true).await;
    assert_eq!(browser.path().await, "/dashboard/login");
    service.visit("/dashboard").await;
    assert_eq!(browser.status().await, 401);
    service.end_after("401").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_work_without_javascript() {
    let service = ServiceFixture::start_with(Browser::without_javascript().await, [0, 0]).await;
    let browser = &service.browser;
    let id = service.payment().await;
    service.sign_in().await;
    service.section("/dashboard/payments", "Payments").await;
    browser.click("tbody a").await;
    browser.until("h1", |text| text == id).await;
    service.section("/dashboard/webhooks", "Webhooks").await;
    browser.click("section[aria-labelledby=endpoints] tbody a").await;
    browser.until("h1", |text| text == "Endpoint").await;
    service.fold("details.act:has(form[action$='/test'])").await;
    browser.until(".notice.good", |text| text.contains("acknowledged the test event")).await;
    service.browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payment_is_found_and_its_delivery_is_sent_again() {
    let service = ServiceFixture::start().await;
    let browser = &service.browser;
    let (id, other) = (service.payment().await, service.payment().await);
    service.pay(&id, None).await;
    service.psp.until_status(&id, "settled").await;
    let log = format!("/payments/{id}/webhooks");
    let delivered = |log: &Value| {
        let deliveries = log["deliveries"].as_array().unwrap();
        deliveries.len() == 4 && deliveries.iter().all(|one| one["delivery_status"] == "delivered")
    };
    service.running.until(&log, delivered).await;
    service.sign_in().await;
    browser.until("#count-settled dd", |text| text == "1").await;
    browser.until("#count-pending dd", |text| text == "1").await;
    browser.click("#count-settled a").await;
    browser.until("#list", |text| text.contains(&id) && !text.contains(&other)).await;
    service.assert_fits_both().await;
    service.section("/dashboard/payments", "Payments").await;
    browser.until("#list", |text| text.contains(&id) && text.contains(&other)).await;
    browser.click("details.fold summary").await;
    browser.click("#filters select[name=status] option[value=pending]").await;
    browser.click("#filters button").await;
    browser.until("#list", |text| text.contains(&other) && !text.contains(&id)).await;
    service.assert_fits_both().await;

    browser.fill("input[type=search]", &id).await;
    browser.click("form.search button").await;
    browser.until("h1", |text| text == id).await;
    browser.until("main", |text| text.contains("payment.settled") && text.contains("24.75")).await;
    service.assert_fits_both().await;
    browser.click(".deliveries li:first-child details:not(.act) summary").await;
    browser.until(".deliveries li:first-child table", |text| text.contains("200")).await;
    let delivery = browser.run("return document.querySelector('.deliveries li').id").await;
    service.fold(".deliveries li:first-child details.act").await;
    browser.until(".notice.good", |text| text.contains("queued again")).await;
    assert_eq!(browser.run("return location.hash.slice(1)").await, delivery);
    let twice = |log: &Value| log["deliveries"][0]["attempts"].as_array().unwrap().len() == 2;
    service.running.until(&log, twice).await;
    browser.reload().await;
    browser.until(".deliveries li:first-child", |text| text.contains("2 attempts")).await;
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_are_set_added_changed_and_deleted() {
    let service = ServiceFixture::start().await;
    let browser = &service.browser;
    service.sign_in().await;
    service.section("/dashboard/webhooks", "Webhooks").await;
    browser.fill("#webhook-url input[name=webhook_url]", "ftp://psp.example").await;
    service.confirm("#webhook-url").await;
    browser.until("#webhook-url .error", |text| !text.is_empty()).await;
    assert_eq!(browser.status().await, 422);
    service.assert_fits_both().await;
    browser.fill("#webhook-url input[name=webhook_url]", "http://127.0.0.1:9/hooks").await;
    service.confirm("#webhook-url").await;
    browser.until(".notice.good", |text| text.contains("The webhook URL is set.")).await;
    assert_eq!(
        service.psp.ok(Method::GET, "/api/v1/webhook", Value::Null).await["webhook_url"],
        "http://127.0.0.1:9/hooks"
    );

    browser.fill("#new-endpoint input[name=url]", "http://127.0.0.1:9/more").await;
    browser.fill("#new-endpoint input[name=events]", "refund.*").await;
    service.confirm("#new-endpoint").await;
    browser.until(".secret", |text| text.starts_with("whsec_")).await;
    service.assert_fits_both().await;
    browser.click("a[href^='/dashboard/webhooks/we_']").await;
    browser.until("h1", |text| text == "Endpoint").await;
    service.assert_fits_both().await;
    browser.click("#change select[name=status] option[value=disabled]").await;
    service.confirm("#change").await;
    browser.until(".title .badge", |text| text == "disabled").await;
    service.fold("details.act:has(form[action$='/rotate'])").await;
    browser.until(".secret", |text| text.starts_with("whsec_")).await;
    browser.until("main", |text| text.contains("Previous secret")).await;
    service.fold("details.act:has(form[action$='/test'])").await;
    browser.until(".notice.bad", |text| text.contains("did not acknowledge")).await;
    service.fold("details.act:has(form[action$='/delete'])").await;
    browser.until(".notice.good", |text| text.contains("The endpoint is deleted")).await;
    assert_eq!(browser.count("a[href^='/dashboard/webhooks/we_']").await, 1);
    service.end_after("422").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn money_is_withdrawn() {
    let service = ServiceFixture::start().await;
    let browser = &service.browser;
    let id = service.payment().await;
    service.pay(&id, None).await;
    service.psp.until_status(&id, "settled").await;
    let wallets = format!("/ops/psps/{}/withdrawal-wallets", service.running.text("psp_id"));
    let wallet = json!({ "address": "0x000000000000000000000000000000000000bEEF" });
    assert!(service.running.operator(Method::POST, &wallets, Some(wallet)).await.0.is_success());
    service.sign_in().await;
    service.section("/dashboard/balances", "Balances").await;
    browser.until("section[aria-labelledby=balances]", |text| text.contains("24.75")).await;
    browser.fill("#withdrawal input[name=amount]", "1000").await;
    service.confirm("#withdrawal").await;
    browser.until(".notice.bad", |text| text.contains("available balance")).await;
    service.assert_fits_both().await;
    browser.fill("#withdrawal input[name=amount]", "5").await;
    service.confirm("#withdrawal").await;
    browser.until(".notice.good", |text| text.contains("The withdrawal was accepted.")).await;
    browser.until("section[aria-labelledby=withdrawals]", |text| text.contains("5.00 USDC")).await;
    service.assert_fits_both().await;
    browser.click("section[aria-labelledby=withdrawals] tbody a").await;
    let sent = async || {
        browser.reload().await;
        browser.text(".title .badge").await.filter(|text| text == "sent")
    };
    until("the withdrawal is sent", sent).await;
    browser.until("main", |text| text.contains("withdraw.sent")).await;
    service.assert_fits_both().await;
    service.end_after("409").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_created_rotated_and_revoked_and_the_own_key_ends_the_session() {
    let service = ServiceFixture::start().await;
    let browser = &service.browser;
    service.sign_in().await;
    service.section("/dashboard/keys", "API keys").await;
    browser.fill("#new-key input[name=name]", "till").await;
    browser.fill("#new-key input[name=expires_days]", "90").await;
    browser.click("#new-key input[value=full]").await;
    service.confirm("#new-key").await;
    let key = browser.until(".secret", |text| text.starts_with("sk_test_")).await;
    service.assert_fits_both().await;
    let status = async |key: &str| {
        Psp::new(service.running.text("api_url"), key).call(Method::GET, "/payments", Value::Null).await.0.as_u16()
    };
    assert_eq!(status(&key).await, 200);
    service.section("/dashboard/keys", "API keys").await;
    assert_eq!(browser.count(".secret").await, 0, "it is shown once");
    // The newest key is first.
    service.fold("tbody tr:first-child details.act:has(form[action$='/rotate'])").await;
    let new = browser.until(".secret", |text| text.starts_with("sk_test_")).await;
    assert_eq!((status(&key).await, status(&new).await), (200, 200));
    service.fold("tbody tr:nth-child(2) details.act:has(form[action$='/revoke'])").await;
    browser.until(".notice.good", |text| text.contains("The key is revoked.")).await;
    assert_eq!((status(&key).await, status(&new).await), (401, 200));
    service.assert_fits_both().await;

    // The browser sends no form without the confirmation.
    browser.click(&format!("{OWN_REVOCATION} summary")).await;
    browser.click("details.act[open] form button").await;
    browser.until("h1", |text| text == "API keys").await;
    browser.click("details.act[open] input[name=confirm]").await;
    browser.click("details.act[open] form button").await;
    browser.until("main form", |_| true).await;
    assert_eq!(browser.path().await, "/dashboard/login");
    service.present(service.running.text("api_key")).await;
    browser.until("[role=alert]", |text| text.contains("was revoked")).await;
    service.present(&new).await;
    browser.until("h1", |text| text == "Overview").await;
    service.section("/dashboard/keys", "API keys").await;
    service.fold(OWN_REVOCATION).await;
    browser.until(".notice.bad", |text| text.contains("This is the last key with the scope")).await;
    service.assert_fits_both().await;
    browser.click("#back").await;
    browser.until("h1", |text| text == "API keys").await;
    service.browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_changed() {
    let service = ServiceFixture::start().await;
    let browser = &service.browser;
    service.sign_in().await;
    service.section("/dashboard/settings", "Settings").await;
    service.assert_fits_both().await;
    browser.fill("#settings input[name=tolerance]", "0.05").await;
    browser.click("#settings select[name=overpayment] option[value=accept]").await;
    browser.click("#settings input[name='finality.base.default']").await;
    browser.fill("#settings input[name='finality.base[0].below']", "500").await;
    browser.fill("#settings input[name='finality.base[0].wait']", "soon").await;
    service.confirm("#settings").await;
    browser.until("#settings .error", |text| text.contains("must be a number of blocks")).await;
    service.assert_fits_both().await;
    browser.fill("#settings input[name='finality.base[0].below']", "").await;
    browser.fill("#settings input[name='finality.base[0].wait']", "finalized").await;
    for field in ["[1].below", "[1].wait", "[2].below", "[2].wait"] {
        browser.fill(&format!("#settings input[name='finality.base{field}']"), "").await;
    }
    service.confirm("#settings").await;
    browser.until(".notice.good", |text| text.contains("Settings saved.")).await;
    let settings = service.psp.ok(Method::GET, "/api/v1/settings", Value::Null).await;
    let finality = json!([{ "wait": "finalized" }]);
    assert_has(
        &settings,
        json!({ "tolerance": "0.05", "overpayment": "accept", "finality/base/tiers": finality,
        "finality/base/is_default": false, "finality/polygon/is_default": true }),
    );
    let folder = tempfile::tempdir().unwrap();
    let logo = folder.path().join("logo.png");
    std::fs::write(&logo, picture(96, image::ImageFormat::Png)).unwrap();
    browser.fill("#checkout input[name='checkout.name']", "Ferry Shop").await;
    service.confirm("#checkout").await;
    browser.until(".notice.good", |text| text.contains("Saved.")).await;
    browser.upload("#logo input[type=file]", &logo).await;
    service.confirm("#logo").await;
    browser.until(".notice.good", |text| text.contains("Saved.")).await;
    let is_loaded = "const logo = document.querySelector('img.logo'); return logo?.complete && logo.naturalWidth";
    until("the logo is shown", async || (browser.run(is_loaded).await == 96).then_some(())).await;
    service.assert_fits_both().await;
    service.end_after("422").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_accessible_in_both_themes_and_sizes() {
    let axe = std::fs::read_to_string(AXE).expect("tests/tools installs axe");
    let service = ServiceFixture::start().await;
    let browser = &service.browser;
    let (id, late) = (service.payment().await, service.payment().await);
    service.pay(&id, None).await;
    service.pay(&late, Some("3")).await;
    service.psp.until_status(&id, "settled").await;
    service.psp.until_status(&late, "mismatched").await;
    service.psp.ok(Method::PATCH, "/api/v1/set_webhook", json!({ "webhook_url": "http://127.0.0.1:9/gone" })).await;
    service.payment().await;
    service.visit("/dashboard").await;
    let mut violations = Vec::new();
    let mut check = async |page: &str| {
        service.assert_fits_both().await;
        for width in [NARROW, WIDE] {
            service.browser.resize(width, 900, 1).await;
            for is_dark in [false, true] {
                browser.prefer_dark(is_dark).await;
                // Forms behind a fold are checked too.
                browser.run("document.querySelectorAll('details').forEach(one => one.open = true)").await;
                let found = browser.violations(&axe).await;
                violations.extend(found.into_iter().map(|one| format!("{page}, {width}, dark {is_dark}: {one}")));
            }
        }
    };
    check("sign-in").await;
    service.present("wrong").await;
    browser.until("[role=alert]", |_| true).await;
    check("refused sign-in").await;
    service.sign_in().await;
    let endpoint = service.psp.ok(Method::GET, "/api/v1/webhook", Value::Null).await["id"].as_str().unwrap().to_owned();
    for page in [
        "/dashboard".to_owned(),
        "/dashboard/payments?status=settled".to_owned(),
        "/dashboard/payments?status=lost".to_owned(),
        format!("/dashboard/payments/{id}"),
        format!("/dashboard/payments/{late}"),
        "/dashboard/webhooks?done=set".to_owned(),
        format!("/dashboard/webhooks/{endpoint}"),
        "/dashboard/balances".to_owned(),
        "/dashboard/keys".to_owned(),
        "/dashboard/settings".to_owned(),
        "/dashboard/nowhere".to_owned(),
    ] {
        service.visit(&page).await;
        check(&page).await;
    }
    assert_eq!(violations, Vec::<String>::new());
    service.browser.close().await;
}

/// Every control is reached with the keyboard, in the order of the page, and shows the focus.
#[tokio::test(flavor = "multi_thread")]
async fn keyboard_reaches_every_control() {
    let service = ServiceFixture::start().await;
    let browser = &service.browser;
    service.sign_in().await;
    service.section("/dashboard/webhooks", "Webhooks").await;
    browser.run("document.activeElement.blur()").await;
    let mut reached = Vec::new();
    for _ in 0..60 {
        browser.press("\u{e004}").await;
        let focused = "const one = document.activeElement; if (one === document.body) return null; \
                       const outline = getComputedStyle(one).outlineStyle; \
                       return [one.className || one.name || one.tagName, outline]";
        let focused = browser.run(focused).await;
        if focused.is_null() {
            break;
        }
        assert_ne!(focused[1], "none", "{focused} shows no focus");
        reached.push(focused[0].as_str().unwrap().to_owned());
    }
    assert_eq!(reached[0], "skip", "{reached:?}");
    for name in ["q", "webhook_url", "confirm", "events", "schedule"] {
        assert!(reached.iter().any(|one| one == name), "{name} is not reached: {reached:?}");
    }
    service.end().await;
}
