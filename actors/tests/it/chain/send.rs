//! Outbound transfers from the PSP's vault that the token rejects, that are not mined in time, are replaced, or lack
//! gas. Each is sent once or reported as failed, and does not affect the others of its batch.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use alloy::primitives::U256;
use payferry_devchain::Dropped;
use payferry_domain::outbound::{Command, FailureReason, OutboundId};
use payferry_domain::{Address, Finality, FinalityPolicy};
use payferry_entities::operations;
use payferry_entities::operations::Column::{ChainTxId, Revision, Status};
use payferry_evm::wallet::alloy_address;
use sea_orm::ColumnTrait;
use sea_orm::sea_query::{Expr, ExprTrait};

use super::env::Env;
use crate::env::{GWEI, operator};

const UNITS: u64 = 1_000_000;
/// Time without being mined after which a transaction is replaced.
const STUCK_AFTER: Duration = Duration::from_millis(300);

/// An account without a role in the tests.
fn recipient(n: u8) -> Address {
    Address([n; 20])
}

/// Funds the PSP and queues a withdrawal to each recipient.
async fn queued(env: &Env, recipients: &[Address]) {
    env.send_money(env.psp_vault(), UNITS * 100).await;
    env.mine(1).await;
    env.queue_withdrawals(recipients, UNITS).await;
}

fn completed(env: &Env) -> usize {
    let completed = env.inbox.find_outbound(|id, command| matches!(command, Command::Complete { .. }).then_some(id));
    completed.into_iter().collect::<HashSet<_>>().len()
}

/// Mines until this many transfers are reported as final.
async fn until_completed(env: &Env, count: usize) {
    env.mine_until("the results are reported", async || completed(env) >= count).await;
}

async fn assert_sent_once(env: &Env, recipients: &[Address]) {
    for to in recipients {
        assert_eq!(env.balance(*to).await, UNITS, "{to}");
    }
    let sent = u64::try_from(recipients.len()).unwrap() * UNITS;
    assert_eq!(env.balance(env.psp_vault()).await, UNITS * 100 - sent);
}

pub(crate) async fn env() -> Env {
    let mut env = Env::new().await;
    env.spec.finality = FinalityPolicy::flat(Finality::Blocks(2));
    env
}

#[tokio::test]
async fn rejected_recipient_fails_alone() {
    let env = env().await;
    env.blacklist(recipient(2), true).await;
    env.start().await;
    queued(&env, &[recipient(1), recipient(2), recipient(3)]).await;
    until_completed(&env, 2).await;
    let failed = || {
        env.inbox.find_outbound(|id, command| match command {
            Command::Fail { reason, detail, .. } => Some((id, *reason, detail.clone())),
            _ => None,
        })
    };
    env.mine_until("the failure is reported", async || !failed().is_empty()).await;
    let (id, reason, detail) = failed().remove(0);
    assert_eq!(reason, FailureReason::SendFailed);
    assert!(detail.contains("token refused"), "{detail}");
    let row = env.operations().await.into_iter().find(|row| row.payment_id == id.to_string()).unwrap();
    assert_eq!(row.recipient.as_deref(), Some(recipient(2).to_string().as_str()));
    assert_sent_once(&env, &[recipient(1), recipient(3)]).await;
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
        env.send_money(env.psp_vault(), UNITS * 100).await;
        env.mine(3).await;
        let before = env.devchain.head().number;
        env.queue_withdrawals(&[recipient(1), recipient(2)], UNITS).await;
        // The simulation does not see the rejection, which is mined first in the same block.
        env.until_signed(2).await;
        env.set_blacklisted(recipient(2), true).await;
        env.mine_until_some("mined").await;
        // As the outbound transfer leaves it.
        let changes = [(Status, Expr::value("cancelled")), (Revision, Expr::col(Revision).add(1))];
        env.update_operations(Status.eq("submitted"), changes).await;
        if !knows_its_tx {
            env.update_operations(Status.eq("cancelled"), [(ChainTxId, Expr::value(None::<i64>))]).await;
        }
        let row = env.operations().await.into_iter().find(|row| row.status.as_str() == "cancelled").unwrap();
        Self { row, before }
    }

    /// Reorgs the block that rejects the recipient; the same transaction enters another block.
    pub(crate) async fn reorganise(&self, env: &Env) {
        env.reorg(env.devchain.head().number - self.before, Dropped::Discard).await;
    }

    /// Mines until the completion is reported; asserts that each transfer was sent once.
    pub(crate) async fn until_notified(&self, env: &Env) {
        let revision = u32::try_from(self.row.revision).unwrap();
        let is_news = |command: &Command| matches!(command, Command::Complete { revision: now, .. } if *now > revision);
        let is_reported = |id: OutboundId, command: &Command| id.to_string() == self.row.payment_id && is_news(command);
        let reports = || env.inbox.find_outbound(|id, command| is_reported(id, command).then_some(()));
        env.mine_until("the completion is reported", async || !reports().is_empty()).await;
        assert_sent_once(env, &[recipient(1), recipient(2)]).await;
        assert_eq!(env.txs().await.len(), 1, "the same transaction");
    }
}

