//! Filters that a client installs and polls.

use std::time::Duration;

use alloy::primitives::B256;
use alloy::providers::Provider;
use alloy::rpc::types::{Filter, Log};
use alloy::sol_types::SolEvent as _;
use payferry_contracts::Token;
use payferry_devchain::{Dropped, Faults};
use serde_json::{Value, json};

use crate::env::{Env, payee};

impl Env {
    async fn install(&self, method: &str, params: Value) -> Value {
        self.call(method, params).await.unwrap()
    }

    async fn changes(&self, id: &Value) -> Vec<Value> {
        self.call("eth_getFilterChanges", json!([id])).await.unwrap()
    }

    async fn log_changes(&self, id: &Value) -> Vec<Log> {
        self.call("eth_getFilterChanges", json!([id])).await.unwrap()
    }

    async fn refused(&self, method: &str, params: Value) -> (i64, String) {
        let error = self.call::<Value>(method, params).await.unwrap_err();
        (error.code, error.message)
    }
}

const NOT_FOUND: (i64, &str) = (-32_000, "filter not found");

fn hashes(logs: &[Log]) -> Vec<(Option<B256>, bool)> {
    logs.iter().map(|log| (log.transaction_hash, log.removed)).collect()
}

#[tokio::test]
async fn a_log_filter_reports_each_log_once() {
    let env = Env::new().await;
    env.pay(payee(1), 1).await;
    let of_payee = env.transfers().topic2(payee(1).into_word());
    let [all, one] = [env.transfers(), of_payee].map(|filter| json!([filter]));
    let (all, one) = (env.install("eth_newFilter", all).await, env.install("eth_newFilter", one).await);
    assert_ne!(all, one);
    assert!(env.log_changes(&all).await.is_empty(), "only logs after the installation count");
    let first = env.pay(payee(1), 2).await.transaction_hash;
    let second = env.pay(payee(2), 3).await.transaction_hash;
    let (seen, seen_one) = (env.log_changes(&all).await, env.log_changes(&one).await);
    assert_eq!(hashes(&seen), [(Some(first), false), (Some(second), false)]);
    assert_eq!(seen, env.logs(&env.transfers().select(3..)).await);
    assert_eq!(hashes(&seen_one), [(Some(first), false)]);
    assert!(env.log_changes(&all).await.is_empty());
    env.chain.mine(3).await.unwrap();
    assert!(env.log_changes(&all).await.is_empty());
}

#[tokio::test]
async fn after_a_reorg_removed_logs_precede_the_new_ones() {
    let env = Env::new().await;
    let id = env.install("eth_newFilter", json!([env.transfers()])).await;
    let fork = env.chain.head();
    let mut old = Vec::new();
    for payment in 1..=2 {
        // Two logs in one block.
        env.transfer(payee(1), payment).await;
        env.pay(payee(2), payment).await;
    }
    old.extend(env.log_changes(&id).await);
    assert_eq!(old.len(), 4);
    env.chain.reorg(2, Dropped::Remine).await.unwrap();
    env.chain.mine(1).await.unwrap();
    let changes = env.log_changes(&id).await;
    let (removed, added) = changes.split_at(4);
    let reversed: Vec<Log> = old.iter().rev().map(|log| Log { removed: true, ..log.clone() }).collect();
    assert_eq!(removed, reversed);
    assert_eq!(added, env.logs(&env.transfers().select(fork.number + 1..)).await);
    assert_eq!(added.len(), 4);
    assert!(added.iter().all(|log| !log.removed && log.block_number > old[3].block_number));
    assert!(env.log_changes(&id).await.is_empty());
}

#[tokio::test]
async fn blocks_that_come_and_go_between_two_polls_are_not_reported() {
    let env = Env::new().await;
    let logs = env.install("eth_newFilter", json!([env.transfers()])).await;
    let blocks = env.install("eth_newBlockFilter", json!([])).await;
    env.pay(payee(1), 1).await;
    env.chain.reorg(1, Dropped::Discard).await.unwrap();
    env.chain.reorg(2, Dropped::Discard).await.unwrap();
    assert!(env.log_changes(&logs).await.is_empty());
    let head = env.chain.head();
    let branch = [env.block(head.number - 2).await, env.block(head.number - 1).await, env.block(head.number).await];
    assert_eq!(env.changes(&blocks).await, branch.map(|block| block["hash"].clone()));
}

