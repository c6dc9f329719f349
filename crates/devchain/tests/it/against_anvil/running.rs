//! Calls, gas estimates, and fees.

use alloy::primitives::{Address, B256, Bytes, U256, hex, keccak256};
use alloy::sol_types::{Panic, PanicKind, Revert, SolCall, SolError};
use payferry_contracts::{ITEM_GAS, Payferry, SettleItem, Token, payment_salt, test_usdc_init_code, vault_address};
use payferry_devchain::DevWallet;
use serde_json::json;

use super::env::{Env, GWEI, ether, payee};
use super::pair::{BLOCK_GAS_LIMIT, Expected, quantity};

const FEES: [&str; 2] = ["eth_call", "eth_estimateGas"];

/// Reverts with its call data.
const REVERTER: Address = Address::repeat_byte(0xa1);
/// Loops forever.
const LOOPER: Address = Address::repeat_byte(0xa2);
/// Returns block number, timestamp, base fee, gas limit, chain id, and its own balance.
const TELLER: Address = Address::repeat_byte(0xa3);
/// INVALID, and an undefined opcode.
const INVALID: Address = Address::repeat_byte(0xa4);
const UNKNOWN_OPCODE: Address = Address::repeat_byte(0xa5);

async fn env() -> Env {
    let env = Env::new().await;
    for (address, code) in [
        (REVERTER, "0x365f5f37365ffd"),
        (LOOPER, "0x5b5f56"),
        (TELLER, "0x435f52426020524860405245606052466080524760a05260c05ff3"),
        (INVALID, "0xfe"),
        (UNKNOWN_OPCODE, "0x0c"),
    ] {
        env.pair.each("anvil_setCode", json!([address, code])).await;
    }
    env.pay(env.usdc, payee(1), 5).await;
    env.pair.mine().await;
    env
}

fn balance_of(account: Address) -> Bytes {
    Token::balanceOfCall { account }.abi_encode().into()
}

fn transfer(to: Address, units: u64) -> Bytes {
    Token::transferCall { to, value: U256::from(units) }.abi_encode().into()
}

#[tokio::test]
async fn successful_calls_are_equal() {
    let env = env().await;
    let pair = &env.pair;
    let (me, usdc) = (env.owner.address(), env.usdc);
    for request in [
        json!({"to": usdc, "data": balance_of(me)}),
        json!({"to": usdc, "input": balance_of(me)}),
        json!({"to": usdc, "input": balance_of(me), "data": balance_of(me)}),
        json!({"to": payee(9), "data": "0x01020304"}),
        json!({"to": payee(9)}),
        json!({"from": payee(50), "to": payee(9)}),
        json!({"from": usdc, "to": payee(9)}),
        json!({"from": me, "to": usdc, "data": transfer(payee(1), 5)}),
        json!({"from": me, "to": usdc, "data": transfer(payee(77), 5)}),
        json!({"from": me, "to": env.usdt, "data": transfer(payee(77), 5)}),
        json!({"from": me, "to": payee(9), "value": "0x5", "gas": "0x5208"}),
        json!({"from": me, "to": payee(9), "maxFeePerGas": "0xee6b2800", "maxPriorityFeePerGas": "0x1"}),
        json!({"from": me, "to": payee(9), "gasPrice": "0xee6b2800"}),
        json!({"from": me, "to": payee(9), "nonce": "0x0"}),
        json!({"from": me, "to": payee(9), "chainId": "0x2105"}),
        json!({"from": me, "data": test_usdc_init_code(me)}),
        json!({"from": me, "data": test_usdc_init_code(me), "to": null}),
        json!({"to": TELLER}),
        json!({"to": TELLER, "gas": "0x7fffffffffff"}),
    ] {
        for method in FEES {
            let answer = pair.same(method, json!([request, "latest"])).await;
            assert!(answer.is_string(), "{method} {request}");
        }
        pair.same("eth_call", json!([request])).await;
        pair.same("eth_call", json!([request, null])).await;
    }
    // Older blocks: the payee has a balance from block 3, the token exists from block 1.
    for tag in ["0x0", "0x1", "0x2", "0x3", "earliest", "latest"] {
        pair.same("eth_call", json!([{"to": usdc, "data": balance_of(payee(1))}, tag])).await;
    }
    let at_hash = async |node: &super::pair::Node| json!([{"to": usdc, "data": balance_of(payee(1))}, {"blockHash": node.hash_of(2).await}]);
    assert_eq!(pair.same_at("eth_call", at_hash).await, json!(B256::ZERO));
}

