//! `/ops/events`: server-sent events.

use futures::StreamExt;
use payferry_domain::PaymentId;
use payferry_harness::database::chosen_postgres;
use payferry_operator::EVENT_LISTENERS_MAX;
use reqwest::{Method, Response};
use sea_orm::ConnectionTrait;
use serde_json::{Value, json};

use super::{PATIENCE, ServiceFixture};
use crate::app::{TestApp, TestConfig};

/// A received event.
#[derive(Debug, Default, Clone)]
struct ReceivedEvent {
    name: String,
    id: Option<String>,
    data: Value,
}

impl ReceivedEvent {
    /// Number of the incident, or of the newest incident.
    fn number(&self) -> u64 {
        self.id.as_ref().unwrap().split_once('-').unwrap().1.parse().unwrap()
    }
}

/// An open stream.
struct Listening {
    response: futures::stream::BoxStream<'static, reqwest::Result<Vec<u8>>>,
    text: String,
}

impl Listening {
    fn to(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        Self {
            response: response.bytes_stream().map(|chunk| chunk.map(|bytes| bytes.to_vec())).boxed(),
            text: String::new(),
        }
    }

    /// Returns the next event; `None` at the end.
    async fn next(&mut self) -> Option<ReceivedEvent> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let rest = self.text.split_off(end + 2);
                let event = std::mem::replace(&mut self.text, rest);
                let mut received = ReceivedEvent::default();
                for (field, value) in event.lines().filter_map(|line| line.split_once(": ")) {
                    match field {
                        "event" => value.clone_into(&mut received.name),
                        "id" => received.id = Some(value.to_owned()),
                        "data" => received.data = serde_json::from_str(value).unwrap(),
                        _ => {}
                    }
                }
                if !received.name.is_empty() {
                    return Some(received);
                }
                continue;
            }
            let chunk = tokio::time::timeout(PATIENCE, self.response.next()).await.unwrap()?;
            self.text.push_str(std::str::from_utf8(&chunk.ok()?).unwrap());
        }
    }

    async fn until(&mut self, name: &str) -> ReceivedEvent {
        loop {
            let received = self.next().await.unwrap();
            if received.name == name {
                return received;
            }
        }
    }
}

async fn listen(service: &ServiceFixture, after: Option<&str>) -> Listening {
    let mut request = service.call(Method::GET, "/ops/events");
    if let Some(after) = after {
        request = request.header("last-event-id", after);
    }
    Listening::to(request.send().await.unwrap())
}

#[tokio::test]
async fn incidents_are_streamed_and_replayed_after_a_gap() {
    let service = ServiceFixture::start_with_chains().await;
    let merchant = service.app.add_merchant().await;
    let made = service.app.add_payment(&merchant).await;
    let id = made.json["payment_id"].as_str().unwrap();
    let mut stream = listen(&service, None).await;
    let hello = stream.next().await.unwrap();
    assert_eq!((hello.name.as_str(), hello.number()), ("hello", 0));
    // A tick has no backlog if the database did not answer in time.
    let whole = async {
        loop {
            let tick = stream.until("tick").await.data;
            if tick["webhooks"].is_object() && tick["payments_live"] == 1 {
                break tick;
            }
        }
    };
    let tick = tokio::time::timeout(PATIENCE, whole).await.unwrap();
    assert_eq!(
        (&tick["payments_live"], &tick["restarts"], &tick["ready"]),
        (&json!(1), &json!(0), &json!(true)),
        "{tick:#}"
    );
    assert_eq!(tick["chains"].as_array().unwrap().len(), 3);
    assert_eq!(tick["payments"][0]["status"], "pending", "{tick:#}");
    assert!(tick["webhooks"]["queued"]["counted"].is_u64() && tick["journal"]["writing"] == true, "{tick:#}");

    service.panic(id.parse::<PaymentId>().unwrap()).await;
    let incident = tokio::time::timeout(PATIENCE, stream.until("incident")).await.unwrap();
    assert_eq!((incident.number(), &incident.data["name"]), (1, &json!(id)));
    assert!(incident.data["reason"].as_str().unwrap().contains("on purpose"), "{incident:?}");
    drop(stream);
    service.panic(id.parse::<PaymentId>().unwrap()).await;
    let mut again = listen(&service, incident.id.as_deref()).await;
    assert_eq!(again.until("incident").await.number(), 2);
    service.stop().await;
    while again.next().await.is_some() {}
}

