//! Actors of payouts and withdrawals. An actor that panics is restarted in its state; after repeated panics it is
//! quarantined. In every case its money is sent once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use payferry_actors::SendingCommandError;
use payferry_actors::compliance::{KytError, KytScreener, ScreenRequest, ScreeningConfig};
use payferry_actors::observe::Ferried;
use payferry_actors::system::SendingView;
use payferry_domain::Timestamp;
use payferry_domain::payment::{Decision, Verdict};
use payferry_domain::sending::{Command, Effect, SendingId, SendingStatus};
use payferry_entities::operations;
use payferry_journal::outbound as sendings;
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::{Action, ActorKind, Cause, Incident, KindView, NodeState, NodeView};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};

use crate::money::{TOKEN, TREASURER, balance, earn, ended, order};
use crate::world::{Options, World};

const PATIENCE: Duration = Duration::from_mins(1);
/// Pause between a withdrawal's first failure and its restart.
const FIRST_PAUSE_MS: i64 = 100;
/// Pause between the first failure of the withdrawals' supervisor and its restart.
const FIRST_PAUSE_OF_DESK_MS: i64 = 50;

async fn until<T>(what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(since.elapsed() < PATIENCE, "never {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the same configurable decision for every address, and is not asked again within a test.
struct Opinion(Mutex<Decision>);

#[async_trait::async_trait]
impl KytScreener for Opinion {
    fn name(&self) -> &'static str {
        "opinion"
    }

    async fn screen(&self, _: &ScreenRequest) -> Result<Verdict, KytError> {
        Ok(verdict(*self.0.lock(), false))
    }
}

fn verdict(decision: Decision, by_operator: bool) -> Verdict {
    Verdict {
        decision,
        by_operator,
        risk_level: None,
        score: None,
        flags: Vec::new(),
        provider: "opinion".to_owned(),
        provider_ref: None,
        list_version: None,
        plain_sender: None,
        checked_at: Clock::default().now(),
    }
}

/// Earns 9.90 tokens, then makes the screener undecided about everything.
async fn doubtful() -> World {
    let opinion = Arc::new(Opinion(Mutex::new(Decision::Allow)));
    let screening = ScreeningConfig { review_interval: Duration::from_hours(1), ..ScreeningConfig::default() };
    let world = World::with(Options { screener: Some(opinion.clone()), screening, ..Options::default() }).await;
    earn(&world, 1).await;
    *opinion.0.lock() = Decision::Review;
    world
}

/// Creates a withdrawal of one token whose address waits for a decision.
async fn in_review(world: &World) -> SendingId {
    let id = order(world, "1").await.unwrap().id();
    let waits = async || {
        let sending = sendings::load(world.system.database(), id).await.unwrap().unwrap();
        sending.is_in_review().then_some(())
    };
    until("in review", waits).await;
    id
}

async fn allow(world: &World, id: SendingId) -> Result<(), SendingCommandError> {
    let allowed = Command::Screen(verdict(Decision::Allow, true));
    world.system.command_sending(id, allowed, None).await.map(|_| ())
}

/// Waits until its actor runs.
async fn running(world: &World, id: SendingId) -> SendingView {
    let runs = async || world.system.observe_sending(id).await.filter(|view| view.since.is_some());
    until("running", runs).await
}

fn incidents_of(world: &World, id: SendingId) -> Vec<Incident> {
    let name = id.to_string();
    world.system.incidents(None).into_iter().filter(|incident| incident.name == name).collect()
}

/// Makes its actor panic and waits until the incident is recorded.
async fn panic(world: &World, id: SendingId) -> Incident {
    let before = incidents_of(world, id).len();
    world.system.inject_panic(id);
    until("the panic is noticed", async || incidents_of(world, id).into_iter().nth(before)).await
}

fn desk(world: &World) -> NodeView {
    let root = world.system.tree().root;
    root.children.into_iter().find(|node| node.kind == ActorKind::SendingDesk).unwrap()
}

fn kind(world: &World) -> KindView {
    world.system.kinds().into_iter().find(|view| view.kind == ActorKind::Sending).unwrap()
}

/// Asserts that every withdrawal has one operation, and that all of them succeeded.
async fn each_was_sent_once(world: &World, count: usize) {
    let sent = operations::Entity::find().filter(operations::Column::Kind.eq("withdrawal"));
    let sent = sent.all(world.system.database().reader()).await.unwrap();
    assert_eq!(sent.len(), count);
    assert!(sent.iter().all(|row| row.status == "succeeded"), "{sent:#?}");
    assert_eq!(world.balance(TREASURER).await, i64::try_from(count).unwrap() * TOKEN);
}

#[tokio::test(flavor = "multi_thread")]
async fn panicked_withdrawal_restarts_in_its_state_and_is_sent_once() {
    let world = doubtful().await;
    let (bad, other) = (in_review(&world).await, in_review(&world).await);
    let untouched = running(&world, other).await;

    let incident = panic(&world, bad).await;
    assert_eq!((incident.kind, incident.cause, incident.action), (ActorKind::Sending, Cause::Panic, Action::Restarted));
    assert!(incident.reason.contains("on purpose"), "{}", incident.reason);
    // It receives no message in between: its supervisor starts it from its row.
    let view = running(&world, bad).await;
    assert!(view.since.unwrap().millis_since(incident.at.into()) >= FIRST_PAUSE_MS, "{incident:?} {view:?}");
    assert_eq!((view.state, view.restarts), (NodeState::Running, 1));
    assert_eq!(view.last_failure.unwrap().cause, Cause::Panic);
    let memory = view.memory.unwrap();
    assert_eq!((memory.version, memory.status, memory.stale), (2, "pending", false));
    assert!(memory.owes.iter().any(|owed| matches!(owed, Effect::AwaitReview { .. })), "{:?}", memory.owes);
    let still = running(&world, other).await;
    assert_eq!((still.since, still.restarts), (untouched.since, 0), "the other actor was not affected");

    for id in [bad, other] {
        allow(&world, id).await.unwrap();
        assert_eq!(ended(&world, id).await.status, SendingStatus::Sent);
    }
    each_was_sent_once(&world, 2).await;
    assert_eq!(balance(&world).await, (9_900_000 - 2 * TOKEN, 0));
    until("all actors have ended", async || (world.system.observe().sendings_live == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeatedly_panicking_withdrawal_is_quarantined_and_sent_once() {
    let world = World::new().await;
    earn(&world, 1).await;
    // Neither receives a message while the chain is halted.
    world.chain.pause_mining();
    let (bad, other) = (order(&world, "1").await.unwrap().id(), order(&world, "1").await.unwrap().id());
    for id in [bad, other] {
        let cleared = async || {
            let sending = sendings::load(world.system.database(), id).await.unwrap().unwrap();
            sending.is_cleared().then_some(())
        };
        until("cleared", cleared).await;
    }
    for nth in 0..3 {
        let incident = panic(&world, bad).await;
        assert_eq!(incident.action, Action::Restarted);
        let view = running(&world, bad).await;
        let waited = view.since.unwrap().millis_since(incident.at.into());
        assert!(waited >= FIRST_PAUSE_MS << nth, "it restarted {waited} ms after failure {nth}");
    }
    assert_eq!(world.system.observe().sendings_quarantined, 0);
    assert_eq!(panic(&world, bad).await.action, Action::Quarantined);
    let given_up = world.system.given_up(None, 2);
    assert_eq!(given_up.iter().map(|one| one.id).collect::<Vec<_>>(), [Ferried::from(bad)]);
    assert!(given_up[0].quarantine.reason.contains("on purpose"), "{given_up:?}");
    let view = world.system.observe();
    assert_eq!((view.payments_quarantined, view.sendings_quarantined), (0, 1));
    let view = world.system.observe_sending(bad).await.unwrap();
    assert_eq!((view.state, view.since, view.restarts), (NodeState::Quarantined, None, 3));
    let refused = allow(&world, bad).await;
    assert!(matches!(refused, Err(SendingCommandError::Quarantined)), "{refused:?}");
    assert_eq!((kind(&world).restarts[&Cause::Panic], kind(&world).quarantined), (3, 1));

    // A restarted supervisor does not start it, but starts the other.
    world.system.inject_crash(ActorKind::SendingDesk);
    until("the supervisor restarted", async || (desk(&world).restarts == 1).then_some(())).await;
    running(&world, other).await;
    assert_eq!(world.system.observe_sending(bad).await.unwrap().since, None);
    assert_eq!(desk(&world).children_live, 1);

    // The ordered transfer is sent anyway, but its actor does not record it until it is released.
    world.chain.resume_mining();
    assert_eq!(ended(&world, other).await.status, SendingStatus::Sent);
    until("both transfers arrived", async || (world.balance(TREASURER).await == 2 * TOKEN).then_some(())).await;
    let unaware = sendings::load(world.system.database(), bad).await.unwrap().unwrap();
    assert_eq!(unaware.status, SendingStatus::Pending);
    assert!(world.system.release(bad));
    assert_eq!(ended(&world, bad).await.status, SendingStatus::Sent);
    assert!(!world.system.release(bad), "it is no longer quarantined");
    assert_eq!(world.system.observe().sendings_quarantined, 0);
    each_was_sent_once(&world, 2).await;
    assert_eq!(balance(&world).await, (9_900_000 - 2 * TOKEN, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_with_unknown_commit_result_is_not_reported_as_failed() {
    let world = doubtful().await;
    let id = in_review(&world).await;
    let failing = world.test_database.fail_commits("sendings").await;
    let answer = allow(&world, id).await;
    assert!(matches!(answer, Err(SendingCommandError::Unknown(_))), "{answer:?}");
    failing.end().await;
    allow(&world, id).await.unwrap();
    assert_eq!(ended(&world, id).await.status, SendingStatus::Sent);
    each_was_sent_once(&world, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn panics_of_withdrawals_at_any_moment_lose_nothing() {
    let world = World::new().await;
    earn(&world, 3).await;
    let mut ordered: Vec<SendingId> = Vec::new();
    for round in 0..24_u64 {
        ordered.push(order(&world, "1").await.unwrap().id());
        tokio::time::sleep(Duration::from_millis(3 * (round % 7))).await;
        for id in ordered.iter().rev().step_by(5) {
            world.system.inject_panic(*id);
        }
    }
    for id in &ordered {
        let sent = async || {
            // A withdrawal that panicked four times within a minute waits for an operator.
            world.system.release(*id);
            let sending = sendings::load(world.system.database(), *id).await.unwrap().unwrap();
            (!sending.is_live()).then_some(sending)
        };
        assert_eq!(until("ended", sent).await.status, SendingStatus::Sent);
    }
    assert!(kind(&world).restarts[&Cause::Panic] >= 20, "{:?}", kind(&world));
    each_was_sent_once(&world, ordered.len()).await;
    assert_eq!(balance(&world).await, (3 * 9_900_000 - 24 * TOKEN, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn supervisor_backs_off_and_restarts_live_transfers() {
    let world = doubtful().await;
    let mut live = Vec::new();
    for _ in 0..5 {
        live.push(in_review(&world).await);
    }
    for nth in 0..3 {
        world.system.inject_crash(ActorKind::SendingDesk);
        let of_desk = |incident: &Incident| incident.kind == ActorKind::SendingDesk;
        let seen = async || world.system.incidents(None).into_iter().filter(of_desk).nth(nth);
        let incident = until("noticed", seen).await;
        let back = async || Some(desk(&world)).filter(|desk| desk.state == NodeState::Running);
        let since = Timestamp::from(until("running", back).await.since.unwrap());
        let waited = since.millis_since(incident.at.into());
        assert!(waited >= FIRST_PAUSE_OF_DESK_MS << nth, "it restarted {waited} ms after crash {nth}");
        until("the live transfers are running", async || (desk(&world).children_live == live.len()).then_some(()))
            .await;
    }
    // Counted under their supervisor, and listed page by page in order.
    live.sort();
    let first = world.system.sendings_live(None, 3);
    let rest = world.system.sendings_live(Some(first[2].id), 3);
    assert_eq!(first.iter().chain(&rest).map(|line| line.id).collect::<Vec<_>>(), live);
    assert!(first.iter().chain(&rest).all(|line| line.in_review && line.status == SendingStatus::Pending));
    assert_eq!((kind(&world).live, world.system.observe().sendings_live), (5, 5));
    for id in live {
        allow(&world, id).await.unwrap();
        assert_eq!(ended(&world, id).await.status, SendingStatus::Sent);
    }
    each_was_sent_once(&world, 5).await;
}
