//! Payouts and withdrawals as actors under their desk: one that panics is started again where it stood, one that does so
//! again and again is given up, and its money leaves once whatever happens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use payferry_actors::SendingCommandError;
use payferry_actors::clock::Clock;
use payferry_actors::compliance::{KytError, KytScreener, ScreenRequest, ScreeningConfig};
use payferry_actors::observe::{Action, ActorKind, Cause, Ferried, Incident, KindView, NodeState, NodeView};
use payferry_actors::sending::store as sendings;
use payferry_actors::system::SendingView;
use payferry_domain::Timestamp;
use payferry_domain::payment::{Decision, Verdict};
use payferry_domain::sending::{Command, Effect, SendingId, SendingStatus};
use payferry_entities::operations;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};

use crate::money::{TOKEN, TREASURER, balance, earn, ended, order};
use crate::world::{Options, World};

const PATIENCE: Duration = Duration::from_mins(1);
/// Between a withdrawal's first failure and its next start.
const FIRST_PAUSE_MS: i64 = 100;
/// The same of its desk.
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

/// Says of every address what it was last told to say, and is asked again about none within a test.
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

/// 9.90 tokens earned, and a screener that is undecided about everything from then on.
async fn doubtful() -> World {
    let opinion = Arc::new(Opinion(Mutex::new(Decision::Allow)));
    let screening = ScreeningConfig { review_interval: Duration::from_hours(1), ..ScreeningConfig::default() };
    let world = World::with(Options { screener: Some(opinion.clone()), screening, ..Options::default() }).await;
    earn(&world, 1).await;
    *opinion.0.lock() = Decision::Review;
    world
}

/// A withdrawal of one token whose address waits for a decision.
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

/// Its actor, once it runs.
async fn running(world: &World, id: SendingId) -> SendingView {
    let runs = async || world.system.observe_sending(id).await.filter(|view| view.since.is_some());
    until("running", runs).await
}

fn incidents_of(world: &World, id: SendingId) -> Vec<Incident> {
    let name = id.to_string();
    world.system.incidents(None).into_iter().filter(|incident| incident.name == name).collect()
}

/// Makes its actor panic until the desk has seen it.
async fn panic(world: &World, id: SendingId) -> Incident {
    let before = incidents_of(world, id).len();
    world.system.inject_panic(id);
    until("noticed", async || incidents_of(world, id).into_iter().nth(before)).await
}

fn desk(world: &World) -> NodeView {
    let root = world.system.tree().root;
    root.children.into_iter().find(|node| node.kind == ActorKind::SendingDesk).unwrap()
}

fn kind(world: &World) -> KindView {
    world.system.kinds().into_iter().find(|view| view.kind == ActorKind::Sending).unwrap()
}

/// Every withdrawal has one operation, and all of them are done.
async fn each_was_sent_once(world: &World, count: usize) {
    let sent = operations::Entity::find().filter(operations::Column::Kind.eq("withdrawal"));
    let sent = sent.all(world.system.database().reader()).await.unwrap();
    assert_eq!(sent.len(), count);
    assert!(sent.iter().all(|row| row.status == "succeeded"), "{sent:#?}");
    assert_eq!(world.balance(TREASURER).await, i64::try_from(count).unwrap() * TOKEN);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_withdrawal_that_panics_is_started_again_where_it_stood_and_is_sent_once() {
    let world = doubtful().await;
    let (bad, other) = (in_review(&world).await, in_review(&world).await);
    let untouched = running(&world, other).await;

    let incident = panic(&world, bad).await;
    assert_eq!((incident.kind, incident.cause, incident.action), (ActorKind::Sending, Cause::Panic, Action::Restarted));
    assert!(incident.reason.contains("on purpose"), "{}", incident.reason);
    // Nobody tells it anything meanwhile: its desk starts it, from its row.
    let view = running(&world, bad).await;
    assert!(view.since.unwrap().millis_since(incident.at.into()) >= FIRST_PAUSE_MS, "{incident:?} {view:?}");
    assert_eq!((view.state, view.restarts), (NodeState::Running, 1));
    assert_eq!(view.last_failure.unwrap().cause, Cause::Panic);
    let memory = view.memory.unwrap();
    assert_eq!((memory.version, memory.status, memory.stale), (2, "pending", false));
    assert!(memory.owes.iter().any(|owed| matches!(owed, Effect::AwaitReview { .. })), "{:?}", memory.owes);
    let still = running(&world, other).await;
    assert_eq!((still.since, still.restarts), (untouched.since, 0), "its neighbour was left alone");

    for id in [bad, other] {
        allow(&world, id).await.unwrap();
        assert_eq!(ended(&world, id).await.status, SendingStatus::Sent);
    }
    each_was_sent_once(&world, 2).await;
    assert_eq!(balance(&world).await, (9_900_000 - 2 * TOKEN, 0));
    until("left", async || (world.system.observe().sendings_live == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_withdrawal_that_panics_again_and_again_is_given_up_and_its_money_leaves_once() {
    let world = World::new().await;
    earn(&world, 1).await;
    // Nothing is told to either of them while the chain stands still.
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
        assert!(waited >= FIRST_PAUSE_MS << nth, "it came back {waited} ms after failure {nth}");
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

    // A desk that is started anew lets it be, and takes up the other.
    world.system.inject_crash(ActorKind::SendingDesk);
    until("restarted", async || (desk(&world).restarts == 1).then_some(())).await;
    running(&world, other).await;
    assert_eq!(world.system.observe_sending(bad).await.unwrap().since, None);
    assert_eq!(desk(&world).children_live, 1);

    // What was ordered is sent all the same, and nobody takes note of it until it is let run.
    world.chain.resume_mining();
    assert_eq!(ended(&world, other).await.status, SendingStatus::Sent);
    until("both arrived", async || (world.balance(TREASURER).await == 2 * TOKEN).then_some(())).await;
    let unaware = sendings::load(world.system.database(), bad).await.unwrap().unwrap();
    assert_eq!(unaware.status, SendingStatus::Pending);
    assert!(world.system.release(bad));
    assert_eq!(ended(&world, bad).await.status, SendingStatus::Sent);
    assert!(!world.system.release(bad), "it is given up no more");
    assert_eq!(world.system.observe().sendings_quarantined, 0);
    each_was_sent_once(&world, 2).await;
    assert_eq!(balance(&world).await, (9_900_000 - 2 * TOKEN, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_whose_commit_fails_somehow_is_not_said_to_be_unmade() {
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
            // Who panicked four times in a minute waits for an operator.
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
async fn the_desk_waits_longer_each_time_and_takes_up_what_is_live() {
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
        assert!(waited >= FIRST_PAUSE_OF_DESK_MS << nth, "it came back {waited} ms after death {nth}");
        until("taken up", async || (desk(&world).children_live == live.len()).then_some(())).await;
    }
    // Counted where they belong, and listed a page at a time, in order.
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
