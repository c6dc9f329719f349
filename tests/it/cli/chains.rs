//! The chains of a running sandbox: their JSON-RPC beside the service that reads them.

use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Message;

use super::Running;
use super::controls::rpc;
use crate::prelude::*;

/// Time limit for any message of a WebSocket.
const PATIENCE: Duration = Duration::from_secs(20);

/// A WebSocket is an upgraded connection of the service's listener, with its limits. The sandbox stops although it is open.
#[tokio::test]
async fn websockets_report_new_heads() {
    let sandbox = Running::new().await;
    let url = sandbox.ok(Method::GET, "/sandbox", None).await["chains"]["base"]["ws_url"].clone();
    let (mut socket, _) = connect_async(url.as_str().unwrap()).await.unwrap();
    let subscribe = json!({"jsonrpc": "2.0", "id": 1, "method": "eth_subscribe", "params": ["newHeads"]});
    socket.send(Message::text(subscribe.to_string())).await.unwrap();
    let mut receive = async || -> Value {
        let message = tokio::time::timeout(PATIENCE, socket.next()).await.expect("no message").unwrap().unwrap();
        serde_json::from_str(message.to_text().unwrap()).unwrap()
    };
    let id = receive().await["result"].take();
    let mut parent = None;
    for _ in 0..3 {
        let head = receive().await["params"].take();
        assert_eq!(head["subscription"], id);
        assert!(parent.is_none_or(|parent| parent == head["result"]["parentHash"]), "{head}");
        parent = Some(head["result"]["hash"].clone());
    }
    sandbox.stop();
    while let Some(Ok(_)) = socket.next().await {}
}

/// The service notices at the next block that a revert made the chain shorter.
#[tokio::test]
async fn a_reverted_transfer_is_orphaned_and_the_payment_can_be_paid_again() {
    let sandbox = Running::new().await;
    let id = sandbox.payment().await;
    let path = format!("/payments/{id}");
    let mining = async |paused: bool| {
        sandbox.ok(Method::POST, "/sandbox/chains/base/mining", Some(json!({"paused": paused}))).await
    };
    let mine = async |blocks: u64| {
        sandbox.ok(Method::POST, "/sandbox/chains/base/mine", Some(json!({"blocks": blocks}))).await
    };
    mining(true).await;
    let snapshot = rpc(&sandbox, "base", "evm_snapshot", json!([])).await;
    let before = rpc(&sandbox, "base", "eth_blockNumber", json!([])).await;
    sandbox.pay(&id).await;
    // One more block would make it final.
    mine(1).await;
    sandbox.until(&path, |payment| payment["transfers"][0]["status"] == "seen").await;
    assert_eq!(rpc(&sandbox, "base", "evm_revert", json!([snapshot])).await, true);
    assert_eq!(rpc(&sandbox, "base", "eth_blockNumber", json!([])).await, before);
    mining(false).await;
    sandbox.until(&path, |payment| payment["transfers"][0]["status"] == "orphaned").await;
    sandbox.pay(&id).await;
    let settled = sandbox.until_settled(&id).await;
    assert_eq!(settled["amount_received"], "10.00");
    let facts = sandbox.ok(Method::GET, "/sandbox", None).await;
    assert_eq!(facts["chains"]["base"]["usable"], true);
}
