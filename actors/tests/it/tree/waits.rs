//! Conditions that payments wait for: deadlines by the chain's time, and screening; and the alerts if that takes too
//! long.

use std::sync::Arc;

use payferry_domain::payment::{Decision, FailureReason, Label, Payment, Status};
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::ActorKind;

use crate::env::senses::{Senses, metric};
use crate::env::{Env, Options, PAYERS, TestScreener};

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

/// The sandbox moves the chains before the clock. Meanwhile, the time of the chain is ahead.
#[tokio::test(flavor = "multi_thread")]
async fn no_deadline_passes_before_its_own_time_while_the_clock_is_moved() {
    let env = Env::new().await;
    let (waiting, clock, chain) = (env.initiate("10").await, env.system().clock(), env.chain());
    let moving = clock.begin_move();
    chain.devchain.advance_time(1_300, 10).await.unwrap();
    env.until_read(chain).await;
    // More blocks, and more than one turn of the supervisor's wheel.
    chain.blocks(12).await;
    assert_eq!(env.load(waiting.id()).await.status, Status::Pending);
    clock.advance_secs(1_300);
    drop(moving);
    let failed = env.until_status(waiting.id(), Status::Failed).await;
    assert!(failed.updated_at >= failed.expires_at && failed.outages.is_empty());
    assert_eq!(failed.expires_at, waiting.expires_at);
}

#[tokio::test(flavor = "multi_thread")]
async fn outage_during_a_shard_restart_extends_every_deadline() {
    let env = Env::new().await;
    let waiting = env.initiate_many(20).await;
    env.system().inject_crash(ActorKind::Shard);
    env.options.clock.advance_secs(1_300);
    env.chain().devchain.jump_time(1_300).await.unwrap();
    env.until_extended(&waiting).await;
}

/// A screener, and options with it.
fn screened() -> (Arc<TestScreener>, Options) {
    let clock = Clock::default();
    let screener = Arc::new(TestScreener::new(clock.clone()));
    (screener.clone(), Options { clock, ..Options::default() }.screened_by(screener))
}

#[tokio::test(flavor = "multi_thread")]
async fn money_in_review_is_screened_again_until_decided() {
    let (screener, options) = screened();
    screener.answer_next([None].into_iter().chain([Some(Decision::Review); 4]));
    let env = Env::with(options).await;
    env.initiate_and_settle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn review_of_more_than_a_day_raises_an_alarm() {
    const OVERDUE: &str = "payferry_review_overdue_total";
    let (screener, options) = screened();
    screener.say_of_others(Decision::Review);
    let env = Env::with(Options { senses: Senses::Alone, ..options }).await;
    let payment = env.initiate("10").await;
    env.pay(&payment, "10").await;
    env.until_payment(payment.id(), "in review", |now| now.labels.contains(Label::InReview)).await;
    env.options.clock.advance_secs(23 * 3_600);
    let before = screener.requests();
    let asked_again = |_: &Payment| screener.requests() > before + 3;
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
