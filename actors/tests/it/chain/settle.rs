//! Settlements that succeed, fail, are not mined in time or are reorged.

use std::time::Duration;

use alloy::primitives::U256;
use alloy::sol_types::SolCall;
use payferry_contracts::{self as contract, Payferry};
use payferry_devchain::Dropped;
use payferry_domain::Address;
use payferry_domain::payment::Command;
use payferry_entities::operations;
use payferry_entities::operations::Column::Status;
use payferry_evm::wallet::alloy_address;
use payferry_journal::chain::Role;
use sea_orm::ColumnTrait;
use sea_orm::sea_query::Expr;

use super::env::Env;
use crate::env::{Coin, GWEI, operator};

const UNITS: u64 = 10_000_050;

/// Starts a settler that signs the settlements of this many payments.
async fn signed(env: &Env, count: usize) {
    env.settling(count, UNITS).await;
    env.until_signed(count as u64).await;
}

#[tokio::test]
async fn sends_120_settlements_in_three_batches() {
    let env = Env::new().await;
    signed(&env, 120).await;
    assert_eq!(env.report().await.batches, 3);
    env.mine(1).await;
    env.until("they are mined", async || env.operations().await.iter().all(|row| row.status.as_str() == "mined")).await;
    assert_eq!(env.inbox.completed(), 0, "one confirmation, and two are required");
    env.mine(1).await;
    env.until("the results are reported", async || env.inbox.completed() >= 120).await;
    env.assert_settled_once(120, UNITS).await;
    let txs = env.txs().await;
    assert_eq!(txs.iter().map(|tx| tx.nonce).collect::<Vec<_>>(), [0, 1, 2]);
    env.mine(12).await;
    env.until("they are final", async || env.txs().await.iter().all(|tx| tx.status.as_str() == "final")).await;
}

#[tokio::test]
async fn operation_rejected_by_the_token_fails_alone() {
    let env = Env::new().await;
    let payments = env.paid(3, UNITS).await;
    env.blacklist(env.vault(payments[1]), true).await;
    env.start().await;
    env.queue_settlements(&payments, UNITS).await;
    let are_decided =
        |rows: &[operations::Model]| rows.iter().all(|row| ["mined", "failed"].contains(&row.status.as_str()));
    env.mine_until("all are decided", async || are_decided(&env.operations().await)).await;
    let rows = env.operations().await;
    let failed: Vec<_> = rows.iter().filter(|row| row.status.as_str() == "failed").collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].payment_id, payments[1].to_string());
    assert!(failed[0].failure.as_deref().unwrap().contains("token refused a transfer"), "{:?}", failed[0].failure);
    env.assert_settled_once(2, UNITS).await;
    env.until("the failure is reported", async || env.inbox.failed() == 1).await;
    env.until("the others are reported", async || env.inbox.completed() >= 2).await;
}

#[tokio::test]
async fn stuck_transaction_is_resent_with_higher_fees_and_the_same_call() {
    let mut env = Env::new().await;
    env.spec.stuck_after = Duration::from_millis(300);
    env.settling(2, UNITS).await;
    env.until_raised_twice().await;
    assert!(env.attempts().await.iter().all(|attempt| attempt.nonce == 0));
    env.settle_all_once(2, UNITS).await;
    assert_eq!(env.txs().await.len(), 1);
}

#[tokio::test]
async fn orphaned_settlement_is_sent_again_and_reported() {
    let env = Env::new().await;
    let payments = env.paid(2, UNITS).await;
    env.mine(3).await;
    env.start().await;
    env.queue_settlements(&payments, UNITS).await;
    env.until_signed(2).await;
    env.mine(2).await;
    env.until("the results are reported", async || env.inbox.completed() >= 2).await;
    // As the payments do when they apply it.
    env.update_operations(Status.eq("mined"), [(Status, Expr::value("succeeded"))]).await;
    env.reorg(2, Dropped::Discard).await;
    env.assert_settled_once(0, UNITS).await;
    env.until("the orphans are reported", async || env.inbox.orphaned() == 2).await;
    env.settle_all_once(2, UNITS).await;
    env.mine(1).await;
    env.until("the new results are reported", async || env.inbox.completed() >= 4).await;
    let notified = env.inbox.find(|_, command| match command {
        Command::CompleteSettlement { revision, .. } | Command::OrphanSettlement { revision, .. } => Some(*revision),
        _ => None,
    });
    assert!(notified.iter().max() > notified.iter().min(), "{notified:?}");
    assert_eq!(env.txs().await.len(), 1, "the same transaction");
}

#[tokio::test]
async fn reports_the_amounts_of_the_transaction_not_of_a_later_request() {
    let env = Env::new().await;
    signed(&env, 1).await;
    env.confirmed_anew(4_000_000, 1_000_000).await;
    env.settle_all_once(1, UNITS).await;
    let row = &env.operations().await[0];
    assert_eq!((row.amount, row.psp_amount + row.treasury_fee), (10_000_050, 10_000_050));
    assert_ne!(row.psp_amount, 4_000_000);
    env.mine(2).await;
    env.until("the result is reported", async || env.inbox.completed() >= 1).await;
    let notified = env.inbox.find(|_, command| match command {
        Command::CompleteSettlement { amount, .. } => Some(amount.units()),
        _ => None,
    });
    assert_eq!(notified.first(), Some(&10_000_050));
}

