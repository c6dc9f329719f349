//! Settlements that succeed, fail, get stuck or are reorged.

use std::time::Duration;

use alloy::sol_types::SolCall;
use payferry_contracts::Payferry;
use payferry_devchain::Dropped;
use payferry_domain::payment::Command;
use payferry_entities::operations;
use payferry_evm::wallet::alloy_address;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, sea_query::Expr};

use crate::world::{CHAIN_ID, GWEI, SETTLE, World, settler_report, stop};

const UNITS: u64 = 10_000_050;

async fn paid(world: &World, count: usize) -> Vec<payferry_domain::PaymentId> {
    let payments = world.payments(count).await;
    world.pay_all(&payments, UNITS).await;
    payments
}

fn is_completed(command: &Command) -> bool {
    matches!(command, Command::CompleteSettlement { .. })
}

#[tokio::test]
async fn sends_120_settlements_in_three_batches() {
    let world = World::new().await;
    let payments = paid(&world, 120).await;
    let (watcher, settler) = (world.watch().await, world.settle().await);
    world.queue_settlements(&payments, 10_000_050).await;
    world.until("they are signed", async || settler_report(&settler).await.operations == 120).await;
    assert_eq!(settler_report(&settler).await.batches, 3);
    world.chain.mine(1).await.unwrap();
    world.until("they are mined", async || world.operations().await.iter().all(|row| row.status == "mined")).await;
    assert_eq!(world.inbox.count(is_completed), 0, "one confirmation, and two are required");
    world.chain.mine(1).await.unwrap();
    world.until("the results are reported", async || world.inbox.count(is_completed) >= 120).await;
    world.assert_settled_once(120, UNITS).await;
    let txs = world.txs().await;
    assert_eq!(txs.iter().map(|tx| tx.nonce).collect::<Vec<_>>(), [0, 1, 2]);
    world.chain.mine(12).await.unwrap();
    world.until("they are final", async || world.txs().await.iter().all(|tx| tx.status == "final")).await;
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn operation_rejected_by_the_token_fails_alone() {
    let world = World::new().await;
    let payments = paid(&world, 3).await;
    world.blacklist(world.vaults.of_payment(payments[1])).await;
    let (watcher, settler) = (world.watch().await, world.settle().await);
    world.queue_settlements(&payments, 10_000_050).await;
    world
        .until("all are decided", async || {
            world.chain.mine(1).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            world.operations().await.iter().all(|row| matches!(row.status.as_str(), "mined" | "failed"))
        })
        .await;
    let rows = world.operations().await;
    let failed: Vec<_> = rows.iter().filter(|row| row.status == "failed").collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].payment_id, payments[1].to_string());
    assert!(failed[0].failure.as_deref().unwrap().contains("token refused a transfer"), "{:?}", failed[0].failure);
    world.assert_settled_once(2, UNITS).await;
    let told_failed = |command: &Command| matches!(command, Command::FailSettlement { .. });
    world.until("the failure is reported", async || world.inbox.count(told_failed) == 1).await;
    world.until("the others are reported", async || world.inbox.count(is_completed) >= 2).await;
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn stuck_transaction_is_resent_with_higher_fees_and_the_same_call() {
    let mut world = World::new().await;
    world.spec.stuck_after = Duration::from_millis(300);
    let payments = paid(&world, 2).await;
    let (watcher, settler) = (world.watch().await, world.settle().await);
    world.queue_settlements(&payments, 10_000_050).await;
    world
        .until("its fee was raised twice", async || {
            world.pass_by(1).await;
            world.attempts().await.len() >= 3
        })
        .await;
    let mut attempts = world.attempts().await;
    attempts.sort_by_key(|attempt| attempt.created_at);
    let fees: Vec<u128> = attempts.iter().map(|attempt| attempt.max_fee_per_gas.parse().unwrap()).collect();
    assert!(fees.windows(2).all(|pair| pair[1] * 8 >= pair[0] * 9), "{fees:?}");
    assert!(attempts.iter().all(|attempt| attempt.nonce == 0));
    world.mine_until_all("mined").await;
    world.assert_settled_once(2, UNITS).await;
    assert_eq!(world.txs().await.len(), 1);
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn orphaned_settlement_is_sent_again_and_reported() {
    let world = World::new().await;
    let payments = paid(&world, 2).await;
    world.chain.mine(3).await.unwrap();
    let (watcher, settler) = (world.watch().await, world.settle().await);
    world.queue_settlements(&payments, 10_000_050).await;
    world.until("it is signed", async || settler_report(&settler).await.operations == 2).await;
    world.chain.mine(2).await.unwrap();
    world.until("the results are reported", async || world.inbox.count(is_completed) >= 2).await;
    // As the payments do when they apply it.
    operations::Entity::update_many()
        .col_expr(operations::Column::Status, Expr::value("succeeded"))
        .filter(operations::Column::Status.eq("mined"))
        .exec(world.database.writer())
        .await
        .unwrap();
    world.chain.reorg(2, Dropped::Discard).await.unwrap();
    world.assert_settled_once(0, UNITS).await;
    let orphaned = |command: &Command| matches!(command, Command::OrphanSettlement { .. });
    world.until("the orphans are reported", async || world.inbox.count(orphaned) == 2).await;
    world.mine_until_all("mined").await;
    world.assert_settled_once(2, UNITS).await;
    world.chain.mine(1).await.unwrap();
    world.until("the new results are reported", async || world.inbox.count(is_completed) >= 4).await;
    let revisions = |of: &dyn Fn(&Command) -> Option<u32>| -> Vec<u32> {
        world.inbox.told.lock().iter().filter_map(|(_, command)| of(command)).collect()
    };
    let told = revisions(&|command| match command {
        Command::CompleteSettlement { revision, .. } | Command::OrphanSettlement { revision, .. } => Some(*revision),
        _ => None,
    });
    assert!(told.iter().max() > told.iter().min(), "{told:?}");
    assert_eq!(world.txs().await.len(), 1, "the same transaction");
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn reports_the_amounts_of_the_transaction_not_of_a_later_request() {
    let world = World::new().await;
    let payments = paid(&world, 1).await;
    let (watcher, settler) = (world.watch().await, world.settle().await);
    world.queue_settlements(&payments, 10_000_050).await;
    world.until("it is signed", async || settler_report(&settler).await.operations == 1).await;
    world.confirmed_anew(4_000_000, 1_000_000).await;
    world.mine_until_all("mined").await;
    world.assert_settled_once(1, UNITS).await;
    let row = &world.operations().await[0];
    assert_eq!((row.amount, row.psp_amount + row.treasury_fee), (10_000_050, 10_000_050));
    assert_ne!(row.psp_amount, 4_000_000);
    world.chain.mine(2).await.unwrap();
    world.until("the result is reported", async || world.inbox.count(is_completed) >= 1).await;
    let told = world.inbox.told.lock().iter().find_map(|(_, command)| match command {
        Command::CompleteSettlement { amount, .. } => Some(amount.units()),
        _ => None,
    });
    assert_eq!(told, Some(10_000_050));
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn reverted_batch_is_queued_again() {
    let world = World::new().await;
    let payments = paid(&world, 2).await;
    let pause = |on| Payferry::setPausedCall { settlePaused_: on, sendPaused_: false }.abi_encode();
    world.call_as_owner(world.vaults.factory(), pause(true)).await;
    world.chain.mine(1).await.unwrap();
    let (watcher, settler) = (world.watch().await, world.settle().await);
    world.queue_settlements(&payments, 10_000_050).await;
    world.until("it is signed", async || settler_report(&settler).await.operations == 2).await;
    world.chain.mine(1).await.unwrap();
    world.until("it is queued again", async || world.txs().await.iter().any(|tx| tx.status == "reverted")).await;
    world.call_as_owner(world.vaults.factory(), pause(false)).await;
    world.mine_until_all("mined").await;
    world.assert_settled_once(2, UNITS).await;
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn withdrawn_or_paused_operations_are_not_sent() {
    let world = World::new().await;
    let payments = paid(&world, 2).await;
    world.handle.set_paused(SETTLE, true);
    let (watcher, settler) = (world.watch().await, world.settle().await);
    world.queue_settlements(&payments, 10_000_050).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(world.txs().await.is_empty(), "paused");
    operations::Entity::update_many()
        .col_expr(operations::Column::Status, Expr::value("cancelled"))
        .filter(operations::Column::PaymentId.eq(payments[0].to_string()))
        .exec(world.database.writer())
        .await
        .unwrap();
    world.handle.set_paused(SETTLE, false);
    world
        .until("the other one is mined", async || {
            world.chain.mine(1).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            world.operations().await.iter().any(|row| row.status == "mined")
        })
        .await;
    world.assert_settled_once(1, UNITS).await;
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn taken_nonce_only_delays_settlements() {
    let world = World::new().await;
    let payments = paid(&world, 2).await;
    let (watcher, settler) = (world.watch().await, world.settle().await);
    world.queue_settlements(&payments, 10_000_050).await;
    world.until("it is signed", async || settler_report(&settler).await.operations == 2).await;
    // The operator's key signs elsewhere with the same nonce and far higher fees.
    let to = alloy_address(world.treasury);
    let (raw, _) = world.operator.sign_call(CHAIN_ID, 0, to, Vec::new().into(), 100_000, 50 * GWEI, 20 * GWEI);
    world.chain.send_raw(raw).await.unwrap();
    world.chain.mine(12).await.unwrap();
    world.mine_until_all("mined").await;
    world.assert_settled_once(2, UNITS).await;
    let mut statuses: Vec<_> = world.txs().await.into_iter().map(|tx| (tx.nonce, tx.status)).collect();
    statuses.sort();
    assert_eq!((statuses[0].0, statuses[0].1.as_str()), (0, "cancelled"));
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn operation_without_funds_fails_with_the_balance_in_its_reason() {
    let world = World::new().await;
    let payments = paid(&world, 1).await;
    let (watcher, settler) = (world.watch().await, world.settle().await);
    world.queue_settlements(&payments, 10_000_051).await;
    world
        .until("it failed", async || {
            world.chain.mine(1).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
            world.operations().await.iter().any(|row| row.status == "failed")
        })
        .await;
    let failure = world.operations().await[0].failure.clone().unwrap();
    assert!(failure.starts_with("the vault holds 10000050 of 10000051 base units"), "{failure}");
    stop(settler).await;
    stop(watcher).await;
}
