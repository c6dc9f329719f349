//! Reorged blocks.

use alloy::primitives::U256;
use alloy::sol_types::SolCall;
use payferry_contracts::Token;
use payferry_devchain::Dropped;
use payferry_domain::payment::Presence;
use payferry_domain::{Finality, PaymentId};
use payferry_evm::wallet::alloy_address;

use super::env::Env;
use crate::env::{Coin, GWEI, PAYERS, account};

#[tokio::test]
async fn dropped_transfer_is_orphaned_and_never_final() {
    let env = Env::new().await;
    let payment = env.seen().await;
    let seen = env.inbox.observed(payment)[0];
    env.await_finality(payment, &seen, Finality::Blocks(3));
    env.mine_and_read(1).await;
    env.reorg(2, Dropped::Discard).await;
    env.mine_and_read(3).await;
    let facts = env.inbox.observed(payment);
    let notified: Vec<_> = facts.iter().map(|fact| (fact.presence, fact.revision)).collect();
    assert_eq!(notified, [(Presence::Present, 1), (Presence::Orphaned, 2)]);
    assert_eq!(env.inbox.finalised(payment), 0);
    assert_eq!(env.watcher_report().await.blocks_orphaned, 2);
}

/// Mines the dropped transfer again behind another log, so that its log index changes too.
async fn remine_behind_another_log(env: &Env) {
    env.reorg(1, Dropped::Remine).await;
    let approve = Token::approveCall { spender: alloy_address(account(PAYERS[1])), value: U256::from(1) };
    env.call_as(PAYERS[1], env.coin(Coin::Usdc), approve.abi_encode(), GWEI / 2).await;
    env.mine(1).await;
}

async fn assert_remined(env: &Env, payment: PaymentId) {
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
    let payment = env.seen().await;
    remine_behind_another_log(&env).await;
    assert_remined(&env, payment).await;
}

#[tokio::test]
async fn reorg_during_downtime_is_noticed_at_startup() {
    let env = Env::new().await;
    let payment = env.seen().await;
    env.stop_watcher().await;
    remine_behind_another_log(&env).await;
    env.watch().await;
    assert_remined(&env, payment).await;
    assert_eq!(env.watcher_report().await.blocks_orphaned, 1);
}

#[tokio::test]
async fn reorg_deeper_than_one_pass_finds_the_common_block() {
    let mut env = Env::new().await;
    env.spec.fallback_depth_blocks = 200;
    env.spec.has_finalized = false;
    env.watch().await;
    let payment = env.payment().await;
    env.pay(payment, 5).await;
    env.mine_and_read(60).await;
    env.reorg(61, Dropped::Remine).await;
    env.mine_and_read(1).await;
    assert_eq!(env.watcher_report().await.blocks_orphaned, 61);
    let facts = env.inbox.observed(payment);
    assert_eq!(facts.last().map(|fact| fact.presence), Some(Presence::Present));
    assert_eq!(env.transfers().await.iter().filter(|row| row.presence == "present").count(), 1);
}
