use alloy::primitives::{Address, B256, Bytes, TxKind, U256};
use payferry_contracts::{CREATE2_DEPLOYER, create2_deploy_input, test_usdc_init_code};
use payferry_devchain::{ChainConfig, ChainError, Devchain, Dropped, Mining};
use serde_json::{Value, json};

use crate::env::{CHAIN_ID, Env, GWEI, config, on_disk, payee};

#[tokio::test]
async fn discarded_transactions_are_gone() {
    let env = Env::new().await;
    let kept = env.pay(payee(1), 1).await;
    let fork = env.chain.head();
    let gone = env.pay(payee(1), 10).await;
    let old = env.chain.mine(1).await.unwrap()[0];

    let head = env.chain.reorg(2, Dropped::Discard).await.unwrap();
    assert_eq!(head.number, old.number + 1);
    assert_eq!(head, env.chain.head());
    assert_eq!(env.token_balance(payee(1), "latest").await, 1);
    assert!(env.receipt(gone.transaction_hash).await.is_none());
    assert_eq!(env.receipt(kept.transaction_hash).await.unwrap(), kept);
    let lost = env.transfers().at_block_hash(gone.block_hash.unwrap());
    assert!(env.call::<Value>("eth_getLogs", json!([lost])).await.is_err());
    assert_eq!(env.logs(&env.transfers().select(0..)).await.len(), 2, "the mint and the kept transfer");

    // The branch is connected and every hash is new.
    let mut parent = fork;
    for number in fork.number + 1..=head.number {
        let block = env.block(number).await;
        assert_eq!(block["parentHash"], json!(parent.hash));
        parent.hash = serde_json::from_value(block["hash"].clone()).unwrap();
        assert_ne!(Some(parent.hash), gone.block_hash);
        assert_ne!(parent.hash, old.hash);
    }
    // The nonce of the sender is available again.
    env.owner.set_nonce(env.nonce("latest").await);
    env.pay(payee(1), 100).await;
    assert_eq!(env.token_balance(payee(1), "latest").await, 101);
}

#[tokio::test]
async fn remined_transactions_move_to_another_block() {
    let env = Env::new().await;
    let before = env.pay(payee(1), 10).await;
    env.chain.reorg(1, Dropped::Remine).await.unwrap();
    assert!(env.receipt(before.transaction_hash).await.is_none());
    assert_eq!(env.token_balance(payee(1), "latest").await, 0);
    env.chain.mine(1).await.unwrap();
    let after = env.receipt(before.transaction_hash).await.unwrap();
    assert_ne!(after.block_hash, before.block_hash);
    assert!(after.block_number > before.block_number);
    assert_eq!(env.token_balance(payee(1), "latest").await, 10);
    let logs = env.logs(&env.transfers().select(1..)).await;
    assert_eq!(logs.last().unwrap().block_hash, after.block_hash);
}

#[tokio::test]
async fn repeated_reorgs_have_different_hashes() {
    let env = Env::new().await;
    env.chain.mine(3).await.unwrap();
    let first = env.chain.reorg(2, Dropped::Discard).await.unwrap();
    let second = env.chain.reorg(3, Dropped::Discard).await.unwrap();
    assert_eq!(second.number, first.number + 1);
    assert_ne!(env.block(first.number).await["hash"], json!(first.hash));
}

#[tokio::test]
async fn a_reorg_restores_the_state_and_keeps_controls() {
    let env = Env::with(ChainConfig { history_blocks_max: 8, ..config() }).await;
    let read = async |block: u64| {
        let tag = format!("{block:#x}");
        let owner = env.owner.address();
        let nonce: U256 = env.call("eth_getTransactionCount", json!([owner, tag])).await.unwrap();
        let balance: U256 = env.call("eth_getBalance", json!([owner, tag])).await.unwrap();
        (nonce, balance, env.token_balance(payee(1), &tag).await)
    };
    env.pay(payee(1), 1).await;
    let fork = env.chain.head().number;
    let state = read(fork).await;
    for _ in 0..4 {
        env.pay(payee(1), 1).await;
        env.pay(payee(2), 1).await;
    }
    env.chain.set_balance(payee(9), U256::from(99)).await.unwrap();
    assert_eq!(env.chain.reorg(9, Dropped::Discard).await, Err(ChainError::TooDeep { depth: 9, depth_max: 8 }));
    let head = env.chain.reorg(8, Dropped::Discard).await.unwrap();
    assert_eq!(read(head.number).await, state);
    assert_eq!(env.token_balance(payee(2), "latest").await, 0);
    assert_eq!(env.balance(payee(9)).await, 99);
    assert!(env.chain.reorg(0, Dropped::Discard).await.is_err());
}

