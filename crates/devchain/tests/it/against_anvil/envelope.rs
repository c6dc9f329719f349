//! The JSON-RPC envelope: single requests, batches, notifications, and invalid input. Where the nodes differ, the
//! devchain responds like geth.

use serde_json::{Value, json};

use super::pair::Pair;

/// Returns status and body of both.
async fn both(pair: &Pair, body: &str) -> [(u16, Value); 2] {
    let mut answers = Vec::new();
    for node in pair.nodes() {
        let (status, text) = node.post(body.to_owned()).await;
        let json = if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() };
        answers.push((status, json));
    }
    answers.try_into().unwrap()
}

async fn same(pair: &Pair, body: &str) -> Value {
    let [anvil, devchain] = both(pair, body).await;
    assert_eq!(anvil, devchain, "{body}");
    assert_eq!(devchain.0, 200);
    devchain.1
}

/// Asserts an error with this id and code on each node. The messages may differ.
async fn errors(pair: &Pair, body: &str, id: Value, anvil_code: i64, devchain_code: i64) {
    for ((status, answer), code) in both(pair, body).await.into_iter().zip([anvil_code, devchain_code]) {
        assert_eq!((status, &answer["id"], &answer["error"]["code"]), (200, &id, &json!(code)), "{body}: {answer}");
    }
}

#[tokio::test]
async fn handles_single_requests() {
    let pair = Pair::start().await;
    for id in ["1", "\"a\"", "null", "0"] {
        let answer = same(&pair, &format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_chainId","params":[]}}"#)).await;
        assert_eq!(answer["id"].to_string(), id);
        assert_eq!(answer["result"], "0x2105");
    }
    same(&pair, r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#).await;
    same(&pair, r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":null}"#).await;
    errors(&pair, r#"{"jsonrpc":"2.0","id":1,"method":"eth_nothing","params":[]}"#, json!(1), -32_601, -32_601).await;
    errors(&pair, r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBalance","params":[5]}"#, json!(1), -32_602, -32_602)
        .await;
    // Missing version, other version, missing method, invalid method.
    for body in [
        r#"{"id":1,"method":"eth_chainId","params":[]}"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"eth_chainId","params":[]}"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":5}"#,
    ] {
        errors(&pair, body, json!(1), -32_600, -32_600).await;
    }
    for body in [r#"{"jsonrpc":"2.0","id":{"a":1},"method":"eth_chainId","params":[]}"#, "1", "\"x\"", "{}"] {
        errors(&pair, body, Value::Null, -32_600, -32_600).await;
    }
    errors(&pair, r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":"x"}"#, json!(1), -32_600, -32_602).await;
    // Input that is not JSON is a parse error with its own code. Anvil has only one code.
    for body in ["{", "", r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]} x"#, "[1,"] {
        errors(&pair, body, Value::Null, -32_600, -32_700).await;
    }
}

#[tokio::test]
async fn handles_batches() {
    let pair = Pair::start().await;
    let request = |id: u64, method: &str| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": []});
    let answers = same(&pair, &json!([request(1, "eth_chainId"), request(2, "eth_blockNumber")]).to_string()).await;
    assert_eq!(answers.as_array().unwrap().len(), 2);
    same(&pair, &json!([request(7, "eth_chainId")]).to_string()).await;
    let many: Vec<Value> = (0..500).map(|id| request(id, "eth_chainId")).collect();
    assert_eq!(same(&pair, &json!(many).to_string()).await.as_array().unwrap().len(), 500);
    // A failing request does not affect the others.
    let mixed = json!([request(1, "eth_nothing"), request(2, "eth_chainId")]).to_string();
    for (_, answers) in both(&pair, &mixed).await {
        assert_eq!((&answers[0]["error"]["code"], &answers[1]["result"]), (&json!(-32_601), &json!("0x2105")));
    }
    errors(&pair, "[]", Value::Null, -32_600, -32_600).await;
    // An invalid request gets an error at its position; anvil rejects the whole batch.
    let [(_, anvil), (_, devchain)] = both(&pair, &json!([5, request(1, "eth_chainId"), 5]).to_string()).await;
    assert_eq!(anvil["error"]["code"], -32_600);
    assert_eq!((&devchain[0]["error"]["code"], &devchain[2]["error"]["code"]), (&json!(-32_600), &json!(-32_600)));
    assert_eq!(devchain[1]["result"], "0x2105");
}

/// The devchain and geth execute notifications and do not respond to them. Anvil does not execute them, and responds
/// with HTTP 204.
#[tokio::test]
async fn executes_notifications_without_a_response() {
    let pair = Pair::start().await;
    let notification = json!({"jsonrpc": "2.0", "method": "evm_mine", "params": []});
    for body in [notification.clone(), json!([notification, notification])] {
        assert_eq!(both(&pair, &body.to_string()).await, [(204, Value::Null), (200, Value::Null)]);
    }
    assert_eq!((pair.anvil.number().await, pair.devchain.number().await), (0, 3));
    let request = json!({"jsonrpc": "2.0", "id": 9, "method": "eth_chainId", "params": []});
    assert_eq!(same(&pair, &json!([notification, request]).to_string()).await[0]["id"], 9);
}
