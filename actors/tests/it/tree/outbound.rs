//! Actors of payouts and withdrawals. An actor that panics is restarted in its state; after repeated panics it is
//! quarantined. In every case its money is sent once.

use std::sync::Arc;
use std::time::Duration;

use super::money::{
    TOKEN, TREASURER, all_sent, balance, each_was_sent_once, ended, order, settle_payments, until_outbound,
};
use crate::env::{Env, Options, TestScreener, verdict};
use payferry_actors::system::OutboundView;
use payferry_domain::outbound::{self, Command, Effect, OutboundId, OutboundStatus, OutboundTransfer};
use payferry_domain::payment::Decision;
use payferry_domain::{CommandError, Timestamp};
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::{Action, ActorKind, Cause, Incident, NodeState};

/// Pause between a withdrawal's first failure and its restart.
const FIRST_PAUSE_MS: i64 = 100;
/// Pause between the first failure of the withdrawals' supervisor and its restart.
const FIRST_PAUSE_OF_SUPERVISOR_MS: i64 = 50;

/// Earns 9.90 tokens, then makes the screener undecided about everything. It is not asked again within a test.
async fn doubtful() -> Env {
    let screener = Arc::new(TestScreener::new(Clock::default()));
    let used = screener.clone();
    let options = Options::default().configured(move |config| {
        config.screener = used.clone();
        config.screening.review_interval = Duration::from_hours(1);
    });
    let env = Env::with(options).await;
    settle_payments(&env, 1).await;
    screener.say_of_others(Decision::Review);
    env
}

/// Creates a withdrawal of one token whose address waits for a decision.
async fn in_review(env: &Env) -> OutboundId {
    let id = order(env, "1").await.unwrap().id();
    until_outbound(env, id, "in review", OutboundTransfer::is_in_review).await;
    id
}

async fn allow(env: &Env, id: OutboundId) -> Result<(), CommandError<outbound::Rejection>> {
    let allowed = Command::Screen(verdict(Decision::Allow, true, Clock::default().now()));
    env.system().command_outbound(id, allowed, None).await.map(|_| ())
}

/// Waits until its actor runs.
async fn running(env: &Env, id: OutboundId) -> OutboundView {
    let runs = async || env.system().observe_outbound(id).await.filter(|view| view.since.is_some());
    env.until_some("running", runs).await
}

fn incidents_of(env: &Env, id: OutboundId) -> Vec<Incident> {
    let name = id.to_string();
    env.system().log().since(0).into_iter().filter(|incident| incident.name == name).collect()
}