#[tokio::test]
async fn reverted_batch_is_queued_again() {
    let env = Env::new().await;
    signed(&env, 2).await;
    // After the simulation, and before the batch in the same block.
    env.set_contract_paused(true, false).await;
    env.mine(1).await;
    env.until("it is queued again", async || env.txs().await.iter().any(|tx| tx.status.as_str() == "reverted")).await;
    env.set_contract_paused(false, false).await;
    env.settle_all_once(2, UNITS).await;
}

/// The admin changes the contract so that it refuses the settler's batches: nothing is sent, and the cause is reported.
async fn refused_on_chain(change: impl SolCall, cause: &str) -> Env {
    let env = Env::new().await;
    let payments = env.paid(2, UNITS).await;
    env.call_as_owner(env.spec.contract, change.abi_encode()).await;
    env.mine(1).await;
    env.start().await;
    env.queue_settlements(&payments, UNITS).await;
    env.mine_until("the cause is reported", async || {
        env.handle.blocked_reason().is_some_and(|reason| reason.contains(cause))
    })
    .await;
    env.mine(3).await;
    assert!(env.txs().await.is_empty(), "no gas is spent");
    assert!(env.operations().await.iter().all(|row| row.status.as_str() == "queued" && row.attempts == 0));
    env
}

#[tokio::test]
async fn pause_on_chain_costs_no_gas_and_ends() {
    let pause = Payferry::pauseCall { settle_: true, send_: false };
    let env = refused_on_chain(pause, "settling is paused on-chain: the admin of the contract must resume it").await;
    env.set_contract_paused(false, false).await;
    env.settle_all_once(2, UNITS).await;
    env.until("settling is not blocked", async || env.handle.blocked_reason().is_none()).await;
}

#[tokio::test]
async fn revoked_role_costs_no_gas() {
    let revoke = Payferry::revokeCall { role: contract::Role::Settler, key: alloy_address(operator()) };
    refused_on_chain(revoke, "the contract has not granted the settler role to").await;
}

#[tokio::test]
async fn limit_of_a_token_delays_a_transfer_and_fails_none() {
    let env = Env::new().await;
    env.send_money(env.psp_vault(), UNITS * 10).await;
    let limit =
        |units: u64| Payferry::setLimitCall { token: alloy_address(env.coin(Coin::Usdc)), limit: U256::from(units) };
    env.call_as_owner(env.spec.contract, limit(UNITS).abi_encode()).await;
    env.mine(1).await;
    env.start().await;
    let recipients = [Address([1; 20]), Address([2; 20])];
    env.queue_withdrawals(&recipients[..1], UNITS).await;
    env.queue_withdrawals(&recipients[1..], UNITS / 4).await;
    env.mine_until("the small one is sent", async || env.balance(recipients[1]).await == UNITS / 4).await;
    env.mine_until("the other is reported", async || {
        env.handle.blocked_reason().is_some_and(|reason| reason.contains("the limit of the token leaves"))
    })
    .await;
    let row = env.operations().await.remove(0);
    assert_eq!((row.status.as_str(), row.attempts), ("queued", 0), "{row:?}");
}

#[tokio::test]
async fn withdrawn_or_paused_operations_are_not_sent() {
    let env = Env::new().await;
    let payments = env.paid(2, UNITS).await;
    env.handle.set_paused(Role::Settle, true);
    env.start().await;
    env.queue_settlements(&payments, UNITS).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(env.txs().await.is_empty(), "paused");
    let first = operations::Column::PaymentId.eq(payments[0].to_string());
    env.update_operations(first, [(Status, Expr::value("cancelled"))]).await;
    env.handle.set_paused(Role::Settle, false);
    env.mine_until_some("mined").await;
    env.assert_settled_once(1, UNITS).await;
}

#[tokio::test]
async fn taken_nonce_only_delays_settlements() {
    let env = Env::new().await;
    signed(&env, 2).await;
    // The signer's key signs elsewhere with the same nonce and far higher fees.
    env.operator_sends(0, 50 * GWEI, 20 * GWEI).await;
    env.mine(12).await;
    env.settle_all_once(2, UNITS).await;
    let mut statuses: Vec<_> = env.txs().await.into_iter().map(|tx| (tx.nonce, tx.status.as_str())).collect();
    statuses.sort_unstable();
    assert_eq!(statuses[0], (0, "cancelled"));
}

#[tokio::test]
async fn operation_without_funds_fails_with_the_balance_in_its_reason() {
    let env = Env::new().await;
    let payments = env.paid(1, UNITS).await;
    env.start().await;
    env.queue_settlements(&payments, UNITS + 1).await;
    env.mine_until_some("failed").await;
    let failure = env.operation().await.failure.clone().unwrap();
    assert!(failure.starts_with("the vault holds 10000050 of 10000051 base units"), "{failure}");
}
