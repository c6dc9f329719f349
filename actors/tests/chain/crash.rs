//! The settler dies after every single step, and each operation is still carried out exactly once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use payferry_actors::chain::{Checkpoint, Killed, Step};
use payferry_domain::payment::Command;

use crate::world::{World, stop};

const UNITS: u64 = 10_000_000;

/// Kills at the `nth` time that a step is reached.
struct KillAt {
    step: Step,
    nth: AtomicU32,
}

impl Checkpoint for KillAt {
    fn reached(&self, step: Step) -> Result<(), Killed> {
        if step == self.step && self.nth.fetch_sub(1, Ordering::Relaxed) == 1 { Err(Killed(step)) } else { Ok(()) }
    }
}

async fn killed_at(step: Step, nth: u32) {
    let mut world = World::new().await;
    world.spec.batch_items_max = 4;
    let payments = world.payments(10).await;
    world.pay_all(&payments, UNITS).await;
    let watcher = world.watch().await;
    let settler = world.settle_until(Arc::new(KillAt { step, nth: AtomicU32::new(nth) })).await;
    world.queue_settlements(&payments, 10_000_000).await;
    world
        .until(&format!("it died after {step:?}"), async || {
            world.chain.mine(1).await.unwrap();
            tokio::time::sleep(Duration::from_millis(30)).await;
            settler.get_status() == ractor::ActorStatus::Stopped
        })
        .await;
    let settler = world.settle().await;
    world.mine_until_all("mined").await;
    world.chain.mine(1).await.unwrap();
    let completed = |command: &Command| matches!(command, Command::CompleteSettlement { .. });
    world.until("all are told", async || world.inbox.count(completed) >= 10).await;
    world.assert_settled_once(10, UNITS).await;
    let nonces: Vec<i64> = world.txs().await.iter().map(|tx| tx.nonce).collect();
    assert_eq!(nonces, (0..i64::try_from(nonces.len()).unwrap()).collect::<Vec<_>>(), "no nonce is left out");
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