#[tokio::test]
async fn reader_of_an_earlier_run_gets_all_incidents() {
    let mut received: Vec<String> = Vec::new();
    for _ in 0..2 {
        let service = ServiceFixture::start_with_chains().await;
        let merchant = service.app.add_merchant().await;
        let id: PaymentId =
            service.app.add_payment(&merchant).await.json["payment_id"].as_str().unwrap().parse().unwrap();
        for _ in 0..2 {
            service.panic(id).await;
        }
        // As many incidents as before, with different ids.
        for before in &received {
            let mut stream = listen(&service, Some(before)).await;
            let numbers = [stream.until("incident").await.number(), stream.until("incident").await.number()];
            assert_eq!(numbers, [1, 2], "after {before}");
        }
        let mut stream = listen(&service, None).await;
        received.push(stream.next().await.unwrap().id.unwrap());
        // Ids that no service has assigned.
        received.extend(["2".to_owned(), "x-2".to_owned()]);
        let mut beyond = listen(&service, Some(&format!("{}7", received[received.len() - 3]))).await;
        assert_eq!(beyond.next().await.unwrap().number(), 2, "no later event is skipped");
        service.stop().await;
    }
}

#[tokio::test]
async fn streams_are_limited_and_do_not_delay_shutdown() {
    let service = ServiceFixture::start().await;
    let mut streams = Vec::new();
    for _ in 0..EVENT_LISTENERS_MAX {
        streams.push(listen(&service, None).await);
    }
    let refused = service.get("/ops/events").await;
    refused.assert_problem(503, "overloaded");
    streams.pop();
    service
        .until("there is room again", async |service| {
            let response = service.call(Method::GET, "/ops/events").send().await.unwrap();
            (response.status() == 200).then_some(())
        })
        .await;
    service.stop().await;
    for stream in &mut streams {
        while stream.next().await.is_some() {}
    }
}

/// Over a database with three settled payments, one of which cannot be counted while its row is corrupt.
#[tokio::test]
async fn payments_are_shown_only_after_they_are_counted() {
    // PostgreSQL columns accept only values of their type, so the row cannot be corrupted there.
    if chosen_postgres() {
        return;
    }
    let before = TestApp::start_with_chains().await;
    let merchant = before.add_merchant().await;
    for _ in 0..3 {
        let made = before.add_payment(&merchant).await;
        before.pay(&made, "10").await;
        before.payment_when(&made, "settled").await;
    }
    before.state.system.clone().stop().await;
    before.writer().execute_unprepared("UPDATE payments SET live = FALSE").await.unwrap();
    let spoil = "UPDATE payments SET live = 'unknown' WHERE id = (SELECT MIN(id) FROM payments)";
    before.writer().execute_unprepared(spoil).await.unwrap();
    let config = TestConfig { database: Some(before.database), ..TestConfig::default() };
    let service = ServiceFixture::over(TestApp::start_with(config).await).await;

    let overview = service.get("/ops/overview").await.json;
    assert_eq!(overview.as_object().unwrap().get("payments"), Some(&Value::Null), "{overview:#}");
    let page = service.get("/ops").await;
    assert!(page.text().contains("Counting payments") && !page.text().contains("status-settled"));
    let tick = listen(&service, None).await.until("tick").await.data;
    assert_eq!(tick.as_object().unwrap().get("payments"), Some(&Value::Null), "{tick:#}");

    // Bypasses the idle service, so that no write triggers another count.
    let mended = "UPDATE payments SET live = FALSE WHERE live = 'unknown'";
    service.app.writer().execute_unprepared(mended).await.unwrap();
    let counted = async |service: &ServiceFixture| {
        let overview = service.get("/ops/overview").await.json;
        overview["payments"].as_array().cloned()
    };
    let counted = service.until("payments are counted", counted).await;
    let of = |status: &str| -> u64 {
        counted.iter().filter(|line| line["status"] == status).filter_map(|line| line["count"].as_u64()).sum()
    };
    assert_eq!((of("settled"), of("pending")), (3, 0), "{counted:#?}");
    assert!(service.get("/ops").await.text().contains("status-settled"));
    service.stop().await;
}
