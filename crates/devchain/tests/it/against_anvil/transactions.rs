//! Accepted and rejected transactions, error messages, and the order in blocks. Where the nodes differ, the devchain
//! follows geth, whose mempool most endpoints use.

use alloy::consensus::{TxEip1559, TxEip2930, TxLegacy};
use alloy::primitives::{Address, Bytes, TxKind, U256};
use payferry_devchain::DevWallet;
use serde_json::{Value, json};

use super::env::{CHAIN_ID, GWEI, ether, payee, signed, tx};
use super::pair::{BLOCK_GAS_LIMIT, Expected, Pair};

const SEND: &str = "eth_sendRawTransaction";

async fn funded(seed: &str, wei: U256) -> (Pair, DevWallet) {
    let pair = Pair::start().await;
    let wallet = DevWallet::from_seed(seed);
    pair.fund(wallet.address(), wei).await;
    (pair, wallet)
}

async fn rich() -> (Pair, DevWallet) {
    funded("rich", ether(10)).await
}

async fn refuses(pair: &Pair, raw: &Bytes, anvil: (i64, &str), devchain: (i64, &str)) {
    pair.refused(SEND, json!([raw]), anvil, devchain).await;
}

async fn nonces(pair: &Pair, of: Address) -> [Value; 2] {
    let nonce = async |tag: &str| pair.same("eth_getTransactionCount", json!([of, tag])).await;
    [nonce("latest").await, nonce("pending").await]
}

fn fees(nonce: u64, max_fee: u128, tip: u128) -> TxEip1559 {
    TxEip1559 { max_fee_per_gas: max_fee, max_priority_fee_per_gas: tip, ..tx(nonce) }
}

#[tokio::test]
async fn rejects_known_transactions_and_low_nonces() {
    let (pair, rich) = rich().await;
    let first = rich.sign(tx(0)).0;
    pair.send(&first).await;
    let known = ((-32_003, "transaction already imported"), (-32_000, "already known"));
    refuses(&pair, &first, known.0, known.1).await;
    let gap = rich.sign(tx(5)).0;
    pair.send(&gap).await;
    refuses(&pair, &gap, known.0, known.1).await;
    pair.mine().await;
    let low = ((-32_003, "nonce too low"), (-32_000, "nonce too low: next nonce 1, tx nonce 0"));
    refuses(&pair, &first, low.0, low.1).await;
    refuses(&pair, &rich.sign(fees(0, 9 * GWEI, 9 * GWEI)).0, low.0, low.1).await;
}

#[tokio::test]
async fn replacement_requires_higher_fees() {
    let (pair, rich) = rich().await;
    let underpriced = (-32_003, "replacement transaction underpriced");
    let geth = (-32_000, "replacement transaction underpriced");
    let (fee, tip) = (4 * GWEI, GWEI);
    let first = pair.send(&rich.sign(fees(0, fee, tip)).0).await;
    let other = |tx: TxEip1559| rich.sign(TxEip1559 { value: U256::from(1), ..tx }).0;
    refuses(&pair, &other(fees(0, fee, tip)), underpriced, geth).await;
    refuses(&pair, &other(fees(0, fee - 1, tip)), underpriced, geth).await;
    refuses(&pair, &other(fees(0, fee, tip * 2)), underpriced, geth).await;
    // Like the settler: one eighth more of both fees.
    let raised = |times: u32| {
        let raise = |wei: u128| (0..times).fold(wei, |wei, _| wei * 1_125 / 1_000);
        rich.sign(TxEip1559 { value: U256::from(times), ..fees(0, raise(fee), raise(tip)) }).0
    };
    let second = pair.send(&raised(1)).await;
    let third = pair.send(&raised(2)).await;
    refuses(&pair, &rich.sign(fees(0, fee, tip)).0, underpriced, geth).await;
    assert_eq!(nonces(&pair, rich.address()).await, [json!("0x0"), json!("0x1")]);
    pair.mine().await;
    for hash in [first, second] {
        assert_eq!(pair.same("eth_getTransactionReceipt", json!([hash])).await, Value::Null);
        assert_eq!(pair.same("eth_getTransactionByHash", json!([hash])).await, Value::Null);
    }
    assert_eq!(pair.same("eth_getTransactionReceipt", json!([third])).await["status"], "0x1");
}

