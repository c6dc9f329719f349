//! Kills the settler after every single step; each operation must still be carried out exactly once.

use std::time::Duration;

use payferry_actors::chain::Step;
use payferry_domain::payment::Command;

use super::env::Env;
use super::fees;
use super::send::{self, AbandonedWithdrawal};
use crate::env::GWEI;

const UNITS: u64 = 10_000_000;

async fn killed_at(step: Step, nth: usize) {
    let mut env = Env::new().await;
    env.spec.batch_items_max = 4;
    let payments = env.paid(10, UNITS).await;
    env.watch().await;
    env.settle_until(&vec![step; nth]).await;
    env.queue_settlements(&payments, 10_000_000).await;
    env.until_dead(step).await;
    env.settle().await;
    env.mine_until_all("mined").await;
    env.mine(1).await;
    env.until("all results are reported", async || env.inbox.completed() >= 10).await;
    env.assert_settled_once(10, UNITS).await;
    let nonces: Vec<i64> = env.txs().await.iter().map(|tx| tx.nonce).collect();
    assert_eq!(nonces, (0..i64::try_from(nonces.len()).unwrap()).collect::<Vec<_>>(), "no nonce is skipped");
}

#[tokio::test]
async fn killed_after_each_step_of_the_first_batch() {
    // The last step is one of a reconciliation.
    for step in &Step::ALL[..Step::Posted as usize] {
        killed_at(*step, 1).await;
    }
}

#[tokio::test]
async fn killed_after_each_step_of_a_later_batch() {
    for step in [Step::Batched, Step::Signed, Step::Stored, Step::Broadcast, Step::Mined, Step::Recorded] {
        killed_at(step, 2).await;
    }
}

/// Steps after a transaction is in a block.
const MINED_STEPS: [Step; 3] = [Step::Mined, Step::Recorded, Step::Notified];

#[tokio::test]
async fn killed_while_recording_an_older_transaction() {
    for step in MINED_STEPS {
        let env = Env::new().await;
        let payments = env.paid(1, UNITS).await;
        env.watch().await;
        env.settle_until(&[step]).await;
        env.queue_settlements(&payments, 10_000_000).await;
        env.until("it is signed", async || !env.txs().await.is_empty()).await;
        env.confirmed_anew(4_000_000, 1_000_000).await;
        env.until_dead(step).await;
        env.settle().await;
        let moved = |command: &Command| match command {
            Command::CompleteSettlement { amount, .. } => Some(amount.units()),
            _ => None,
        };
        let notified = || env.inbox.find(|_, command| moved(command));
        env.mine_until("the result is reported", async || !notified().is_empty()).await;
        assert!(notified().iter().all(|amount| *amount == 10_000_000), "{step:?}: {:?}", notified());
        assert_eq!(env.operation().await.amount, 10_000_000);
        env.assert_settled_once(1, UNITS).await;
    }
}

#[tokio::test]
async fn killed_while_recording_a_given_up_operation_mined_after_a_reorg() {
    for step in MINED_STEPS {
        let env = send::env().await;
        env.start().await;
        let given_up = AbandonedWithdrawal::of(&env, true).await;
        env.stop_settler().await;
        given_up.reorganise(&env).await;
        let kill: &[Step] = if step == Step::Mined { &[step] } else { &[Step::Mined, step] };
        env.settle_until_dead(kill).await;
        env.settle().await;
        given_up.until_notified(&env).await;
    }
}

#[tokio::test]
async fn killed_while_signing_again_with_a_higher_fee() {
    for step in [Step::Signed, Step::Stored, Step::Broadcast] {
        let env = fees::env().await;
        env.watch().await;
        fees::under_way(&env).await;
        let signed = env.attempts_len().await;
        env.mine_at(fees::RAISED_WEI).await;
        env.settle_until(&[step]).await;
        env.until(&format!("the settler died after {step:?}"), async || {
            env.mine_at(fees::RAISED_WEI).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            env.is_settler_dead()
        })
        .await;
        assert_eq!(env.attempts_len().await > signed, step != Step::Signed, "{step:?}");
        env.settle().await;
        fees::until_mined_at(&env, fees::RAISED_WEI).await;
        fees::assert_done_once(&env, 2).await;
        assert_eq!(env.txs().await.len(), 2, "{step:?}");
    }
}

#[tokio::test]
async fn killed_while_giving_up_nonces_that_were_taken() {
    let env = fees::env().await;
    env.watch().await;
    fees::under_way(&env).await;
    // The signer's key signs elsewhere with the nonces of the settlements and of the withdrawals.
    for nonce in [0, 1] {
        env.operator_sends(nonce, 50 * GWEI, 20 * GWEI).await;
    }
    env.mine(1).await;
    // The settler gives up one nonce at a time.
    env.settle_until_dead(&[Step::Recorded]).await;
    let statuses = async || env.txs().await.into_iter().take(2).map(|tx| tx.status.as_str()).collect::<Vec<_>>();
    assert_eq!(statuses().await, ["cancelled", "submitted"]);
    env.settle().await;
    env.mine_until("both are given up", async || statuses().await == ["cancelled", "cancelled"]).await;
    assert!(env.reconcile_sender().await.is_empty());
    env.mine_until_all("mined").await;
    fees::assert_moved_once(&env, 2).await;
    let rows = env.operations().await;
    assert!(rows.iter().all(|row| row.attempts == 2), "{rows:?}");
}
