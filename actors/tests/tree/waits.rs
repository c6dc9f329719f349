//! What payments wait for: deadlines by the chain's time, and screening.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use payferry_actors::clock::Clock;
use payferry_actors::compliance::{KytError, KytScreener, ListScreener, ScreenRequest, ScreeningConfig};
use payferry_actors::observe::ActorKind;
use payferry_domain::payment::{Decision, FailureReason, Label, Status, Verdict};

use crate::world::{Options, World};

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_expires_by_the_time_of_the_chain_and_says_so() {
    let world = World::new().await;
    let (idle, in_time) = (world.initiate("10").await, world.initiate("10").await);
    world.pay(&in_time, "10").await;
    world.system.clock().advance_secs(1_201);
    world.chain.advance_time(1_201, 10).await.unwrap();
    let failed = world.until_status(idle.id(), Status::Failed).await;
    assert_eq!(failed.failure_reason, Some(FailureReason::Expired));
    assert!(failed.passed_at.unwrap() >= idle.expires_at && failed.outages.is_empty());
    world.check_feed(std::slice::from_ref(&idle)).await;
    assert_eq!(world.events_of(idle.id()).await, ["payment.failed", "payin.failed"]);
    world.until_status(in_time.id(), Status::Settled).await;
    world.pay(&idle, "10").await;
    let late = world.until_status(idle.id(), Status::Mismatched).await;
    assert!(late.labels.contains(Label::Late));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_that_is_read_while_the_shards_restart_moves_every_deadline() {
    let world = World::new().await;
    let mut waiting = Vec::new();
    for _ in 0..20 {
        waiting.push(world.initiate("10").await);
    }
    world.system.inject_crash(ActorKind::Shard);
    world.options.clock.advance_secs(1_300);
    world.chain.jump_time(1_300).await.unwrap();
    for payment in &waiting {
        let moved = world.until(payment.id(), "moved on", |now| now.expires_at > payment.expires_at).await;
        assert_eq!(moved.status, Status::Pending);
    }
}

/// Cannot say at first.
struct Undecided {
    asked: AtomicU32,
    decided: ListScreener,
}

#[async_trait::async_trait]
impl KytScreener for Undecided {
    fn name(&self) -> &'static str {
        "undecided"
    }

    async fn screen(&self, request: &ScreenRequest) -> Result<Verdict, KytError> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        let verdict = self.decided.screen(request).await?;
        match asked {
            0 => Err(KytError("away".to_owned())),
            1..=4 => Ok(Verdict { decision: Decision::Review, ..verdict }),
            _ => Ok(verdict),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn money_in_review_is_screened_again_until_it_is_decided() {
    let decided = ListScreener::new("undecided", "1", [], Clock::default());
    let brief = Duration::from_millis(20);
    let options = Options {
        screener: Some(Arc::new(Undecided { asked: AtomicU32::new(0), decided })),
        screening: ScreeningConfig { retry_min: brief, review_interval: brief, ..ScreeningConfig::default() },
        ..Options::default()
    };
    let world = World::with(options).await;
    let payment = world.initiate("10").await;
    world.pay(&payment, "10").await;
    world.until_status(payment.id(), Status::Settled).await;
}