/// Geth requires both fees to be 10 % higher; anvil accepts any higher price.
#[tokio::test]
async fn rejects_replacements_that_anvil_accepts() {
    let raised = |percent: u128| (4 * GWEI * (100 + percent) / 100, GWEI * (100 + percent) / 100);
    let (nine, ten) = (raised(9), raised(10));
    for (max_fee, tip) in [nine, (nine.0, ten.1), (ten.0, nine.1), (8 * GWEI, GWEI)] {
        let (pair, rich) = rich().await;
        pair.send(&rich.sign(fees(0, 4 * GWEI, GWEI)).0).await;
        let (raw, hash) = rich.sign(fees(0, max_fee, tip));
        let underpriced = Expected::Refused(-32_000, "replacement transaction underpriced");
        pair.differs(SEND, json!([raw]), &Expected::Is(json!(hash)), &underpriced).await;
    }
    let (pair, rich) = rich().await;
    pair.send(&rich.sign(fees(0, 4 * GWEI, GWEI)).0).await;
    pair.send(&rich.sign(fees(0, ten.0, ten.1)).0).await;
}

#[tokio::test]
async fn rejects_senders_without_funds() {
    // One transaction costs 600,000 gwei here, and the account holds a little more.
    let (pair, poor) = funded("poor", U256::from(GWEI) * U256::from(700_000)).await;
    let nobody = DevWallet::from_seed("nobody");
    let words = "insufficient funds for gas * price + value: balance 0, tx cost 600000000000000";
    let insufficient = (-32_003, "Insufficient funds for gas * price + value");
    refuses(&pair, &nobody.sign(tx(0)).0, insufficient, (-32_000, words)).await;
    let value = poor.sign(TxEip1559 { value: ether(1), ..tx(0) }).0;
    refuses(&pair, &value, insufficient, (-32_000, "insufficient funds for gas * price + value: balance 7")).await;
    pair.send(&poor.sign(tx(0)).0).await;
    // Geth and the devchain include pending transactions; anvil does not.
    let (raw, hash) = poor.sign(tx(1));
    let geth = Expected::Refused(-32_000, "insufficient funds for gas * price + value");
    pair.differs(SEND, json!([raw]), &Expected::Is(json!(hash)), &geth).await;
}

#[tokio::test]
async fn rejects_transactions_that_fit_no_block() {
    let (pair, rich) = rich().await;
    let raw = |tx: TxEip1559| rich.sign(tx).0;
    let other_chain = raw(TxEip1559 { chain_id: 1, ..tx(0) });
    let chain = "invalid chain id for signer: have 1 want 8453";
    refuses(&pair, &other_chain, (-32_003, "invalid chain id for signer"), (-32_000, chain)).await;
    let block = raw(TxEip1559 { gas_limit: BLOCK_GAS_LIMIT + 1, ..tx(0) });
    let anvil = (-32_000, "intrinsic gas too high -- tx.gas_limit > env.block.gas_limit");
    refuses(&pair, &block, anvil, (-32_000, "exceeds block gas limit")).await;
    let anvil = (-32_000, "intrinsic gas too low");
    let gas = "intrinsic gas too low: gas 20999, minimum needed 21000";
    refuses(&pair, &raw(TxEip1559 { gas_limit: 20_999, ..tx(0) }), anvil, (-32_000, gas)).await;
    let tip = raw(fees(0, 2 * GWEI, 3 * GWEI));
    let words = "max priority fee per gas higher than max fee per gas";
    refuses(&pair, &tip, (-32_003, words), (-32_000, words)).await;
    let create = TxEip1559 { to: TxKind::Create, gas_limit: 29_000_000, ..tx(0) };
    let large = raw(TxEip1559 { input: vec![0; 49_153].into(), ..create.clone() });
    let words = "max initcode size exceeded: code size 49153, limit 49152";
    refuses(&pair, &large, (-32_003, "max initcode size exceeded"), (-32_000, words)).await;
    pair.send(&raw(TxEip1559 { input: vec![0; 49_152].into(), ..create })).await;
}

