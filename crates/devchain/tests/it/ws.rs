//! JSON-RPC and subscriptions over a WebSocket.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use alloy::primitives::B256;
use alloy::rpc::types::Log;
use futures::{SinkExt as _, StreamExt as _};
use payferry_devchain::{Dropped, Faults};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message, http::StatusCode};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::env::{CHAIN_ID, Env, payee, quantity};
use crate::http::serve;

/// Time limit for any message.
const PATIENCE: Duration = Duration::from_secs(20);

struct Client {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    id: u64,
    /// Messages of subscriptions that arrived before a response.
    messages: VecDeque<Value>,
}

impl Client {
    async fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).await.unwrap()
    }

    async fn try_connect(address: SocketAddr) -> Result<Self, Error> {
        let (socket, _) = connect_async(format!("ws://{address}/")).await?;
        Ok(Self { socket, id: 0, messages: VecDeque::new() })
    }

    async fn send(&mut self, text: impl ToString) {
        self.socket.send(Message::text(text.to_string())).await.unwrap();
    }

    /// Returns the next text, or the reason why the server closed the connection.
    async fn receive(&mut self) -> Result<Value, Option<CloseFrame>> {
        loop {
            match timeout(PATIENCE, self.socket.next()).await.expect("no message") {
                Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(reason))) => return Err(reason),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(None),
            }
        }
    }

    async fn exchange(&mut self, packet: Value) -> Value {
        self.send(packet).await;
        loop {
            let text = self.receive().await.unwrap();
            if text.get("method").is_none() {
                return text;
            }
            self.messages.push_back(text);
        }
    }

    async fn request(&mut self, method: &str, params: Value) -> Value {
        self.id += 1;
        let answer = self.exchange(json!({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params})).await;
        assert_eq!(answer["id"], self.id);
        answer
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        let mut answer = self.request(method, params).await;
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].take()
    }

    async fn refused(&mut self, method: &str, params: Value) -> (i64, String) {
        let error = &self.request(method, params).await["error"];
        (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
    }

    /// Returns the next message of a subscription.
    async fn next(&mut self, subscription: &Value) -> Value {
        let mut message = match self.messages.pop_front() {
            Some(message) => message,
            None => self.receive().await.unwrap(),
        };
        assert_eq!((&message["jsonrpc"], &message["method"]), (&json!("2.0"), &json!("eth_subscription")));
        assert_eq!(message["params"]["subscription"], *subscription, "{message}");
        message["params"]["result"].take()
    }

    async fn next_log(&mut self, subscription: &Value) -> Log {
        serde_json::from_value(self.next(subscription).await).unwrap()
    }

    /// Asserts that no message arrives before the response to a request.
    async fn is_silent(&mut self) {
        self.call("eth_chainId", json!([])).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.call("eth_chainId", json!([])).await;
        assert!(self.messages.is_empty(), "{:?}", self.messages);
    }
}

#[tokio::test]
async fn makes_ordinary_calls() {
    let env = Env::new().await;
    let mut client = Client::connect(serve(&env).await).await;
    assert_eq!(quantity(&client.call("eth_chainId", json!([])).await), CHAIN_ID);
    let (raw, hash) = env.transfer_raw(payee(1), 1);
    assert_eq!(client.call("eth_sendRawTransaction", json!([raw])).await, json!(hash));
    client.call("evm_mine", json!([])).await;
    assert_eq!(client.call("eth_getTransactionReceipt", json!([hash])).await["status"], "0x1");
    assert_eq!(client.refused("eth_nonsense", json!([])).await.0, -32_601);
    let call = |id: u64, method: &str| json!({"jsonrpc": "2.0", "id": id, "method": method});
    let batch = client.exchange(json!([call(7, "eth_blockNumber"), call(8, "eth_chainId")])).await;
    assert_eq!((&batch[0]["id"], &batch[1]["id"]), (&json!(7), &json!(8)));
    client.send("{").await;
    assert_eq!(client.receive().await.unwrap()["error"]["code"], -32_700);
    // A notification has no response, and binary messages count like text.
    client.send(json!({"jsonrpc": "2.0", "method": "evm_mine"})).await;
    client.socket.send(Message::binary(call(9, "eth_chainId").to_string())).await.unwrap();
    assert_eq!(client.receive().await.unwrap()["id"], 9);
    // Large requests wait for each other.
    let pad = "x".repeat(600 * 1024);
    for id in 10..20 {
        client.send(json!({"jsonrpc": "2.0", "id": id, "method": "eth_chainId", "pad": pad})).await;
    }
    for _ in 10..20 {
        assert_eq!(quantity(&client.receive().await.unwrap()["result"]), CHAIN_ID);
    }
    // Many requests at once, each with its own response.
    for id in 100..300 {
        client.send(call(id, "eth_blockNumber")).await;
    }
    let mut ids = Vec::new();
    for _ in 100..300 {
        ids.push(client.receive().await.unwrap()["id"].as_u64().unwrap());
    }
    ids.sort_unstable();
    assert!(ids.into_iter().eq(100..300));
    client.socket.close(None).await.unwrap();
}

