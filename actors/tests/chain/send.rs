//! Outbound transfers from the PSP's vault that the token rejects, that are not mined in time, are replaced, or lack
//! gas. Each is sent once or reported as failed, and does not affect the others of its batch.

use std::time::Duration;

use alloy::primitives::U256;
use payferry_devchain::Dropped;
use payferry_domain::outbound::{Command, FailureReason};
use payferry_domain::{Address, Finality, FinalityPolicy};
use payferry_entities::operations;
use payferry_evm::wallet::alloy_address;
use sea_orm::sea_query::{Expr, ExprTrait};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};

use crate::env::{CHAIN_ID, Env, GWEI, settler_report, stop};

const UNITS: u64 = 1_000_000;
/// Time without being mined after which a transaction is replaced.
const STUCK_AFTER: Duration = Duration::from_millis(300);

/// An account without a role in the tests.
fn recipient(n: u8) -> Address {
    Address([n; 20])
}

/// Funds the PSP and queues a withdrawal to each recipient.
async fn queued(env: &Env, recipients: &[Address]) {
    let vault = env.vaults.of_psp(env.psp);
    env.send_money(vault, u128::from(UNITS) * 100).await;
    env.chain.mine(1).await.unwrap();
    env.queue_withdrawals(recipients, UNITS).await;
}

fn completed(env: &Env) -> usize {
    let notified = env.inbox.sendings.lock();
    let ids: std::collections::HashSet<_> =
        notified.iter().filter(|(_, command)| matches!(command, Command::Complete { .. })).map(|(id, _)| *id).collect();
    ids.len()
}

/// Mines until this many transfers are reported as final.
async fn until_completed(env: &Env, count: usize) {
    env.until("the results are reported", async || {
        env.chain.mine(1).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        completed(env) >= count
    })
    .await;
}

async fn assert_sent_once(env: &Env, recipients: &[Address]) {
    for to in recipients {
        assert_eq!(env.balance(*to).await, UNITS, "{to}");
    }
    let sent = u64::try_from(recipients.len()).unwrap() * UNITS;
    assert_eq!(env.balance(env.vaults.of_psp(env.psp)).await, UNITS * 100 - sent);
}

pub(crate) async fn env() -> Env {
    let mut env = Env::new().await;
    env.spec.finality = FinalityPolicy::flat(Finality::Blocks(2));
    env
}

#[tokio::test]
async fn rejected_recipient_fails_alone() {
    let env = env().await;
    env.blacklist(recipient(2)).await;
    let (watcher, settler) = (env.watch().await, env.settle().await);
    queued(&env, &[recipient(1), recipient(2), recipient(3)]).await;
    until_completed(&env, 2).await;
    let failed = || {
        let notified = env.inbox.sendings.lock();
        let of = |command: &Command| match command {
            Command::Fail { reason, detail, .. } => Some((*reason, detail.clone())),
            _ => None,
        };
        notified.iter().find_map(|(id, command)| Some((*id, of(command)?)))
    };
    env.until("the failure is reported", async || failed().is_some()).await;
    let (id, (reason, detail)) = failed().unwrap();
    assert_eq!(reason, FailureReason::SendFailed);
    assert!(detail.contains("token refused"), "{detail}");
    let row = env.operations().await.into_iter().find(|row| row.payment_id == id.to_string()).unwrap();
    assert_eq!(row.recipient.as_deref(), Some(recipient(2).to_string().as_str()));
    assert_sent_once(&env, &[recipient(1), recipient(3)]).await;
    stop(settler).await;
    stop(watcher).await;
}

/// A withdrawal that the token rejected and that its owner has given up.
pub(crate) struct AbandonedWithdrawal {
    row: operations::Model,
    /// Last block before the recipient was rejected.
    before: u64,
}

impl AbandonedWithdrawal {
    /// Creates it; needs a watcher and a settler. Its row either references the transaction, or was queued again since
    /// (and then cancelled).
    pub(crate) async fn of(env: &Env, knows_its_tx: bool) -> Self {
        let vault = env.vaults.of_psp(env.psp);
        env.send_money(vault, u128::from(UNITS) * 100).await;
        env.chain.mine(3).await.unwrap();
        let before = env.chain.head().number;
        env.blacklist(recipient(2)).await;
        env.queue_withdrawals(&[recipient(1), recipient(2)], UNITS).await;
        env.until("one failed", async || {
            env.chain.mine(1).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            env.operations().await.iter().any(|row| row.status == "failed")
        })
        .await;
        // As the outbound transfer leaves it.
        operations::Entity::update_many()
            .col_expr(operations::Column::Status, Expr::value("cancelled"))
            .col_expr(operations::Column::Revision, Expr::col(operations::Column::Revision).add(1))
            .filter(operations::Column::Status.eq("failed"))
            .exec(env.database.writer())
            .await
            .unwrap();
        if !knows_its_tx {
            operations::Entity::update_many()
                .col_expr(operations::Column::ChainTxId, Expr::value(None::<i64>))
                .filter(operations::Column::Status.eq("cancelled"))
                .exec(env.database.writer())
                .await
                .unwrap();
        }
        let row = env.operations().await.into_iter().find(|row| row.status == "cancelled").unwrap();
        Self { row, before }
    }

    /// Reorgs the block that rejects the recipient; the same transaction enters another block.
    pub(crate) async fn reorganise(&self, env: &Env) {
        env.chain.reorg(env.chain.head().number - self.before, Dropped::Discard).await.unwrap();
    }