#[tokio::test]
async fn rejects_undecodable_input() {
    let (pair, rich) = rich().await;
    let whole = rich.sign(tx(0)).0;
    let undecodable = ((-32_602, "Failed to decode transaction"), (-32_000, "rlp: transaction could not be decoded"));
    refuses(&pair, &"0xdeadbeef".parse().unwrap(), undecodable.0, undecodable.1).await;
    refuses(&pair, &whole.slice(..whole.len() - 1), undecodable.0, undecodable.1).await;
    refuses(&pair, &Bytes::new(), (-32_602, "Empty transaction data"), undecodable.1).await;
    let mut unsigned = whole.to_vec();
    let length = unsigned.len();
    unsigned[length - 32..].fill(0xff);
    let invalid = (-32_000, "invalid sender: invalid transaction v, r, s values");
    refuses(&pair, &unsigned.into(), (-32_602, "Failed to recover the signer"), invalid).await;
    pair.malformed(SEND, [json!([]), json!(["xyz"]), json!(["0x123"]), json!([5]), json!([null])]).await;
    // Anvil ignores trailing bytes.
    let (raw, hash) = rich.sign(tx(0));
    let followed = Bytes::from([&raw[..], &[0]].concat());
    let refused = Expected::Refused(-32_000, "rlp: input contains more than one value");
    pair.differs(SEND, json!([followed]), &Expected::Is(json!(hash)), &refused).await;
}

/// Anvil requires the current base fee and ignores the gas for data when it accepts a transaction. Geth waits for a
/// lower base fee, and rejects transactions that cannot be executed.
#[tokio::test]
async fn transactions_that_only_one_node_accepts() {
    let (pair, rich) = rich().await;
    let (raw, hash) = rich.sign(fees(0, 100, 1));
    let below = Expected::Refused(-32_003, "max fee per gas less than block base fee");
    pair.differs(SEND, json!([raw]), &below, &Expected::Is(json!(hash))).await;
    pair.each("anvil_dropTransaction", json!([hash])).await;
    for (tx, words) in [
        (
            TxEip1559 { gas_limit: 21_000, input: vec![1].into(), ..tx(0) },
            "intrinsic gas too low: gas 21000, minimum needed 21040",
        ),
        // EIP-7623: minimum gas for data.
        (
            TxEip1559 { gas_limit: 30_000, input: vec![1; 500].into(), ..tx(1) },
            "intrinsic gas too low: gas 30000, minimum needed 41000",
        ),
    ] {
        let (raw, hash) = rich.sign(tx);
        pair.differs(SEND, json!([raw]), &Expected::Is(json!(hash)), &Expected::Refused(-32_000, words)).await;
    }
    let large = TxEip1559 { gas_limit: 29_000_000, input: vec![0; 131_073].into(), ..tx(2) };
    let (raw, hash) = rich.sign(large);
    let oversized = Expected::Refused(-32_000, "oversized data: transaction size 131191, limit 131072");
    pair.differs(SEND, json!([raw]), &Expected::Is(json!(hash)), &oversized).await;
}

#[tokio::test]
async fn a_nonce_gap_waits_and_is_promoted() {
    let (pair, rich) = rich().await;
    let mut hashes = Vec::new();
    for nonce in [3, 1] {
        hashes.push(pair.send(&rich.sign(tx(nonce)).0).await);
    }
    pair.mine().await;
    assert_eq!(nonces(&pair, rich.address()).await, [json!("0x0"), json!("0x0")]);
    pair.same("txpool_status", json!([])).await;
    hashes.push(pair.send(&rich.sign(tx(0)).0).await);
    assert_eq!(nonces(&pair, rich.address()).await, [json!("0x0"), json!("0x2")]);
    pair.same("txpool_status", json!([])).await;
    pair.mine().await;
    hashes.push(pair.send(&rich.sign(tx(2)).0).await);
    assert_eq!(nonces(&pair, rich.address()).await, [json!("0x2"), json!("0x4")]);
    pair.mine().await;
    assert_eq!(nonces(&pair, rich.address()).await, [json!("0x4"), json!("0x4")]);
    for hash in hashes {
        assert_eq!(pair.same("eth_getTransactionReceipt", json!([hash])).await["status"], "0x1");
    }
}