#[tokio::test]
async fn a_block_filter_reports_new_blocks_of_the_branch() {
    let env = Env::new().await;
    let id = env.install("eth_newBlockFilter", json!([])).await;
    let mined = env.chain.mine(3).await.unwrap();
    assert_eq!(env.changes(&id).await, mined.iter().map(|block| json!(block.hash)).collect::<Vec<_>>());
    let head = env.chain.reorg(2, Dropped::Discard).await.unwrap();
    let changes = env.changes(&id).await;
    assert_eq!((changes.len(), changes.last()), (3, Some(&json!(head.hash))));
    assert!(env.changes(&id).await.is_empty());
}

#[tokio::test]
async fn a_transaction_filter_reports_arrivals() {
    let env = Env::new().await;
    env.transfer(payee(1), 1).await;
    let ids = [json!([]), json!([false]), json!([true])];
    let [plain, explicit, full] = [
        env.install("eth_newPendingTransactionFilter", ids[0].clone()).await,
        env.install("eth_newPendingTransactionFilter", ids[1].clone()).await,
        env.install("eth_newPendingTransactionFilter", ids[2].clone()).await,
    ];
    let mined = env.pay(payee(1), 2).await.transaction_hash;
    let waiting = env.transfer(payee(1), 3).await;
    for id in [&plain, &explicit] {
        assert_eq!(env.changes(id).await, [json!(mined), json!(waiting)]);
        assert!(env.changes(id).await.is_empty());
    }
    let txs = env.changes(&full).await;
    assert_eq!(txs.iter().map(|tx| &tx["hash"]).collect::<Vec<_>>(), [&json!(mined), &json!(waiting)]);
    assert_eq!(txs[1]["to"], json!(env.token));
    // A reorg returns transactions to the mempool.
    env.chain.reorg(1, Dropped::Remine).await.unwrap();
    assert!(env.changes(&plain).await.contains(&json!(mined)));
}

#[tokio::test]
async fn a_range_limits_the_followed_blocks() {
    let env = Env::new().await;
    let next = env.chain.head().number + 1;
    let from = env.install("eth_newFilter", json!([env.transfers().from_block(next + 1)])).await;
    let between = env.install("eth_newFilter", json!([env.transfers().select(1..=next)])).await;
    env.pay(payee(1), 1).await;
    env.pay(payee(1), 2).await;
    let numbers = |logs: &[Log]| logs.iter().map(|log| log.block_number.unwrap()).collect::<Vec<_>>();
    assert_eq!(numbers(&env.log_changes(&from).await), [next + 1]);
    assert_eq!(numbers(&env.log_changes(&between).await), [next]);
    // All logs of the range, whatever was polled.
    let all: Vec<Log> = env.call("eth_getFilterLogs", json!([between])).await.unwrap();
    assert_eq!(all, env.logs(&env.transfers().select(1..=next)).await);
    assert_eq!(numbers(&all), [1, next], "the mint and one transfer");
}

#[tokio::test]
async fn a_lagging_head_delays_the_changes() {
    let env = Env::new().await;
    let provider = env.provider();
    env.chain.set_faults(Faults { head_lag_blocks: 2, ..Faults::default() });
    env.chain.mine(4).await.unwrap();
    let changes =
        async |id: &str| provider.raw_request::<_, Vec<B256>>("eth_getFilterChanges".into(), [id]).await.unwrap();
    let id: String = provider.raw_request("eth_newBlockFilter".into(), ()).await.unwrap();
    let mined = env.chain.mine(3).await.unwrap();
    assert_eq!(changes(&id).await.last(), Some(&mined[0].hash));
    env.chain.set_faults(Faults { head_lag_blocks: 5, ..Faults::default() });
    assert!(changes(&id).await.is_empty());
    env.chain.set_faults(Faults::default());
    assert_eq!(changes(&id).await, [mined[1].hash, mined[2].hash]);
    // The fork is before the new visible head and after it.
    env.chain.set_faults(Faults { head_lag_blocks: 3, ..Faults::default() });
    let head = env.chain.reorg(1, Dropped::Discard).await.unwrap();
    assert!(changes(&id).await.is_empty());
    env.chain.set_faults(Faults::default());
    let changed = changes(&id).await;
    assert_eq!((changed.len(), changed.last()), (2, Some(&head.hash)));
}

