//! `/ops/events`: server-sent events.

use payferry_harness::PATIENCE;
use payferry_harness::database::chosen_postgres;
use payferry_operator::EVENT_LISTENERS_MAX;

use crate::prelude::*;
use crate::sse::{Event, Events};

/// Number of the incident, or of the newest incident.
fn number(event: &Event) -> u64 {
    event.id.as_ref().unwrap().split_once('-').unwrap().1.parse().unwrap()
}

async fn next(stream: &mut Events, name: &str) -> Event {
    stream.until(name, |event| event.name == name).await
}

async fn listen(service: &ServiceFixture, after: Option<&str>) -> Events {
    let mut request = service.call(Method::GET, "/ops/events");
    if let Some(after) = after {
        request = request.header("last-event-id", after);
    }
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    Events::of(status, &headers, response.bytes_stream())
}

#[tokio::test]
async fn incidents_are_streamed_and_replayed_after_a_gap() {
    let service = ServiceFixture::start_with_chains().await;
    let made = service.app.add_payment().await;
    let id = made.id();
    let mut stream = listen(&service, None).await;
    let hello = stream.next().await.unwrap();
    assert_eq!((hello.name.as_str(), number(&hello)), ("hello", 0));
    // A tick has no backlog if the database did not answer in time.
    let whole = async {
        loop {
            let tick = next(&mut stream, "tick").await.json();
            if tick["webhooks"].is_object() && tick["payments_live"] == 1 {
                break tick;
            }
        }
    };
    let tick = tokio::time::timeout(PATIENCE, whole).await.unwrap();
    assert_has(&tick, json!({ "payments_live": 1, "restarts": 0, "ready": true }));
    assert_eq!(tick["chains"].as_array().unwrap().len(), 3);
    assert_eq!(tick["payments"][0]["status"], "pending", "{tick:#}");
    assert!(tick["webhooks"]["queued"]["counted"].is_u64() && tick["journal"]["writing"] == true, "{tick:#}");

    service.panic(id.parse::<PaymentId>().unwrap()).await;
    let incident = tokio::time::timeout(PATIENCE, next(&mut stream, "incident")).await.unwrap();
    assert_eq!((number(&incident), &incident.json()["name"]), (1, &json!(id)));
    assert!(incident.json()["reason"].as_str().unwrap().contains("on purpose"), "{incident:?}");
    drop(stream);
    service.panic(id.parse::<PaymentId>().unwrap()).await;
    let mut again = listen(&service, incident.id.as_deref()).await;
    assert_eq!(number(&next(&mut again, "incident").await), 2);
    service.stop().await;
    again.end().await;
}

#[tokio::test]
async fn reader_of_an_earlier_run_gets_all_incidents() {
    let mut received: Vec<String> = Vec::new();
    for _ in 0..2 {
        let service = ServiceFixture::start_with_chains().await;
        let id: PaymentId = service.app.add_payment().await.id().parse().unwrap();
        for _ in 0..2 {
            service.panic(id).await;
        }
        // As many incidents as before, with different ids.
        for before in &received {
            let mut stream = listen(&service, Some(before)).await;
            for wanted in [1, 2] {
                assert_eq!(number(&next(&mut stream, "incident").await), wanted, "after {before}");
            }
        }
        let mut stream = listen(&service, None).await;
        received.push(stream.next().await.unwrap().id.unwrap());
        // Ids that no service has assigned.
        received.extend(["2".to_owned(), "x-2".to_owned()]);
        let mut beyond = listen(&service, Some(&format!("{}7", received[received.len() - 3]))).await;
        assert_eq!(number(&beyond.next().await.unwrap()), 2, "no later event is skipped");
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
    service.get("/ops/events").await.assert_problem(503, "overloaded");
    streams.pop();
    until("there is room again", async || {
        let response = service.call(Method::GET, "/ops/events").send().await.unwrap();
        (response.status() == 200).then_some(())
    })
    .await;
    service.stop().await;
    for stream in &mut streams {
        stream.end().await;
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
    for _ in 0..3 {
        before.paid("10", "settled").await;
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
    page.assert_shows(&["Counting payments"]);
    page.assert_hides(&["status-settled"]);
    let tick = next(&mut listen(&service, None).await, "tick").await.json();
    assert_eq!(tick.as_object().unwrap().get("payments"), Some(&Value::Null), "{tick:#}");

    // Bypasses the idle service, so that no write triggers another count.
    let mended = "UPDATE payments SET live = FALSE WHERE live = 'unknown'";
    service.app.writer().execute_unprepared(mended).await.unwrap();
    let counted = service.get_until("/ops/overview", |overview| overview["payments"].is_array()).await;
    let counted = counted["payments"].as_array().unwrap();
    let of = |status: &str| -> u64 {
        counted.iter().filter(|line| line["status"] == status).filter_map(|line| line["count"].as_u64()).sum()
    };
    assert_eq!((of("settled"), of("pending")), (3, 0), "{counted:#?}");
    service.get("/ops").await.assert_shows(&["status-settled"]);
}
