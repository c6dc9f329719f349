use alloy::primitives::{Bytes, U64};
use alloy::providers::{Provider, RootProvider};
use alloy::rpc::client::{BatchRequest, ClientBuilder, RpcClient};
use payferry_devchain::Faults;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::world::{CHAIN_ID, World, payee};

async fn serve(world: &World) -> std::net::SocketAddr {
    // Clients of the workspace bring no TLS provider of their own; an error says that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = world.chain.router();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

/// Status line, head and body.
async fn exchange(address: std::net::SocketAddr, method: &str, body: &str) -> (String, String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let head = format!("{method} / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all((head + body).as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), head.to_ascii_lowercase(), body.to_owned())
}

async fn post(address: std::net::SocketAddr, body: Value) -> Value {
    let (status, _, body) = exchange(address, "POST", &body.to_string()).await;
    assert!(status.contains("200"), "{status}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn an_alloy_provider_over_http() {
    let world = World::new().await;
    let url = format!("http://{}", serve(&world).await);
    let provider = RootProvider::<alloy::network::Ethereum>::new(ClientBuilder::default().http(url.parse().unwrap()));
    let (raw, hash) = world.transfer_raw(payee(1), 1);
    assert_eq!(*provider.send_raw_transaction(&raw).await.unwrap().tx_hash(), hash);
    world.chain.mine(1).await.unwrap();
    assert!(provider.get_transaction_receipt(hash).await.unwrap().unwrap().status());
    assert_eq!(provider.get_logs(&world.transfers()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn batches_by_both_ways() {
    let world = World::new().await;
    let address = serve(&world).await;
    let http = ClientBuilder::default().http(format!("http://{address}").parse().unwrap());
    for client in [http, RpcClient::new(world.chain.transport(), true)] {
        let mut batch = BatchRequest::new(&client);
        let id = batch.add_call::<_, U64>("eth_chainId", &()).unwrap();
        let number = batch.add_call::<_, U64>("eth_blockNumber", &()).unwrap();
        let unknown = batch.add_call::<_, U64>("eth_nonsense", &()).unwrap();
        batch.send().await.unwrap();
        assert_eq!(id.await.unwrap(), U64::from(CHAIN_ID));
        assert_eq!(number.await.unwrap(), U64::from(1));
        assert_eq!(unknown.await.unwrap_err().as_error_resp().unwrap().code, -32_601);
        // Twenty transactions in one batch, in the order of their nonces.
        let mut batch = BatchRequest::new(&client);
        let mut sent = Vec::new();
        for _ in 0..20 {
            let (raw, hash) = world.transfer_raw(payee(1), 1);
            sent.push((batch.add_call::<_, Bytes>("eth_sendRawTransaction", &(raw,)).unwrap(), hash));
        }
        batch.send().await.unwrap();
        for (answer, hash) in sent {
            assert_eq!(answer.await.unwrap(), Bytes::from(hash));
        }
    }
    world.chain.mine(1).await.unwrap();
    assert_eq!(world.token_balance(payee(1), "latest").await, 40);
}

#[tokio::test]
async fn the_protocol_itself() {
    let world = World::new().await;
    let address = serve(&world).await;
    let answer = post(address, json!({"jsonrpc": "2.0", "id": "a", "method": "eth_chainId"})).await;
    assert_eq!(answer, json!({"jsonrpc": "2.0", "id": "a", "result": "0x2105"}));
    let answer = post(address, json!([])).await;
    assert_eq!(answer["error"]["code"], -32_600);
    let answer = post(address, json!([1, {"jsonrpc": "2.0", "id": 2, "method": "eth_chainId", "params": []}])).await;
    assert_eq!(answer[0]["error"]["code"], -32_600);
    assert_eq!(answer[1]["result"], "0x2105");
    let (_, _, body) = exchange(address, "POST", "{nonsense").await;
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["error"]["code"], -32_700);
    let (status, head, body) = exchange(address, "POST", r#"{"jsonrpc":"2.0","method":"eth_chainId"}"#).await;
    assert!(status.contains("200") && body.is_empty());
    assert!(head.contains("access-control-allow-origin: *"));
    let (status, head, _) = exchange(address, "OPTIONS", "").await;
    assert!(status.contains("204") && head.contains("access-control-allow-headers: *"));

    world.chain.set_faults(Faults { rate_limited_rate: 1.0, ..Faults::default() });
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#;
    let (status, head, _) = exchange(address, "POST", request).await;
    assert!(status.contains("429") && head.contains("retry-after: 1"));
}
