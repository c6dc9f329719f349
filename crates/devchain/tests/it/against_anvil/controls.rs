//! Controls of a development chain. The same test can use either node.

use std::time::Duration;

use alloy::primitives::{Address, B256, U256};
use payferry_contracts::CREATE2_DEPLOYER;
use payferry_devchain::Mining;
use serde_json::{Value, json};

use super::env::{Env, payee};
use super::pair::{Expected, GENESIS_SECS, Pair, quantity};

/// Time limit for any step on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// Returns number and timestamp of the head, which must be the same on both. The timestamp is relative to block 0.
async fn head(pair: &Pair) -> (u64, u64) {
    let blocks = pair.each("eth_getBlockByNumber", json!(["latest", false])).await;
    let [anvil, devchain] =
        blocks.map(|block| (quantity(&block["number"]), quantity(&block["timestamp"]) - GENESIS_SECS));
    assert_eq!(anvil, devchain);
    devchain
}

#[tokio::test]
async fn mines_at_requested_timestamps() {
    let pair = Pair::start().await;
    let at = |secs: u64| GENESIS_SECS + secs;
    pair.same("evm_setNextBlockTimestamp", json!([at(100)])).await;
    assert_eq!(pair.same("evm_mine", json!([])).await, "0x0");
    assert_eq!(head(&pair).await, (1, 100));
    pair.same("evm_mine", json!([at(200)])).await;
    assert_eq!(head(&pair).await, (2, 200));
    pair.same("evm_mine", json!([{"timestamp": at(300)}])).await;
    pair.same("evm_mine", json!([{"timestamp": at(400), "blocks": 3}])).await;
    assert_eq!(head(&pair).await.0, 6);
    pair.same("evm_setNextBlockTimestamp", json!([format!("{:#x}", at(500))])).await;
    pair.same("anvil_mine", json!(["0x1"])).await;
    assert_eq!(head(&pair).await, (7, 500));
    // Timestamps never go backwards.
    let backwards = format!("timestamp {} is lower than the previous block's timestamp {}", at(499), at(500));
    let backwards = format!("invalid params: {backwards}");
    let (anvil, devchain) = ((-32_602, "Timestamp error: "), (-32_602, backwards.as_str()));
    pair.refused("evm_setNextBlockTimestamp", json!([at(499)]), anvil, devchain).await;
    pair.refused("evm_mine", json!([at(499)]), anvil, devchain).await;
    pair.malformed("evm_setNextBlockTimestamp", [json!([])]).await;
    assert_eq!(head(&pair).await, (7, 500));
}

#[tokio::test]
async fn mines_several_blocks() {
    let pair = Pair::start().await;
    pair.same("evm_setNextBlockTimestamp", json!([GENESIS_SECS + 1_000])).await;
    for params in [json!([]), json!(["0x3"]), json!([2]), json!([0])] {
        pair.same("anvil_mine", params.clone()).await;
        pair.same("hardhat_mine", params).await;
    }
    assert_eq!(pair.same("eth_blockNumber", json!([])).await, "0xc");
    // Ten seconds before each block, plus the elapsed time.
    let before = seconds(&pair).await;
    pair.same("anvil_mine", json!(["0x5", "0xa"])).await;
    let before_increase = passed(&pair, before, 50).await;
    assert_eq!(pair.same("eth_blockNumber", json!([])).await, "0x11");
    pair.each("evm_increaseTime", json!([3_600])).await;
    pair.each("evm_increaseTime", json!(["0x10"])).await;
    pair.each("evm_mine", json!([])).await;
    passed(&pair, before_increase, 3_616).await;
}

/// Asserts that this many seconds, plus the elapsed time, have passed on each node. Returns the current timestamps.
async fn passed(pair: &Pair, before: [u64; 2], secs: u64) -> [u64; 2] {
    let after = seconds(pair).await;
    for ((before, after), node) in before.into_iter().zip(after).zip(pair.nodes()) {
        assert!((secs..secs + PATIENCE.as_secs()).contains(&(after - before)), "{}: {}", node.name, after - before);
    }
    after
}

