//! Reorged blocks.

use alloy::primitives::U256;
use alloy::sol_types::SolCall;
use payferry_contracts::Token;
use payferry_devchain::{Dropped, Faults};
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

/// One transaction pays two payments. It is mined again one place later, so one of its log indexes now belongs to the other
/// payment. The watcher is killed after it orphaned the old block and before it read the new one.
#[tokio::test]
async fn multi_send_with_shifted_log_indexes_reaches_both_payments_after_a_kill() {
    let env = Env::new().await;
    let payments = env.payments(2).await;
    let to = payments.iter().map(|payment| alloy_address(env.vault(*payment))).collect();
    let values = [7_000_000, 3_000_000].map(U256::from).to_vec();
    env.call_as_owner(env.coin(Coin::Usdc), Token::mintBatchCall { to, values }.abi_encode()).await;
    env.mine(1).await;
    env.watch().await;
    env.read_all().await;
    let first: Vec<_> = payments.iter().map(|payment| env.inbox.observed(*payment)[0]).collect();
    assert_eq!((first[0].key.log_index, first[1].key.log_index), (0, 1));

    let is_orphaned = async || env.transfers().await.iter().all(|row| row.presence == "orphaned");
    env.devchain.set_faults(Faults { methods: vec!["eth_getLogs".to_owned()], error_rate: 1.0, ..Faults::default() });
    remine_behind_another_log(&env).await;
    env.until("the old block is orphaned", is_orphaned).await;
    env.stop_watcher().await;
    assert_eq!(env.transfers().await.len(), 2, "the new block is not read");

    env.devchain.set_faults(Faults::default());
    // Nothing that was reported before counts: the messages are lost with the process.
    let known: Vec<_> = payments.iter().map(|payment| env.inbox.observed(*payment).len()).collect();
    env.watch().await;
    for ((payment, before), (first, known)) in payments.iter().zip([7_000_000, 3_000_000]).zip(first.iter().zip(known))
    {
        let report = || env.inbox.observed(*payment).split_off(known - 1);
        env.until("both facts are reported", async || report().iter().any(|fact| fact.key != first.key)).await;
        let facts = report();
        let [.., orphaned, again] = facts.as_slice() else { panic!("{facts:?}") };
        assert_eq!((orphaned.key, orphaned.presence), (first.key, Presence::Orphaned));
        assert_eq!((again.presence, again.amount.units()), (Presence::Present, before));
        assert_eq!((again.key.tx_hash, again.key.log_index), (first.key.tx_hash, first.key.log_index + 1));
        assert_eq!(again.first_block_time, Some(first.block.time), "the first block time is kept");
    }
    let rows = env.transfers().await;
    assert!(rows.len() == 4 && rows.iter().all(|row| row.applied_revision < row.revision), "{rows:?}");
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