#[tokio::test]
async fn new_heads_are_reported_in_order() {
    let env = Env::new().await;
    let mut client = Client::connect(serve(&env).await).await;
    let id = client.call("eth_subscribe", json!(["newHeads"])).await;
    // More blocks than one step reports.
    for block in env.chain.mine(200).await.unwrap() {
        let head = client.next(&id).await;
        assert_eq!((&head["number"], &head["hash"]), (&json!(format!("{:#x}", block.number)), &json!(block.hash)));
        assert_eq!(head["parentHash"], json!(block.parent_hash));
        assert!(
            head["logsBloom"].is_string() && head["baseFeePerGas"].is_string() && head.get("transactions").is_none()
        );
    }
    // After a reorg, only the new branch.
    let depth = 3;
    let head = env.chain.reorg(depth, Dropped::Discard).await.unwrap();
    for number in head.number - depth..=head.number {
        assert_eq!(client.next(&id).await["hash"], env.block(number).await["hash"]);
    }
    assert_eq!(client.call("eth_unsubscribe", json!([id])).await, true);
    env.chain.mine(3).await.unwrap();
    client.is_silent().await;
    assert_eq!(client.refused("eth_unsubscribe", json!([id])).await, (-32_000, "subscription not found".to_owned()));
}

#[tokio::test]
async fn logs_of_a_reorg_are_reported_as_removed() {
    let env = Env::new().await;
    let mut client = Client::connect(serve(&env).await).await;
    let filter = json!({"address": env.token, "topics": [null, null, payee(1).into_word()]});
    let id = client.call("eth_subscribe", json!(["logs", filter])).await;
    env.transfer(payee(1), 1).await;
    env.transfer(payee(2), 2).await;
    let paid = env.pay(payee(1), 3).await;
    let logs = [client.next_log(&id).await, client.next_log(&id).await];
    assert_eq!(logs[1].transaction_hash, Some(paid.transaction_hash));
    assert!(logs.iter().all(|log| !log.removed && log.block_hash == paid.block_hash));
    env.chain.reorg(1, Dropped::Remine).await.unwrap();
    for log in logs.iter().rev() {
        assert_eq!(client.next_log(&id).await, Log { removed: true, ..log.clone() });
    }
    env.chain.mine(1).await.unwrap();
    let again = [client.next_log(&id).await, client.next_log(&id).await];
    assert!(again.iter().all(|log| !log.removed && log.block_hash != paid.block_hash));
    assert_eq!(again.map(|log| log.transaction_hash), logs.map(|log| log.transaction_hash));
    client.is_silent().await;
}

/// Each client has its own subscriptions, and messages follow the response with the id.
#[tokio::test]
async fn clients_are_independent() {
    let env = Env::new().await;
    let address = serve(&env).await;
    let (mut one, mut other) = (Client::connect(address).await, Client::connect(address).await);
    let subscribe = |id| json!({"jsonrpc": "2.0", "id": id, "method": "eth_subscribe", "params": ["newHeads"]});
    let subscribed = one.exchange(json!([subscribe(1), subscribe(2)])).await;
    assert!(one.messages.is_empty());
    let [first, second] = [0, 1].map(|index: usize| subscribed[index]["result"].clone());
    let everything = other.call("eth_subscribe", json!(["logs"])).await;
    env.pay(payee(1), 1).await;
    let head = json!(env.chain.head().hash);
    for id in [first, second] {
        assert_eq!(one.next(&id).await["hash"], head);
    }
    assert_eq!(other.next(&everything).await["blockHash"], head);
    one.is_silent().await;
    other.is_silent().await;
}

