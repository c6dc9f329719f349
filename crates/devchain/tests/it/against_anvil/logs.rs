//! `eth_getLogs`, which the service uses to find transfers.

use alloy::primitives::{Address, B256, keccak256};
use serde_json::{Value, json};

use super::env::{Env, payee};
use super::pair::{Expected, Node};

/// Block 3 contains transfers of both tokens, block 4 one of USDC, block 5 nothing.
async fn env() -> Env {
    let env = Env::new().await;
    env.pay(env.usdc, payee(1), 5).await;
    env.pay(env.usdt, payee(2), 6).await;
    env.pay(env.usdt, payee(1), 0).await;
    env.pair.mine().await;
    env.pay(env.usdc, payee(2), 7).await;
    env.pair.mine().await;
    env.pair.mine().await;
    env
}

fn word(address: Address) -> B256 {
    address.into_word()
}

#[tokio::test]
async fn filters_by_range_address_and_topics() {
    let env = env().await;
    let (usdc, usdt) = (env.usdc, env.usdt);
    let transfer = keccak256("Transfer(address,address,uint256)");
    let owner = word(env.owner.address());
    let (one, two) = (word(payee(1)), word(payee(2)));
    let count = async |mut filter: Value| {
        if filter.get("fromBlock").is_none() {
            filter["fromBlock"] = json!("0x0");
        }
        env.pair.same("eth_getLogs", json!([filter])).await.as_array().unwrap().len()
    };
    // In block 1 the settlement contract emits its roles. There are six token transfers.
    let all = 10;
    assert_eq!(count(json!({"toBlock": "latest"})).await, all);
    assert_eq!(count(json!({"fromBlock": "earliest"})).await, all);
    assert_eq!(count(json!({"fromBlock": null, "toBlock": null})).await, 0);
    assert_eq!(count(json!({"fromBlock": "0x3", "toBlock": "0x3"})).await, 3);
    assert_eq!(count(json!({"fromBlock": "0x3", "toBlock": "0x4"})).await, 4);
    assert_eq!(count(json!({"fromBlock": "0x4", "toBlock": "0x99"})).await, 1);
    assert_eq!(count(json!({"fromBlock": "finalized", "toBlock": "safe"})).await, 9);
    assert_eq!(count(json!({"fromBlock": "latest", "toBlock": "pending"})).await, 0);
    assert_eq!(count(json!({"address": usdc})).await, 3);
    assert_eq!(count(json!({"address": [usdc]})).await, 3);
    assert_eq!(count(json!({"address": [usdc, usdt]})).await, 6);
    assert_eq!(count(json!({"address": []})).await, all);
    assert_eq!(count(json!({"address": payee(1)})).await, 0);
    assert_eq!(count(json!({"topics": []})).await, all);
    assert_eq!(count(json!({"topics": [transfer]})).await, 6);
    assert_eq!(count(json!({"topics": [owner]})).await, 0);
    assert_eq!(count(json!({"topics": [[transfer, owner]]})).await, 6);
    assert_eq!(count(json!({"topics": [[]]})).await, all);
    assert_eq!(count(json!({"topics": [null, owner]})).await, 4);
    assert_eq!(count(json!({"topics": [transfer, null, one]})).await, 2);
    assert_eq!(count(json!({"topics": [transfer, null, [one, two]]})).await, 4);
    assert_eq!(count(json!({"topics": [transfer, owner, [one, two]], "address": [usdc]})).await, 2);
    assert_eq!(count(json!({"topics": [null, null, [two]], "address": usdt})).await, 1);
    // Empty positions match everything, even logs with fewer topics.
    assert_eq!(count(json!({"topics": [null, null, null, null]})).await, all);
}

