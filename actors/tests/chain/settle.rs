//! Settlements that succeed, fail, are not mined in time or are reorged.

use std::time::Duration;

use alloy::sol_types::SolCall;
use payferry_contracts::Payferry;
use payferry_devchain::Dropped;
use payferry_domain::payment::Command;
use payferry_entities::operations;
use payferry_evm::wallet::alloy_address;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, sea_query::Expr};

use crate::env::{CHAIN_ID, Env, GWEI, SETTLE, settler_report, stop};

const UNITS: u64 = 10_000_050;

async fn paid(env: &Env, count: usize) -> Vec<payferry_domain::PaymentId> {
    let payments = env.payments(count).await;
    env.pay_all(&payments, UNITS).await;
    payments
}

fn is_completed(command: &Command) -> bool {
    matches!(command, Command::CompleteSettlement { .. })
}

#[tokio::test]
async fn sends_120_settlements_in_three_batches() {
    let env = Env::new().await;
    let payments = paid(&env, 120).await;
    let (watcher, settler) = (env.watch().await, env.settle().await);
    env.queue_settlements(&payments, 10_000_050).await;
    env.until("they are signed", async || settler_report(&settler).await.operations == 120).await;
    assert_eq!(settler_report(&settler).await.batches, 3);
    env.chain.mine(1).await.unwrap();
    env.until("they are mined", async || env.operations().await.iter().all(|row| row.status == "mined")).await;
    assert_eq!(env.inbox.count(is_completed), 0, "one confirmation, and two are required");
    env.chain.mine(1).await.unwrap();
    env.until("the results are reported", async || env.inbox.count(is_completed) >= 120).await;
    env.assert_settled_once(120, UNITS).await;
    let txs = env.txs().await;
    assert_eq!(txs.iter().map(|tx| tx.nonce).collect::<Vec<_>>(), [0, 1, 2]);
    env.chain.mine(12).await.unwrap();
    env.until("they are final", async || env.txs().await.iter().all(|tx| tx.status == "final")).await;
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn operation_rejected_by_the_token_fails_alone() {
    let env = Env::new().await;
    let payments = paid(&env, 3).await;
    env.blacklist(env.vaults.of_payment(payments[1])).await;
    let (watcher, settler) = (env.watch().await, env.settle().await);
    env.queue_settlements(&payments, 10_000_050).await;
    env.until("all are decided", async || {
        env.chain.mine(1).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        env.operations().await.iter().all(|row| matches!(row.status.as_str(), "mined" | "failed"))
    })
    .await;
    let rows = env.operations().await;
    let failed: Vec<_> = rows.iter().filter(|row| row.status == "failed").collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].payment_id, payments[1].to_string());
    assert!(failed[0].failure.as_deref().unwrap().contains("token refused a transfer"), "{:?}", failed[0].failure);
    env.assert_settled_once(2, UNITS).await;
    let told_failed = |command: &Command| matches!(command, Command::FailSettlement { .. });
    env.until("the failure is reported", async || env.inbox.count(told_failed) == 1).await;
    env.until("the others are reported", async || env.inbox.count(is_completed) >= 2).await;
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn stuck_transaction_is_resent_with_higher_fees_and_the_same_call() {
    let mut env = Env::new().await;
    env.spec.stuck_after = Duration::from_millis(300);
    let payments = paid(&env, 2).await;
    let (watcher, settler) = (env.watch().await, env.settle().await);
    env.queue_settlements(&payments, 10_000_050).await;
    env.until("its fee was raised twice", async || {
        env.pass_by(1).await;
        env.attempts().await.len() >= 3
    })
    .await;
    let mut attempts = env.attempts().await;
    attempts.sort_by_key(|attempt| attempt.created_at);
    let fees: Vec<u128> = attempts.iter().map(|attempt| attempt.max_fee_per_gas.parse().unwrap()).collect();
    assert!(fees.windows(2).all(|pair| pair[1] * 8 >= pair[0] * 9), "{fees:?}");
    assert!(attempts.iter().all(|attempt| attempt.nonce == 0));
    env.mine_until_all("mined").await;
    env.assert_settled_once(2, UNITS).await;
    assert_eq!(env.txs().await.len(), 1);
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn orphaned_settlement_is_sent_again_and_reported() {
    let env = Env::new().await;
    let payments = paid(&env, 2).await;
    env.chain.mine(3).await.unwrap();
    let (watcher, settler) = (env.watch().await, env.settle().await);
    env.queue_settlements(&payments, 10_000_050).await;
    env.until("it is signed", async || settler_report(&settler).await.operations == 2).await;
    env.chain.mine(2).await.unwrap();
    env.until("the results are reported", async || env.inbox.count(is_completed) >= 2).await;
    // As the payments do when they apply it.
    operations::Entity::update_many()
        .col_expr(operations::Column::Status, Expr::value("succeeded"))
        .filter(operations::Column::Status.eq("mined"))
        .exec(env.database.writer())
        .await
        .unwrap();
    env.chain.reorg(2, Dropped::Discard).await.unwrap();
    env.assert_settled_once(0, UNITS).await;
    let orphaned = |command: &Command| matches!(command, Command::OrphanSettlement { .. });
    env.until("the orphans are reported", async || env.inbox.count(orphaned) == 2).await;
    env.mine_until_all("mined").await;
    env.assert_settled_once(2, UNITS).await;
    env.chain.mine(1).await.unwrap();
    env.until("the new results are reported", async || env.inbox.count(is_completed) >= 4).await;
    let revisions = |of: &dyn Fn(&Command) -> Option<u32>| -> Vec<u32> {
        env.inbox.notified.lock().iter().filter_map(|(_, command)| of(command)).collect()
    };
    let notified = revisions(&|command| match command {
        Command::CompleteSettlement { revision, .. } | Command::OrphanSettlement { revision, .. } => Some(*revision),
        _ => None,
    });
    assert!(notified.iter().max() > notified.iter().min(), "{notified:?}");
    assert_eq!(env.txs().await.len(), 1, "the same transaction");
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn reports_the_amounts_of_the_transaction_not_of_a_later_request() {
    let env = Env::new().await;
    let payments = paid(&env, 1).await;
    let (watcher, settler) = (env.watch().await, env.settle().await);
    env.queue_settlements(&payments, 10_000_050).await;
    env.until("it is signed", async || settler_report(&settler).await.operations == 1).await;
    env.confirmed_anew(4_000_000, 1_000_000).await;
    env.mine_until_all("mined").await;
    env.assert_settled_once(1, UNITS).await;
    let row = &env.operations().await[0];
    assert_eq!((row.amount, row.psp_amount + row.treasury_fee), (10_000_050, 10_000_050));
    assert_ne!(row.psp_amount, 4_000_000);
    env.chain.mine(2).await.unwrap();
    env.until("the result is reported", async || env.inbox.count(is_completed) >= 1).await;
    let notified = env.inbox.notified.lock().iter().find_map(|(_, command)| match command {
        Command::CompleteSettlement { amount, .. } => Some(amount.units()),
        _ => None,
    });
    assert_eq!(notified, Some(10_000_050));
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn reverted_batch_is_queued_again() {
    let env = Env::new().await;
    let payments = paid(&env, 2).await;
    let pause = |on| Payferry::setPausedCall { settlePaused_: on, sendPaused_: false }.abi_encode();
    env.call_as_owner(env.vaults.factory(), pause(true)).await;
    env.chain.mine(1).await.unwrap();
    let (watcher, settler) = (env.watch().await, env.settle().await);
    env.queue_settlements(&payments, 10_000_050).await;
    env.until("it is signed", async || settler_report(&settler).await.operations == 2).await;
    env.chain.mine(1).await.unwrap();
    env.until("it is queued again", async || env.txs().await.iter().any(|tx| tx.status == "reverted")).await;
    env.call_as_owner(env.vaults.factory(), pause(false)).await;
    env.mine_until_all("mined").await;
    env.assert_settled_once(2, UNITS).await;
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn withdrawn_or_paused_operations_are_not_sent() {
    let env = Env::new().await;
    let payments = paid(&env, 2).await;
    env.handle.set_paused(SETTLE, true);
    let (watcher, settler) = (env.watch().await, env.settle().await);
    env.queue_settlements(&payments, 10_000_050).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(env.txs().await.is_empty(), "paused");
    operations::Entity::update_many()
        .col_expr(operations::Column::Status, Expr::value("cancelled"))
        .filter(operations::Column::PaymentId.eq(payments[0].to_string()))
        .exec(env.database.writer())
        .await
        .unwrap();
    env.handle.set_paused(SETTLE, false);
    env.until("the other one is mined", async || {
        env.chain.mine(1).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        env.operations().await.iter().any(|row| row.status == "mined")
    })
    .await;
    env.assert_settled_once(1, UNITS).await;
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn taken_nonce_only_delays_settlements() {
    let env = Env::new().await;
    let payments = paid(&env, 2).await;
    let (watcher, settler) = (env.watch().await, env.settle().await);
    env.queue_settlements(&payments, 10_000_050).await;
    env.until("it is signed", async || settler_report(&settler).await.operations == 2).await;
    // The operator's key signs elsewhere with the same nonce and far higher fees.
    let to = alloy_address(env.treasury);
    let (raw, _) = env.operator.sign_call(CHAIN_ID, 0, to, Vec::new().into(), 100_000, 50 * GWEI, 20 * GWEI);
    env.chain.send_raw(raw).await.unwrap();
    env.chain.mine(12).await.unwrap();
    env.mine_until_all("mined").await;
    env.assert_settled_once(2, UNITS).await;
    let mut statuses: Vec<_> = env.txs().await.into_iter().map(|tx| (tx.nonce, tx.status)).collect();
    statuses.sort();
    assert_eq!((statuses[0].0, statuses[0].1.as_str()), (0, "cancelled"));
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn operation_without_funds_fails_with_the_balance_in_its_reason() {
    let env = Env::new().await;
    let payments = paid(&env, 1).await;
    let (watcher, settler) = (env.watch().await, env.settle().await);
    env.queue_settlements(&payments, 10_000_051).await;
    env.until("it failed", async || {
        env.chain.mine(1).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        env.operations().await.iter().any(|row| row.status == "failed")
    })
    .await;
    let failure = env.operations().await[0].failure.clone().unwrap();
    assert!(failure.starts_with("the vault holds 10000050 of 10000051 base units"), "{failure}");
    stop(settler).await;
    stop(watcher).await;
}