#[tokio::test]
async fn invalid_requests_are_refused() {
    let env = Env::new().await;
    let blocks = env.install("eth_newBlockFilter", json!([])).await;
    assert_eq!(env.call::<bool>("eth_uninstallFilter", json!([blocks])).await, Ok(true));
    assert_eq!(env.call::<bool>("eth_uninstallFilter", json!([blocks])).await, Ok(false));
    let not_found = (NOT_FOUND.0, NOT_FOUND.1.to_owned());
    for id in [&blocks, &json!("0x1")] {
        for method in ["eth_getFilterChanges", "eth_getFilterLogs"] {
            assert_eq!(env.refused(method, json!([id])).await, not_found);
        }
    }
    let blocks = env.install("eth_newBlockFilter", json!([])).await;
    assert_eq!(env.refused("eth_getFilterLogs", json!([blocks])).await, not_found);
    for method in ["eth_getFilterChanges", "eth_getFilterLogs", "eth_uninstallFilter"] {
        for params in [json!([]), json!(["x"]), json!([{}])] {
            assert_eq!(env.refused(method, params).await.0, -32_602);
        }
    }
    let range = "invalid block range params";
    let many: Vec<B256> = (0..600).map(|number: u64| B256::left_padding_from(&number.to_be_bytes())).collect();
    for (filter, message) in [
        (json!({"fromBlock": "0x5", "toBlock": "0x4"}), range),
        (json!({"toBlock": "0x4"}), range),
        (json!({"fromBlock": "safe"}), range),
        (json!({"fromBlock": "0x1", "toBlock": "pending"}), "pending logs are not supported"),
        (json!({"blockHash": B256::ZERO}), "invalid params: blockHash names one block: use eth_getLogs"),
        (
            json!({"topics": [many, many]}),
            "invalid params: the filter has 1200 addresses and topics, at most 1000 are possible",
        ),
    ] {
        assert_eq!(env.refused("eth_newFilter", json!([filter])).await, (-32_602, message.to_owned()));
    }
    assert_eq!(env.refused("eth_newFilter", json!([])).await.0, -32_602);
    assert_eq!(env.refused("eth_newPendingTransactionFilter", json!(["x"])).await.0, -32_602);
}

#[tokio::test]
async fn filters_without_polls_expire() {
    let env = Env::new().await;
    let [polled, idle] = [json!([]), json!([])].map(|params| env.install("eth_newBlockFilter", params));
    let (polled, idle) = (polled.await, idle.await);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(299)).await;
    env.changes(&polled).await;
    let logs = env.install("eth_newFilter", json!([Filter::new()])).await;
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(env.refused("eth_getFilterChanges", json!([idle])).await.1, NOT_FOUND.1);
    env.changes(&polled).await;
    // Reading all logs is not a poll.
    env.install("eth_getFilterLogs", json!([logs])).await;
    tokio::time::advance(Duration::from_secs(299)).await;
    assert_eq!(env.refused("eth_getFilterChanges", json!([logs])).await.1, NOT_FOUND.1);
    env.changes(&polled).await;
}

#[tokio::test]
async fn the_number_of_filters_is_limited() {
    let env = Env::new().await;
    let mut ids = std::collections::HashSet::new();
    for _ in 0..500 {
        ids.insert(env.install("eth_newBlockFilter", json!([])).await.to_string());
    }
    assert_eq!(ids.len(), 500);
    let (code, message) = env.refused("eth_newFilter", json!([{}])).await;
    assert_eq!((code, message.starts_with("there are 500 filters already")), (-32_005, true));
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(301)).await;
    env.install("eth_newFilter", json!([{"topics": [Token::Transfer::SIGNATURE_HASH]}])).await;
}
