//! Event streams of one payment: for the PSP, and for the payer's page.

use axum::body::BodyDataStream;
use axum::http::Method;
use futures::StreamExt;
use payferry_domain::Chain;
use payferry_harness::PATIENCE;
use payferry_httpkit::Limits;
use serde_json::Value;

use crate::app::{Reply, TestApp, TestConfig};

/// A stream from the reader's side.
struct Events {
    body: BodyDataStream,
    text: String,
}

/// One event: its name, id and data.
#[derive(Debug)]
struct Event {
    name: String,
    id: Option<String>,
    data: String,
}

impl Events {
    async fn open(app: &TestApp, path: &str, key: Option<&str>) -> Self {
        let call = app.request(Method::GET, path).without_key();
        let call = if let Some(key) = key { call.key(key) } else { call };
        let response = call.begin().await;
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        Self { body: response.into_body().into_data_stream(), text: String::new() }
    }

    /// Returns the next event; `None` after the end of the stream.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((block, _)) = self.text.split_once("\n\n") {
                let lines: Vec<_> = block.lines().filter_map(|line| line.split_once(':')).collect();
                let of = |wanted: &str| -> Vec<&str> {
                    let named = lines.iter().filter(|(name, _)| *name == wanted);
                    named.map(|(_, value)| value.strip_prefix(' ').unwrap_or(value)).collect()
                };
                let (name, id) = (of("event").concat(), of("id").first().map(|id| (*id).to_owned()));
                let event = Event { name, id, data: of("data").join("\n") };
                let read = block.len() + 2;
                self.text.drain(..read);
                if event.name.is_empty() {
                    continue;
                }
                return Some(event);
            }
            let more =
                tokio::time::timeout(PATIENCE, self.body.next()).await.expect("the stream sent nothing in time")?;
            self.text.push_str(std::str::from_utf8(&more.unwrap()).unwrap());
        }
    }

    /// Reads events until one matches.
    async fn until(&mut self, what: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        loop {
            let event = self.next().await.unwrap_or_else(|| panic!("the stream ended before {what}"));
            if wanted(&event) {
                return event;
            }
        }
    }
}

fn page_path(payment: &Reply) -> String {
    payment.json["magic_link"].as_str().unwrap().strip_prefix("https://pay.example").unwrap().to_owned()
}

fn events_path(payment: &Reply) -> String {
    format!("/payments/{}/events", payment.json["payment_id"].as_str().unwrap())
}

#[tokio::test]
async fn psp_follows_a_payment_to_its_end() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let made = app.add_payment(&merchant).await;
    let mut stream = Events::open(&app, &events_path(&made), Some(&app.key)).await;
    let first = stream.next().await.unwrap();
    let shown: Value = serde_json::from_str(&first.data).unwrap();
    assert_eq!((first.name.as_str(), first.id.as_deref()), ("payment", Some("1")));
    let read = app.get(&format!("/payments/{}", made.json["payment_id"].as_str().unwrap())).await;
    assert_eq!(shown, read.json, "identical to the payment's record");

    app.pay(&made, "10").await;
    let (mut statuses, mut versions) = (vec!["pending".to_owned()], vec![1]);
    let end = loop {
        let event = stream.next().await.expect("an end event precedes the end");
        if event.name == "end" {
            break event;
        }
        versions.push(event.id.unwrap().parse::<u32>().unwrap());
        let shown: Value = serde_json::from_str(&event.data).unwrap();
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
    let mut again = Events::open(&app, &events_path(&made), Some(&app.key)).await;
    assert_eq!(again.next().await.unwrap().name, "payment");
    assert_eq!(again.next().await.unwrap().name, "end");
    assert!(again.next().await.is_none());
}

#[tokio::test]
async fn page_follows_its_payment_by_its_link() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let made = app.add_payment(&merchant).await;
    let path = page_path(&made);
    let mut stream = Events::open(&app, &format!("{path}/events"), None).await;
    let first = stream.next().await.unwrap();
    assert_eq!(first.name, "page");
    let page = app.request(Method::GET, &path).without_key().send().await;
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
}

#[tokio::test]
async fn passed_deadline_is_shown_without_a_write() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let made = app.add_payment(&merchant).await;
    let mut stream = Events::open(&app, &format!("{}/events", page_path(&made)), None).await;
    stream.until("it waits", |event| event.data.contains("Waiting for your payment")).await;
    // A halted chain says nothing about the deadline.
    app.env().chain(Chain::Base).devchain().pause_mining();
    app.state.clock().advance_secs(1_201);
    let over = stream.until("time is up", |event| event.data.contains("Time is up")).await;
    assert!(!over.data.contains("ethereum:"), "{}", over.data);
}

#[tokio::test]
async fn streams_are_limited_and_end_with_the_listener() {
    let limits = Limits { streams_at_once: 3, streams_per_address: 1, ..Limits::sandbox() };
    let app = TestApp::start_with(TestConfig { chains: true, limits, ..TestConfig::default() }).await;
    let merchant = app.add_merchant().await;
    let made = app.add_payment(&merchant).await;
    let (page, psp) = (format!("{}/events", page_path(&made)), events_path(&made));
    let mut first = Events::open(&app, &page, None).await;
    assert!(first.next().await.is_some());
    let refused = app.request(Method::GET, &page).without_key().send().await;
    assert_eq!(refused.status, 429);
    assert!(refused.header("retry-after").is_some() && refused.text().contains("Too many requests"));

    let second = Events::open(&app, &psp, Some(&app.key)).await;
    let third = Events::open(&app, &psp, Some(&app.key)).await;
    app.get(&psp).await.assert_problem(503, "overloaded");
    drop((second, third));
    let mut again = Events::open(&app, &psp, Some(&app.key)).await;
    assert!(again.next().await.is_some());

    app.state.config.closing.cancel();
    assert!(first.next().await.is_none() && again.next().await.is_none(), "all streams end with the listener");
}

#[tokio::test]
async fn streams_of_unknown_and_foreign_payments_are_refused() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let made = app.add_payment(&merchant).await;
    let other = app.add_psp().await;
    let key = app.add_key(other, &[payferry_domain::KeyScope::Full]).await;
    let path = events_path(&made);
    app.request(Method::GET, &path).key(&key).send().await.assert_problem(404, "payment_not_found");
    app.request(Method::GET, &path).without_key().send().await.assert_problem(401, "api_key_missing");
    app.get("/payments/pay_nothing/events").await.assert_problem(404, "payment_not_found");
    for token in ["x", &"x".repeat(500), "..%2f..", "%00"] {
        let page = app.request(Method::GET, &format!("/pay/{token}/events")).without_key().send().await;
        assert_eq!(page.status, 404, "{token}");
        assert!(page.text().contains("No such payment"));
    }
}