async fn seconds(pair: &Pair) -> [u64; 2] {
    let blocks = pair.each("eth_getBlockByNumber", json!(["latest", false])).await;
    blocks.map(|block| quantity(&block["timestamp"]))
}

#[tokio::test]
async fn sets_balance_nonce_code_and_storage() {
    let pair = Pair::start().await;
    let who = payee(1);
    for balance in [json!("0x10"), json!(17), json!("18"), json!(U256::MAX)] {
        pair.same("anvil_setBalance", json!([who, balance])).await;
        pair.same("eth_getBalance", json!([who, "latest"])).await;
    }
    pair.same("hardhat_setBalance", json!([who, "0x0"])).await;
    assert_eq!(pair.same("eth_getBalance", json!([who, "latest"])).await, "0x0");
    pair.same("anvil_setNonce", json!([who, "0x10"])).await;
    assert_eq!(pair.same("eth_getTransactionCount", json!([who, "latest"])).await, "0x10");
    pair.same("anvil_setCode", json!([who, "0x60015f5260205ff3"])).await;
    pair.same("eth_getCode", json!([who, "latest"])).await;
    pair.same("anvil_setStorageAt", json!([who, "0x2", B256::repeat_byte(9)])).await;
    assert_eq!(pair.same("eth_getStorageAt", json!([who, "0x2", "latest"])).await, json!(B256::repeat_byte(9)));
    for method in ["anvil_setBalance", "anvil_setNonce", "anvil_setCode"] {
        pair.malformed(method, [json!([]), json!([who]), json!(["0x12", "0x1"]), json!([who, "x"])]).await;
    }
}

#[tokio::test]
async fn sets_the_next_base_fee() {
    let pair = Pair::start().await;
    // Skip block 0, whose base fee differs.
    pair.mine().await;
    pair.mine().await;
    let fees = async || {
        pair.same("eth_gasPrice", json!([])).await;
        pair.same("eth_feeHistory", json!(["0x2", "latest", [50]])).await
    };
    for wei in [json!("0x12a05f200"), json!(7_000_000_000_u64), json!("900000000"), json!(1)] {
        pair.same("anvil_setNextBlockBaseFeePerGas", json!([5])).await;
        // The last value counts, and it is visible before the block exists.
        pair.same("anvil_setNextBlockBaseFeePerGas", json!([wei])).await;
        fees().await;
        for _ in 0..3 {
            pair.mine().await;
            fees().await;
            pair.same("eth_getBlockByNumber", json!(["latest", false])).await;
        }
    }
    pair.same("hardhat_setNextBlockBaseFeePerGas", json!(["0x77359400"])).await;
    pair.mine().await;
    assert_eq!(pair.same("eth_getBlockByNumber", json!(["latest", false])).await["baseFeePerGas"], "0x77359400");
    pair.malformed("anvil_setNextBlockBaseFeePerGas", [json!([]), json!(["x"]), json!([{}])]).await;
}

#[tokio::test]
async fn the_create2_deployer_exists() {
    let pair = Pair::start().await;
    let code = pair.same("eth_getCode", json!([CREATE2_DEPLOYER, "latest"])).await;
    assert!(code.as_str().unwrap().len() > 2);
    pair.same("eth_getCode", json!([CREATE2_DEPLOYER, "earliest"])).await;
}

#[tokio::test]
async fn drops_a_transaction() {
    let env = Env::new().await;
    let pair = &env.pair;
    let nonce = env.owner.next_nonce();
    env.owner.set_nonce(nonce);
    let hash = env.pay(env.usdc, payee(1), 5).await;
    assert_eq!(pair.same("anvil_dropTransaction", json!([hash])).await, json!(hash));
    assert_eq!(pair.same("anvil_dropTransaction", json!([hash])).await, Value::Null);
    assert_eq!(pair.same("eth_getTransactionByHash", json!([hash])).await, Value::Null);
    pair.mine().await;
    assert_eq!(pair.same("eth_getBlockByNumber", json!(["latest", true])).await["transactions"], json!([]));
    // A mined transaction cannot be dropped.
    env.owner.set_nonce(nonce);
    let hash = env.pay(env.usdc, payee(1), 6).await;
    pair.mine().await;
    assert_eq!(pair.same("anvil_dropTransaction", json!([hash])).await, Value::Null);
    assert_eq!(pair.same("eth_getTransactionReceipt", json!([hash])).await["status"], "0x1");
}

