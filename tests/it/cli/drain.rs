//! Signals of `serve`: SIGTERM drains it, SIGINT does not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use payferry_domain::{Chain, Token};
use payferry_harness::process::{STOP_PATIENCE, Served};
use payferry_harness::psp::Psp;
use payferry_harness::{eventually, expect};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::serve::{Outside, binary};

use crate::call::assert_has;

/// A drain that only a signal ends in time.
const DRAIN_LONG: Duration = Duration::from_mins(5);
/// Concurrent clients of the balancer.
const CLIENTS: usize = 4;
/// Requests that a client still sends after the first 503, because a balancer waits for several failed checks.
const REQUESTS_AFTER_503: usize = 25;

/// A running service that is ready, and a client of it.
struct Ready {
    served: Served,
    psp: Psp,
    _outside: Outside,
}

impl Ready {
    async fn start(drain: Duration) -> Self {
        let mut outside = Outside::with(&[Chain::Base]).await;
        let secs = i64::try_from(drain.as_secs()).unwrap();
        outside.folder.settings["server"].as_table_mut().unwrap().insert("drain_secs".to_owned(), secs.into());
        outside.deploy().await;
        let (_, key) = binary().make_psp(&outside.folder, "Northern Pay");
        let served = binary().serve(&outside.folder);
        let mut psp = Psp::new(served.api_url(), &key);
        psp.merchant_id = psp.merchant("shop").await;
        let ready = Self { served, psp, _outside: outside };
        ready.until_readyz("200").await;
        ready
    }

    fn api(&self) -> SocketAddr {
        address(self.served.api_url())
    }

    /// A request of the PSP. The client wants to keep the connection.
    fn request(&self, line: &str, body: &str) -> String {
        let (key, length) = (&self.psp.api_key, body.len());
        format!(
            "{line} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        )
    }

    /// Waits until the public `/readyz` answers with this status.
    async fn until_readyz(&self, status: &str) {
        let wanted = format!("HTTP/1.1 {status} ");
        let look = async || expect(readyz(self.api()).await, |answer| answer.starts_with(&wanted));
        eventually(format!("/readyz answers {status}"), look).await;
    }
}

fn address(url: &str) -> SocketAddr {
    url.trim_start_matches("http://").parse().unwrap()
}

/// Sends a request on a new connection, without retries, and reads until the service closes it.
async fn exchange(to: SocketAddr, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(to).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// The response to the check of a load balancer.
async fn readyz(to: SocketAddr) -> String {
    exchange(to, "GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap()
}

/// Returns true if the service will close the connection after this response.
fn closes(answer: &str) -> bool {
    answer.contains("\r\nconnection: close\r\n")
}

/// Reads the head and the body of one response.
async fn response(stream: &mut TcpStream) -> String {
    let mut answer = String::new();
    while !answer.contains("\r\n\r\n") {
        answer.push(char::from(stream.read_u8().await.unwrap()));
    }
    let (_, length) = answer.split_once("content-length: ").unwrap();
    let mut body = vec![0; length.split("\r\n").next().unwrap().parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    answer + std::str::from_utf8(&body).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_a_balancer_lose_no_request() {
    let mut ready = Ready::start(DRAIN_LONG).await;
    let (api, is_down, answered) = (ready.api(), CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
    let initiation = ready.psp.initiation("10", Token::Usdc, "base").to_string();
    let requests = [("GET /payments", ""), ("POST /payments/initiate", &initiation)];
    let requests = requests
        .map(|(line, body)| ready.request(line, body).replace("Host: x\r\n", "Host: x\r\nConnection: close\r\n"));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (requests, is_down, answered) = (requests.clone(), is_down.clone(), Arc::clone(&answered));
            tokio::spawn(async move {
                let mut left = REQUESTS_AFTER_503;
                for request in requests.iter().cycle() {
                    let answer = exchange(api, request).await.unwrap();
                    assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
                    answered.fetch_add(1, Ordering::Relaxed);
                    left -= usize::from(is_down.is_cancelled());
                    if left == 0 {
                        break;
                    }
                }
            })
        })
        .collect();
    let sent = async || expect(answered.load(Ordering::Relaxed), |answered| *answered > CLIENTS * requests.len());
    eventually("the clients send requests", sent).await;
    ready.served.process.signal("TERM");
    ready.until_readyz("503").await;
    is_down.cancel();
    for client in join_all(clients).await {
        client.unwrap();
    }
    assert_eq!(ready.served.process.ended(), None, "the clients are to stop within the drain");

    // The second signal ends the drain.
    ready.served.process.signal("TERM");
    assert!(ready.served.process.until_ended(STOP_PATIENCE).success());
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_node_is_not_ready_and_closes_connections_without_a_reset() {
    let mut ready = Ready::start(DRAIN_LONG).await;
    let list = ready.request("GET /merchants", "");
    let mut kept = TcpStream::connect(ready.api()).await.unwrap();
    kept.write_all(list.as_bytes()).await.unwrap();
    let before = response(&mut kept).await;
    assert!(before.starts_with("HTTP/1.1 200") && !closes(&before), "{before}");

    ready.served.process.signal("TERM");
    ready.until_readyz("503").await;
    let bare = readyz(ready.api()).await;
    assert!(bare.ends_with("\r\n\r\n"), "it has no details: {bare}");
    let operator = reqwest::get(format!("{}/readyz", ready.served.operator_url())).await.unwrap();
    assert_eq!(operator.status(), 503);
    let readiness: Value = operator.json().await.unwrap();
    assert_has(&readiness, json!({ "ready": false, "node": { "ok": false, "draining": true } }));
    assert_has(&readiness, json!({ "database/ok": true, "payments/ok": true, "chains/ok": true }));

    // The connection has been idle since before the drain, and its next response is its last.
    kept.write_all(list.as_bytes()).await.unwrap();
    let mut last = String::new();
    kept.read_to_string(&mut last).await.unwrap();
    let new = exchange(ready.api(), &list).await.unwrap();
    for answer in [last, new] {
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("shop") && closes(&answer), "{answer}");
    }

    // The second signal begins the stop, which waits for this body, and the third one ends the process.
    let mut running = TcpStream::connect(ready.api()).await.unwrap();
    let begun = ready.request("POST /merchants/sync", "{}");
    running.write_all(begun.strip_suffix('}').unwrap().as_bytes()).await.unwrap();
    ready.served.process.signal("TERM");
    let refused = async || if TcpStream::connect(ready.api()).await.is_err() { Ok(()) } else { Err("it accepts") };
    eventually("the listener is closed", refused).await;
    assert_eq!(ready.served.process.ended(), None, "a request is running");
    ready.served.process.signal("TERM");
    assert_eq!(ready.served.process.until_ended(STOP_PATIENCE).code(), Some(130));
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_drains_for_the_configured_time_and_sigint_does_not_drain() {
    let drain = Duration::from_secs(1);
    let mut ready = Ready::start(drain).await;
    let since = Instant::now();
    ready.served.process.signal("TERM");
    assert!(ready.served.process.until_ended(drain + STOP_PATIENCE).success());
    assert!(since.elapsed() >= drain, "{:?}", since.elapsed());
    assert!(ready.served.process.log().contains("draining for 1 s"), "{}", ready.served.process.log());

    let mut ready = Ready::start(DRAIN_LONG).await;
    ready.served.process.signal("INT");
    assert!(ready.served.process.until_ended(STOP_PATIENCE).success());
    assert!(!ready.served.process.log().contains("draining"), "{}", ready.served.process.log());
}
