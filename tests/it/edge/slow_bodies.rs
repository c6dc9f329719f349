//! Clients that send the head of a request but not its body.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::future::join_all;
use payferry_accounts::documents::AT_ONCE_MAX;
use payferry_domain::CustomerId;
use payferry_harness::short_or_long;
use reqwest::Client;
use tokio::io::AsyncReadExt;

use super::{ATTACKER, CLIENT, Measured, Production, opened};

/// Sockets of the attack.
const SOCKETS: usize = 1_100;
/// Pause after each socket.
const PAUSE: Duration = Duration::from_millis(1);
/// Rounds of a quiet time and an attack. The p99 of all quiet times is compared with that of all attacks, so that a change
/// of the machine's load between them counts in both.
const ROUNDS: u32 = 3;
/// Factor that the attack may add to the p99 of another client on a busy machine. On an idle one, it is below 1.2.
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
///
/// An attacker has a machine of its own. This one shares the cores with the service and its client, so it runs in a thread
/// that gets only the time that the others leave.
async fn attack(to: SocketAddr, head: String, hold: Duration) {
    let attack = async move {
        let mut held = Vec::with_capacity(SOCKETS);
        for _ in 0..SOCKETS {
            held.push(opened(ATTACKER, to, head.as_bytes()).await);
            tokio::time::sleep(PAUSE).await;
        }
        tokio::time::sleep(hold).await;
        held.len()
    };
    let (ended, end) = tokio::sync::oneshot::channel();
    let attacker = std::thread::spawn(move || {
        yield_to_all_others();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _ = ended.send(runtime.block_on(attack));
    });
    assert_eq!(end.await, Ok(SOCKETS), "every socket was opened");
    attacker.join().unwrap();
}

/// Gives the calling thread the scheduling policy of idle time.
fn yield_to_all_others() {
    let thread = std::fs::read_link("/proc/thread-self").unwrap();
    let thread = thread.file_name().unwrap().to_str().unwrap().to_owned();
    let status = std::process::Command::new("chrt").args(["--idle", "--pid", "0", &thread]).status().unwrap();
    assert!(status.success(), "chrt sets the policy of thread {thread}");
}

/// Measures a client of this listener while nothing else happens and during an attack, in turns.
async fn assert_unharmed(what: &str, service: &Production, client: (&str, &str), to: SocketAddr, head: &str) {
    let hold = short_or_long(Duration::from_secs(1), Duration::from_secs(10));
    let (url, bearer) = client;
    let (mut quiet, mut during) = (Measured::default(), Measured::default());
    for _ in 0..short_or_long(1, ROUNDS) {
        quiet.add(service.measure_during(CLIENT, url, bearer, tokio::time::sleep(hold)).await);
        during.add(service.measure_during(CLIENT, url, bearer, attack(to, head.to_owned(), hold)).await);
    }
    quiet.assert_all_ok(what);
    during.assert_all_ok(what);
    let (before, count, during) = (quiet.p99(), during.count(), during.p99());
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
    let (form, json) = ("application/x-www-form-urlencoded", "application/json");

    let merchants = format!("{}/merchants", service.served.api_url());
    let client = (merchants.as_str(), service.key.as_str());
    let warm_up = service.measure_during(CLIENT, client.0, client.1, tokio::time::sleep(Duration::from_secs(1))).await;
    warm_up.assert_all_ok("warm-up");
    for (path, content_type) in [("/payments/initiate", json), ("/compliance/callbacks/x", json), ("/consent", form)] {
        for bearer in [None, Some(service.key.as_str())] {
            let head = head(path, content_type, bearer);
            let with = if bearer.is_some() { "with" } else { "without" };
            assert_unharmed(&format!("{path} {with} an API key"), &service, client, service.api(), &head).await;
        }
    }

    let overview = format!("{}/ops/overview", service.served.operator_url());
    let client = (overview.as_str(), service.token.as_str());
    for (path, bearer) in [("/ops/pauses", Some(service.token.as_str())), ("/ops/pauses", None), ("/ops/login", None)] {
        let head = head(path, if path == "/ops/login" { form } else { json }, bearer);
        let with = if bearer.is_some() { "with" } else { "without" };
        assert_unharmed(&format!("{path} {with} the token"), &service, client, service.operator(), &head).await;
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
