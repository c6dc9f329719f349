use alloy::primitives::{Address, B256, Bytes, TxKind, U256};
use payferry_contracts::{CREATE2_DEPLOYER, create2_deploy_input, test_usdc_init_code};
use payferry_devchain::{ChainConfig, ChainError, Devchain, Dropped, Mining};
use serde_json::{Value, json};

use crate::world::{CHAIN_ID, GWEI, World, config, payee};

#[tokio::test]
async fn discarded_transactions_are_gone() {
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
    assert_eq!(world.logs(&world.transfers().select(0..)).await.len(), 2, "the mint and the kept transfer");

    // The branch is connected and every hash is new.
    let mut parent = fork;
    for number in fork.number + 1..=head.number {
        let block: Value = world.call("eth_getBlockByNumber", json!([format!("{number:#x}"), false])).await.unwrap();
        assert_eq!(block["parentHash"], json!(parent.hash));
        parent.hash = serde_json::from_value(block["hash"].clone()).unwrap();
        assert_ne!(Some(parent.hash), gone.block_hash);
        assert_ne!(parent.hash, old.hash);
    }
    // The nonce of the sender is available again.
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
async fn repeated_reorgs_have_different_hashes() {
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
async fn a_reorg_restores_the_state_and_keeps_controls() {
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

#[tokio::test]
async fn a_reorg_removes_a_contract_that_can_be_created_again() {
    let world = World::new().await;
    let init_code = test_usdc_init_code(payee(1));
    let address: Address = CREATE2_DEPLOYER.create2_from_code(B256::ZERO, &init_code);
    let has_code = async || world.call::<Bytes>("eth_getCode", json!([address, "latest"])).await.unwrap().len() > 2;
    for _ in 0..2 {
        let (raw, _) = world.owner.sign(alloy::consensus::TxEip1559 {
            chain_id: CHAIN_ID,
            nonce: world.nonce("latest").await,
            gas_limit: 3_000_000,
            max_fee_per_gas: GWEI,
            to: TxKind::Call(CREATE2_DEPLOYER),
            input: create2_deploy_input(B256::ZERO, &init_code),
            ..Default::default()
        });
        world.send(&raw).await.unwrap();
        world.chain.mine(1).await.unwrap();
        assert!(has_code().await);
        world.chain.reorg(1, Dropped::Discard).await.unwrap();
        assert!(!has_code().await);
    }
}

/// Payments, both kinds of reorgs, and restarts in random order: balances always match the branch.
#[tokio::test]
async fn a_random_walk_keeps_balances_consistent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("walk.chain");
    let at_path = ChainConfig { path: Some(path), ..config() };
    let mut world = World::with(at_path.clone()).await;
    let books = async |world: &World| {
        let mut books = [0; 3];
        for (number, book) in (1..).zip(&mut books) {
            *book = world.token_balance(payee(number), "latest").await;
        }
        books
    };
    let mut seed = 42_u64;
    let mut random = |sides: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % sides
    };
    // Balances at each block; the first one is block 1.
    let mut history = vec![books(&world).await];
    for _ in 0..150 {
        let before = world.chain.head().number;
        match random(10) {
            0 => {
                let depth = (1 + random(3)).min(before - 1);
                if depth > 0 {
                    world.chain.reorg(depth, Dropped::Discard).await.unwrap();
                    world.owner.set_nonce(world.nonce("latest").await);
                    history.truncate(usize::try_from(before - depth).unwrap());
                }
            }
            1 => {
                let depth = (1 + random(3)).min(before - 1);
                if depth > 0 {
                    let expected = books(&world).await;
                    world.chain.reorg(depth, Dropped::Remine).await.unwrap();
                    history.truncate(usize::try_from(before - depth).unwrap());
                    assert_eq!(books(&world).await, *history.last().unwrap());
                    history.resize(usize::try_from(before + 1).unwrap(), *history.last().unwrap());
                    world.chain.mine(1).await.unwrap();
                    assert_eq!(books(&world).await, expected);
                }
            }
            2 => {
                drop(world);
                world = World::with(at_path.clone()).await;
            }
            _ => {
                for _ in 0..random(4) {
                    let to = payee(1 + u8::try_from(random(3)).unwrap());
                    world.transfer(to, 1 + random(100)).await;
                }
                world.chain.mine(1).await.unwrap();
            }
        }
        let now = books(&world).await;
        let length = usize::try_from(world.chain.head().number).unwrap();
        if length > history.len() + 1 {
            assert_eq!(now, *history.last().unwrap(), "a discarded branch restores the earlier balances");
        }
        history.resize(length, now);
    }
    assert!(world.chain.head().number > 50);
}

/// Concurrent senders, blocks by interval, and reorgs: no accepted transaction is lost, and the file matches.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_senders_and_reorgs_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("race.chain");
    let mining = Mining::Interval(std::time::Duration::from_millis(2));
    let at_path = ChainConfig { path: Some(path), mining, ..config() };
    let world = World::with(at_path.clone()).await;
    world.chain.mine(2).await.unwrap();
    let mut sends = tokio::task::JoinSet::new();
    for _ in 0..300 {
        let (raw, _) = world.transfer_raw(payee(1), 1);
        let chain = world.chain.clone();
        sends.spawn(async move { chain.send_raw(raw).await.unwrap() });
    }
    for depth in [1, 2, 1, 1, 2, 1, 1, 1, 2, 1] {
        world.chain.reorg(depth, Dropped::Remine).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    }
    let hashes = sends.join_all().await;
    world.chain.mine(2).await.unwrap();
    world.chain.pause_mining();
    assert_eq!(world.token_balance(payee(1), "latest").await, 300);
    for hash in hashes {
        assert!(world.receipt(hash).await.unwrap().status());
    }
    world.chain.close().await;
    let head = world.chain.head();
    let again = Devchain::open(ChainConfig { mining: Mining::OnDemand, ..at_path }).await.unwrap();
    assert_eq!(again.head(), head);
}