#[tokio::test]
async fn reverted_calls_are_equal() {
    let env = env().await;
    let pair = &env.pair;
    let revert = Revert { reason: "not today".to_owned() }.abi_encode();
    let panic = Panic::from(PanicKind::UnderOverflow).abi_encode();
    let words = ["execution reverted: not today", "execution reverted: panic: arithmetic underflow or overflow (0x11)"];
    for method in FEES {
        for (data, words) in [&revert, &panic].into_iter().zip(words) {
            let params = json!([{"to": REVERTER, "data": hex::encode_prefixed(data)}, "latest"]);
            pair.same(method, params.clone()).await;
            pair.refused(method, params, (3, words), (3, words)).await;
        }
        pair.same(method, json!([{"to": REVERTER}, "latest"])).await;
        // Insufficient token balance: USDC returns a reason, USDT panics.
        for token in [env.usdc, env.usdt] {
            pair.same(method, json!([{"from": payee(50), "to": token, "data": transfer(payee(1), 5)}, "latest"])).await;
        }
        // A custom error: anvil also names it in the message. The data is equal, which is sufficient.
        let custom = (3, "execution reverted");
        let settle = Bytes::from(Payferry::settleCall { items: Vec::new(), itemGas: ITEM_GAS }.abi_encode());
        let stranger = json!([{"from": payee(50), "to": env.payferry, "data": settle}, "latest"]);
        let [anvil, devchain] = pair.both(method, async |_| stranger.clone()).await.map(Result::unwrap_err);
        assert_eq!(anvil.data, devchain.data);
        assert_eq!(devchain.data, Some(json!(hex::encode_prefixed(&keccak256("NotSettler()")[..4]))));
        pair.refused(method, stranger, (3, "execution reverted: custom error 0x05b94333"), custom).await;
    }
}

