//! Clients that do not end the head of a request, and clients that read nothing.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use futures::future::join_all;
use payferry_httpkit::connections::CONNECTIONS_PER_ADDRESS;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::{ATTACKER, CLIENT, Production, connect, opened};
use crate::call::until;

/// Sockets with an unfinished head, and the size of each head.
const HEADS: usize = 1_200;
const HEAD_BYTES: usize = 390_000;
/// Clients that never read.
const READERS: usize = 300;
/// Requests that each of them sends.
const PIPELINED: usize = 20;
/// Growth of the process during the attack.
const MEMORY_KIB_MAX: u64 = 32 * 1024;
/// Time until every connection has ended.
const ENDED_WITHIN: Duration = Duration::from_mins(1);
/// Sockets that are opened at a time.
const BATCH: usize = 100;

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_heads_and_clients_that_never_read_cost_little_and_end() {
    let service = Production::start().await;
    let api = service.api();
    // The first response of each kind fills caches.
    let url = format!("{}/openapi.json", service.served.api_url());
    reqwest::get(&url).await.unwrap().bytes().await.unwrap();
    let memory_before = service.memory_kib();
    let began = Instant::now();

    // Also behind several addresses, so that the limit per address is not what protects the memory.
    let addresses = [3, 4, 5].map(|last| Ipv4Addr::new(127, 0, 0, last));
    let head = format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}", "a".repeat(HEAD_BYTES));
    let get = "GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n".repeat(PIPELINED);
    let mut memory_max = 0;
    let mut held: Vec<TcpStream> = Vec::new();
    for batch in 0..HEADS / BATCH {
        let from = addresses[batch % addresses.len()];
        held.extend(join_all((0..BATCH).map(|_| opened(from, api, head.as_bytes()))).await);
        memory_max = memory_max.max(service.memory_kib());
    }
    let after_heads = memory_max.saturating_sub(memory_before);
    for _ in 0..READERS / BATCH {
        held.extend(join_all((0..BATCH).map(|_| opened(ATTACKER, api, get.as_bytes()))).await);
        memory_max = memory_max.max(service.memory_kib());
    }
    let ended = loop {
        memory_max = memory_max.max(service.memory_kib());
        let open = service.connections();
        if open.is_empty() {
            break began.elapsed();
        }
        assert!(began.elapsed() < ENDED_WITHIN, "these connections are still open: {open:#?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    drop(held);
    let growth = memory_max.saturating_sub(memory_before);
    println!("memory grew by {growth} KiB ({after_heads} KiB with the heads alone); all ended after {ended:?}");
    assert!(growth < MEMORY_KIB_MAX, "the process grew by {growth} KiB");
    service.served.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn request_heads_are_limited_in_size_and_time() {
    let service = Production::start().await;
    let api = service.api();
    let answer = async |bytes: &[u8]| {
        let mut stream = opened(CLIENT, api, bytes).await;
        let (began, mut answer) = (Instant::now(), Vec::new());
        // The service may close the connection while the client still sends.
        let _ = stream.read_to_end(&mut answer).await;
        (String::from_utf8_lossy(&answer).into_owned(), began.elapsed())
    };
    let with_header = |bytes: usize| {
        let value = "a".repeat(bytes);
        format!("GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Long: {value}\r\n\r\n")
    };
    let (fits, _) = answer(with_header(31 * 1024).as_bytes()).await;
    assert!(fits.starts_with("HTTP/1.1 404 "), "{fits}");
    let (too_large, _) = answer(with_header(33 * 1024).as_bytes()).await;
    assert!(too_large.starts_with("HTTP/1.1 431 "), "{too_large}");
    for unfinished in ["", "GET / HTTP/1.1\r\nHost: x\r\n"] {
        let (silent, took) = answer(unfinished.as_bytes()).await;
        assert!(silent.is_empty(), "{silent}");
        assert!(took > Duration::from_secs(9) && took < Duration::from_secs(15), "{took:?}");
    }
    service.served.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn new_connections_displace_the_oldest_idle_ones_of_their_address() {
    let service = Production::start().await;
    let api = service.api();
    let mut idle = Vec::new();
    for _ in 0..6 {
        idle.extend(join_all((0..BATCH).map(|_| opened(ATTACKER, api, b"GET /nowhere HTTP/1.1\r\n"))).await);
    }
    // The newest is served; the oldest is closed.
    let mut newest = idle.pop().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut newest, b"Host: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    newest.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    assert_eq!(idle[0].read(&mut [0; 16]).await.unwrap_or(0), 0);
    let limited = async || (service.connections().len() <= CONNECTIONS_PER_ADDRESS).then_some(());
    until("the limit per address holds", limited).await;
    let other = connect(CLIENT, api).await;
    assert!(other.is_ok());
    service.served.stop();
}