#[tokio::test]
async fn a_reorg_removes_a_contract_that_can_be_created_again() {
    let env = Env::new().await;
    let init_code = test_usdc_init_code(payee(1));
    let address: Address = CREATE2_DEPLOYER.create2_from_code(B256::ZERO, &init_code);
    let has_code = async || env.call::<Bytes>("eth_getCode", json!([address, "latest"])).await.unwrap().len() > 2;
    for _ in 0..2 {
        let (raw, _) = env.owner.sign(alloy::consensus::TxEip1559 {
            chain_id: CHAIN_ID,
            nonce: env.nonce("latest").await,
            gas_limit: 3_000_000,
            max_fee_per_gas: GWEI,
            to: TxKind::Call(CREATE2_DEPLOYER),
            input: create2_deploy_input(B256::ZERO, &init_code),
            ..Default::default()
        });
        env.send(&raw).await.unwrap();
        env.chain.mine(1).await.unwrap();
        assert!(has_code().await);
        env.chain.reorg(1, Dropped::Discard).await.unwrap();
        assert!(!has_code().await);
    }
}

/// Payments, both kinds of reorgs, and restarts in random order: balances always match the branch.
#[tokio::test]
async fn a_random_walk_keeps_balances_consistent() {
    let (_folder, at_path) = on_disk();
    let mut env = Env::with(at_path.clone()).await;
    let books = async |env: &Env| {
        let mut books = [0; 3];
        for (number, book) in (1..).zip(&mut books) {
            *book = env.token_balance(payee(number), "latest").await;
        }
        books
    };
    let mut seed = 42_u64;
    let mut random = |sides: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % sides
    };
    // Balances at each block; the first one is block 1.
    let mut history = vec![books(&env).await];
    for _ in 0..150 {
        let before = env.chain.head().number;
        match random(10) {
            0 => {
                let depth = (1 + random(3)).min(before - 1);
                if depth > 0 {
                    env.chain.reorg(depth, Dropped::Discard).await.unwrap();
                    env.owner.set_nonce(env.nonce("latest").await);
                    history.truncate(usize::try_from(before - depth).unwrap());
                }
            }
            1 => {
                let depth = (1 + random(3)).min(before - 1);
                if depth > 0 {
                    let expected = books(&env).await;
                    env.chain.reorg(depth, Dropped::Remine).await.unwrap();
                    history.truncate(usize::try_from(before - depth).unwrap());
                    assert_eq!(books(&env).await, *history.last().unwrap());
                    history.resize(usize::try_from(before + 1).unwrap(), *history.last().unwrap());
                    env.chain.mine(1).await.unwrap();
                    assert_eq!(books(&env).await, expected);
                }
            }
            2 => {
                drop(env);
                env = Env::with(at_path.clone()).await;
            }
            _ => {
                for _ in 0..random(4) {
                    let to = payee(1 + u8::try_from(random(3)).unwrap());
                    env.transfer(to, 1 + random(100)).await;
                }
                env.chain.mine(1).await.unwrap();
            }
        }
        let now = books(&env).await;
        let length = usize::try_from(env.chain.head().number).unwrap();
        if length > history.len() + 1 {
            assert_eq!(now, *history.last().unwrap(), "a discarded branch restores the earlier balances");
        }
        history.resize(length, now);
    }
    assert!(env.chain.head().number > 50);
}

/// Concurrent senders, blocks by interval, and reorgs: no accepted transaction is lost, and the file matches.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_senders_and_reorgs_lose_nothing() {
    let (_folder, config) = on_disk();
    let at_path = ChainConfig { mining: Mining::Interval(std::time::Duration::from_millis(2)), ..config };
    let env = Env::with(at_path.clone()).await;
    env.chain.mine(2).await.unwrap();
    let sends = env.transfer_many(300);
    for depth in [1, 2, 1, 1, 2, 1, 1, 1, 2, 1] {
        env.chain.reorg(depth, Dropped::Remine).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    }
    let hashes = sends.join_all().await;
    env.chain.mine(2).await.unwrap();
    env.chain.pause_mining();
    assert_eq!(env.token_balance(payee(1), "latest").await, 300);
    for hash in hashes {
        assert!(env.receipt(hash).await.unwrap().status());
    }
    env.chain.close().await;
    let head = env.chain.head();
    let again = Devchain::open(ChainConfig { mining: Mining::OnDemand, ..at_path }).await.unwrap();
    assert_eq!(again.head(), head);
}