/// Both reject, with different messages. The devchain's messages are geth's.
#[tokio::test]
async fn failing_calls_are_rejected_with_geth_messages() {
    let env = env().await;
    let pair = &env.pair;
    let me = env.owner.address();
    let to = |to: Address| json!([{"to": to}, "latest"]);
    pair.refused("eth_call", to(LOOPER), (-32_603, "EVM error OutOfGas"), (-32_000, "out of gas")).await;
    let little = json!([{"to": LOOPER, "gas": "0xffff"}, "latest"]);
    pair.refused("eth_call", little, (-32_603, "EVM error OutOfGas"), (-32_000, "out of gas")).await;
    for (gas, request) in [(BLOCK_GAS_LIMIT, json!({"to": LOOPER})), (0xffff, json!({"to": LOOPER, "gas": "0xffff"}))] {
        let anvil = format!("Out of gas: gas required exceeds allowance: {gas}");
        let devchain = format!("gas required exceeds allowance ({gas})");
        let (anvil, devchain) = ((-32_003, anvil.as_str()), (-32_000, devchain.as_str()));
        pair.refused("eth_estimateGas", json!([request, "latest"]), anvil, devchain).await;
    }
    for method in FEES {
        let invalid = (-32_000, "invalid opcode");
        pair.refused(method, to(INVALID), (-32_603, "EVM error InvalidFEOpcode"), invalid).await;
        pair.refused(method, to(UNKNOWN_OPCODE), (-32_603, "EVM error OpcodeNotFound"), invalid).await;
        pair.malformed(
            method,
            [json!([]), json!({"to": me}), json!([{"to": "0x12"}]), json!([{"to": me}, 1]), json!([5])],
        )
        .await;
    }
    let poor = (-32_000, "insufficient funds for gas * price + value: have 0 want ");
    let anvil = (-32_003, "Insufficient funds for gas * price + value");
    for request in [json!({"value": "0x1"}), json!({"gasPrice": "0xee6b2800", "gas": "0x5208"})] {
        let mut request = request;
        request["from"] = json!(payee(50));
        request["to"] = json!(payee(9));
        pair.refused("eth_call", json!([request, "latest"]), anvil, poor).await;
    }
    let other_chain = json!([{"from": me, "to": payee(9), "chainId": "0x1"}, "latest"]);
    let own = (-32_000, "chainId does not match node's (have=1, want=8453)");
    pair.refused("eth_call", other_chain, (-32_003, "invalid chain id for signer"), own).await;
    let little_gas = json!([{"from": me, "to": payee(9), "gas": "0x5207"}, "latest"]);
    let geth = (-32_000, "intrinsic gas too low: have 20999, want 21000");
    pair.refused("eth_call", little_gas.clone(), (-32_000, "intrinsic gas too high"), geth).await;
    pair.same("eth_estimateGas", little_gas).await;
    let tip_above_fee =
        json!({"from": me, "to": payee(9), "maxFeePerGas": "0xee6b2800", "maxPriorityFeePerGas": "0xee6b2801"});
    let geth = (-32_000, "max priority fee per gas higher than max fee per gas");
    pair.refused("eth_call", json!([tip_above_fee, "latest"]), (-32_602, "Invalid input: `max_priority_fee"), geth)
        .await;
    let both = json!({"from": me, "to": payee(9), "gasPrice": "0xee6b2800", "maxPriorityFeePerGas": "0x1"});
    let geth = (-32_000, "both gasPrice and (maxFeePerGas or maxPriorityFeePerGas) specified");
    pair.refused("eth_call", json!([both, "latest"]), (-32_602, "Invalid input: `max_priority_fee"), geth).await;
}

/// Requests that geth and the devchain reject, but anvil accepts: a price below the base fee, an estimate for a sender
/// that cannot pay.
#[tokio::test]
async fn rejects_calls_that_anvil_accepts() {
    let env = env().await;
    let pair = &env.pair;
    let (me, to) = (env.owner.address(), payee(9));
    let cheap = json!([{"from": me, "to": to, "gasPrice": "0x1"}, "latest"]);
    let below = Expected::Refused(-32_000, "max fee per gas less than block base fee");
    pair.differs("eth_call", cheap.clone(), &Expected::Is(json!("0x")), &below).await;
    let enough = Expected::Is(json!("0x5208"));
    pair.differs("eth_estimateGas", cheap, &enough, &below).await;
    let value = json!([{"from": payee(50), "to": to, "value": "0x1"}, "latest"]);
    let poor = Expected::Refused(-32_000, "insufficient funds for transfer");
    pair.differs("eth_estimateGas", value, &enough, &poor).await;
    let price = json!([{"from": payee(50), "to": to, "gasPrice": "0xee6b2800"}, "latest"]);
    let allowance = Expected::Refused(-32_000, "gas required exceeds allowance (0)");
    pair.differs("eth_estimateGas", price, &enough, &allowance).await;
    let both = json!([{"from": me, "to": to, "gasPrice": "0xee6b2800", "maxPriorityFeePerGas": "0x1"}, "latest"]);
    let contradiction = Expected::Refused(-32_000, "both gasPrice and (maxFeePerGas or maxPriorityFeePerGas)");
    pair.differs("eth_estimateGas", both, &enough, &contradiction).await;
    // One parameter more than the method has.
    let surplus = Expected::Refused(-32_602, "invalid type: string \"x\", expected unit");
    pair.differs("eth_chainId", json!(["x"]), &surplus, &Expected::Is(json!("0x2105"))).await;
}

