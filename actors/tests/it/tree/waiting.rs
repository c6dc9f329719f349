//! Payments that only wait have no actor, and react like those that have one.

use std::sync::Arc;

use payferry_domain::PaymentId;
use payferry_domain::payment::{Command, Decision, FailureReason, Label, Payment, Status};
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::ActorKind;
use sea_orm::ConnectionTrait as _;

use crate::env::{Env, Options, TestScreener};

impl Env {
    /// Initiates payments, and has their actors leave.
    async fn waiting(&self, count: usize) -> Vec<Payment> {
        let payments = self.initiate_many(count).await;
        self.until_waiting(count).await;
        payments
    }

    /// Has the actors leave that may, until so many payments wait.
    async fn until_waiting(&self, wanted: usize) {
        self.until("so many payments wait", async || {
            self.system().rest_payments();
            self.system().observe().payments_waiting == wanted
        })
        .await;
    }

    fn waits(&self) -> usize {
        self.system().observe().payments_waiting
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn transfer_command_deadline_and_view_start_the_actor() {
    let env = Env::new().await;
    let [paid, cancelled, viewed, late] = env.waiting(4).await.try_into().unwrap();
    assert_eq!((env.kind(ActorKind::Payment).live, env.system().observe().payments_live), (0, 4));
    assert_eq!(env.system().chains().wallets_watched(), 4);

    env.pay(&paid, "10").await;
    env.until_status(paid.id(), Status::Settled).await;
    env.system().command(cancelled.id(), Command::Cancel, None).await.unwrap();
    assert_eq!(env.load(cancelled.id()).await.status, Status::Failed);
    assert_eq!(env.waits(), 2);
    let view = env.system().observe_payment(viewed.id()).await.unwrap();
    assert_eq!(view.memory.unwrap().version, 1);
    assert_eq!(env.waits(), 1);

    env.until_waiting(2).await;
    env.system().clock().advance_secs(1_201);
    env.chain().devchain.advance_time(1_201, 10).await.unwrap();
    for id in [viewed.id(), late.id()] {
        let expired = env.until_status(id, Status::Failed).await;
        assert_eq!(expired.failure_reason, Some(FailureReason::Expired));
    }
    env.until_payments_live(0).await;
    env.check_feed(&[paid]).await;
}

/// A screener that allows the first transfers and then demands reviews.
fn reviewing_after(allowed: usize) -> Options {
    let clock = Clock::default();
    let screener = Arc::new(TestScreener::new(clock.clone()));
    screener.answer_next(std::iter::repeat_n(Some(Decision::Allow), allowed));
    screener.answer_next(std::iter::repeat_n(Some(Decision::Review), 50));
    Options { clock, ..Options::default() }.screened_by(screener)
}

#[tokio::test(flavor = "multi_thread")]
async fn actor_with_messages_or_work_stays() {
    let env = Env::with(reviewing_after(0)).await;
    let payment = env.initiate("10").await;
    let looked = async || {
        env.system().rest_payments();
        env.until("all shards have looked", async || env.kind(ActorKind::Shard).figures.mailbox == 0).await;
    };
    for _ in 0..3 {
        // A message since the last look.
        assert!(env.system().observe_payment(payment.id()).await.is_some());
        looked().await;
        assert_eq!(env.waits(), 0);
    }
    env.pay(&payment, "10").await;
    let is_in_review = |now: &Payment| now.labels.contains(Label::InReview);
    env.until_payment(payment.id(), "in review", is_in_review).await;
    for _ in 0..3 {
        looked().await;
        assert_eq!(env.waits(), 0, "its transfer is in review");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_service_starts_only_payments_with_work() {
    let mut env = Env::with(reviewing_after(1)).await;
    let payments = env.initiate_many(12).await;
    // It waits for the rest of the money.
    env.pay(&payments[0], "4").await;
    env.until_payment(payments[0].id(), "counted", |payment| !payment.amount_received().is_zero()).await;
    env.pay(&payments[11], "4").await;
    env.until_payment(payments[11].id(), "in review", |payment| payment.labels.contains(Label::InReview)).await;
    env.restart(true).await;
    let has_started = async || {
        let view = env.system().observe();
        (view.payments_live, view.payments_waiting, view.payments_spawned) == (12, 11, 1)
    };
    env.until("only the payment in review has started", has_started).await;
    let lines = (0..16).flat_map(|shard| env.system().payments_of_shard(shard, None, 100));
    let lines: Vec<(PaymentId, bool)> = lines.map(|line| (line.id, line.since.is_some())).collect();
    assert_eq!(lines.iter().filter(|(_, runs)| *runs).count(), 1);
    assert!(payments.iter().all(|payment| lines.iter().any(|(id, _)| *id == payment.id())), "{lines:?}");
    // A supervisor that dies takes no payment with it.
    env.system().inject_crash(ActorKind::Shard);
    env.until("they wait again", async || env.waits() == 11).await;
    env.pay(&payments[0], "6").await;
    env.until_payment(payments[0].id(), "paid", |payment| payment.transfers.len() == 2).await;
}

/// So many live payments that a start reads several pages for each group of shards.
const SEVERAL_PAGES: usize = 6_000;

#[tokio::test(flavor = "multi_thread")]
async fn every_shard_finds_its_payments_among_several_pages() {
    let mut env = Env::new().await;
    let mut made: Vec<PaymentId> = Vec::new();
    while made.len() < SEVERAL_PAGES {
        made.extend(env.initiate_many(300).await.iter().map(Payment::id));
    }
    made.sort_unstable();
    let found = |env: &Env| {
        let lines = (0..16).flat_map(|shard| env.system().payments_of_shard(shard, None, SEVERAL_PAGES));
        let mut found: Vec<PaymentId> = lines.map(|line| line.id).collect();
        found.sort_unstable();
        found
    };
    env.restart(true).await;
    env.until("all wait", async || env.waits() == made.len()).await;
    assert!(found(&env) == made, "each payment once, in its shard");
    env.system().inject_crash(ActorKind::Shard);
    env.until("a shard has started again", async || !env.kind(ActorKind::Shard).restarts.is_empty()).await;
    env.until("they wait again", async || env.waits() == made.len()).await;
    assert!(found(&env) == made, "each payment once, in its shard");
}

#[tokio::test(flavor = "multi_thread")]
async fn shard_whose_reading_fails_reads_again() {
    let env = Env::new().await;
    let payments = env.waiting(20).await;
    let rename = async |from: &str, to: &str| {
        let sql = format!("ALTER TABLE {from} RENAME TO {to}");
        env.database.writer().execute_unprepared(&sql).await.unwrap();
    };
    let restarts = || env.kind(ActorKind::Shard).restarts.values().sum::<u64>();
    rename("payments", "payments_away").await;
    env.system().inject_crash(ActorKind::Shard);
    env.until("the shard has failed to read", async || restarts() >= 3).await;
    assert!(!env.system().observe().ready);
    rename("payments_away", "payments").await;
    env.until("they wait again", async || env.system().observe().ready && env.waits() == payments.len()).await;
    env.pay(&payments[0], "10").await;
    env.until_settled(&payments[..1]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outage_moves_the_deadline_of_payments_that_wait() {
    let env = Env::new().await;
    let waiting = env.waiting(20).await;
    env.options.clock.advance_secs(1_300);
    env.chain().devchain.jump_time(1_300).await.unwrap();
    env.until_extended(&waiting).await;
    env.until_waiting(20).await;
}

/// The facts of an outage and of the deadline arrive in either order.
#[tokio::test(flavor = "multi_thread")]
async fn outage_of_a_restart_is_known_before_the_deadline_passes() {
    let mut env = Env::new().await;
    let waiting = env.initiate_many(20).await;
    env.stop(true).await;
    env.options.clock.advance_secs(1_300);
    env.chain().devchain.jump_time(1_300).await.unwrap();
    env.start().await;
    env.until_extended(&waiting).await;
}
