//! Clients that send the head of a request but not its body.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::future::join_all;
use payferry_accounts::documents::AT_ONCE_MAX;
use payferry_domain::CustomerId;
use payferry_harness::short_or_long;
use reqwest::Client;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use super::{ATTACKER, CLIENT, Measured, Production, opened};

/// Sockets of the attack.
const SOCKETS: usize = 1_100;
/// Sockets that are opened at a time, and the pause after them. The client, the attacker and the service share the cores of
/// one machine: without the pause, the measurement shows the attacker's own load.
const BATCH: usize = 20;
const BATCH_PAUSE: Duration = Duration::from_millis(20);
/// Factor that the attack may add to the p99 of another client on a busy machine. The closing note has the figure of an
/// idle one.
const P99_FACTOR_MAX: u32 = 3;
/// Difference of the p99 that a busy machine may cause by itself.
const P99_NOISE: Duration = Duration::from_millis(100);

/// Head of a request that announces a body.
fn head(path: &str, content_type: &str, bearer: Option<&str>) -> String {
    head_of("POST", path, content_type, bearer)
}

fn head_of(method: &str, path: &str, content_type: &str, bearer: Option<&str>) -> String {
    let authorization = bearer.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {content_type}\r\nContent-Length: 500\r\n{authorization}\r\n"
    )
}

/// Opens all sockets with this head, and holds them for a while.
async fn attack(to: SocketAddr, head: &str, hold: Duration) {
    let mut held = Vec::with_capacity(SOCKETS);
    for _ in 0..SOCKETS / BATCH {
        held.extend(join_all((0..BATCH).map(|_| opened(ATTACKER, to, head.as_bytes()))).await);
        tokio::time::sleep(BATCH_PAUSE).await;
    }
    tokio::time::sleep(hold).await;
    drop(held);
}

/// A listener that only holds its connections: an attack on it shows what the attacker's own load costs the client.
async fn bystander() -> (SocketAddr, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind((ATTACKER, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let holding = async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            held.push(stream);
        }
    };
    (address, AbortOnDropHandle::new(tokio::spawn(holding)))
}

fn assert_unharmed(what: &str, before: &Measured, during: &Measured) {
    during.assert_all_ok(what);
    let (before, count, during) = (before.p99(), during.count(), during.p99());
    let ratio = during.as_secs_f64() / before.as_secs_f64();
    println!("{what}: p99 {before:?} before, {during:?} during the attack ({count} requests), ratio {ratio:.2}");
    assert!(
        during <= (before * P99_FACTOR_MAX).max(before + P99_NOISE),
        "{what}: {before:?} before, {during:?} during"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_without_a_body_take_nothing_from_other_clients() {
    let service = Production::start().await;
    let hold = short_or_long(Duration::from_secs(1), Duration::from_secs(10));
    let (form, json) = ("application/x-www-form-urlencoded", "application/json");

    let url = format!("{}/merchants", service.served.api_url());
    let warm_up = service.measure_during(CLIENT, &url, &service.key, tokio::time::sleep(hold)).await;
    warm_up.assert_all_ok("warm-up");
    let before = service.measure_during(CLIENT, &url, &service.key, tokio::time::sleep(2 * hold)).await;
    before.assert_all_ok("before");
    let (elsewhere, _bystander) = bystander().await;
    let unread = head("/", json, None);
    let elsewhere = attack(elsewhere, &unread, hold);
    let elsewhere = service.measure_during(CLIENT, &url, &service.key, elsewhere).await;
    assert_unharmed("an attack on another process", &before, &elsewhere);
    for (path, content_type) in [("/payments/initiate", json), ("/compliance/callbacks/x", json), ("/consent", form)] {
        for bearer in [None, Some(service.key.as_str())] {
            let head = head(path, content_type, bearer);
            let during = service.measure_during(CLIENT, &url, &service.key, attack(service.api(), &head, hold)).await;
            let with = if bearer.is_some() { "with" } else { "without" };
            assert_unharmed(&format!("{path} {with} an API key"), &before, &during);
        }
    }

    let url = format!("{}/ops/overview", service.served.operator_url());
    let before = service.measure_during(CLIENT, &url, &service.token, tokio::time::sleep(2 * hold)).await;
    before.assert_all_ok("operator, before");
    for (path, bearer) in [("/ops/pauses", Some(service.token.as_str())), ("/ops/pauses", None), ("/ops/login", None)] {
        let head = head(path, if path == "/ops/login" { form } else { json }, bearer);
        let during =
            service.measure_during(CLIENT, &url, &service.token, attack(service.operator(), &head, hold)).await;
        let with = if bearer.is_some() { "with" } else { "without" };
        assert_unharmed(&format!("{path} {with} the token"), &before, &during);
    }
    service.served.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_body_gets_408_after_five_seconds() {
    let service = Production::start().await;
    let (api, operator) = (service.api(), service.operator());
    let json = "application/json";
    for (to, path, content_type, bearer) in [
        (api, "/payments/initiate", json, Some(&service.key)),
        (api, "/compliance/callbacks/x", json, None),
        (api, "/consent", "application/x-www-form-urlencoded", None),
        (operator, "/ops/pauses", json, Some(&service.token)),
        (operator, "/ops/login", "application/x-www-form-urlencoded", None),
    ] {
        let began = Instant::now();
        let mut stream = opened(CLIENT, to, head(path, content_type, bearer.map(String::as_str)).as_bytes()).await;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 408 ") && answer.contains("\"code\":\"body_timeout\""),
            "{path}: {answer}"
        );
        assert!(!answer.contains("may have been carried out"), "{path}: {answer}");
        let took = began.elapsed();
        assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(10), "{path}: {took:?}");
    }
    // Without a key, the answer does not wait for the body.
    let began = Instant::now();
    let mut stream = opened(CLIENT, api, head("/payments/initiate", json, None).as_bytes()).await;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    assert!(began.elapsed() < Duration::from_secs(4));
    service.served.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_uploads_take_no_turn_from_others() {
    let service = Production::start().await;
    let path = "/api/v1/customers/uploads";
    let slow = head_of("PATCH", path, "multipart/form-data; boundary=b", Some(&service.key));
    let held = join_all((0..2 * AT_ONCE_MAX).map(|_| opened(ATTACKER, service.api(), slow.as_bytes()))).await;

    let form = format!(
        "--b\r\nContent-Disposition: form-data; name=\"customer_id\"\r\n\r\n{}\r\n\
        --b\r\nContent-Disposition: form-data; name=\"verification_document\"\r\n\r\n%PDF-1.7\r\n--b--\r\n",
        CustomerId::generate()
    );
    let client = Client::builder().local_address(Some(CLIENT.into())).build().unwrap();
    let request = client.patch(format!("{}{path}", service.served.api_url())).bearer_auth(&service.key).body(form);
    let began = Instant::now();
    let response = request.header("content-type", "multipart/form-data; boundary=b").send().await.unwrap();
    assert_eq!(response.status(), 404, "there is no such customer");
    assert!(began.elapsed() < Duration::from_secs(4), "it did not wait for the slow uploads");
    drop(held);
    service.served.stop();
}