/// Makes its actor panic and waits until the incident is recorded.
async fn panic(env: &Env, id: OutboundId) -> Incident {
    let before = incidents_of(env, id).len();
    env.system().inject_panic(id);
    env.until_some("the panic is noticed", async || incidents_of(env, id).into_iter().nth(before)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn panicked_withdrawal_restarts_in_its_state_and_is_sent_once() {
    let env = doubtful().await;
    let (bad, other) = (in_review(&env).await, in_review(&env).await);
    let untouched = running(&env, other).await;

    let incident = panic(&env, bad).await;
    assert_eq!((incident.kind, incident.cause, incident.action), (ActorKind::Sending, Cause::Panic, Action::Restarted));
    assert!(incident.reason.contains("on purpose"), "{}", incident.reason);
    // It receives no message in between: its supervisor starts it from its row.
    let view = running(&env, bad).await;
    assert!(view.since.unwrap().millis_since(incident.at.into()) >= FIRST_PAUSE_MS, "{incident:?} {view:?}");
    assert_eq!((view.state, view.restarts), (NodeState::Running, 1));
    assert_eq!(view.last_failure.unwrap().cause, Cause::Panic);
    let memory = view.memory.unwrap();
    assert_eq!((memory.version, memory.status, memory.stale), (2, "pending", false));
    assert!(memory.owes.iter().any(|owed| matches!(owed, Effect::AwaitReview { .. })), "{:?}", memory.owes);
    let still = running(&env, other).await;
    assert_eq!((still.since, still.restarts), (untouched.since, 0), "the other actor was not affected");

    for id in [bad, other] {
        allow(&env, id).await.unwrap();
    }
    all_sent(&env, &[bad, other]).await;
    each_was_sent_once(&env, 2).await;
    assert_eq!(balance(&env).await, (9_900_000 - 2 * TOKEN, 0));
    env.until("all actors have ended", async || env.system().observe().sendings_live == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeatedly_panicking_withdrawal_is_quarantined_and_sent_once() {
    let env = Env::new().await;
    settle_payments(&env, 1).await;
    // Neither receives a message while the chain is halted.
    env.chain().devchain.pause_mining();
    let (bad, other) = (order(&env, "1").await.unwrap().id(), order(&env, "1").await.unwrap().id());
    for id in [bad, other] {
        until_outbound(&env, id, "cleared", OutboundTransfer::is_cleared).await;
    }
    for nth in 0..3 {
        let incident = panic(&env, bad).await;
        assert_eq!(incident.action, Action::Restarted);
        let view = running(&env, bad).await;
        let waited = view.since.unwrap().millis_since(incident.at.into());
        assert!(waited >= FIRST_PAUSE_MS << nth, "it restarted {waited} ms after failure {nth}");
    }
    assert_eq!(env.system().observe().sendings_quarantined, 0);
    assert_eq!(panic(&env, bad).await.action, Action::Quarantined);
    let given_up = env.system().given_up(None, 2);
    assert_eq!(given_up.iter().map(|one| one.id).collect::<Vec<_>>(), [bad.into()]);
    assert!(given_up[0].quarantine.reason.contains("on purpose"), "{given_up:?}");
    let view = env.system().observe();
    assert_eq!((view.payments_quarantined, view.sendings_quarantined), (0, 1));
    let view = env.system().observe_outbound(bad).await.unwrap();
    assert_eq!((view.state, view.since, view.restarts), (NodeState::Quarantined, None, 3));
    let refused = allow(&env, bad).await;
    assert!(matches!(refused, Err(CommandError::Quarantined)), "{refused:?}");
    assert_eq!(
        (env.kind(ActorKind::Sending).restarts[&Cause::Panic], env.kind(ActorKind::Sending).quarantined),
        (3, 1)
    );

    // A restarted supervisor does not start it, but starts the other.
    env.system().inject_crash(ActorKind::OutboundSupervisor);
    env.until("the supervisor restarted", async || env.node(ActorKind::OutboundSupervisor).restarts == 1).await;
    running(&env, other).await;
    assert_eq!(env.system().observe_outbound(bad).await.unwrap().since, None);
    assert_eq!(env.node(ActorKind::OutboundSupervisor).children_live, 1);

    // The ordered transfer is sent anyway, but its actor does not record it until it is released.
    env.chain().devchain.resume_mining();
    assert_eq!(ended(&env, other).await.status, OutboundStatus::Sent);
    env.until("both transfers arrived", async || env.balance(TREASURER).await == 2 * TOKEN).await;
    assert_eq!(env.load_outbound(bad).await.status, OutboundStatus::Pending);
    assert!(env.release(bad).await);
    assert_eq!(ended(&env, bad).await.status, OutboundStatus::Sent);
    assert!(!env.release(bad).await, "it is no longer quarantined");
    assert_eq!(env.system().observe().sendings_quarantined, 0);
    each_was_sent_once(&env, 2).await;
    assert_eq!(balance(&env).await, (9_900_000 - 2 * TOKEN, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn released_withdrawal_applies_a_missed_failure_immediately() {
    let env = Env::new().await;
    settle_payments(&env, 1).await;
    env.chain().set_blacklisted(TREASURER, true).await;
    env.chain().devchain.pause_mining();
    let bad = order(&env, "1").await.unwrap().id();
    until_outbound(&env, bad, "cleared", OutboundTransfer::is_cleared).await;
    for _ in 0..4 {
        panic(&env, bad).await;
    }
    assert!(env.system().is_quarantined(bad));
    env.chain().devchain.resume_mining();
    let is_recorded =
        async || env.operations_of_kind("withdrawal").await.iter().any(|row| row.status.as_str() == "failed");
    env.until("the failure is recorded", is_recorded).await;
    assert!(env.load_outbound(bad).await.is_live(), "its actor missed it");
    assert!(env.release(bad).await);
    // Sooner than the settler repeats a failure by itself.
    let ended = tokio::time::timeout(Duration::from_secs(20), ended(&env, bad)).await.unwrap();
    assert_eq!(ended.status, OutboundStatus::Failed);
    assert_eq!(balance(&env).await, (9_900_000, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_with_unknown_commit_result_is_not_reported_as_failed() {
    let env = doubtful().await;
    let id = in_review(&env).await;
    let failing = env.test_database.fail_commits("sendings").await;
    let answer = allow(&env, id).await;
    assert!(matches!(answer, Err(CommandError::Unknown(_))), "{answer:?}");
    failing.end().await;
    allow(&env, id).await.unwrap();
    assert_eq!(ended(&env, id).await.status, OutboundStatus::Sent);
    each_was_sent_once(&env, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn panics_of_withdrawals_at_any_moment_lose_nothing() {
    let env = Env::new().await;
    settle_payments(&env, 3).await;
    let mut ordered: Vec<OutboundId> = Vec::new();
    for round in 0..24_u64 {
        ordered.push(order(&env, "1").await.unwrap().id());
        tokio::time::sleep(Duration::from_millis(3 * (round % 7))).await;
        for id in ordered.iter().rev().step_by(5) {
            env.system().inject_panic(*id);
        }
    }
    for id in &ordered {
        env.until("ended", async || {
            // A withdrawal that panicked four times within a minute waits for an operator.
            env.release(*id).await;
            !env.load_outbound(*id).await.is_live()
        })
        .await;
        assert_eq!(env.load_outbound(*id).await.status, OutboundStatus::Sent);
    }
    assert!(env.kind(ActorKind::Sending).restarts[&Cause::Panic] >= 20, "{:?}", env.kind(ActorKind::Sending));
    each_was_sent_once(&env, ordered.len()).await;
    assert_eq!(balance(&env).await, (3 * 9_900_000 - 24 * TOKEN, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn supervisor_backs_off_and_restarts_live_transfers() {
    let env = doubtful().await;
    let mut live = Vec::new();
    for _ in 0..5 {
        live.push(in_review(&env).await);
    }
    for nth in 0..3 {
        env.system().inject_crash(ActorKind::OutboundSupervisor);
        let is_its = |incident: &Incident| incident.kind == ActorKind::OutboundSupervisor;
        let seen = async || env.system().log().since(0).into_iter().filter(is_its).nth(nth);
        let incident = env.until_some("noticed", seen).await;
        let back =
            async || Some(env.node(ActorKind::OutboundSupervisor)).filter(|node| node.state == NodeState::Running);
        let since = Timestamp::from(env.until_some("running", back).await.since.unwrap());
        let waited = since.millis_since(incident.at.into());
        assert!(waited >= FIRST_PAUSE_OF_SUPERVISOR_MS << nth, "it restarted {waited} ms after crash {nth}");
        env.until("the live transfers are running", async || {
            env.node(ActorKind::OutboundSupervisor).children_live == live.len()
        })
        .await;
    }
    // Counted under their supervisor, and listed page by page in order.
    live.sort();
    let first = env.system().outbound_live(None, 3);
    let rest = env.system().outbound_live(Some(first[2].id), 3);
    assert_eq!(first.iter().chain(&rest).map(|line| line.id).collect::<Vec<_>>(), live);
    assert!(first.iter().chain(&rest).all(|line| line.in_review && line.status == OutboundStatus::Pending));
    assert_eq!((env.kind(ActorKind::Sending).live, env.system().observe().sendings_live), (5, 5));
    for id in &live {
        allow(&env, *id).await.unwrap();
    }
    all_sent(&env, &live).await;
    each_was_sent_once(&env, 5).await;
}