/// A call sees the environment of its block. On anvil, `pending` is the next block.
#[tokio::test]
async fn a_call_sees_the_environment_of_its_block() {
    let env = env().await;
    let number = async |node: &super::pair::Node, tag: &str| {
        let answer = node.get("eth_call", json!([{"to": TELLER}, tag])).await;
        quantity(&json!(answer.as_str().unwrap()[..66]))
    };
    assert_eq!((number(&env.pair.anvil, "pending").await, number(&env.pair.devchain, "pending").await), (4, 3));
    env.pair.mine().await;
    env.pair.mine().await;
    for tag in ["0x3", "0x4", "0x5", "safe", "latest"] {
        env.pair.same("eth_call", json!([{"to": TELLER}, tag])).await;
    }
}

/// A batch of settlements. Anvil searches for the exact minimum; the devchain stops at most 1.5 % above it, like geth.
/// Each result is sufficient on both.
#[tokio::test]
async fn estimates_of_batches_are_sufficient() {
    let env = env().await;
    let pair = &env.pair;
    let me = env.owner.address();
    let (psp, max_fee_bps) = (7, 100);
    for id in 0..20 {
        env.pay(env.usdc, vault_address(env.payferry, payment_salt(id, psp, max_fee_bps)), 100).await;
    }
    pair.mine().await;
    let item = |id: u128| SettleItem {
        id,
        paymentId: id,
        pspId: psp,
        maxFeeBps: max_fee_bps,
        token: env.usdc,
        amount: 100,
        fee: 1,
    };
    let settle = |count| Payferry::settleCall { items: (0..count).map(item).collect(), itemGas: ITEM_GAS };
    for count in [1, 5, 20] {
        let data = Bytes::from(settle(count).abi_encode());
        let request = json!({"from": me, "to": env.payferry, "data": data});
        pair.same("eth_call", json!([request, "latest"])).await;
        let answers = pair.each("eth_estimateGas", json!([request, "latest"])).await;
        let [anvil, devchain] = answers.map(|answer| quantity(&answer));
        assert!(anvil <= devchain && devchain * 1_000 <= anvil * 1_015, "{count}: anvil {anvil}, devchain {devchain}");
        for gas in [anvil, devchain] {
            let mut request = request.clone();
            request["gas"] = json!(format!("{gas:#x}"));
            pair.same("eth_call", json!([request, "latest"])).await;
        }
    }
    let raw = env.sign(alloy::consensus::TxEip1559 {
        to: env.payferry.into(),
        input: settle(20).abi_encode().into(),
        gas_limit: 8_000_000,
        ..env.tx()
    });
    let hash = pair.send(&raw).await;
    pair.mine().await;
    let receipt = pair.same("eth_getTransactionReceipt", json!([hash])).await;
    assert_eq!((&receipt["status"], receipt["logs"].as_array().unwrap().len()), (&json!("0x1"), 60));
}

#[tokio::test]
async fn fees_are_equal() {
    let env = env().await;
    let pair = &env.pair;
    let other = DevWallet::from_seed("other");
    pair.fund(other.address(), ether(1)).await;
    // A block with three different tips.
    for (nonce, tip) in [GWEI, 2 * GWEI, 3 * GWEI / 2].into_iter().enumerate() {
        let tx = super::env::tx(nonce as u64);
        let tx = alloy::consensus::TxEip1559 { max_fee_per_gas: 5 * GWEI, max_priority_fee_per_gas: tip, ..tx };
        pair.send(&other.sign(tx).0).await;
    }
    pair.mine().await;
    pair.mine().await;
    pair.mine().await;
    for method in ["eth_gasPrice", "eth_maxPriorityFeePerGas"] {
        pair.same(method, json!([])).await;
    }
    for params in [
        json!(["0x6", "latest", [10.0, 50.0, 90.0]]),
        json!(["0x6", "latest", [0.0, 25.0, 75.0, 100.0]]),
        json!([6, "latest", [50.0]]),
        json!(["0x1", "latest", [50.0]]),
        json!(["0x0", "latest", [50.0]]),
        json!(["0x2", "latest", [50]]),
        json!(["0x3", "pending", [50]]),
    ] {
        pair.same("eth_feeHistory", params).await;
    }
    // More blocks than exist: block 0, whose base fee differs, comes first.
    for count in ["0x7", "0x400", "0x401"] {
        let [mut anvil, mut devchain] = pair.each("eth_feeHistory", json!([count, "latest", [50]])).await;
        for history in [&mut anvil, &mut devchain] {
            history["baseFeePerGas"].as_array_mut().unwrap().remove(0);
        }
        assert_eq!(anvil, devchain);
        assert_eq!(devchain["oldestBlock"], "0x0");
    }
    pair.malformed(
        "eth_feeHistory",
        [json!([]), json!(["0x2"]), json!(["x", "latest", []]), json!(["0x2", "latest", ["x"]])],
    )
    .await;
}

