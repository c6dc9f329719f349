use alloy::primitives::U256;
use payferry_devchain::{ChainConfig, ChainError, Dropped};
use serde_json::{Value, json};

use crate::world::{World, config, payee};

#[tokio::test]
async fn discarded_transactions_vanish() {
    let world = World::new().await;
    let kept = world.pay(payee(1), 1).await;
    let fork = world.chain.head();
    let gone = world.pay(payee(1), 10).await;
    let old = world.chain.mine(1).await.unwrap()[0];

    let head = world.chain.reorg(2, Dropped::Discard).await.unwrap();
    assert_eq!(head.number, old.number + 1);
    assert_eq!(head, world.chain.head());
    assert_eq!(world.token_balance(payee(1), "latest").await, 1);
    assert!(world.receipt(gone.transaction_hash).await.is_none());
    assert_eq!(world.receipt(kept.transaction_hash).await.unwrap(), kept);
    let lost = world.transfers().at_block_hash(gone.block_hash.unwrap());
    assert!(world.call::<Value>("eth_getLogs", json!([lost])).await.is_err());
    assert_eq!(world.logs(&world.transfers().select(0..)).await.len(), 2, "the mint and what was kept");

    // The branch hangs together and every hash is new.
    let mut parent = fork;
    for number in fork.number + 1..=head.number {
        let block: Value = world.call("eth_getBlockByNumber", json!([format!("{number:#x}"), false])).await.unwrap();
        assert_eq!(block["parentHash"], json!(parent.hash));
        parent.hash = serde_json::from_value(block["hash"].clone()).unwrap();
        assert_ne!(Some(parent.hash), gone.block_hash);
        assert_ne!(parent.hash, old.hash);
    }
    // The sender's nonce is free again.
    world.owner.set_nonce(world.nonce("latest").await);
    world.pay(payee(1), 100).await;
    assert_eq!(world.token_balance(payee(1), "latest").await, 101);
}

#[tokio::test]
async fn remined_transactions_move_to_another_block() {
    let world = World::new().await;
    let before = world.pay(payee(1), 10).await;
    world.chain.reorg(1, Dropped::Remine).await.unwrap();
    assert!(world.receipt(before.transaction_hash).await.is_none());
    assert_eq!(world.token_balance(payee(1), "latest").await, 0);
    world.chain.mine(1).await.unwrap();
    let after = world.receipt(before.transaction_hash).await.unwrap();
    assert_ne!(after.block_hash, before.block_hash);
    assert!(after.block_number > before.block_number);
    assert_eq!(world.token_balance(payee(1), "latest").await, 10);
    let logs = world.logs(&world.transfers().select(1..)).await;
    assert_eq!(logs.last().unwrap().block_hash, after.block_hash);
}

#[tokio::test]
async fn the_same_depth_twice_gives_other_hashes() {
    let world = World::new().await;
    world.chain.mine(3).await.unwrap();
    let first = world.chain.reorg(2, Dropped::Discard).await.unwrap();
    let second = world.chain.reorg(3, Dropped::Discard).await.unwrap();
    assert_eq!(second.number, first.number + 1);
    let block: Value =
        world.call("eth_getBlockByNumber", json!([format!("{:#x}", first.number), false])).await.unwrap();
    assert_ne!(block["hash"], json!(first.hash));
}

#[tokio::test]
async fn state_comes_back_whole_and_controls_hold() {
    let world = World::with(ChainConfig { history_blocks_max: 8, ..config() }).await;
    let read = async |block: u64| {
        let tag = format!("{block:#x}");
        let owner = world.owner.address();
        let nonce: U256 = world.call("eth_getTransactionCount", json!([owner, tag])).await.unwrap();
        let balance: U256 = world.call("eth_getBalance", json!([owner, tag])).await.unwrap();
        (nonce, balance, world.token_balance(payee(1), &tag).await)
    };
    world.pay(payee(1), 1).await;
    let fork = world.chain.head().number;
    let state = read(fork).await;
    for _ in 0..4 {
        world.pay(payee(1), 1).await;
        world.pay(payee(2), 1).await;
    }
    world.chain.set_balance(payee(9), U256::from(99)).await.unwrap();
    assert_eq!(world.chain.reorg(9, Dropped::Discard).await, Err(ChainError::TooDeep { depth: 9, depth_max: 8 }));
    let head = world.chain.reorg(8, Dropped::Discard).await.unwrap();
    assert_eq!(read(head.number).await, state);
    assert_eq!(world.token_balance(payee(2), "latest").await, 0);
    let balance: U256 = world.call("eth_getBalance", json!([payee(9), "latest"])).await.unwrap();
    assert_eq!(balance, U256::from(99));
    assert!(world.chain.reorg(0, Dropped::Discard).await.is_err());
}
