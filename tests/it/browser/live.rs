//! Live updates of the operator's pages.

use std::time::{Duration, Instant};

use payferry_harness::free_ports;

use super::env::ServiceFixture;
use crate::prelude::*;
use crate::process::{Running, median};
use payferry_harness::browser::Browser;

/// Time within which an incident must be on the page.
const INCIDENT_MAX: Duration = Duration::from_secs(2);
/// Number of measured incidents. The median must be fast, because other load on the machine delays some of them.
const INCIDENTS: usize = 5;
/// Limit for a single incident on a busy machine.
const INCIDENT_LATEST: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread")]
async fn panic_is_on_the_page_within_two_seconds() {
    let service = ServiceFixture::logged_in().await;
    service.browser.until("#link", |text| text == "live").await;
    let mut took = Vec::new();
    for _ in 0..INCIDENTS {
        let id = service.payment().await;
        let since = Instant::now();
        service.panic(&id, 1).await;
        service.browser.until(".log li", |text| text.contains(&id)).await;
        took.push(since.elapsed());
    }
    println!("on the page {took:?} after the request");
    assert!(median(&took) < INCIDENT_MAX, "{took:?}");
    assert!(took.iter().all(|took| *took < INCIDENT_LATEST), "{took:?}");
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn panic_is_in_the_log_and_links_to_its_payment() {
    let service = ServiceFixture::logged_in().await;
    let browser = &service.browser;
    let id = service.payment().await;
    // A first delivery, so that the endpoint has an actor.
    let paid = service.payment().await;
    service.pay(&paid, None).await;
    service.psp.until_status(&paid, "settled").await;
    let kinds = "root journal watcher settler screening compliance_desk webhook_sender endpoint shard payment";
    for kind in kinds.split(' ') {
        browser.until(&format!("[data-kind={kind}]"), |text| !text.is_empty()).await;
    }
    browser.until("#link", |text| text == "live").await;
    service.mark().await;

    service.panic(&id, 1).await;
    let line = browser.until(".log li", |text| text.contains(&id)).await;
    assert!(line.contains("panic") && line.contains("restarted"), "{line}");
    assert!(service.is_marked().await, "the page was not reloaded");

    // Root, shard, payment. The settled payment leaves its shard after its last event, and then one shard remains to
    // click.
    browser.until_count(".tiles li:not(.empty)", 1).await;
    browser.click(".tiles li:not(.empty) a").await;
    browser.until("h1", |text| text.starts_with("Shard ")).await;
    browser.click(&format!("a[href='/ops/view/payments/{id}']")).await;
    browser.until("h1", |text| text == id).await;
    browser.until(".title .badge", |text| text == "pending").await;
    browser.until(".line", |text| text.contains("Initiated") && text.contains("25.00 USDC")).await;
    browser.until("#restarts", |text| text == "1").await;
    browser.until("#last-failure", |text| text.contains("panic")).await;

    service.mark().await;
    service.pay(&id, None).await;
    browser.until(".title .badge", |text| text == "settled").await;
    browser
        .until(".line", |text| text.contains("Initiated") && text.contains("confirmed") && text.contains("settled"))
        .await;
    browser.until("section[aria-labelledby=transfers]", |text| text.contains("25.00") && text.contains("final")).await;
    browser.until("section[aria-labelledby=deliveries]", |text| text.contains("payment.settled")).await;
    assert!(service.is_marked().await, "the page was not reloaded");
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_state_survives_live_updates() {
    let service = ServiceFixture::logged_in().await;
    let browser = &service.browser;
    let id = service.payment().await;
    service.pay(&id, None).await;
    service.psp.until_status(&id, "settled").await;
    service.open(&format!("/ops/view/payments/{id}")).await;
    browser.resize(1440, 500, 1).await;
    browser.until("section[aria-labelledby=deliveries]", |text| text.contains("payment.settled")).await;
    browser.click("section[aria-labelledby=deliveries] summary").await;
    browser.fill("input[type=search]", "pay_half").await;
    let where_it_stands = "Math.round(window.row.getBoundingClientRect().top)";
    let mark = format!("scrollTo(0, 200); window.row = document.querySelector('#version-1'); return {where_it_stands}");
    let stood = browser.run(&mark).await;
    service.refreshed().await;
    // Another update of the same page.
    service.pay(&id, Some("1")).await;
    browser.until(".title", |text| text.contains("EXCESS")).await;
    // An update above the current position: a transfer that only an operator can release.
    let from_a_sanctioned = json!({"amount": "1", "from": "sanctioned"});
    service.psp.ok(Method::POST, &format!("/sandbox/payments/{id}/pay"), from_a_sanctioned).await;
    browser.until("section[aria-labelledby=transfers] .badge.bad", |text| text == "block").await;
    browser.until("#decide", |text| text == "Decide").await;
    service.refreshed().await;
    let kept = format!(
        "return [{where_it_stands}, document.activeElement.value, document.querySelectorAll('details[open]').length, \
         window.row === document.querySelector('#version-1')]"
    );
    assert_eq!(browser.run(&kept).await, json!([stood, "pay_half", 1, true]));
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_reports_a_lost_connection_and_reconnects() {
    let ports = free_ports();
    let service = ServiceFixture::start_with(Browser::start().await, ports).await;
    service.log_in().await;
    let browser = &service.browser;
    browser.until("#link", |text| text == "live").await;
    service.mark().await;
    service.kill();
    browser.until("#link", |text| text.starts_with("disconnected")).await;
    let again = Running::start_with(&service.running.home, ports, &[]);
    browser.until("#link", |text| text == "live").await;
    // The page then shows news without a reload, in the same session.
    service.psp.payment("5", payferry_domain::Token::Usdc, payferry_domain::Chain::Base).await;
    browser.until("#status-pending td:nth-of-type(2)", |text| text == "1").await;
    assert!(service.is_marked().await, "the page was not reloaded");
    again.kill();
    service.browser.close().await;
}

/// Simulates an intermediary that withholds the stream's events: the stream is open in the browser but delivers
/// nothing.
const SILENT: &str = "window.RealEventSource = EventSource;\
    window.EventSource = class extends EventTarget {\
        static CONNECTING = 0; static OPEN = 1; static CLOSED = 2;\
        readyState = 1; close() { this.readyState = 2; }\
    };\
    document.dispatchEvent(new Event('visibilitychange'));";

#[tokio::test(flavor = "multi_thread")]
async fn silent_stream_falls_back_to_polling_and_reopens() {
    let service = ServiceFixture::logged_in().await;
    let browser = &service.browser;
    browser.until("#link", |text| text == "live").await;
    service.mark().await;
    browser.run(SILENT).await;
    browser.until("#link", |text| text == "polling").await;
    // Longer than the page waits before it reports a lost connection.
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(8) {
        assert_eq!(browser.text("#link").await.as_deref(), Some("polling"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    service.payment().await;
    browser.until("#status-pending td:nth-of-type(2)", |text| text == "1").await;
    browser.run("window.EventSource = window.RealEventSource").await;
    browser.until("#link", |text| text == "live").await;
    assert!(service.is_marked().await, "the page was not reloaded");
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quarantined_payment_is_listed_first_and_released() {
    let service = ServiceFixture::logged_in().await;
    let browser = &service.browser;
    let id = service.payment().await;
    service.panic(&id, 10).await;
    browser.until(".panel.alarm", |text| text.contains("quarantined") && text.contains(&id)).await;
    service.open("/ops/view/stuck").await;
    browser.click(&format!("a[href='/ops/view/payments/{id}']")).await;
    browser.until(".notice.bad", |text| text.contains("Quarantined")).await;
    service.change(".notice.bad").await;
    browser.until("section[aria-labelledby=actor]", |text| text.contains("running")).await;
    assert_eq!(browser.count(".notice.bad").await, 0);
    service.pay(&id, None).await;
    browser.until(".title .badge", |text| text == "settled").await;
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chains_webhooks_and_journal_are_shown_live() {
    let service = ServiceFixture::logged_in().await;
    let browser = &service.browser;
    browser.until("#link", |text| text == "live").await;
    service.mark().await;
    let number = |text: &str| text.replace(',', "").parse::<u64>().ok();
    let head = "section[aria-labelledby=chains] #chain-base td:nth-of-type(2)";
    browser.until("#chain-base th", |text| text == "base").await;
    let before = number(&browser.until(head, |text| number(text).is_some()).await).unwrap();
    browser.until(head, |text| number(text).is_some_and(|now| now > before)).await;

    let id = service.payment().await;
    service.pay(&id, None).await;
    service.psp.until_status(&id, "settled").await;
    // The receiver answers, so no delivery keeps waiting.
    let endpoint = "section[aria-labelledby=webhooks] tbody";
    browser.until(&format!("{endpoint} th"), |text| !text.is_empty()).await;
    browser.until(&format!("{endpoint} td:nth-of-type(1)"), |text| text == "closed").await;
    browser.until(&format!("{endpoint} td:nth-of-type(2)"), |text| text == "0").await;

    let journal = "section[aria-labelledby=journal] dd";
    let some = |text: &str| text.starts_with(|digit: char| ('1'..='9').contains(&digit));
    browser.until(&format!("{journal}:nth-of-type(2)"), |text| some(text) && text.contains("groups")).await;
    browser.until(&format!("{journal}:nth-of-type(3)"), |text| some(text) && text.contains("writes on average")).await;
    browser.until(&format!("{journal}:nth-of-type(4)"), |text| text.contains("s on average")).await;
    assert!(service.is_marked().await, "the page was not reloaded");
    service.end().await;
}
