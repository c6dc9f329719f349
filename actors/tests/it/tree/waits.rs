//! Conditions that payments wait for: deadlines by the chain's time, and screening; and the alerts if that takes too
//! long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use payferry_actors::compliance::{KytError, KytScreener, ListScreener, ScreenRequest};
use payferry_domain::payment::{Decision, FailureReason, Label, Payment, Status, Verdict};
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::ActorKind;

use crate::env::senses::{Senses, metric};
use crate::env::{Env, Options, PAYERS};

#[tokio::test(flavor = "multi_thread")]
async fn payment_expires_by_the_time_of_the_chain() {
    let env = Env::new().await;
    let (idle, in_time) = (env.initiate("10").await, env.initiate("10").await);
    env.pay(&in_time, "10").await;
    env.system().clock().advance_secs(1_201);
    env.chain().devchain.advance_time(1_201, 10).await.unwrap();
    let failed = env.until_status(idle.id(), Status::Failed).await;
    assert_eq!(failed.failure_reason, Some(FailureReason::Expired));
    assert!(failed.passed_at.unwrap() >= idle.expires_at && failed.outages.is_empty());
    env.check_feed(std::slice::from_ref(&idle)).await;
    let names: Vec<String> = env.events(idle.id()).await.into_iter().map(|event| event.name).collect();
    assert_eq!(names, ["payment.failed", "payin.failed"]);
    env.until_status(in_time.id(), Status::Settled).await;
    env.pay(&idle, "10").await;
    let late = env.until_status(idle.id(), Status::Mismatched).await;
    assert!(late.labels.contains(Label::Late));
}

#[tokio::test(flavor = "multi_thread")]
async fn outage_during_a_shard_restart_extends_every_deadline() {
    let env = Env::new().await;
    let waiting = env.initiate_many(20).await;
    env.system().inject_crash(ActorKind::Shard);
    env.options.clock.advance_secs(1_300);
    env.chain().devchain.jump_time(1_300).await.unwrap();
    for payment in &waiting {
        let is_moved = |now: &Payment| now.expires_at > payment.expires_at;
        let moved = env.until_payment(payment.id(), "extended", is_moved).await;
        assert_eq!(moved.status, Status::Pending);
    }
}

/// Fails `errors` times, then returns `review` as often as `reviews` says, and then decides.
struct UndecidedScreener {
    asked: AtomicU32,
    errors: u32,
    reviews: u32,
    decided: ListScreener,
}

impl UndecidedScreener {
    /// Options with this screener, and frequent screening.
    fn options(errors: u32, reviews: u32) -> (Arc<Self>, Options) {
        let (brief, clock) = (Duration::from_millis(20), Clock::default());
        let decided = ListScreener::new("undecided", "1", [], clock.clone());
        let screener = Arc::new(Self { asked: AtomicU32::new(0), errors, reviews, decided });
        let used = screener.clone();
        let options = Options { clock, ..Options::default() }.configured(move |config| {
            config.screener = used.clone();
            (config.screening.retry_min, config.screening.review_interval) = (brief, brief);
        });
        (screener, options)
    }
}

#[async_trait::async_trait]
impl KytScreener for UndecidedScreener {
    fn name(&self) -> &'static str {
        "undecided"
    }

    async fn screen(&self, request: &ScreenRequest) -> Result<Verdict, KytError> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        let verdict = self.decided.screen(request).await?;
        if asked < self.errors {
            return Err(KytError("away".to_owned()));
        }
        let is_decided = asked - self.errors >= self.reviews;
        Ok(if is_decided { verdict } else { Verdict { decision: Decision::Review, ..verdict } })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn money_in_review_is_screened_again_until_decided() {
    let env = Env::with(UndecidedScreener::options(1, 4).1).await;
    env.initiate_and_settle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn review_of_more_than_a_day_raises_an_alarm() {
    const OVERDUE: &str = "payferry_review_overdue_total";
    let (screener, options) = UndecidedScreener::options(0, u32::MAX);
    let env = Env::with(Options { senses: Senses::Alone, ..options }).await;
    let payment = env.initiate("10").await;
    env.pay(&payment, "10").await;
    env.until_payment(payment.id(), "in review", |now| now.labels.contains(Label::InReview)).await;
    env.options.clock.advance_secs(23 * 3_600);
    let before = screener.asked.load(Ordering::Relaxed);
    let asked_again = |_: &Payment| screener.asked.load(Ordering::Relaxed) > before + 3;
    env.until_payment(payment.id(), "screened again", asked_again).await;
    assert_eq!(metric(OVERDUE, &[]), 0);
    env.options.clock.advance_secs(2 * 3_600);
    let waiting = env.until_payment(payment.id(), "reported as overdue", |_| metric(OVERDUE, &[]) > 0).await;
    assert_eq!(waiting.status, Status::Pending);
}

#[tokio::test(flavor = "multi_thread")]
async fn blocked_money_raises_an_alarm() {
    const ALARMS: &str = "payferry_alarms_total";
    let env = Env::with(Options { senses: Senses::Alone, ..Options::default() }).await;
    let tainted = env.initiate("10").await;
    env.initiate_and_settle().await;
    assert_eq!(metric(ALARMS, &[]), 0);
    env.pay_from(PAYERS[2], &tainted, "10").await;
    let failed = env.until_status(tainted.id(), Status::Failed).await;
    assert_eq!(failed.failure_reason, Some(FailureReason::KytBlocked));
    env.until("the alarm is counted", async || metric(ALARMS, &[]) == 1).await;
}
