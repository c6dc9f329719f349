//! The listener: shutdown, timeouts, and handlers that panic or never end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONNECTION;
use axum::routing::get;
use payferry_httpkit::{Draining, Limits, SHUTDOWN_TIMEOUT, ServeConfig, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::prelude::*;

/// Serves the router on a free port until `stop`.
async fn served(router: Router, stop: CancellationToken) -> (SocketAddr, JoinHandle<()>) {
    served_with(router, ServeConfig::default(), stop).await
}

async fn served_with(router: Router, config: ServeConfig, stop: CancellationToken) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (address, tokio::spawn(serve(listener, router, config, stop.cancelled_owned())))
}

#[tokio::test]
async fn panicking_handler_returns_a_problem_document() {
    async fn broken() {
        panic!("with sk_test_something in its words");
    }
    let routes = Router::new().route("/broken", get(broken));
    let app = TestApp::start_with(TestConfig { routes, ..TestConfig::default() }).await;
    let reply = app.get("/broken").await;
    reply.assert_problem(500, "internal_error");
    reply.assert_hides(&["sk_test"]);
    assert_eq!(app.get("/merchants").await.status, 200);
}

#[tokio::test]
async fn endless_request_times_out() {
    let routes = Router::new().route("/slow", get(std::future::pending::<()>));
    let limits = Some(Limits { request_timeout: Duration::from_millis(100), ..Limits::sandbox() });
    let app = TestApp::start_with(TestConfig { limits, routes, ..TestConfig::default() }).await;
    let reply = app.request(Method::GET, "/slow").send().await;
    reply.assert_problem(503, "timed_out");
    assert!(reply.header("retry-after").is_some());
}

#[tokio::test]
async fn shutdown_answers_running_requests_and_accepts_no_new_ones() {
    let (stop, entered) = (CancellationToken::new(), Arc::new(Notify::new()));
    let (stopped, inside) = (stop.clone(), Arc::clone(&entered));
    let slow = || async move {
        inside.notify_one();
        stopped.cancelled().await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        "done"
    };
    let router = Router::new().route("/slow", get(slow)).route("/quick", get(async || "quick"));
    let (address, server) = served(router, stop.clone()).await;

    let mut idle = TcpStream::connect(address).await.unwrap();
    idle.write_all(b"GET /quick HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut head = [0; 12];
    idle.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    let mut half_said = TcpStream::connect(address).await.unwrap();
    half_said.write_all(b"GET /quick HTT").await.unwrap();
    let mut running = TcpStream::connect(address).await.unwrap();
    running.write_all(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    entered.notified().await;

    let stopped = Instant::now();
    stop.cancel();
    let mut answer = String::new();
    running.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("done"), "{answer}");
    assert!(TcpStream::connect(address).await.is_err(), "no new connections are accepted");
    drop(half_said);
    server.await.unwrap();
    assert!(stopped.elapsed() < SHUTDOWN_TIMEOUT, "an idle connection delays nothing");
}

#[tokio::test]
async fn drain_closes_connections_after_their_next_response_except_upgraded_ones() {
    let draining = Draining::default();
    let switch = async || (StatusCode::SWITCHING_PROTOCOLS, [(CONNECTION, "upgrade")]);
    let router = Router::new().route("/quick", get(async || "quick")).route("/switch", get(switch));
    let config = ServeConfig { draining: draining.clone(), ..ServeConfig::default() };
    let (address, _) = served_with(router, config, CancellationToken::new()).await;
    let quick = b"GET /quick HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(quick).await.unwrap();
    let mut answer = [0; 1024];
    let read = client.read(&mut answer).await.unwrap();
    assert!(!String::from_utf8_lossy(&answer[..read]).contains("connection"));

    draining.begin();
    client.write_all(quick).await.unwrap();
    let mut last = String::new();
    client.read_to_string(&mut last).await.unwrap();
    assert!(last.contains("\r\nconnection: close\r\n") && last.ends_with("quick"), "{last}");
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"GET /switch HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n").await.unwrap();
    let read = client.read(&mut answer).await.unwrap();
    let switched = String::from_utf8_lossy(&answer[..read]);
    assert!(switched.contains("\r\nconnection: upgrade\r\n") && !switched.contains("close"), "{switched}");
}

/// Client pools keep connections longer than this. A POST on a connection that the server closes at that moment would
/// be lost.
#[tokio::test]
async fn idle_connection_stays_usable() {
    let router = Router::new().route("/quick", get(async || "quick"));
    let (address, _) = served(router, CancellationToken::new()).await;
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
async fn oversized_body_gets_a_readable_refusal() {
    let app = TestApp::start().await;
    let (address, _) = served(app.router.clone(), CancellationToken::new()).await;
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