/// Where anvil's fee history is wrong, the devchain returns the same as geth.
#[tokio::test]
async fn fee_history_follows_geth_where_anvil_is_wrong() {
    let env = env().await;
    let pair = &env.pair;
    pair.mine().await;
    let base_fee =
        async |tag: &str| pair.devchain.get("eth_getBlockByNumber", json!([tag, false])).await["baseFeePerGas"].take();
    // The last entry is the base fee after the newest requested block. Anvil always uses the one after the head.
    let [anvil, devchain] = pair.each("eth_feeHistory", json!(["0x2", "0x2", [50]])).await;
    assert_eq!(devchain["baseFeePerGas"][2], base_fee("0x3").await);
    assert_ne!(anvil["baseFeePerGas"][2], devchain["baseFeePerGas"][2]);
    assert_eq!(anvil["reward"], devchain["reward"]);
    // A third of the gas is in the first transaction, so at 33.4 % the tip of the second one counts. Anvil rounds.
    let other = DevWallet::from_seed("other");
    pair.fund(other.address(), ether(1)).await;
    for (nonce, tip) in [1, 2, 3].into_iter().enumerate() {
        let tx = super::env::tx(nonce as u64);
        pair.send(&other.sign(alloy::consensus::TxEip1559 { max_priority_fee_per_gas: tip, ..tx }).0).await;
    }
    pair.mine().await;
    let [anvil, devchain] = pair.each("eth_feeHistory", json!(["0x1", "latest", [33.4]])).await;
    assert_eq!((&anvil["reward"][0][0], &devchain["reward"][0][0]), (&json!("0x1"), &json!("0x2")));
    // `safe` is block 3, not block 0.
    let [anvil, devchain] = pair.each("eth_feeHistory", json!(["0x1", "safe", [50]])).await;
    assert_eq!((&anvil["oldestBlock"], &devchain["oldestBlock"]), (&json!("0x0"), &json!("0x3")));
    // Without percentiles there are no rewards; anvil returns an empty list.
    for params in [json!(["0x2", "latest", []]), json!(["0x2", "latest"])] {
        let [mut anvil, devchain] = pair.each("eth_feeHistory", params).await;
        assert_eq!(anvil.as_object_mut().unwrap().remove("reward"), Some(json!([])));
        assert_eq!(anvil, devchain);
    }
    // Blocks beyond the head, and invalid or non-increasing percentiles: anvil returns invented values.
    for (params, words) in [
        (json!(["0x2", "0x99", [50]]), "request beyond head block"),
        (json!(["0x2", "latest", [101]]), "invalid reward percentile: 101"),
        (json!(["0x2", "latest", [-1]]), "invalid reward percentile: -1"),
        (json!(["0x2", "latest", [90, 10]]), "invalid reward percentile: 10"),
        (json!(["0x2", "latest", [50, 50]]), "invalid reward percentile: 50"),
    ] {
        let [anvil, devchain] = pair.both("eth_feeHistory", async |_| params.clone()).await;
        anvil.unwrap();
        assert_eq!(devchain.unwrap_err().message, words);
    }
}
