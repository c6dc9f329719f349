//! Conditions that payments wait for: deadlines by the chain's time, and screening; and the alerts if that takes too
//! long.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use parking_lot::Mutex;
use payferry_actors::compliance::{KytError, KytScreener, ListScreener, ScreenRequest, ScreeningConfig};
use payferry_domain::payment::{Decision, FailureReason, Label, Payment, Status, Verdict};
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::ActorKind;

use crate::env::{Env, Options};

#[tokio::test(flavor = "multi_thread")]
async fn payment_expires_by_the_time_of_the_chain() {
    let env = Env::new().await;
    let (idle, in_time) = (env.initiate("10").await, env.initiate("10").await);
    env.pay(&in_time, "10").await;
    env.system.clock().advance_secs(1_201);
    env.chain.advance_time(1_201, 10).await.unwrap();
    let failed = env.until_status(idle.id(), Status::Failed).await;
    assert_eq!(failed.failure_reason, Some(FailureReason::Expired));
    assert!(failed.passed_at.unwrap() >= idle.expires_at && failed.outages.is_empty());
    env.check_feed(std::slice::from_ref(&idle)).await;
    assert_eq!(env.events_of(idle.id()).await, ["payment.failed", "payin.failed"]);
    env.until_status(in_time.id(), Status::Settled).await;
    env.pay(&idle, "10").await;
    let late = env.until_status(idle.id(), Status::Mismatched).await;
    assert!(late.labels.contains(Label::Late));
}

#[tokio::test(flavor = "multi_thread")]
async fn outage_during_a_shard_restart_extends_every_deadline() {
    let env = Env::new().await;
    let mut waiting = Vec::new();
    for _ in 0..20 {
        waiting.push(env.initiate("10").await);
    }
    env.system.inject_crash(ActorKind::Shard);
    env.options.clock.advance_secs(1_300);
    env.chain.jump_time(1_300).await.unwrap();
    for payment in &waiting {
        let moved =
            env.until(payment.id(), "its deadline is extended", |now| now.expires_at > payment.expires_at).await;
        assert_eq!(moved.status, Status::Pending);
    }
}

/// Returns no decision at first.
struct UndecidedScreener {
    asked: AtomicU32,
    decided: ListScreener,
}

#[async_trait::async_trait]
impl KytScreener for UndecidedScreener {
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
async fn money_in_review_is_screened_again_until_decided() {
    let decided = ListScreener::new("undecided", "1", [], Clock::default());
    let brief = Duration::from_millis(20);
    let options = Options {
        screener: Some(Arc::new(UndecidedScreener { asked: AtomicU32::new(0), decided })),
        screening: ScreeningConfig { retry_min: brief, review_interval: brief, ..ScreeningConfig::default() },
        ..Options::default()
    };
    let env = Env::with(options).await;
    let payment = env.initiate("10").await;
    env.pay(&payment, "10").await;
    env.until_status(payment.id(), Status::Settled).await;
}

/// Records only counters, for the thread on which it is set.
#[derive(Default)]
struct Counted(Mutex<HashMap<String, Arc<AtomicU64>>>);

impl Counted {
    fn of(&self, name: &str) -> u64 {
        self.0.lock().get(name).map_or(0, |count| count.load(Ordering::Acquire))
    }
}

impl Recorder for Counted {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.0.lock().entry(key.name().to_owned()).or_default().clone())
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// Always returns `review`.
struct ReviewThenAllow {
    asked: AtomicU32,
    decided: ListScreener,
}

#[async_trait::async_trait]
impl KytScreener for ReviewThenAllow {
    fn name(&self) -> &'static str {
        "hesitant"
    }

    async fn screen(&self, request: &ScreenRequest) -> Result<Verdict, KytError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(Verdict { decision: Decision::Review, ..self.decided.screen(request).await? })
    }
}

/// On one thread, the one whose counters are recorded.
#[tokio::test]
async fn review_of_more_than_a_day_raises_an_alarm() {
    const OVERDUE: &str = "payferry_review_overdue_total";
    let counted = Counted::default();
    let _kept = metrics::set_default_local_recorder(&counted);
    let (clock, brief) = (Clock::default(), Duration::from_millis(20));
    let decided = ListScreener::new("hesitant", "1", [], clock.clone());
    let screener = Arc::new(ReviewThenAllow { asked: AtomicU32::new(0), decided });
    let options = Options {
        screener: Some(screener.clone()),
        screening: ScreeningConfig { retry_min: brief, review_interval: brief, ..ScreeningConfig::default() },
        clock: clock.clone(),
        ..Options::default()
    };
    let env = Env::with(options).await;
    let payment = env.initiate("10").await;
    env.pay(&payment, "10").await;
    env.until(payment.id(), "in review", |now| now.labels.contains(Label::InReview)).await;
    clock.advance_secs(23 * 3_600);
    let before = screener.asked.load(Ordering::Relaxed);
    let asked_again = |_: &Payment| screener.asked.load(Ordering::Relaxed) > before + 3;
    env.until(payment.id(), "screened again", asked_again).await;
    assert_eq!(counted.of(OVERDUE), 0);
    clock.advance_secs(2 * 3_600);
    let waiting = env.until(payment.id(), "reported as overdue", |_| counted.of(OVERDUE) > 0).await;
    assert_eq!(waiting.status, Status::Pending);
}

/// On one thread, the one whose counters are recorded.
#[tokio::test]
async fn blocked_money_raises_an_alarm() {
    const ALARMS: &str = "payferry_alarms_total";
    let counted = Counted::default();
    let _kept = metrics::set_default_local_recorder(&counted);
    let env = Env::new().await;
    let (clean, tainted) = (env.initiate("10").await, env.initiate("10").await);
    env.pay(&clean, "10").await;
    env.until_status(clean.id(), Status::Settled).await;
    assert_eq!(counted.of(ALARMS), 0);
    env.pay_tainted(&tainted, "10").await;
    let failed = env.until_status(tainted.id(), Status::Failed).await;
    assert_eq!(failed.failure_reason, Some(FailureReason::KytBlocked));
    env.until(tainted.id(), "the alarm is counted", |_| counted.of(ALARMS) == 1).await;
}