    /// Mines until the completion is reported; asserts that each transfer was sent once.
    pub(crate) async fn until_notified(&self, env: &Env) {
        let revision = u32::try_from(self.row.revision).unwrap();
        let is_news = |command: &Command| matches!(command, Command::Complete { revision: now, .. } if *now > revision);
        env.until("the completion is reported", async || {
            env.chain.mine(1).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            let notified = env.inbox.sendings.lock();
            notified.iter().any(|(id, command)| id.to_string() == self.row.payment_id && is_news(command))
        })
        .await;
        assert_sent_once(env, &[recipient(1), recipient(2)]).await;
        assert_eq!(env.txs().await.len(), 1, "the same transaction");
    }
}

#[tokio::test]
async fn given_up_transfer_mined_after_a_reorg_is_reported() {
    for knows_its_tx in [true, false] {
        let env = env().await;
        let (watcher, settler) = (env.watch().await, env.settle().await);
        let given_up = AbandonedWithdrawal::of(&env, knows_its_tx).await;
        given_up.reorganise(&env).await;
        given_up.until_notified(&env).await;
        stop(settler).await;
        stop(watcher).await;
    }
}

#[tokio::test]
async fn given_up_transfer_is_never_signed_again() {
    let env = env().await;
    let (watcher, settler) = (env.watch().await, env.settle().await);
    let given_up = AbandonedWithdrawal::of(&env, true).await;
    let row = &given_up.row;
    env.withdrawal_failed(row).await;
    // As if it had been carried out and reorged, and its transaction had then failed.
    operations::Entity::update_many()
        .col_expr(operations::Column::Status, Expr::value("queued"))
        .col_expr(operations::Column::ChainTxId, Expr::value(None::<i64>))
        .filter(operations::Column::Id.eq(&row.id))
        .exec(env.database.writer())
        .await
        .unwrap();
    env.handle.nudge();
    let failed = async || {
        let rows = env.operations().await;
        rows.into_iter().find(|now| now.id == row.id && now.status == "failed")
    };
    env.until("it is refused", async || failed().await.is_some()).await;
    assert!(failed().await.unwrap().failure.unwrap().contains("given up"));
    assert_eq!(env.txs().await.len(), 1, "nothing was signed");
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn stuck_transfer_is_resent_with_higher_fees_and_sent_once() {
    let mut env = env().await;
    env.spec.stuck_after = STUCK_AFTER;
    let (watcher, settler) = (env.watch().await, env.settle().await);
    queued(&env, &[recipient(1), recipient(2)]).await;
    env.until("its fee was raised twice", async || {
        env.pass_by(1).await;
        env.attempts().await.len() >= 3
    })
    .await;
    let mut attempts = env.attempts().await;
    attempts.sort_by_key(|attempt| attempt.created_at);
    let fees: Vec<u128> = attempts.iter().map(|attempt| attempt.max_fee_per_gas.parse().unwrap()).collect();
    assert!(fees.windows(2).all(|pair| pair[1] * 8 >= pair[0] * 9), "{fees:?}");
    until_completed(&env, 2).await;
    assert_sent_once(&env, &[recipient(1), recipient(2)]).await;
    assert_eq!(env.txs().await.len(), 1, "one transaction, signed repeatedly");
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn transfer_with_a_replaced_transaction_is_sent_once() {
    let env = env().await;
    let (watcher, settler) = (env.watch().await, env.settle().await);
    queued(&env, &[recipient(1), recipient(2)]).await;
    env.until("it is signed", async || settler_report(&settler).await.operations == 2).await;
    // The operator's key signs elsewhere with the same nonce and far higher fees.
    let to = alloy_address(env.treasury);
    let (raw, _) = env.operator.sign_call(CHAIN_ID, 0, to, Vec::new().into(), 100_000, 50 * GWEI, 20 * GWEI);
    env.chain.send_raw(raw).await.unwrap();
    until_completed(&env, 2).await;
    assert_sent_once(&env, &[recipient(1), recipient(2)]).await;
    let replaced = env.txs().await.into_iter().find(|tx| tx.nonce == 0).unwrap();
    assert_eq!(replaced.status, "cancelled");
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn transfer_waits_for_gas_and_reports_it() {
    let env = env().await;
    let operator = env.operator.address();
    env.chain.set_balance(operator, U256::ZERO).await.unwrap();
    let (watcher, settler) = (env.watch().await, env.settle().await);
    queued(&env, &[recipient(1), recipient(2)]).await;
    env.until("the settler reports the error", async || {
        env.chain.mine(1).await.unwrap();
        settler_report(&settler).await.trouble.is_some()
    })
    .await;
    let trouble = settler_report(&settler).await.trouble.unwrap();
    assert!(trouble.contains("cannot pay for the transaction"), "{trouble}");
    assert_eq!(completed(&env), 0);
    env.chain.set_balance(operator, U256::from(10).pow(U256::from(18))).await.unwrap();
    until_completed(&env, 2).await;
    assert_sent_once(&env, &[recipient(1), recipient(2)]).await;
    assert!(settler_report(&settler).await.trouble.is_none());
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn reorged_transfer_is_sent_again_once() {
    let env = env().await;
    env.chain.mine(3).await.unwrap();
    let (watcher, settler) = (env.watch().await, env.settle().await);
    queued(&env, &[recipient(1)]).await;
    env.until("it is signed", async || settler_report(&settler).await.operations == 1).await;
    env.chain.mine(1).await.unwrap();
    env.until("it is mined", async || env.operations().await.iter().all(|row| row.status == "mined")).await;
    env.chain.reorg(1, payferry_devchain::Dropped::Discard).await.unwrap();
    assert_eq!(env.balance(recipient(1)).await, 0);
    until_completed(&env, 1).await;
    assert_sent_once(&env, &[recipient(1)]).await;
    stop(settler).await;
    stop(watcher).await;
}
