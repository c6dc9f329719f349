//! The listener: its end, its patience, and what happens when a handler panics or takes for ever.

use std::time::{Duration, Instant};

use axum::Router;
use axum::http::Method;
use axum::routing::get;
use payferry_httpkit::{DRAIN_MAX, Limits, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::app::{TestApp, TestConfig};

#[tokio::test]
async fn a_handler_that_panics_answers_a_document_and_takes_nothing_with_it() {
    async fn broken() {
        panic!("with sk_test_something in its words");
    }
    let routes = Router::new().route("/broken", get(broken));
    let app = TestApp::start_with(TestConfig { routes, ..TestConfig::default() }).await;
    let reply = app.get("/broken").await;
    reply.assert_problem(500, "internal_error");
    assert!(!reply.text().contains("sk_test"));
    assert_eq!(app.get("/merchants").await.status, 200);
}

#[tokio::test]
async fn a_request_that_takes_for_ever_is_told_so() {
    let routes = Router::new().route("/slow", get(std::future::pending::<()>));
    let limits = Limits { request_timeout: Duration::from_millis(100), ..Limits::sandbox() };
    let app = TestApp::start_with(TestConfig { limits, routes, ..TestConfig::default() }).await;
    let reply = app.request(Method::GET, "/slow").send().await;
    reply.assert_problem(503, "timed_out");
    assert!(reply.header("retry-after").is_some());
}

#[tokio::test]
async fn at_the_end_running_requests_are_answered_and_nothing_new_is_taken() {
    let slow = || async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        "done"
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let router = Router::new().route("/slow", get(slow)).route("/quick", get(async || "quick"));
    let server = tokio::spawn(serve(listener, router, stop.clone().cancelled_owned()));

    let mut idle = TcpStream::connect(address).await.unwrap();
    idle.write_all(b"GET /quick HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut head = [0; 12];
    idle.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    let mut half_said = TcpStream::connect(address).await.unwrap();
    half_said.write_all(b"GET /quick HTT").await.unwrap();
    let mut running = TcpStream::connect(address).await.unwrap();
    running.write_all(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;

    let stopped = Instant::now();
    stop.cancel();
    let mut answer = String::new();
    running.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("done"), "{answer}");
    assert!(TcpStream::connect(address).await.is_err(), "nothing new is taken");
    drop(half_said);
    server.await.unwrap();
    assert!(stopped.elapsed() < DRAIN_MAX, "an idle connection holds nothing up");
}

/// Pools of clients keep connections longer than this; a POST on one that we close at that moment would be lost.
#[tokio::test]
async fn a_connection_that_was_idle_for_a_while_is_still_good() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/quick", get(async || "quick"));
    tokio::spawn(serve(listener, router, std::future::pending()));
    let mut client = TcpStream::connect(address).await.unwrap();
    for pause in [Duration::ZERO, Duration::from_secs(12)] {
        tokio::time::sleep(pause).await;
        client.write_all(b"GET /quick HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut answer = [0; 1024];
        let read = client.read(&mut answer).await.unwrap();
        assert!(answer[..read].starts_with(b"HTTP/1.1 200"), "after {pause:?}");
    }
}

#[tokio::test]
async fn a_body_too_large_is_refused_in_words_that_arrive() {
    let app = TestApp::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, app.router.clone(), std::future::pending()));
    let mut client = TcpStream::connect(address).await.unwrap();
    let size = 2 * 1024 * 1024;
    let head = format!(
        "POST /payments/initiate HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: {size}\r\nConnection: close\r\n\r\n",
        app.key
    );
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(&vec![b'x'; size]).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("body_too_large"), "{answer}");
}