#[tokio::test]
async fn automine_makes_a_block_for_each_transaction() {
    let env = Env::new().await;
    let pair = &env.pair;
    pair.same("evm_setAutomine", json!([true])).await;
    for units in 1..4 {
        let hash = env.pay(env.usdc, payee(1), units).await;
        mined_on_anvil(pair, hash).await;
        let mut receipts = pair.each("eth_getTransactionReceipt", json!([hash])).await;
        let [anvil, devchain] =
            receipts.each_mut().map(|receipt| (receipt["status"].take(), receipt["blockNumber"].take()));
        assert_eq!(anvil, devchain);
        assert_eq!(devchain, (json!("0x1"), json!(format!("{:#x}", 2 + units))));
    }
    assert_eq!(pair.same("eth_blockNumber", json!([])).await, "0x5");
    pair.same("evm_setAutomine", json!([false])).await;
    let hash = env.pay(env.usdc, payee(1), 9).await;
    assert_eq!(pair.same("eth_getTransactionReceipt", json!([hash])).await, Value::Null);
    assert_eq!(pair.same("eth_blockNumber", json!([])).await, "0x5");
}

/// Waits for anvil, which responds before the block exists. The devchain responds after.
async fn mined_on_anvil(pair: &Pair, hash: B256) {
    let mined = async {
        while pair.anvil.get("eth_getTransactionReceipt", json!([hash])).await.is_null() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, mined).await.unwrap();
}

#[tokio::test]
async fn interval_mining_can_be_switched_on_and_off() {
    let pair = Pair::start().await;
    pair.same("evm_setIntervalMining", json!([1])).await;
    // Disabling automine does not change an interval.
    pair.same("evm_setAutomine", json!([false])).await;
    grows(&pair).await;
    pair.same("evm_setIntervalMining", json!([0])).await;
    let mut still = Vec::new();
    for node in pair.nodes() {
        still.push(node.number().await);
    }
    // Wait three intervals: a block that was being mined when the interval ended would have appeared.
    tokio::time::sleep(Duration::from_secs(3)).await;
    for (node, before) in pair.nodes().into_iter().zip(still) {
        assert!(node.number().await <= before + 1, "{} continues to mine", node.name);
    }
    pair.malformed("evm_setIntervalMining", [json!([])]).await;
}

#[tokio::test]
async fn interval_mining_can_be_faster_than_a_second() {
    let pair = Pair::with(Mining::Interval(Duration::from_millis(100))).await;
    grows(&pair).await;
}

