//! Reorged blocks.

use payferry_devchain::{Dropped, Wallet};
use payferry_domain::Finality;
use payferry_domain::payment::Presence;

use crate::env::{CHAIN_ID, Env, GWEI, report, stop};

#[tokio::test]
async fn dropped_transfer_is_orphaned_and_never_final() {
    let env = Env::new().await;
    let watcher = env.watch().await;
    let payment = env.payment().await;
    env.pay(payment, 5).await;
    env.read_all().await;
    let seen = env.inbox.observed(payment)[0];
    env.watchlist.await_finality(payment, seen.key, seen.revision, seen.block.number, Finality::Blocks(3));
    env.chain.mine(1).await.unwrap();
    env.read_all().await;
    env.chain.reorg(2, Dropped::Discard).await.unwrap();
    env.chain.mine(3).await.unwrap();
    env.read_all().await;
    let facts = env.inbox.observed(payment);
    let notified: Vec<_> = facts.iter().map(|fact| (fact.presence, fact.revision)).collect();
    assert_eq!(notified, [(Presence::Present, 1), (Presence::Orphaned, 2)]);
    assert_eq!(env.inbox.finalised(payment), 0);
    assert_eq!(report(&watcher).await.blocks_orphaned, 2);
    stop(watcher).await;
}

/// Mines the dropped transfer again behind another log, so that its log index changes too.
async fn remine_behind_another_log(env: &Env) {
    let stranger = Wallet::from_seed("stranger");
    env.chain.reorg(1, Dropped::Remine).await.unwrap();
    let input = alloy::sol_types::SolCall::abi_encode(&payferry_contracts::Token::approveCall {
        spender: stranger.address(),
        value: alloy::primitives::U256::from(1),
    });
    let to = payferry_evm::wallet::alloy_address(env.token);
    let (raw, _) = stranger.sign_call(CHAIN_ID, 0, to, input.into(), 200_000, GWEI, GWEI / 2);
    env.chain.send_raw(raw).await.unwrap();
    env.chain.mine(1).await.unwrap();
}

async fn assert_remined(env: &Env, payment: payferry_domain::PaymentId) {
    env.read_all().await;
    let facts = env.inbox.observed(payment);
    let [first, .., again] = facts.as_slice() else { panic!("{facts:?}") };
    assert!(facts.iter().any(|fact| fact.key == first.key && fact.presence == Presence::Orphaned));
    assert_eq!((first.key.log_index, again.key.log_index), (0, 1));
    assert_eq!((again.key.tx_hash, again.presence), (first.key.tx_hash, Presence::Present));
    assert!(again.block.number > first.block.number);
    assert_eq!(again.first_block_time, Some(first.block.time), "the first block time is kept");
    let present: Vec<_> = env.transfers().await.into_iter().filter(|row| row.presence == "present").collect();
    assert_eq!(present.len(), 1);
}

#[tokio::test]
async fn remined_transfer_gets_its_new_position() {
    let env = Env::new().await;
    let watcher = env.watch().await;
    let payment = env.payment().await;
    env.pay(payment, 5).await;
    env.read_all().await;
    remine_behind_another_log(&env).await;
    assert_remined(&env, payment).await;
    stop(watcher).await;
}

#[tokio::test]
async fn reorg_during_downtime_is_noticed_at_startup() {
    let env = Env::new().await;
    let watcher = env.watch().await;
    let payment = env.payment().await;
    env.pay(payment, 5).await;
    env.read_all().await;
    stop(watcher).await;
    remine_behind_another_log(&env).await;
    let watcher = env.watch().await;
    assert_remined(&env, payment).await;
    assert_eq!(report(&watcher).await.blocks_orphaned, 1);
    stop(watcher).await;
}

#[tokio::test]
async fn reorg_deeper_than_one_pass_finds_the_common_block() {
    let mut env = Env::new().await;
    env.spec.fallback_depth_blocks = 200;
    env.spec.has_finalized = false;
    let watcher = env.watch().await;
    let payment = env.payment().await;
    env.pay(payment, 5).await;
    env.chain.mine(60).await.unwrap();
    env.read_all().await;
    env.chain.reorg(61, Dropped::Remine).await.unwrap();
    env.chain.mine(1).await.unwrap();
    env.read_all().await;
    assert_eq!(report(&watcher).await.blocks_orphaned, 61);
    let facts = env.inbox.observed(payment);
    assert_eq!(facts.last().map(|fact| fact.presence), Some(Presence::Present));
    assert_eq!(env.transfers().await.iter().filter(|row| row.presence == "present").count(), 1);
    stop(watcher).await;
}
