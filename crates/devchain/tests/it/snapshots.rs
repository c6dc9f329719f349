//! `evm_snapshot` and `evm_revert`.

use alloy::primitives::{Address, Bytes, U256};
use alloy::rpc::types::Log;
use payferry_devchain::{ChainConfig, Devchain, Dropped};
use serde_json::{Value, json};

use crate::env::{Env, on_disk, payee};

impl Env {
    async fn snapshot(&self) -> Value {
        self.call("evm_snapshot", json!([])).await.unwrap()
    }

    async fn revert(&self, id: &Value) -> bool {
        self.call("evm_revert", json!([id])).await.unwrap()
    }

    /// Balances, nonce, and a stored value: everything that the tests change.
    async fn state(&self) -> Value {
        let tokens = [self.token_balance(payee(1), "latest").await, self.token_balance(payee(2), "latest").await];
        let code: Bytes = self.call("eth_getCode", json!([payee(8), "latest"])).await.unwrap();
        let slot: U256 = self.call("eth_getStorageAt", json!([payee(8), "0x1", "latest"])).await.unwrap();
        let nonce = self.nonce("latest").await;
        json!([self.chain.head(), tokens, nonce, self.balance(payee(9)).await, code, slot])
    }

    async fn set(&self, what: &str, of: Address, values: &[Value]) {
        let params: Vec<Value> = [json!(of)].iter().chain(values).cloned().collect();
        self.call::<Value>(what, json!(params)).await.unwrap();
    }

    async fn is_pending(&self, hash: alloy::primitives::B256) -> Option<bool> {
        let tx: Value = self.call("eth_getTransactionByHash", json!([hash])).await.unwrap();
        (!tx.is_null()).then(|| tx["blockHash"].is_null())
    }
}

#[tokio::test]
async fn a_revert_restores_the_chain_and_the_state() {
    let env = Env::new().await;
    env.pay(payee(1), 1).await;
    // Controls before the snapshot stay, although they are in no block yet.
    env.set("anvil_setBalance", payee(9), &[json!("0x7")]).await;
    env.set("anvil_setCode", payee(8), &[json!("0x60015f5260205ff3")]).await;
    let before = env.state().await;
    let id = env.snapshot().await;
    let gone = env.pay(payee(1), 10).await;
    env.pay(payee(2), 20).await;
    env.set("anvil_setBalance", payee(9), &[json!("0x8")]).await;
    env.set("anvil_setStorageAt", payee(8), &[json!("0x1"), json!(U256::from(5))]).await;
    env.set("anvil_setNonce", env.owner.address(), &[json!("0x99")]).await;
    assert!(env.revert(&id).await);
    assert_eq!(env.state().await, before);
    assert!(env.receipt(gone.transaction_hash).await.is_none());
    assert_eq!(env.is_pending(gone.transaction_hash).await, None, "it arrived after the snapshot");
    assert!(env.call::<Value>("eth_getBlockByHash", json!([gone.block_hash, false])).await.unwrap().is_null());
    assert!(!env.revert(&id).await, "a snapshot can be used once");
    // The chain continues, and a reorg keeps the control that precedes the snapshot.
    env.owner.set_nonce(env.nonce("latest").await);
    env.pay(payee(1), 100).await;
    env.chain.reorg(2, Dropped::Discard).await.unwrap();
    assert_eq!((env.token_balance(payee(1), "latest").await, env.balance(payee(9)).await), (0, 7));
}

#[tokio::test]
async fn a_revert_discards_later_snapshots() {
    let env = Env::new().await;
    let [first, second, third] = [env.snapshot().await, env.snapshot().await, env.snapshot().await];
    assert_eq!([&first, &second, &third], ["0x0", "0x1", "0x2"]);
    assert!(env.revert(&second).await);
    assert!(!env.revert(&third).await && !env.revert(&second).await);
    assert_eq!(env.snapshot().await, "0x3", "ids are not used again");
    assert!(!env.revert(&json!("0x7")).await);
    assert!(env.revert(&json!(0)).await);
    assert!(env.call::<Value>("evm_revert", json!([])).await.is_err());
}

#[tokio::test]
async fn a_revert_restores_the_mempool() {
    let env = Env::new().await;
    let before = env.transfer(payee(1), 1).await;
    env.call::<Value>("anvil_setNextBlockBaseFeePerGas", json!([5_000_000])).await.unwrap();
    let id = env.snapshot().await;
    env.chain.mine(1).await.unwrap();
    let (raw, after) = env.transfer_raw(payee(1), 2);
    env.send(&raw).await.unwrap();
    assert!(env.revert(&id).await);
    assert_eq!((env.is_pending(before).await, env.is_pending(after).await), (Some(true), None));
    assert_eq!(env.send(&raw).await, Ok(after), "it can be sent again");
    env.chain.mine(1).await.unwrap();
    let head = env.chain.head().number;
    assert_eq!(env.block(head).await["baseFeePerGas"], "0x4c4b40", "the base fee was set before the snapshot");
    assert_eq!(env.token_balance(payee(1), "latest").await, 3);
}

