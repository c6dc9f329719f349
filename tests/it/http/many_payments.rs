//! Overload: more requests, and more unknown keys, than allowed. Admitted requests continue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::routing::get;
use payferry_entities::Database;
use payferry_harness::database::TestDatabase;
use payferry_httpkit::Limits;
use tokio::sync::Notify;

use crate::app::forged;
use crate::prelude::*;

#[tokio::test]
async fn requests_beyond_the_limit_get_503_and_admitted_ones_succeed() {
    let (entered, leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (inside, lift_pause) = (Arc::clone(&entered), Arc::clone(&leave));
    let slow = move || async move {
        inside.notify_one();
        lift_pause.notified().await;
        "done"
    };
    let limits = Some(Limits { requests_at_once: 1, ..Limits::sandbox() });
    let routes = Router::new().route("/slow", get(slow));
    let app = Arc::new(TestApp::start_with(TestConfig { limits, routes, ..TestConfig::default() }).await);
    let first = tokio::spawn({
        let app = Arc::clone(&app);
        async move { app.get("/slow").await }
    });
    entered.notified().await;

    let refused = app.get("/merchants").await;
    refused.assert_problem(503, "overloaded");
    assert_eq!(refused.header("retry-after"), Some("2"));
    assert!(refused.header("x-request-id").is_some());
    leave.notify_one();
    assert_eq!(first.await.unwrap().text(), "done");
    assert_eq!(app.get("/merchants").await.status, 200, "there is room again");
}

#[tokio::test]
async fn unknown_keys_are_rate_limited_and_keys_in_use_are_not() {
    let limits = Some(Limits { failed_keys_per_minute: 3, ..Limits::sandbox() });
    let app = TestApp::start_with(TestConfig { limits, ..TestConfig::default() }).await;
    assert_eq!(app.get("/merchants").await.status, 200);
    for _ in 0..3 {
        app.get_as(&unknown_key(), "/merchants").await.assert_problem(401, "api_key_unknown");
    }
    let refused = app.get_as(&unknown_key(), "/merchants").await;
    refused.assert_problem(429, "rate_limited");
    assert_eq!(refused.header("retry-after"), Some("60"));
    let fresh = app.add_key(app.psp_id, &[Scope::Full]).await;
    app.get_as(&fresh, "/merchants").await.assert_problem(429, "rate_limited");
    // Unknown keys from the same address do not lock out keys in use.
    app.get("/merchants").await.ok(200);
    // A wrong secret of a key in use and a malformed key count too, each for its address.
    let forged = forged(&app.key);
    let elsewhere = |key: &str| app.request(Method::GET, "/merchants").key(key).client_address([192, 0, 2, 7]);
    for (key, code) in [(forged.as_str(), "api_key_unknown"), ("x", "api_key_malformed"), (&forged, "api_key_unknown")]
    {
        elsewhere(key).send().await.assert_problem(401, code);
    }
    for key in [forged.as_str(), "x", &unknown_key()] {
        elsewhere(key).send().await.assert_problem(429, "rate_limited");
    }
    elsewhere(&app.key).send().await.ok(200);
}

/// Number of concurrent clients.
const PAYMENTS: usize = 60;

/// Starts clients, and asserts that fewer than half of them are done when the service's own statement is.
async fn assert_service_goes_first<F: Future<Output = ()> + Send + 'static>(
    client: impl Fn(Database) -> F,
    all_queued: Option<&Notify>,
    service: impl AsyncFn(&Database),
) {
    let test_database = TestDatabase::create().await;
    let database = Database::open(test_database.url()).await.unwrap();
    let done = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..PAYMENTS)
        .map(|_| {
            let (work, done) = (client(database.api_pool().clone()), Arc::clone(&done));
            tokio::spawn(async move {
                work.await;
                done.fetch_add(1, Ordering::Relaxed);
            })
        })
        .collect();
    match all_queued {
        Some(all_queued) => all_queued.notified().await,
        None => tokio::task::yield_now().await,
    }
    service(&database).await;
    let before_us = done.load(Ordering::Relaxed);
    assert!(before_us < PAYMENTS / 2, "{before_us} of {PAYMENTS} clients went first");
    for client in clients {
        client.await.unwrap();
    }
}

#[tokio::test]
async fn writes_of_clients_barely_delay_the_service() {
    let (queued, all_queued) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let client = |clients: Database| {
        let (queued, all_queued) = (Arc::clone(&queued), Arc::clone(&all_queued));
        async move {
            if queued.fetch_add(1, Ordering::Relaxed) + 1 == PAYMENTS {
                all_queued.notify_one();
            }
            let transaction = clients.begin().await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            transaction.rollback().await.unwrap();
        }
    };
    let service = async |database: &Database| database.begin().await.unwrap().rollback().await.unwrap();
    assert_service_goes_first(client, Some(&all_queued), service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_of_clients_do_not_delay_the_service() {
    /// Rows that a client counts: enough to be still running when the test's request comes.
    const LONG: &str =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000) SELECT count(*) FROM n";
    let client = |clients: Database| async move {
        clients.reader().execute_unprepared(LONG).await.unwrap();
    };
    let service = async |database: &Database| {
        database.reader().execute_unprepared("SELECT 1").await.unwrap();
    };
    assert_service_goes_first(client, None, service).await;
}