#[tokio::test]
async fn filters_by_block_hash() {
    let env = env().await;
    let pair = &env.pair;
    for (number, logs) in [(0, 0), (3, 3), (4, 1), (5, 0)] {
        let by_hash = async |node: &super::pair::Node| json!([{"blockHash": node.hash_of(number).await}]);
        assert_eq!(pair.same_at("eth_getLogs", by_hash).await.as_array().unwrap().len(), logs);
    }
    let one_token =
        async |node: &super::pair::Node| json!([{"blockHash": node.hash_of(3).await, "address": [env.usdc]}]);
    assert_eq!(pair.same_at("eth_getLogs", one_token).await.as_array().unwrap().len(), 1);
    // An unknown block is an error on both, with the same message, and never an empty list.
    let unknown = B256::repeat_byte(7);
    let refused = (-32_000, "unknown block");
    pair.refused("eth_getLogs", json!([{"blockHash": unknown}]), refused, refused).await;
    pair.malformed("eth_getLogs", [json!([{"blockHash": unknown, "fromBlock": "0x1"}])]).await;
}

/// The devchain rejects the range like geth; anvil returns an empty list.
#[tokio::test]
async fn rejects_a_range_that_ends_before_its_start() {
    let env = env().await;
    let refused = Expected::Refused(-32_602, "invalid block range params");
    for filter in [
        json!({"fromBlock": "0x3", "toBlock": "0x1"}),
        json!({"fromBlock": "latest", "toBlock": "earliest"}),
        json!({"toBlock": "0x2"}),
        json!({"fromBlock": "0x5", "toBlock": "safe"}),
    ] {
        env.pair.differs("eth_getLogs", json!([filter]), &Expected::Is(json!([])), &refused).await;
    }
}

/// The devchain returns an empty list, like lagging endpoints behind a load balancer: the service must not conclude
/// that there were no transfers. Anvil returns an error; other nodes do one or the other.
#[tokio::test]
async fn a_range_beyond_the_head_is_empty() {
    let env = env().await;
    let refused = Expected::Refused(-32_602, "BlockOutOfRangeError: block height is 5 but requested was 152");
    let filter = json!([{"fromBlock": "0x98", "toBlock": "0x99"}]);
    env.pair.differs("eth_getLogs", filter, &refused, &Expected::Is(json!([]))).await;
    let devchain = (-32_602, "invalid block range params");
    let anvil = (-32_602, "BlockOutOfRangeError");
    env.pair.refused("eth_getLogs", json!([{"fromBlock": "0x98"}]), anvil, devchain).await;
}

#[tokio::test]
async fn rejects_malformed_filters() {
    let env = env().await;
    let topic = B256::ZERO;
    env.pair
        .malformed(
            "eth_getLogs",
            [
                json!([]),
                json!(["x"]),
                json!([{"blockHash": "0x12"}]),
                json!([{"address": "0x12"}]),
                json!([{"address": [5]}]),
                json!([{"topics": ["0x12"]}]),
                json!([{"topics": "0x12"}]),
                json!([{"topics": [topic, topic, topic, topic, topic]}]),
                json!([{"fromBlock": "0xzz"}]),
                json!([{"fromBlock": 3}]),
                json!([{"fromBlock": "3"}]),
                json!([{"fromBlock": "newest"}]),
                json!([{"unknown": 1}]),
            ],
        )
        .await;
}

#[tokio::test]
async fn filters_report_changes() {
    let env = env().await;
    let pair = &env.pair;
    let logs = pair.each("eth_newFilter", json!([{"address": env.usdc}])).await;
    let blocks = pair.each("eth_newBlockFilter", json!([])).await;
    let txs = pair.each("eth_newPendingTransactionFilter", json!([])).await;
    let of = |[anvil, devchain]: &[Value; 2], node: &Node| json!([if node.name == "anvil" { anvil } else { devchain }]);
    for payments in [1, 0, 2] {
        for units in 0..payments {
            env.pay(env.usdc, payee(1), units).await;
            env.pay(env.usdt, payee(1), units).await;
            pair.mine().await;
        }
        for filter in [&logs, &blocks, &txs] {
            pair.same_at("eth_getFilterChanges", async |node| of(filter, node)).await;
        }
    }
    for removed in [true, false] {
        let answer = pair.same_at("eth_uninstallFilter", async |node| of(&logs, node)).await;
        assert_eq!(answer, removed);
    }
}