#[tokio::test]
async fn rejection_that_a_reorg_removes_is_no_failure() {
    let mut env = Env::finalized_at(2_000).await;
    env.spec.finality = FinalityPolicy::flat(Finality::Blocks(2));
    env.start().await;
    env.send_money(env.psp_vault(), UNITS * 100).await;
    env.mine(3).await;
    let before = env.devchain.head().number;
    env.queue_withdrawals(&[recipient(1), recipient(2)], UNITS).await;
    // The simulation does not see the rejection, which is mined first in the same block.
    env.until_signed(2).await;
    env.set_blacklisted(recipient(2), true).await;
    env.mine_until_some("mined").await;
    env.mine_and_read(5).await;
    env.settler_passes(3).await;
    let statuses: BTreeSet<&str> = env.operations().await.into_iter().map(|row| row.status.as_str()).collect();
    assert_eq!(statuses, ["mined", "submitted"].into(), "its block can still be orphaned");
    env.reorg(env.devchain.head().number - before, Dropped::Discard).await;
    until_completed(&env, 2).await;
    assert_sent_once(&env, &[recipient(1), recipient(2)]).await;
    let failed = env.inbox.find_outbound(|id, command| matches!(command, Command::Fail { .. }).then_some(id));
    assert!(failed.is_empty(), "{failed:?}");
}

#[tokio::test]
async fn given_up_transfer_mined_after_a_reorg_is_reported() {
    for knows_its_tx in [true, false] {
        let env = env().await;
        env.start().await;
        let given_up = AbandonedWithdrawal::of(&env, knows_its_tx).await;
        given_up.reorganise(&env).await;
        given_up.until_notified(&env).await;
    }
}

#[tokio::test]
async fn stuck_transfer_is_resent_with_higher_fees_and_sent_once() {
    let mut env = env().await;
    env.spec.stuck_after = STUCK_AFTER;
    env.start().await;
    queued(&env, &[recipient(1), recipient(2)]).await;
    env.until_raised_twice().await;
    until_completed(&env, 2).await;
    assert_sent_once(&env, &[recipient(1), recipient(2)]).await;
    assert_eq!(env.txs().await.len(), 1, "one transaction, signed repeatedly");
}

#[tokio::test]
async fn transfer_with_a_replaced_transaction_is_sent_once_after_a_reconciliation() {
    let env = env().await;
    env.start().await;
    queued(&env, &[recipient(1), recipient(2)]).await;
    env.until_signed(2).await;
    // The signer's key signs elsewhere with the same nonce and far higher fees.
    env.operator_sends(0, 50 * GWEI, 20 * GWEI).await;
    let status = async || env.txs().await.remove(0).status.as_str();
    env.mine_until("the transaction is given up", async || status().await == "cancelled").await;
    env.mine(20).await;
    assert_eq!((env.txs().await.len(), completed(&env)), (1, 0), "the other transaction may have sent the same");
    assert!(env.reconcile_sender().await.is_empty(), "it has sent nothing");
    until_completed(&env, 2).await;
    assert_sent_once(&env, &[recipient(1), recipient(2)]).await;
    assert_eq!(status().await, "cancelled");
}

#[tokio::test]
async fn transfer_waits_for_gas_and_reports_it() {
    let env = env().await;
    let operator = alloy_address(operator());
    env.devchain.set_balance(operator, U256::ZERO).await.unwrap();
    env.start().await;
    queued(&env, &[recipient(1), recipient(2)]).await;
    env.until("the settler reports the error", async || {
        env.mine(1).await;
        env.report().await.blocked_reason.is_some()
    })
    .await;
    let reason = env.report().await.blocked_reason.unwrap();
    assert!(reason.contains("cannot pay for the transaction"), "{reason}");
    assert_eq!(completed(&env), 0);
    env.devchain.set_balance(operator, U256::from(10).pow(U256::from(18))).await.unwrap();
    until_completed(&env, 2).await;
    assert_sent_once(&env, &[recipient(1), recipient(2)]).await;
    assert!(env.report().await.blocked_reason.is_none());
}

#[tokio::test]
async fn reorged_transfer_is_sent_again_once() {
    let env = env().await;
    env.mine(3).await;
    env.start().await;
    queued(&env, &[recipient(1)]).await;
    env.until_signed(1).await;
    env.mine(1).await;
    env.until("it is mined", async || env.operations().await.iter().all(|row| row.status.as_str() == "mined")).await;
    env.reorg(1, Dropped::Discard).await;
    assert_eq!(env.balance(recipient(1)).await, 0);
    until_completed(&env, 1).await;
    assert_sent_once(&env, &[recipient(1)]).await;
}
