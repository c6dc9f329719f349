use std::net::SocketAddr;
use std::time::Duration;

use alloy::primitives::{Bytes, U64, U256};
use alloy::providers::{Provider, RootProvider};
use alloy::rpc::client::{BatchRequest, ClientBuilder, RpcClient};
use payferry_devchain::{ChainConfig, DevWallet, Faults, GenesisAccount, Mining};
use reqwest::header::{ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_ORIGIN, ALLOW, RETRY_AFTER};
use reqwest::{Body, Method, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::env::{CHAIN_ID, Env, GWEI, config, payee};

pub async fn serve(env: &Env) -> SocketAddr {
    payferry_harness::install_tls();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = env.chain.router();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

async fn exchange(address: SocketAddr, method: Method, body: impl Into<Body>) -> Response {
    reqwest::Client::new().request(method, format!("http://{address}")).body(body).send().await.unwrap()
}

async fn post(address: SocketAddr, body: Value) -> Value {
    let response = exchange(address, Method::POST, body.to_string()).await;
    assert_eq!(response.status(), 200);
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}

#[tokio::test]
async fn works_with_an_alloy_provider_over_http() {
    let env = Env::new().await;
    let url = format!("http://{}", serve(&env).await);
    let provider = RootProvider::<alloy::network::Ethereum>::new(ClientBuilder::default().http(url.parse().unwrap()));
    let (raw, hash) = env.transfer_raw(payee(1), 1);
    assert_eq!(*provider.send_raw_transaction(&raw).await.unwrap().tx_hash(), hash);
    env.chain.mine(1).await.unwrap();
    assert!(provider.get_transaction_receipt(hash).await.unwrap().unwrap().status());
    assert_eq!(provider.get_logs(&env.transfers()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn batches_work_over_http_and_the_transport() {
    let env = Env::new().await;
    let address = serve(&env).await;
    let http = ClientBuilder::default().http(format!("http://{address}").parse().unwrap());
    for client in [http, RpcClient::new(env.chain.transport(), true)] {
        let mut batch = BatchRequest::new(&client);
        let id = batch.add_call::<_, U64>("eth_chainId", &()).unwrap();
        let number = batch.add_call::<_, U64>("eth_blockNumber", &()).unwrap();
        let unknown = batch.add_call::<_, U64>("eth_nonsense", &()).unwrap();
        batch.send().await.unwrap();
        assert_eq!(id.await.unwrap(), U64::from(CHAIN_ID));
        assert_eq!(number.await.unwrap(), U64::from(1));
        assert_eq!(unknown.await.unwrap_err().as_error_resp().unwrap().code, -32_601);
        // Twenty transactions in one batch, in nonce order.
        let mut batch = BatchRequest::new(&client);
        let mut sent = Vec::new();
        for _ in 0..20 {
            let (raw, hash) = env.transfer_raw(payee(1), 1);
            sent.push((batch.add_call::<_, Bytes>("eth_sendRawTransaction", &(raw,)).unwrap(), hash));
        }
        batch.send().await.unwrap();
        for (answer, hash) in sent {
            assert_eq!(answer.await.unwrap(), Bytes::from(hash));
        }
    }
    env.chain.mine(1).await.unwrap();
    assert_eq!(env.token_balance(payee(1), "latest").await, 40);
}

#[tokio::test]
async fn is_open_to_any_origin_and_names_the_time_of_a_retry() {
    let env = Env::new().await;
    let address = serve(&env).await;
    let response = exchange(address, Method::POST, r#"{"jsonrpc":"2.0","method":"eth_chainId"}"#).await;
    assert!(response.status() == 200 && response.headers()[ACCESS_CONTROL_ALLOW_ORIGIN] == "*", "{response:?}");
    assert_eq!(response.text().await.unwrap(), "");
    let response = exchange(address, Method::GET, "").await;
    assert!(response.status() == 405 && response.headers()[ALLOW] == "POST, OPTIONS", "{response:?}");
    let response = exchange(address, Method::OPTIONS, "").await;
    assert!(response.status() == 204 && response.headers()[ACCESS_CONTROL_ALLOW_HEADERS] == "*", "{response:?}");

    env.chain.set_faults(Faults { rate_limited_rate: 1.0, ..Faults::default() });
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#;
    let response = exchange(address, Method::POST, request).await;
    assert!(response.status() == 429 && response.headers()[RETRY_AFTER] == "1", "{response:?}");
}

const CLIENTS: usize = 64;
const ROUNDS: u64 = 5;

/// Every client keeps its connection, gets the responses to its own requests, and loses no transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_64_clients_at_once() {
    let mining = Mining::Interval(Duration::from_millis(50));
    let wallets: Vec<DevWallet> =
        (0..CLIENTS).map(|client| DevWallet::from_seed(&format!("client {client}"))).collect();
    let funded = |wallet: &DevWallet| GenesisAccount {
        address: wallet.address(),
        balance: U256::from(10).pow(U256::from(18)),
        ..GenesisAccount::default()
    };
    let mut config = ChainConfig { mining, ..config() };
    config.genesis.extend(wallets.iter().map(funded));
    let env = Env::with(config).await;
    let address = serve(&env).await;
    let mut clients = JoinSet::new();
    for wallet in wallets {
        clients.spawn(async move {
            let mut stream = BufReader::new(TcpStream::connect(address).await.unwrap());
            for nonce in 0..ROUNDS {
                let (raw, hash) = wallet.sign_call(CHAIN_ID, nonce, payee(1), Bytes::new(), 21_000, GWEI, 1);
                let sent = ask(&mut stream, &request(nonce, "eth_sendRawTransaction", &json!([raw]))).await;
                assert_eq!(sent, json!({"jsonrpc": "2.0", "id": nonce, "result": hash}));
                let batch = (0..20).map(|id| request(id, "eth_getBlockByNumber", &json!(["latest", false]))).collect();
                let answers = ask(&mut stream, &batch).await;
                let ids: Vec<&Value> = answers.as_array().unwrap().iter().map(|answer| &answer["id"]).collect();
                assert!(ids.iter().copied().eq(&(0..20).map(Value::from).collect::<Vec<_>>()), "{ids:?}");
                let found = ask(&mut stream, &request(7, "eth_getTransactionByHash", &json!([hash]))).await;
                assert_eq!((&found["id"], &found["result"]["hash"]), (&json!(7), &json!(hash)));
            }
            wallet.address()
        });
    }
    let clients = clients.join_all().await;
    env.chain.mine(1).await.unwrap();
    for client in clients {
        assert_eq!(env.quantity("eth_getTransactionCount", json!([client, "latest"])).await, ROUNDS);
    }
}

/// Makes one request on a connection that stays open.
async fn ask(stream: &mut BufReader<TcpStream>, body: &Value) -> Value {
    let body = body.to_string();
    let head = format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all((head + body.as_str()).as_bytes()).await.unwrap();
    let (mut line, mut length) = (String::new(), 0);
    while line != "\r\n" {
        line.clear();
        assert_ne!(stream.read_line(&mut line).await.unwrap(), 0, "the connection was closed");
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    serde_json::from_slice(&body).unwrap()
}

fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// The maximum number of calls in a batch, with several methods, and one more.
#[tokio::test]
async fn limits_the_size_of_a_batch() {
    let env = Env::new().await;
    let address = serve(&env).await;
    let methods = ["eth_blockNumber", "eth_getBlockByNumber", "eth_getLogs"];
    let params = [json!([]), json!(["latest", true]), json!([{"fromBlock": "0x0"}])];
    let batch = |calls: u64| -> Value {
        let calls = (0..calls).zip(methods.into_iter().zip(&params).cycle());
        calls.map(|(id, (method, params))| request(id, method, params)).collect()
    };
    let answers = post(address, batch(1_000)).await;
    let answers = answers.as_array().unwrap();
    assert_eq!(answers.len(), 1_000);
    assert!((0..).zip(answers).all(|(id, answer)| answer["id"] == id && answer.get("result").is_some()));
    let refused = post(address, batch(1_001)).await;
    assert_eq!(refused["error"]["message"], "batch too large");
}