/// Waits for five more blocks on each node.
async fn grows(pair: &Pair) {
    for node in pair.nodes() {
        let wanted = node.number().await + 5;
        let grown = async {
            while node.number().await < wanted {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, grown).await.unwrap_or_else(|_| panic!("{} makes no blocks", node.name));
    }
}

/// The blocks of a reorg get other hashes, the blocks below keep theirs, and the transactions of the removed blocks are
/// gone.
#[tokio::test]
async fn a_reorg_replaces_blocks_and_drops_their_transactions() {
    let env = Env::new().await;
    let pair = &env.pair;
    let kept = env.pay(env.usdc, payee(1), 1).await;
    pair.mine().await;
    let mut lost = Vec::new();
    for units in [2, 3] {
        lost.push(env.pay(env.usdc, payee(1), units).await);
        pair.mine().await;
    }
    let balance = async || {
        let input = format!("0x70a08231{:0>64}", &payee(1).to_string()[2..]);
        pair.same("eth_call", json!([{"to": env.usdc, "data": input}, "latest"])).await
    };
    assert_eq!(quantity(&balance().await), 6);
    let mut before = Vec::new();
    for node in pair.nodes() {
        let mut hashes = Vec::new();
        for number in 0..=5 {
            hashes.push(node.hash_of(number).await);
        }
        before.push(hashes);
    }

    pair.same("anvil_reorg", json!([2, []])).await;
    pair.branch_off().await;

    for (node, before) in pair.nodes().into_iter().zip(before) {
        for (number, hash) in (0..).zip(&before) {
            assert_eq!(node.hash_of(number).await == *hash, number <= 3, "{}: block {number}", node.name);
        }
        let block = node.get("eth_getBlockByNumber", json!(["0x4", false])).await;
        assert_eq!(block["parentHash"], before[3], "{}", node.name);
        assert_eq!(block["transactions"], json!([]), "{}", node.name);
        assert_eq!(node.get("eth_getBlockByHash", json!([before[5], false])).await, Value::Null, "{}", node.name);
        let logs = node.call("eth_getLogs", json!([{"blockHash": before[4]}])).await;
        assert_eq!(logs.unwrap_err().message, "unknown block", "{}", node.name);
    }
    assert_eq!(quantity(&balance().await), 1);
    for hash in &lost {
        pair.same("eth_getTransactionReceipt", json!([hash])).await;
        pair.same("eth_getTransactionByHash", json!([hash])).await;
    }
    pair.same("eth_getTransactionReceipt", json!([kept])).await;
    pair.same("eth_getTransactionCount", json!([env.owner.address(), "latest"])).await;
    let logs = json!([{"fromBlock": "0x3", "address": env.usdc}]);
    assert_eq!(pair.same("eth_getLogs", logs).await.as_array().unwrap().len(), 1);
    // The new branch of the devchain is one block longer, because a longer branch is the reason for a reorg.
    assert_eq!((pair.anvil.number().await, pair.devchain.number().await), (5, 6));
}

/// On the devchain, set values persist over a reorg. On anvil, they are undone together with the block that was the
/// head.
#[tokio::test]
async fn a_reorg_undoes_set_values_only_on_anvil() {
    let pair = Pair::start().await;
    pair.mine().await;
    pair.fund(payee(5), U256::from(7)).await;
    pair.mine().await;
    pair.same("anvil_reorg", json!([2, []])).await;
    let set = |wei: &str| Expected::Is(json!(wei));
    let of = |who: Address| json!([who, "latest"]);
    pair.differs("eth_getBalance", of(payee(5)), &set("0x0"), &set("0x7")).await;
    for depth in [0, 1_000] {
        let refused = pair.both("anvil_reorg", async |_| json!([depth, []])).await;
        assert!(refused.iter().all(Result::is_err), "{refused:?}");
    }
}

#[tokio::test]
async fn reverts_to_snapshots() {
    let env = Env::new().await;
    let pair = &env.pair;
    let first = pair.same("evm_snapshot", json!([])).await;
    let paid = env.pay(env.usdc, payee(1), 1).await;
    pair.mine().await;
    let second = pair.same("evm_snapshot", json!([])).await;
    let third = pair.same("evm_snapshot", json!([])).await;
    let lost = env.pay(env.usdc, payee(1), 2).await;
    pair.mine().await;
    pair.fund(payee(5), U256::from(7)).await;
    let look = async || {
        for (method, params) in [
            ("eth_blockNumber", json!([])),
            ("eth_getBalance", json!([payee(5), "latest"])),
            ("eth_getTransactionCount", json!([env.owner.address(), "latest"])),
            ("eth_getTransactionReceipt", json!([paid])),
            ("eth_getTransactionReceipt", json!([lost])),
            ("eth_getLogs", json!([{"fromBlock": "0x1", "address": env.usdc}])),
        ] {
            pair.same(method, params).await;
        }
    };
    look().await;
    for (snapshot, exists) in
        [(&second, true), (&second, false), (&third, false), (&json!("0x77"), false), (&first, true)]
    {
        assert_eq!(pair.same("evm_revert", json!([snapshot])).await, exists, "{snapshot}");
        pair.branch_off().await;
        look().await;
    }
    pair.same("evm_snapshot", json!([])).await;
}
