//! Views and metrics of the actor tree, and their correctness.

use std::time::Duration;

use payferry_actors::observe::Tallied;
use payferry_domain::payment::{Command, Status};
use payferry_domain::{Chain, PaymentId};
use payferry_runtime::observe::{Action, ActorKind, Cause, NodeState};

use crate::env::Env;

/// Time that messages wait for a busy actor.
const WAIT: Duration = Duration::from_millis(50);

fn tallied(env: &Env, status: Status) -> Tallied {
    env.system().tally().into_iter().find(|line| line.chain == Chain::Base && line.status == status).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn tree_lists_permanent_actors_and_counts_payments_per_shard() {
    let env = Env::new().await;
    env.initiate_many(40).await;
    let root = env.system().tree().root;
    assert_eq!((root.kind, root.state), (ActorKind::Root, NodeState::Running));
    let named = |kind| root.children.iter().filter(move |node| node.kind == kind);
    for kind in [
        ActorKind::Journal,
        ActorKind::Screening,
        ActorKind::ComplianceService,
        ActorKind::WebhookSender,
        ActorKind::Watcher,
        ActorKind::Settler,
    ] {
        assert_eq!(named(kind).count(), 1, "{kind:?}");
    }
    let shards: Vec<_> = named(ActorKind::Shard).collect();
    assert_eq!(
        shards.iter().map(|shard| shard.name.clone()).collect::<Vec<_>>(),
        (0..16).map(|n| n.to_string()).collect::<Vec<_>>()
    );
    assert_eq!(shards.iter().map(|shard| shard.children_live).sum::<usize>(), 40);
    assert!(root.children.iter().all(|node| node.state == NodeState::Running && node.since.is_some()), "{root:#?}");
    assert_eq!(root.children_live, root.children.len());
    assert_eq!(env.kind(ActorKind::Payment).live, 40);
    assert_eq!(env.kind(ActorKind::Shard).live, 16);

    // Page by page, each payment once and in order.
    let mut seen: Vec<PaymentId> = Vec::new();
    for shard in 0..16 {
        let mut after = None;
        loop {
            let page = env.system().payments_of_shard(shard, after, 2);
            let Some(last) = page.last() else { break };
            assert!(page.len() <= 2);
            assert!(page.iter().all(|line| after.is_none_or(|after| line.id > after)));
            assert!(
                page.iter().all(|line| (line.status, line.chain, line.version) == (Status::Pending, Chain::Base, 1))
            );
            after = Some(last.id);
            seen.extend(page.iter().map(|line| line.id));
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 40);
    assert!(env.system().payments_of_shard(16, None, 10).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_for_a_busy_actor_are_visible_and_timed() {
    let env = Env::new().await;
    let payment = env.initiate("10").await;
    let id = payment.id();
    let lock = env.lock_database().await;
    let cancel = || {
        let system = env.system().clone();
        tokio::spawn(async move { system.command(id, Command::Cancel, None).await })
    };
    let shard = usize::from(id.shard()) / 16;
    let waiting =
        || env.system().payments_of_shard(shard, None, 100).iter().find(|line| line.id == id).unwrap().mailbox;
    let mut asked = vec![cancel()];
    // The first message is being handled and waits for the database.
    env.until("the first message is being handled", async || {
        env.kind(ActorKind::Journal).figures.messages > 0 && waiting() == 0
    })
    .await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    // Repeated observation adds one message at most: the first request waits, and no other is queued behind it.
    for mailbox in [0, 1, 1] {
        let view = env.system().observe_payment(id).await.unwrap();
        assert_eq!((view.state, view.figures.mailbox), (NodeState::Running, mailbox), "{view:#?}");
        assert!(view.memory.is_none(), "it is too busy to answer");
    }
    asked.extend((0..3).map(|_| cancel()));
    env.until("waiting", async || waiting() == 4).await;
    assert!(env.kind(ActorKind::Payment).figures.mailbox >= 4);
    let view = env.system().observe_payment(id).await.unwrap();
    assert_eq!((view.state, view.figures.mailbox), (NodeState::Running, 4), "{view:#?}");
    assert!(view.memory.is_none(), "it is too busy to answer");
    tokio::time::sleep(WAIT).await;
    lock.release().await;
    for asked in asked {
        let _ = asked.await.unwrap();
    }
    env.until("all messages are handled", async || env.kind(ActorKind::Payment).figures.mailbox == 0).await;
    let figures = env.kind(ActorKind::Payment).figures;
    assert!(figures.messages >= 5, "{figures:?}");
    assert!(figures.wait_ms_max >= 50.0 && figures.wait_ms > 0.0, "{figures:?}");
    assert!(figures.handling_ms_max >= 50.0 && figures.handling_ms > 0.0, "{figures:?}");
    let journal = env.kind(ActorKind::Journal).figures;
    assert!(journal.handling_ms > 0.0 && journal.mailbox == 0, "{journal:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn restarts_and_quarantines_are_shown_with_reason_and_time() {
    let env = Env::new().await;
    let id = env.initiate("10").await.id();
    let mut news = env.system().log().watch();
    let began: std::time::SystemTime = env.system().clock().real_now();
    assert_eq!((*news.borrow_and_update(), env.system().log().since(0).len()), (0, 0));
    env.system().inject_panic(id);
    news.changed().await.unwrap();
    let incident = env.system().log().since(0).pop().unwrap();
    assert_eq!((incident.number, incident.kind, incident.cause), (1, ActorKind::Payment, Cause::Panic));
    assert_eq!((incident.name, incident.action), (id.to_string(), Action::Restarted));
    assert!(incident.reason.contains("on purpose"), "{}", incident.reason);
    assert!(began <= incident.at && incident.at <= env.system().clock().real_now::<std::time::SystemTime>());

    let view = env.until_some("running", async || env.system().observe_payment(id).await).await;
    assert_eq!((view.restarts, view.last_failure.unwrap().cause), (1, Cause::Panic));
    assert_eq!(view.memory.unwrap().status, "pending");
    assert!(view.since.unwrap() >= incident.at.into());

    for number in 2..=4 {
        env.system().inject_panic(id);
        env.until("the panic is noticed", async || env.system().log().since(number - 1).len() == 1).await;
    }
    assert_eq!(env.system().log().since(3)[0].action, Action::Quarantined);
    let view = env.system().observe_payment(id).await.unwrap();
    assert_eq!((view.state, view.restarts, view.since), (NodeState::Quarantined, 3, None));
    assert!(view.quarantined.unwrap().reason.contains("on purpose"));
    let payments = env.kind(ActorKind::Payment);
    assert_eq!((payments.restarts[&Cause::Panic], payments.quarantined), (3, 1));
    env.until("the actor has ended", async || env.kind(ActorKind::Payment).live == 0).await;
    assert_eq!(env.kind(ActorKind::Payment).figures.mailbox, 0, "no message waits for an ended actor");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_permanent_actor_keeps_its_metrics_and_reports_the_restart() {
    let env = Env::new().await;
    env.until("the watcher has read blocks", async || env.node(ActorKind::Watcher).figures.messages > 3).await;
    let before = env.node(ActorKind::Watcher);
    assert_eq!((before.restarts, before.last_failure.is_none()), (0, true));
    env.system().inject_crash(ActorKind::Watcher);
    env.until("restarted", async || {
        let now = env.node(ActorKind::Watcher);
        now.restarts == 1 && now.state == NodeState::Running
    })
    .await;
    let after = env.node(ActorKind::Watcher);
    assert_eq!(after.last_failure.unwrap().cause, Cause::Killed);
    assert!(after.since > before.since && after.figures.messages >= before.figures.messages);
    assert_eq!(env.kind(ActorKind::Watcher).live, 1);
    assert_eq!(env.kind(ActorKind::Watcher).restarts[&Cause::Killed], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn tally_follows_commits_and_is_recounted_at_startup() {
    let mut env = Env::new().await;
    env.until("counted", async || env.system().tally_is_counted()).await;
    let (paid, idle, cancelled) = (env.initiate("10").await, env.initiate("10").await, env.initiate("10").await);
    assert_eq!((tallied(&env, Status::Pending).count, tallied(&env, Status::Pending).live), (3, 3));
    env.system().command(cancelled.id(), Command::Cancel, None).await.unwrap();
    env.pay(&paid, "10").await;
    env.until_status(paid.id(), Status::Settled).await;
    // A panic does not change the tally.
    env.system().inject_panic(idle.id());
    env.until("the panic is noticed", async || !env.system().log().since(0).is_empty()).await;
    let count = |env: &Env| Status::ALL.iter().map(|status| tallied(env, *status).count).collect::<Vec<_>>();
    env.until("the tally is updated", async || count(&env) == [1, 0, 1, 0, 1]).await;
    // A settled payment may still wait for finality; then it is no longer live.
    env.until("no settled payment is live", async || tallied(&env, Status::Settled).live == 0).await;
    let kept = env.system().tally();
    env.restart(true).await;
    env.until("counted", async || env.system().tally_is_counted()).await;
    assert_eq!(env.system().tally(), kept);
    assert_eq!(kept.len(), 15, "every status on every chain");
}
