//! The console as an operator uses it: keys, themes, search, lists, history, acknowledgement and replay; and accessibility.

use super::env::ServiceFixture;
use crate::prelude::*;

/// Source of axe-core.
pub(super) const AXE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/.tools/clients/axe/node_modules/axe-core/axe.min.js");

#[tokio::test(flavor = "multi_thread")]
async fn keys_search_move_and_help() {
    let service = ServiceFixture::logged_in().await;
    let browser = &service.browser;
    let id = service.payment().await;
    service.open("/ops/view/payments").await;
    browser.press("j").await;
    let focused = "return document.activeElement.textContent";
    assert_eq!(browser.run(focused).await, id.as_str(), "j moves to the first row");
    browser.press("?").await;
    browser.until("#help", |text| text.contains("next and previous row")).await;
    browser.click("#help button").await;
    browser.press("/").await;
    assert_eq!(browser.run("return document.activeElement.id").await, "search");
    browser.fill("#search", &id[4..]).await;
    browser.click("form.search button").await;
    browser.until("h1", |text| text == id).await;
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn theme_is_kept_and_a_hash_is_copied() {
    let service = ServiceFixture::logged_in().await;
    let browser = &service.browser;
    let background = "return getComputedStyle(document.body).backgroundColor";
    let light = browser.run(background).await;
    browser.click("#theme").await;
    browser.until("#theme", |text| text == "dark").await;
    let dark = browser.run(background).await;
    assert_ne!(light, dark);
    let id = service.payment().await;
    service.open(&format!("/ops/view/payments/{id}")).await;
    assert_eq!(browser.run(background).await, dark, "the next page has the theme from its start");
    assert_eq!(browser.run("return document.documentElement.dataset.theme").await, "dark");
    browser.click("button.copy").await;
    browser.until("button.copy", |text| text == "✓").await;
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn number_of_entries_changes_without_a_reload() {
    let service = ServiceFixture::logged_in().await;
    let browser = &service.browser;
    service.mark().await;
    let pause = json!({ "scope": "sending:polygon", "reason": "a key may have leaked" });
    assert_eq!(service.running.operator(Method::POST, "/ops/pauses", Some(pause)).await.0, 200);
    browser.until("#attention", |text| text == "1").await;
    let title = async || (browser.run("return document.title").await == "(1) Overview · Payferry").then_some(());
    until("the title has the number", title).await;
    assert!(service.is_marked().await);

    browser.click("header nav a:has(#attention)").await;
    service.assert_fits_both().await;
    service.change("#paused").await;
    browser.until("main", |text| text.contains("Acknowledged") && text.contains("seen at the counter")).await;
    assert_eq!(browser.count("#paused").await, 0);
    service.assert_fits_both().await;
    service.change("li[id^=acknowledged]").await;
    browser.until("#paused", |text| text.contains("a key may have leaked")).await;
    browser.click("#paused header a").await;
    browser.until("h1", |text| text == "HTTP and process").await;
    service.assert_fits_both().await;
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payment_is_replayed_step_by_step() {
    let service = ServiceFixture::logged_in().await;
    let browser = &service.browser;
    let id = service.payment().await;
    service.pay(&id, None).await;
    service.psp.until_status(&id, "settled").await;
    service.open(&format!("/ops/view/payments/{id}")).await;
    browser.click("a[href$='/replay']").await;
    browser.until("#state + *, main", |text| text.contains("settlement completed")).await;
    service.assert_fits_both().await;
    browser.click("a[rel=prev]").await;
    browser.until(".title p", |text| text.contains("version 4 of 5")).await;
    browser.click("nav.scrub li:first-child a").await;
    browser.until("main", |text| text.contains("request of the PSP")).await;
    browser.click("a[rel=next]").await;
    browser.until("main", |text| text.contains("observe transfer")).await;
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_accessible_in_both_themes_and_sizes() {
    let axe = std::fs::read_to_string(AXE).expect("tests/tools installs axe");
    let service = ServiceFixture::logged_in().await;
    let browser = &service.browser;
    let (id, lost) = (service.payment().await, service.payment().await);
    service.pay(&id, None).await;
    service.psp.until_status(&id, "settled").await;
    service.panic(&lost, 10).await;
    let pause = json!({ "scope": "sending:polygon", "reason": "a key may have leaked" });
    assert_eq!(service.running.operator(Method::POST, "/ops/pauses", Some(pause)).await.0, 200);
    let psp = service.running.text("psp_id");
    let payment = format!("/ops/view/payments/{id}");
    let pages = [
        "/ops".to_owned(),
        "/ops/view/stuck".to_owned(),
        "/ops/view/runbooks".to_owned(),
        "/ops/view/runbooks/chains".to_owned(),
        "/ops/view/payments".to_owned(),
        payment.clone(),
        format!("{payment}/replay"),
        format!("{payment}/decide"),
        "/ops/view/deliveries".to_owned(),
        "/ops/view/operations".to_owned(),
        "/ops/view/search?q=nothing".to_owned(),
        "/ops/view/history?figure=mailboxes".to_owned(),
        "/ops/view/incidents".to_owned(),
        "/ops/view/actors?sort=messages".to_owned(),
        "/ops/view/messages".to_owned(),
        "/ops/view/actors/root/root".to_owned(),
        "/ops/view/shards/0".to_owned(),
        "/ops/view/chains/base".to_owned(),
        "/ops/view/webhooks".to_owned(),
        "/ops/view/customers".to_owned(),
        "/ops/view/approvals".to_owned(),
        "/ops/view/bulk?action=release".to_owned(),
        "/ops/view/sendings".to_owned(),
        "/ops/view/pauses".to_owned(),
        "/ops/view/nodes".to_owned(),
        "/ops/view/psps".to_owned(),
        format!("/ops/view/psps/{psp}"),
    ];
    let mut violations = Vec::new();
    for page in &pages {
        service.open(page).await;
        service.assert_fits_both().await;
        for is_dark in [false, true] {
            browser.prefer_dark(is_dark).await;
            let found = browser.violations(&axe).await;
            violations.extend(found.into_iter().map(|one| format!("{page}, dark {is_dark}: {one}")));
        }
    }
    assert_eq!(violations, Vec::<String>::new());
    service.browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quarantined_payments_are_released_at_once() {
    let service = ServiceFixture::logged_in().await;
    let browser = &service.browser;
    let ids = [service.payment().await, service.payment().await, service.payment().await];
    for id in &ids {
        service.panic(id, 10).await;
    }
    service.open("/ops/view/stuck").await;
    browser.until("#quarantined", |text| ids.iter().all(|id| text.contains(id))).await;
    browser.click("#quarantined header a[href*=bulk]").await;
    browser.until("#preview", |text| text == "Preview: 3").await;
    browser.until("#sums", |text| text.contains("75.00")).await;
    service.assert_fits_both().await;
    service.sign("#start-job").await;
    browser.until(".title .badge", |text| text == "completed").await;
    browser.until("#carried-out", |text| text == "3").await;
    service.assert_fits_both().await;
    service.open("/ops/view/bulk?action=release").await;
    browser.until("section[aria-labelledby=preview]", |text| text.contains("The filter finds nothing.")).await;
    browser.until("section[aria-labelledby=jobs]", |text| text.contains("completed")).await;
    for id in &ids {
        service.pay(id, None).await;
        service.psp.until_status(id, "settled").await;
    }
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_of_a_paused_psp_lifts_the_pause() {
    let service = ServiceFixture::logged_in().await;
    let browser = &service.browser;
    let psp = service.running.text("psp_id").to_owned();
    let pause = json!({ "scope": format!("psp:{psp}"), "reason": "its contract has ended" });
    assert_eq!(service.running.operator(Method::POST, "/ops/pauses", Some(pause)).await.0, 200);
    service.open(&format!("/ops/view/psps/{psp}")).await;
    browser.until("#paused", |text| text.contains("its contract has ended")).await;
    service.assert_fits_both().await;
    service.change("#paused").await;
    browser.until("#its-keys", |_| true).await;
    assert_eq!(browser.count("#paused").await, 0);
    assert!(browser.path().await.ends_with(&psp), "it leads back to the PSP");
    service.payment().await;
    service.end().await;
}
