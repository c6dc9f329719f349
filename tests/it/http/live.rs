//! Event streams of one payment: for the PSP, and for the payer's page.

use payferry_httpkit::Limits;

use crate::prelude::*;
use crate::sse::Events;

/// Opens a stream: the PSP's with a key, the page's without one.
async fn open(app: &TestApp, path: &str, key: Option<&str>) -> Events {
    let call = app.request(Method::GET, path).without_key();
    let call = if let Some(key) = key { call.key(key) } else { call };
    let (parts, body) = call.begin().await.into_parts();
    Events::of(parts.status, &parts.headers, body.into_data_stream())
}

shared!(#[tokio::test] streams, app = TestApp::start_with_chains().await, app.renew_psp() =>
    streams_of_unknown_and_foreign_payments_are_refused, psp_follows_a_payment_to_its_end,
    stream_of_a_page_has_the_language_of_the_payer, page_follows_its_payment_by_its_link);

async fn stream_of_a_page_has_the_language_of_the_payer(app: &TestApp) {
    let made = app.add_payment().await;
    let call = app.request(Method::GET, &format!("{}/events", made.page_path())).without_key();
    let (parts, body) = call.header("accept-language", "ja, en;q=0.5").begin().await.into_parts();
    assert_eq!(parts.headers["vary"], "accept-language");
    let mut stream = Events::of(parts.status, &parts.headers, body.into_data_stream());
    let first = stream.next().await.unwrap();
    assert!(first.data.contains("お支払いをお待ちしています"), "{}", first.data);
    app.pay(&made, "10").await;
    stream.until("it is complete", |event| event.data.contains("お支払いが完了しました")).await;
}

async fn psp_follows_a_payment_to_its_end(app: &TestApp) {
    let made = app.add_payment().await;
    let mut stream = open(app, &format!("{}/events", made.path()), Some(&app.key)).await;
    let first = stream.next().await.unwrap();
    let shown = first.json();
    assert_eq!((first.name.as_str(), first.id.as_deref()), ("payment", Some("1")));
    let read = app.get(&made.path()).await;
    assert_eq!(shown, read.json, "identical to the payment's record");

    app.pay(&made, "10").await;
    let (mut statuses, mut versions) = (vec!["pending".to_owned()], vec![1]);
    let end = loop {
        let event = stream.next().await.expect("an end event precedes the end");
        if event.name == "end" {
            break event;
        }
        let shown = event.json();
        versions.push(event.id.unwrap().parse::<u32>().unwrap());
        let status = shown["status"].as_str().unwrap().to_owned();
        if statuses.last() != Some(&status) {
            statuses.push(status);
        }
    };
    assert_eq!((statuses.last().unwrap().as_str(), end.data.as_str()), ("settled", "settled"));
    assert!(versions.is_sorted(), "{versions:?}");
    assert!(stream.next().await.is_none());
    assert_eq!(app.state.system.journal().waited_for(), 0, "no reader waits any more");
    // An ended payment gives its state and an end event.
    let mut again = open(app, &format!("{}/events", made.path()), Some(&app.key)).await;
    assert_eq!(again.next().await.unwrap().name, "payment");
    assert_eq!(again.next().await.unwrap().name, "end");
    assert!(again.next().await.is_none());
}

async fn page_follows_its_payment_by_its_link(app: &TestApp) {
    let merchant = app.add_merchant().await;
    let made = app.add_payment().await;
    let path = made.page_path();
    let mut stream = open(app, &format!("{path}/events"), None).await;
    let first = stream.next().await.unwrap();
    assert_eq!(first.name, "page");
    let page = app.open(path).await;
    let part = |text: &str, id: &str| text.split(&format!("<section id=\"{id}\"")).nth(1).map(str::to_owned);
    assert!(part(&first.data, "asking").is_some());
    assert!(page.text().contains(&first.data[first.data.find("<section").unwrap()..]), "the page's own content");
    for hidden in ["psp_", &merchant, "owner@shop.example", "<script"] {
        assert!(!first.data.contains(hidden), "{hidden}");
    }

    app.pay(&made, "4").await;
    let short = stream.until("it is short", |event| event.data.contains("Payment incomplete")).await;
    assert!(short.data.contains("6.00") && short.data.contains("uint256=6000000"), "{}", short.data);
    app.pay(&made, "6").await;
    let complete = stream.until("it is complete", |event| event.data.contains("Payment complete")).await;
    assert!(part(&complete.data, "asking").is_none(), "no payment is requested any more");
    assert_eq!(stream.next().await.unwrap().name, "end");
    assert!(stream.next().await.is_none());
    // A passed deadline is shown without a write.
    let made = app.add_payment().await;
    let mut stream = open(app, &format!("{}/events", made.page_path()), None).await;
    stream.until("it waits", |event| event.data.contains("Waiting for your payment")).await;
    // A halted chain says nothing about the deadline.
    app.env().chain(Chain::Base).devchain().pause_mining();
    app.state.clock().advance_secs(1_201);
    let over = stream.until("time is up", |event| event.data.contains("Time is up")).await;
    assert!(!over.data.contains("ethereum:"), "{}", over.data);
}

#[tokio::test]
async fn streams_are_limited_and_end_with_the_listener() {
    let limits = Some(Limits { streams_at_once: 3, streams_per_address: 1, ..Limits::sandbox() });
    let app = TestApp::start_with(TestConfig { chains: true, limits, ..TestConfig::default() }).await;
    let made = app.add_payment().await;
    let (page, psp) = (format!("{}/events", made.page_path()), format!("{}/events", made.path()));
    let mut first = open(&app, &page, None).await;
    assert!(first.next().await.is_some());
    let refused = app.open(&page).await.ok(429);
    assert!(refused.header("retry-after").is_some() && refused.text().contains("Too many requests"));

    let others = [open(&app, &psp, Some(&app.key)).await, open(&app, &psp, Some(&app.key)).await];
    app.get(&psp).await.assert_problem(503, "overloaded");
    drop(others);
    let mut again = open(&app, &psp, Some(&app.key)).await;
    assert!(again.next().await.is_some());

    app.state.config.closing.cancel();
    assert!(first.next().await.is_none() && again.next().await.is_none(), "all streams end with the listener");
}

async fn streams_of_unknown_and_foreign_payments_are_refused(app: &TestApp) {
    let made = app.add_payment().await;
    let key = app.stranger().await;
    let path = format!("{}/events", made.path());
    app.get_as(&key, &path).await.assert_problem(404, "payment_not_found");
    app.open(&path).await.assert_problem(401, "api_key_missing");
    app.get("/payments/pay_nothing/events").await.assert_problem(404, "payment_not_found");
    for token in ["x", &"x".repeat(500), "..%2f..", "%00"] {
        let page = app.open(&format!("/pay/{token}/events")).await;
        page.ok(404).assert_shows(&["No such payment"]);
    }
}