#[tokio::test]
async fn invalid_subscriptions_are_refused() {
    let env = Env::new().await;
    let address = serve(&env).await;
    let mut client = Client::connect(address).await;
    for (params, code) in [
        (json!([]), -32_602),
        (json!(["syncing"]), -32_601),
        (json!(["logs", {"address": "0x1"}]), -32_602),
        (json!(["logs", {"blockHash": B256::ZERO}]), -32_602),
        (json!(["logs", {"fromBlock": "0x5", "toBlock": "0x4"}]), -32_602),
    ] {
        assert_eq!(client.refused("eth_subscribe", params.clone()).await.0, code, "{params}");
    }
    for params in [json!([]), json!(["x"])] {
        assert_eq!(client.refused("eth_unsubscribe", params).await.0, -32_602);
    }
    for method in ["eth_subscribe", "eth_unsubscribe"] {
        let error = env.call::<Value>(method, json!(["newHeads"])).await.unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (-32_601, "notifications not supported"));
    }
}

#[tokio::test]
async fn subscriptions_connections_and_messages_are_limited() {
    let env = Env::new().await;
    let address = serve(&env).await;
    let mut client = Client::connect(address).await;
    let mut last = Value::Null;
    for _ in 0..100 {
        last = client.call("eth_subscribe", json!(["logs"])).await;
    }
    let (code, message) = client.refused("eth_subscribe", json!(["newHeads"])).await;
    assert_eq!((code, message.starts_with("there are 100 subscriptions already")), (-32_005, true));
    client.call("eth_unsubscribe", json!([last])).await;
    client.call("eth_subscribe", json!(["newHeads"])).await;

    let mut others = Vec::new();
    for _ in 1..100 {
        others.push(Client::connect(address).await);
    }
    let Err(Error::Http(refused)) = Client::try_connect(address).await else { panic!("one connection too many") };
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);

    // A message above the limit closes its connection, and frees a place.
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "pad": "x".repeat(5 * 1024 * 1024)});
    let mut large = others.pop().unwrap();
    let _ = large.socket.send(Message::text(call.to_string())).await;
    assert!(large.receive().await.is_err());
    let connected = async {
        loop {
            if let Ok(client) = Client::try_connect(address).await {
                return client;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let mut client = timeout(PATIENCE, connected).await.expect("no place became free");
    client.call("eth_chainId", json!([])).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_closed() {
    const BLOCKS: u64 = 40_000;
    let env = Env::new().await;
    let mut client = Client::connect(serve(&env).await).await;
    client.call("eth_subscribe", json!(["newHeads"])).await;
    env.chain.mine(BLOCKS).await.unwrap();
    // Longer than the time in which a message must be read.
    tokio::time::sleep(Duration::from_secs(12)).await;
    let mut received = 0;
    while client.receive().await.is_ok() {
        received += 1;
    }
    assert!(received > 0 && received < BLOCKS, "received {received}");
}

#[tokio::test]
async fn faults_apply() {
    let env = Env::new().await;
    let address = serve(&env).await;
    let mut client = Client::connect(address).await;
    let id = client.call("eth_subscribe", json!(["newHeads"])).await;
    env.chain.set_faults(Faults { head_lag_blocks: 2, ..Faults::default() });
    let mined = env.chain.mine(3).await.unwrap();
    assert_eq!(client.next(&id).await["hash"], json!(mined[0].hash));
    client.is_silent().await;
    env.chain.set_faults(Faults { error_rate: 1.0, methods: vec!["eth_call".into()], ..Faults::default() });
    assert_eq!(client.refused("eth_call", json!([{}])).await.0, -32_603);
    while client.messages.pop_front().is_some() {}
    env.chain.set_faults(Faults { unavailable_rate: 1.0, ..Faults::default() });
    client.send(json!({"jsonrpc": "2.0", "id": 1, "method": "eth_chainId"})).await;
    let closed = loop {
        if let Err(closed) = client.receive().await {
            break closed.unwrap();
        }
    };
    assert_eq!((u16::from(closed.code), closed.reason.as_str()), (1013, "fault injected"));
}

#[tokio::test]
async fn closing_the_chain_closes_the_connections() {
    let env = Env::new().await;
    let mut client = Client::connect(serve(&env).await).await;
    client.call("eth_chainId", json!([])).await;
    env.chain.close().await;
    assert_eq!(u16::from(client.receive().await.unwrap_err().unwrap().code), 1001);
}
