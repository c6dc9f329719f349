//! `eth_getLogs`: what the service sees money by.

use alloy::primitives::{Address, B256, keccak256};
use serde_json::{Value, json};

use crate::pair::Expected;
use crate::world::{World, payee};

/// Block 3 holds transfers of both tokens, block 4 one of USDC, block 5 nothing.
async fn world() -> World {
    let world = World::new().await;
    world.pay(world.usdc, payee(1), 5).await;
    world.pay(world.usdt, payee(2), 6).await;
    world.pay(world.usdt, payee(1), 0).await;
    world.pair.mine().await;
    world.pay(world.usdc, payee(2), 7).await;
    world.pair.mine().await;
    world.pair.mine().await;
    world
}

fn word(address: Address) -> B256 {
    address.into_word()
}

#[tokio::test]
async fn ranges_addresses_and_topics() {
    let world = world().await;
    let (usdc, usdt) = (world.usdc, world.usdt);
    let transfer = keccak256("Transfer(address,address,uint256)");
    let owner = word(world.owner.address());
    let (one, two) = (word(payee(1)), word(payee(2)));
    let count = async |mut filter: Value| {
        if filter.get("fromBlock").is_none() {
            filter["fromBlock"] = json!("0x0");
        }
        world.pair.same("eth_getLogs", json!([filter])).await.as_array().unwrap().len()
    };
    // The settlement contract says in block 1 who may do what, the token transfers are six.
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
    // Positions without a wish ask for nothing, not even for that many topics.
    assert_eq!(count(json!({"topics": [null, null, null, null]})).await, all);
}

#[tokio::test]
async fn by_block_hash() {
    let world = world().await;
    let pair = &world.pair;
    for (number, logs) in [(0, 0), (3, 3), (4, 1), (5, 0)] {
        let by_hash = async |node: &crate::pair::Node| json!([{"blockHash": node.hash_of(number).await}]);
        assert_eq!(pair.same_at("eth_getLogs", by_hash).await.as_array().unwrap().len(), logs);
    }
    let one_token =
        async |node: &crate::pair::Node| json!([{"blockHash": node.hash_of(3).await, "address": [world.usdc]}]);
    assert_eq!(pair.same_at("eth_getLogs", one_token).await.as_array().unwrap().len(), 1);
    // An unknown block is an error on both, in the same words: never an empty list.
    let unknown = B256::repeat_byte(7);
    let refused = (-32_000, "unknown block");
    pair.refused("eth_getLogs", json!([{"blockHash": unknown}]), refused, refused).await;
    pair.malformed("eth_getLogs", json!([{"blockHash": unknown, "fromBlock": "0x1"}])).await;
}

/// The devchain refuses as geth does, anvil answers an empty list.
#[tokio::test]
async fn from_after_to() {
    let world = world().await;
    let refused = Expected::Refused(-32_602, "invalid block range params");
    for filter in [
        json!({"fromBlock": "0x3", "toBlock": "0x1"}),
        json!({"fromBlock": "latest", "toBlock": "earliest"}),
        json!({"toBlock": "0x2"}),
        json!({"fromBlock": "0x5", "toBlock": "safe"}),
    ] {
        world.pair.differs("eth_getLogs", json!([filter]), &Expected::Is(json!([])), &refused).await;
    }
}

/// The devchain answers an empty list, as load-balanced endpoints do that lag: the service must not take it for "nothing
/// happened". Anvil says so; other nodes do the one or the other.
#[tokio::test]
async fn beyond_the_head() {
    let world = world().await;
    let refused = Expected::Refused(-32_602, "BlockOutOfRangeError: block height is 5 but requested was 152");
    let filter = json!([{"fromBlock": "0x98", "toBlock": "0x99"}]);
    world.pair.differs("eth_getLogs", filter, &refused, &Expected::Is(json!([]))).await;
    let devchain = (-32_602, "invalid block range params");
    let anvil = (-32_602, "BlockOutOfRangeError");
    world.pair.refused("eth_getLogs", json!([{"fromBlock": "0x98"}]), anvil, devchain).await;
}

#[tokio::test]
async fn malformed_filters() {
    let world = world().await;
    let topic = B256::ZERO;
    for filter in [
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
    ] {
        world.pair.malformed("eth_getLogs", filter).await;
    }
}