#[tokio::test]
async fn chain_time_does_not_go_back() {
    let env = Env::new().await;
    let id = env.snapshot().await;
    env.chain.advance_time(1_000_000, 100).await.unwrap();
    let advanced = env.chain.head().timestamp;
    assert!(env.revert(&id).await);
    assert_eq!(env.chain.time_offset_secs(), 1_000_000);
    assert!(env.chain.mine(1).await.unwrap()[0].timestamp >= advanced);
}

#[tokio::test]
async fn snapshots_survive_a_restart() {
    let (folder, config) = on_disk();
    let env = Env::with(config.clone()).await;
    let waiting = env.transfer(payee(1), 1).await;
    let id = env.snapshot().await;
    env.pay(payee(1), 10).await;
    let inner = env.snapshot().await;
    env.pay(payee(2), 20).await;
    assert!(env.revert(&inner).await);
    // The nonce of the removed payment.
    env.owner.set_nonce(env.nonce("pending").await);
    env.pay(payee(2), 40).await;
    let before = env.state().await;
    // Copied as a `kill -9` would leave it.
    let killed = folder.path().join("killed.chain");
    std::fs::copy(config.path.as_ref().unwrap(), &killed).unwrap();
    env.chain.close().await;
    drop(env);
    for path in [config.path.clone(), Some(killed)] {
        let config = ChainConfig { path, ..config.clone() };
        let env = Env::with(config.clone()).await;
        assert_eq!(env.state().await, before);
        assert!(!env.revert(&inner).await);
        assert!(env.revert(&id).await);
        assert_eq!(env.is_pending(waiting).await, Some(true));
        assert_eq!(env.token_balance(payee(2), "latest").await, 0);
        env.chain.mine(1).await.unwrap();
        assert!(env.receipt(waiting).await.unwrap().status());
        let after = env.state().await;
        env.chain.close().await;
        drop(env);
        let again = Env::with(config).await;
        assert_eq!(again.state().await, after);
        assert!(!again.revert(&id).await);
        assert_eq!(again.snapshot().await, "0x2");
    }
}

#[tokio::test]
async fn a_reorg_discards_snapshots_of_removed_blocks() {
    let env = Env::new().await;
    let kept = env.snapshot().await;
    env.chain.mine(2).await.unwrap();
    let lost = env.snapshot().await;
    env.chain.mine(1).await.unwrap();
    env.chain.reorg(2, Dropped::Discard).await.unwrap();
    assert!(!env.revert(&lost).await);
    assert!(env.revert(&kept).await);
}

#[tokio::test]
async fn the_number_of_snapshots_is_limited() {
    let env = Env::new().await;
    for _ in 0..100 {
        env.snapshot().await;
    }
    let error = env.call::<Value>("evm_snapshot", json!([])).await.unwrap_err();
    assert!(error.message.starts_with("there are 100 snapshots already"), "{error}");
    assert!(env.revert(&json!("0x63")).await);
    assert_eq!(env.snapshot().await, "0x64");
}

#[tokio::test]
async fn filters_report_the_logs_that_a_revert_removes() {
    let env = Env::new().await;
    let id = env.snapshot().await;
    let filter: Value = env.call("eth_newFilter", json!([env.transfers()])).await.unwrap();
    let changes = async || env.call::<Vec<Log>>("eth_getFilterChanges", json!([filter])).await.unwrap();
    let paid = env.pay(payee(1), 1).await;
    assert_eq!(changes().await.len(), 1);
    env.chain.mine(20).await.unwrap();
    assert!(env.revert(&id).await);
    let removed = changes().await;
    assert_eq!((removed.len(), removed[0].removed), (1, true));
    assert_eq!((removed[0].block_hash, removed[0].transaction_hash), (paid.block_hash, Some(paid.transaction_hash)));
    assert!(changes().await.is_empty());
}

/// Accepted transactions stay in the mempool or in a block, whatever reverts run at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_senders_and_reverts_match_the_file() {
    let (_folder, config) = on_disk();
    let env = Env::with(config.clone()).await;
    let sends = env.transfer_many(200);
    for _ in 0..10 {
        let id = env.snapshot().await;
        env.chain.mine(1).await.unwrap();
        assert!(env.revert(&id).await);
    }
    sends.join_all().await;
    let status = async |chain: &Devchain| chain.call("txpool_status", json!([])).await.unwrap();
    let (head, before) = (env.chain.head(), status(&env.chain).await);
    env.chain.close().await;
    let again = Devchain::open(config).await.unwrap();
    assert_eq!((again.head(), status(&again).await), (head, before));
}
