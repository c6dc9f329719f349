//! The client's address behind proxies: `X-Forwarded-For` and the PROXY protocol of trusted peers only.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::Router;
use axum::http::request::Parts;
use axum::routing::get;
use payferry_httpkit::{ClientAddress, ServeConfig, TrustedProxies, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{ATTACKER, connect};

const PROXY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);
const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";

/// A listener that answers with the client's address, and trusts the proxy.
async fn listener(connections_per_address: usize) -> SocketAddr {
    let router = Router::new().route("/", get(async |parts: Parts| ClientAddress::of(&parts).to_string()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let trusted_proxies = TrustedProxies::Networks(vec![PROXY.to_string().parse().unwrap()]);
    let config = ServeConfig {
        trusted_proxies,
        connections_per_address: Some(connections_per_address),
        ..ServeConfig::default()
    };
    tokio::spawn(serve(listener, router, config, std::future::pending()));
    address
}

/// The address that the service sees, or an empty text if it closes the connection.
async fn seen(from: Ipv4Addr, to: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = connect(from, to).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    answer.rsplit("\r\n").next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn only_a_trusted_proxy_forwards_the_address() {
    let to = listener(512).await;
    let forwarded = format!("{GET}X-Forwarded-For: 1.1.1.1, 203.0.113.7\r\n\r\n");
    let announced = format!("PROXY TCP4 203.0.113.8 127.0.0.1 4660 80\r\n{GET}\r\n");
    let v2 = [
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\x00\x71\x09\x7f\0\0\x01\x12\x34\0\x50".as_slice(),
        GET.as_bytes(),
        b"\r\n",
    ]
    .concat();
    assert_eq!(seen(PROXY, to, forwarded.as_bytes()).await, "203.0.113.7");
    assert_eq!(seen(PROXY, to, announced.as_bytes()).await, "203.0.113.8");
    assert_eq!(seen(PROXY, to, &v2).await, "203.0.113.9");
    assert_eq!(seen(PROXY, to, format!("{GET}\r\n").as_bytes()).await, PROXY.to_string());
    // From another peer, the header is not believed, and the PROXY protocol is not HTTP.
    assert_eq!(seen(ATTACKER, to, forwarded.as_bytes()).await, ATTACKER.to_string());
    let refused = seen(ATTACKER, to, announced.as_bytes()).await;
    assert!(refused.parse::<IpAddr>().is_err(), "{refused}");
    // A broken header ends the connection.
    assert_eq!(seen(PROXY, to, b"PROXY nonsense\r\n").await, "");
}

#[tokio::test]
async fn connections_count_for_the_announced_client_but_not_for_the_proxy() {
    let to = listener(2).await;
    let mut of_proxy = Vec::new();
    for _ in 0..5 {
        let mut stream = connect(PROXY, to).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        of_proxy.push(stream);
    }
    for mut stream in of_proxy {
        stream.write_all(b"Host: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let mut announced = Vec::new();
    for _ in 0..3 {
        let mut stream = connect(PROXY, to).await.unwrap();
        stream.write_all(b"PROXY TCP4 203.0.113.8 127.0.0.1 4660 80\r\nGET / HTTP/1.1\r\n").await.unwrap();
        announced.push(stream);
        // The service reads the headers in this order.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(announced[0].read(&mut [0; 16]).await.unwrap_or(0), 0, "the oldest of this client gives way");
}