async fn three_senders() -> (Pair, [DevWallet; 3]) {
    let pair = Pair::start().await;
    let senders = ["one", "two", "three"].map(DevWallet::from_seed);
    for sender in &senders {
        pair.fund(sender.address(), ether(1)).await;
    }
    (pair, senders)
}

/// Ordered by tip across senders, and by nonce within one sender.
#[tokio::test]
async fn a_block_is_ordered_by_tip_and_nonce() {
    let (pair, senders) = three_senders().await;
    for (sender, gwei) in senders.iter().zip([1, 3, 2]) {
        pair.send(&sender.sign(fees(0, (4 + gwei) * GWEI, gwei * GWEI)).0).await;
        pair.send(&sender.sign(fees(1, 9 * GWEI, 4 * GWEI)).0).await;
    }
    pair.mine().await;
    let block = pair.same("eth_getBlockByNumber", json!(["latest", false])).await;
    assert_eq!(block["transactions"].as_array().unwrap().len(), 6);
    // The block ends at its gas limit; the rest is in the next block.
    for sender in &senders {
        let tx = TxEip1559 { gas_limit: 12_000_000, ..fees(2, 9 * GWEI, GWEI) };
        pair.send(&sender.sign(tx).0).await;
    }
    pair.mine().await;
    pair.mine().await;
    for tag in ["0x2", "0x3"] {
        pair.same("eth_getBlockByNumber", json!([tag, false])).await;
    }
}

/// Anvil orders by the maximum price, not by the tip.
#[tokio::test]
async fn a_block_is_ordered_by_tip_not_by_price() {
    let (pair, senders) = three_senders().await;
    let mut hashes = Vec::new();
    for (sender, (price, tip)) in senders.iter().zip([(9, 1), (8, 3), (7, 2)]) {
        hashes.push(pair.send(&sender.sign(fees(0, price * GWEI, tip * GWEI)).0).await);
    }
    pair.mine().await;
    let blocks = pair.each("eth_getBlockByNumber", json!(["0x1", false])).await;
    let [anvil, devchain] = blocks.map(|mut block| block["transactions"].take());
    assert_eq!((anvil, devchain), (json!(hashes), json!([hashes[1], hashes[2], hashes[0]])));
}

#[tokio::test]
async fn accepts_all_transaction_types() {
    let (pair, rich) = rich().await;
    let value = U256::from(7);
    let plain = |nonce, chain_id| {
        let (gas_price, gas_limit, to) = (2 * GWEI, 21_000, payee(3).into());
        signed(&rich, TxLegacy { chain_id, nonce, gas_price, gas_limit, to, value, input: Bytes::new() })
    };
    let (gas_price, gas_limit, to) = (2 * GWEI, 60_000, payee(3).into());
    let listed = TxEip2930 { chain_id: CHAIN_ID, nonce: 2, gas_price, gas_limit, to, value, ..TxEip2930::default() };
    let mut hashes = Vec::new();
    for raw in [plain(0, Some(CHAIN_ID)), plain(1, None), signed(&rich, listed), rich.sign(tx(3)).0] {
        hashes.push(pair.send(&raw).await);
    }
    pair.mine().await;
    for (hash, kind) in hashes.into_iter().zip(["0x0", "0x0", "0x1", "0x2"]) {
        assert_eq!(pair.same("eth_getTransactionReceipt", json!([hash])).await["type"], kind);
        assert_eq!(pair.same("eth_getTransactionByHash", json!([hash])).await["type"], kind);
    }
    // Anvil checks the chain id only of typed transactions.
    let other_chain = plain(4, Some(1));
    let hash = Expected::Is(json!(alloy::primitives::keccak256(&other_chain)));
    pair.differs(SEND, json!([other_chain]), &hash, &Expected::Refused(-32_000, "invalid chain id for signer")).await;
}
