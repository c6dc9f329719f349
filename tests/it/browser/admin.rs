//! PSPs, keys and pauses through the operator's forms.

use payferry_harness::psp::Psp;

use super::env::ServiceFixture;
use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn operator_creates_a_psp_and_creates_and_revokes_its_key() {
    let service = ServiceFixture::logged_in().await;
    let browser = &service.browser;
    browser.click("header nav a[href='/ops/view/psps']").await;
    browser.until("h1", |text| text == "PSPs").await;
    browser.fill("#new-psp input[name=name]", "Northern <b>Pay</b>").await;
    service.sign("#new-psp").await;
    browser.until("h1", |text| text == "Northern <b>Pay</b>").await;
    let page = browser.path().await;
    service.assert_fits_both().await;

    browser.fill("#policies input[name=fee_bps]", "70000").await;
    browser.run("document.querySelector('#policies').noValidate = true").await;
    service.sign("#policies").await;
    browser.until(".notice.bad", |text| text.contains("fee_bps")).await;
    assert_eq!(browser.status().await, 422);
    service.open(&page).await;
    browser.fill("#policies input[name=fee_bps]", "80").await;
    service.sign("#policies").await;
    browser.until(".notice.good", |_| true).await;
    let fee = "return document.querySelector('#policies input[name=fee_bps]').value";
    assert_eq!(browser.run(fee).await, "80");

    let wallet = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913";
    browser.fill("#new-wallet input[name=address]", wallet).await;
    service.sign("#new-wallet").await;
    browser.until("#wallets", |text| text.contains(wallet) && text.contains("effective")).await;
    service.assert_fits_both().await;

    browser.fill("#new-key input[name=name]", "till").await;
    browser.fill("#new-key input[name=expires_days]", "never").await;
    browser.click("#new-key input[value=full]").await;
    service.sign("#new-key").await;
    let key = browser.until(".secret", |text| text.starts_with("sk_test_")).await;
    let psp = Psp::new(service.running.text("api_url"), &key);
    let (status, _) = psp.call(Method::GET, "/payments", Value::Null).await;
    assert_eq!(status, 200);
    service.open(&page).await;
    assert_eq!(browser.count(".secret").await, 0, "it is shown once");
    assert!(!browser.run("return document.documentElement.outerHTML").await.as_str().unwrap().contains(&key[40..]));

    service.change("#keys").await;
    browser.until("#keys", |text| text.contains("revoked")).await;
    let refused = async || (psp.call(Method::GET, "/payments", Value::Null).await.0 == 401).then_some(());
    until("the key is refused", refused).await;
    service.end_after("422").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn second_operator_approves_a_wallet() {
    let service = ServiceFixture::logged_in_with(&[("PAYFERRY_OPERATORS__FOUR_EYES", "true")]).await;
    let browser = &service.browser;
    let bob = service.running.beside(&["operator", "create", "bob", "--role", "admin"]);
    browser.click("header nav a[href='/ops/view/psps']").await;
    browser.until("h1", |text| text == "PSPs").await;
    browser.click("main table a").await;
    browser.until("#wallets", |_| true).await;
    let psp = browser.path().await;
    let wallet = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913";
    browser.fill("#new-wallet input[name=address]", wallet).await;
    service.sign("#new-wallet").await;
    browser.until(".notice.good", |text| text.contains("second operator")).await;
    browser.until("main", |text| text.contains(wallet) && text.contains("another operator has to approve it")).await;
    service.assert_fits_both().await;
    assert_eq!(browser.count("#approve-it").await, 0);

    browser.click("header .leave button").await;
    browser.until("main form", |_| true).await;
    service.open("/ops").await;
    service.enter(bob.trim()).await;
    browser.until("h1", |text| text == "Overview").await;
    service.open("/ops/view/stuck").await;
    browser.until("#approval_open", |text| text.contains("proposed by admin")).await;
    service.assert_fits_both().await;
    browser.click("#approval_open .done a").await;
    browser.until("#approve-it", |_| true).await;
    service.assert_fits_both().await;
    service.sign("#approve-it").await;
    browser.until(".notice.good", |text| text.contains("recorded")).await;
    browser.until(".title", |text| text.contains("carried out")).await;
    service.open("/ops/view/approvals").await;
    browser.until("main table", |text| text.contains("bob")).await;
    service.assert_fits_both().await;
    service.open(&psp).await;
    browser.until("#wallets", |text| text.contains(wallet) && text.contains("effective")).await;
    service.end_after("401").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_sets_and_lifts_a_pause() {
    let service = ServiceFixture::logged_in().await;
    let browser = &service.browser;
    browser.click("header nav a[href='/ops/view/pauses']").await;
    browser.until("h1", |text| text == "Pauses").await;
    browser.fill("#new-pause input[name=scope]", "sending:polygon").await;
    browser.fill("#new-pause input[name=reason]", "a <b>key</b> may have leaked").await;
    browser.click("#new-pause input[name=confirm]").await;
    browser.click("#new-pause button").await;
    browser.until("main table", |text| text.contains("a <b>key</b> may have leaked")).await;
    service.assert_fits_both().await;
    service.open("/ops").await;
    browser.until("#held", |text| text.contains("sending:polygon")).await;
    service.open("/ops/view/stuck").await;
    browser.until("#paused", |text| text.contains("sending:polygon")).await;
    service.assert_fits_both().await;
    browser.click("#paused .what a").await;
    browser.until("h1", |text| text == "Pauses").await;
    service.change("main table").await;
    browser.until("main", |text| text.contains("Nothing is paused.")).await;
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_show_only_the_forms_that_the_role_may_use() {
    let service = ServiceFixture::start().await;
    let browser = &service.browser;
    let psp = format!("/ops/view/psps/{}", service.running.text("psp_id"));
    let shown = async |path: &str| {
        service.open(path).await;
        let shown = "return [...document.querySelectorAll('main form[method=post]')].filter(form => form.checkVisibility()).length > 0";
        browser.run(shown).await == true
    };
    for (name, role, pauses, psps) in
        [("victor", "viewer", false, false), ("olga", "operator", true, false), ("ada", "admin", true, true)]
    {
        let token = service.running.beside(&["operator", "create", name, "--role", role]);
        service.open("/ops").await;
        service.enter(token.trim()).await;
        browser.until("h1", |text| text == "Overview").await;
        let found = (shown("/ops/view/pauses").await, shown("/ops/view/psps").await, shown(&psp).await);
        assert_eq!(found, (pauses, psps, psps), "{role}");
        assert_eq!(browser.count("header form[action='/ops/logout']").await, 1);
        browser.click("header form.leave button").await;
    }
    service.browser.close().await;
}
