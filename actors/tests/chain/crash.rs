//! Kills the settler after every single step; each operation must still be carried out exactly once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use payferry_actors::chain::{Checkpoint, Killed, SettlerMessage, Step};
use payferry_domain::payment::Command;
use payferry_evm::wallet::alloy_address;
use payferry_runtime::observe::Mailbox;

use crate::env::{CHAIN_ID, Env, GWEI, stop};
use crate::fees;
use crate::send::{self, AbandonedWithdrawal};

const UNITS: u64 = 10_000_000;

/// Kills the settler at the `nth` time that it reaches a step.
pub(crate) struct KillAt {
    step: Step,
    nth: AtomicU32,
}

impl KillAt {
    pub(crate) fn first(step: Step) -> Self {
        Self::nth(step, 1)
    }

    pub(crate) fn nth(step: Step, nth: u32) -> Self {
        Self { step, nth: AtomicU32::new(nth) }
    }
}

impl Checkpoint for KillAt {
    fn reached(&self, step: Step) -> Result<(), Killed> {
        if step == self.step && self.nth.fetch_sub(1, Ordering::Relaxed) == 1 { Err(Killed(step)) } else { Ok(()) }
    }
}

/// Kills the settler at the first such step after a transaction was found in a block.
struct KillMined {
    step: Step,
    is_mined: AtomicBool,
}

impl Checkpoint for KillMined {
    fn reached(&self, step: Step) -> Result<(), Killed> {
        let is_mined = self.is_mined.fetch_or(step == Step::Mined, Ordering::Relaxed) || step == Step::Mined;
        if is_mined && step == self.step { Err(Killed(step)) } else { Ok(()) }
    }
}

/// Mines until the settler is dead.
pub(crate) async fn until_dead(env: &Env, settler: &Mailbox<SettlerMessage>, step: Step) {
    env.until(&format!("the settler died after {step:?}"), async || {
        env.chain.mine(1).await.unwrap();
        tokio::time::sleep(Duration::from_millis(30)).await;
        settler.get_status() == ractor::ActorStatus::Stopped
    })
    .await;
}

async fn killed_at(step: Step, nth: u32) {
    let mut env = Env::new().await;
    env.spec.batch_items_max = 4;
    let payments = env.payments(10).await;
    env.pay_all(&payments, UNITS).await;
    let watcher = env.watch().await;
    let settler = env.settle_until(Arc::new(KillAt::nth(step, nth))).await;
    env.queue_settlements(&payments, 10_000_000).await;
    until_dead(&env, &settler, step).await;
    let settler = env.settle().await;
    env.mine_until_all("mined").await;
    env.chain.mine(1).await.unwrap();
    let completed = |command: &Command| matches!(command, Command::CompleteSettlement { .. });
    env.until("all results are reported", async || env.inbox.count(completed) >= 10).await;
    env.assert_settled_once(10, UNITS).await;
    let nonces: Vec<i64> = env.txs().await.iter().map(|tx| tx.nonce).collect();
    assert_eq!(nonces, (0..i64::try_from(nonces.len()).unwrap()).collect::<Vec<_>>(), "no nonce is skipped");
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn killed_after_each_step_of_the_first_batch() {
    for step in Step::ALL {
        killed_at(step, 1).await;
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
        let payments = env.payments(1).await;
        env.pay_all(&payments, UNITS).await;
        let watcher = env.watch().await;
        let settler = env.settle_until(Arc::new(KillAt::first(step))).await;
        env.queue_settlements(&payments, 10_000_000).await;
        env.until("it is signed", async || !env.txs().await.is_empty()).await;
        env.confirmed_anew(4_000_000, 1_000_000).await;
        until_dead(&env, &settler, step).await;
        let settler = env.settle().await;
        let moved = |command: &Command| match command {
            Command::CompleteSettlement { amount, .. } => Some(amount.units()),
            _ => None,
        };
        let notified =
            || env.inbox.notified.lock().iter().filter_map(|(_, command)| moved(command)).collect::<Vec<_>>();
        env.until("the result is reported", async || {
            env.chain.mine(1).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            !notified().is_empty()
        })
        .await;
        assert!(notified().iter().all(|amount| *amount == 10_000_000), "{step:?}: {:?}", notified());
        assert_eq!(env.operations().await[0].amount, 10_000_000);
        env.assert_settled_once(1, UNITS).await;
        stop(settler).await;
        stop(watcher).await;
    }
}

#[tokio::test]
async fn killed_while_recording_a_given_up_operation_mined_after_a_reorg() {
    for step in MINED_STEPS {
        let env = send::env().await;
        let (watcher, settler) = (env.watch().await, env.settle().await);
        let given_up = AbandonedWithdrawal::of(&env, true).await;
        stop(settler).await;
        given_up.reorganise(&env).await;
        let settler = env.settle_until(Arc::new(KillMined { step, is_mined: AtomicBool::new(false) })).await;
        until_dead(&env, &settler, step).await;
        let settler = env.settle().await;
        given_up.until_notified(&env).await;
        stop(settler).await;
        stop(watcher).await;
    }
}

#[tokio::test]
async fn killed_while_signing_again_with_a_higher_fee() {
    for step in [Step::Signed, Step::Stored, Step::Broadcast] {
        let env = fees::env().await;
        let watcher = env.watch().await;
        fees::under_way(&env).await;
        let signed = env.attempts().await.len();
        env.mine_at(fees::RAISED_WEI).await;
        let settler = env.settle_until(Arc::new(KillAt::first(step))).await;
        env.until(&format!("the settler died after {step:?}"), async || {
            env.mine_at(fees::RAISED_WEI).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            settler.get_status() == ractor::ActorStatus::Stopped
        })
        .await;
        assert_eq!(env.attempts().await.len() > signed, step != Step::Signed, "{step:?}");
        let settler = env.settle().await;
        fees::until_mined_at(&env, fees::RAISED_WEI).await;
        fees::assert_done_once(&env, 2).await;
        assert_eq!(env.txs().await.len(), 2, "{step:?}");
        stop(settler).await;
        stop(watcher).await;
    }
}

#[tokio::test]
async fn killed_while_giving_up_nonces_that_were_taken() {
    let env = fees::env().await;
    let watcher = env.watch().await;
    fees::under_way(&env).await;
    // The operator's key signs elsewhere with the nonces of the settlements and of the withdrawals.
    let to = alloy_address(env.treasury);
    for nonce in [0, 1] {
        let (raw, _) = env.operator.sign_call(CHAIN_ID, nonce, to, Vec::new().into(), 100_000, 50 * GWEI, 20 * GWEI);
        env.chain.send_raw(raw).await.unwrap();
    }
    env.chain.mine(1).await.unwrap();
    // The settler gives up one nonce at a time.
    let settler = env.settle_until(Arc::new(KillAt::first(Step::Recorded))).await;
    until_dead(&env, &settler, Step::Recorded).await;
    let statuses = async || env.txs().await.into_iter().take(2).map(|tx| tx.status).collect::<Vec<_>>();
    assert_eq!(statuses().await, ["cancelled", "submitted"]);
    let settler = env.settle().await;
    env.mine_until_all("mined").await;
    fees::assert_moved_once(&env, 2).await;
    assert_eq!(statuses().await, ["cancelled", "cancelled"]);
    let rows = env.operations().await;
    assert!(rows.iter().all(|row| row.attempts == 2), "{rows:?}");
    stop(settler).await;
    stop(watcher).await;
}
