//! Permanent actors that are killed while they work, and the effect on payments.

use std::time::Duration;

use payferry_domain::payment::{Command, Rejection, Status};
use payferry_domain::{Amount, CommandError, Finality, FinalityPolicy, PaymentId};
use payferry_entities::{payments, transfers};
use payferry_evm::ChainSpec;
use payferry_harness::database::DatabaseFault;
use payferry_runtime::observe::ActorKind;
use payferry_webhook::{UrlPolicy, endpoints};
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter};

use crate::env::{Env, Options};

async fn until_ready(env: &Env, wanted: bool) {
    env.until(&format!("ready is {wanted}"), async || env.system().is_ready() == wanted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payments_of_a_dead_shard_are_restarted() {
    let env = Env::new().await;
    let payments = env.initiate_many(20).await;
    env.system().inject_crash(ActorKind::Shard);
    env.until_restarts(ActorKind::Shard, 16).await;
    for payment in &payments {
        env.pay(payment, "10").await;
    }
    env.until_settled(&payments).await;
    env.assert_settled(20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tree_is_ready_again_when_all_dead_shards_have_reloaded() {
    let env = Env::new().await;
    env.initiate_many(20).await;
    until_ready(&env, true).await;
    let away = DatabaseFault::table_away(env.test_database.url(), "payments").await;
    env.system().inject_crash(ActorKind::Shard);
    until_ready(&env, false).await;
    // Some shards have failed more than once: earlier reads no longer count.
    let restarts = || env.system().observe().restarts.get(&ActorKind::Shard).copied().unwrap_or_default();
    env.until("restarted", async || restarts() >= 48).await;
    assert!(!env.system().is_ready());
    away.end().await;
    until_ready(&env, true).await;
    assert_eq!(env.system().observe().payments_live, 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_shard_is_not_ready_until_it_runs_again() {
    let env = Env::new().await;
    env.initiate_many(20).await;
    // Each restart pause is twice as long, finally 1.6 s.
    for died in 1..=6 {
        until_ready(&env, true).await;
        assert_eq!(env.system().observe().payments_live, 20);
        env.system().inject_crash(ActorKind::Shard);
        env.until_restarts(ActorKind::Shard, 16 * died).await;
    }
    let view = env.system().observe();
    assert_eq!((view.ready, view.payments_live), (false, 0));
    assert!(
        env.system().tree().root.children.iter().all(|node| node.children_live == 0 || node.kind != ActorKind::Shard)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_permanent_actor_may_die_at_any_time() {
    let env = Env::new().await;
    let mut paid = Vec::new();
    for round in 0..15_u64 {
        paid.extend(env.initiate_and_pay(4).await);
        let kinds =
            [ActorKind::Shard, ActorKind::Watcher, ActorKind::Settler, ActorKind::Screening, ActorKind::WebhookSender];
        env.system().inject_crash(kinds[usize::try_from(round).unwrap() % kinds.len()]);
        tokio::time::sleep(Duration::from_millis(7 * (round % 6))).await;
    }
    env.until_settled(&paid).await;
    env.assert_settled(paid.len()).await;
    env.check_feed(&paid).await;
}

/// Marks the transfer rows of a payment as applied but set aside.
async fn set_aside(env: &Env, id: PaymentId) {
    let known = transfers::Entity::update_many()
        .col_expr(transfers::Column::AppliedRevision, Expr::col(transfers::Column::Revision))
        .filter(transfers::Column::PaymentId.eq(id.to_string()));
    known.exec(env.system().database().writer()).await.unwrap();
}

/// Creates a payment whose transfer is recorded but not yet applied.
async fn paid_and_not_notified(env: &Env) -> PaymentId {
    let payment = env.initiate("10").await;
    for _ in 0..4 {
        let before = env.system().log().incidents_len();
        env.system().inject_panic(payment.id());
        env.until("the panic is noticed", async || env.system().log().incidents_len() != before).await;
    }
    env.pay(&payment, "10").await;
    env.until("the transfer is recorded", async || env.unapplied().await > 0).await;
    // The watcher notifies after its commit and before its next poll. The command waits behind that notification.
    env.mine(1).await;
    env.until_read(env.chain()).await;
    let refused = env.system().command(payment.id(), Command::Cancel, None).await;
    assert!(matches!(refused, Err(CommandError::Quarantined)), "{refused:?}");
    payment.id()
}

#[tokio::test(flavor = "multi_thread")]
async fn released_payment_applies_waiting_transfers_immediately() {
    let env = Env::new().await;
    let id = paid_and_not_notified(&env).await;
    assert!(env.release(id).await);
    // Sooner than the watcher's next sweep.
    let taken_in = env.until("taken in", async || {
        let memory = env.system().observe_payment(id).await.and_then(|view| view.memory);
        memory.is_some_and(|memory| memory.version > 1)
    });
    tokio::time::timeout(Duration::from_secs(2), taken_in).await.unwrap();
    env.until_status(id, Status::Settled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancellation_is_refused_if_an_unapplied_transfer_exists() {
    let env = Env::new().await;
    let id = paid_and_not_notified(&env).await;
    assert!(env.system().inject_release(id).await.unwrap());
    // It runs and is up to date: waking it does not repeat a lost message.
    env.until_running(id).await;
    env.system().command(id, Command::Cancel, None).await.unwrap_err();
    env.until_status(id, Status::Settled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payment_does_not_expire_with_a_timely_unapplied_transfer() {
    let env = Env::new().await;
    let id = paid_and_not_notified(&env).await;
    env.system().clock().advance_secs(1_300);
    env.chain().devchain.advance_time(1_300, 10).await.unwrap();
    assert!(env.system().inject_release(id).await.unwrap());
    env.until_status(id, Status::Settled).await;
    let events = env.events(id).await;
    let is_wrong = |name: &str| name.ends_with("failed") || name.ends_with("mismatched");
    assert!(!events.iter().any(|event| is_wrong(&event.name)), "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn panics_at_any_moment_lose_nothing() {
    let env = Env::new().await;
    let mut paid = Vec::new();
    for round in 0..40_u64 {
        paid.extend(env.initiate_and_pay(1).await);
        tokio::time::sleep(Duration::from_millis(3 * (round % 7))).await;
        for payment in paid.iter().rev().skip(1).step_by(9) {
            if env.load(payment.id()).await.status != Status::Settled {
                env.system().inject_panic(payment.id());
            }
        }
    }
    for payment in &paid {
        env.until("settled", async || {
            // A payment that panicked four times within a minute waits for an operator.
            env.release(payment.id()).await;
            env.load(payment.id()).await.status == Status::Settled
        })
        .await;
    }
    env.assert_settled(40).await;
    env.check_feed(&paid).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commit_that_outlives_its_actor_is_seen_by_the_next_one() {
    let env = Env::new().await;
    let payment = env.initiate("10").await;
    let lock = env.lock_database().await;
    let (system, id) = (env.system().clone(), payment.id());
    let cancel = tokio::spawn(async move { system.command(id, Command::Cancel, None).await });
    env.until_busy(id).await;
    env.system().inject_crash(ActorKind::Shard);
    env.until_running(id).await;
    lock.release().await;
    let answer = cancel.await.unwrap();
    assert!(matches!(answer, Err(CommandError::Unknown(_))), "{answer:?}");
    env.until_status(payment.id(), Status::Failed).await;
    tokio::time::timeout(Duration::from_secs(4), env.until_payments_live(0)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_applied_just_before_a_crash_count_once() {
    let env = Env::new().await;
    let id = paid_and_not_notified(&env).await;
    set_aside(&env, id).await;
    assert!(env.system().inject_release(id).await.unwrap());
    env.until_running(id).await;
    let observed = env.system().set_aside(id, 100).await.unwrap();
    assert_eq!((observed.len(), env.load(id).await.transfers.len()), (1, 0));

    let lock = env.lock_database().await;
    let (system, take_in) = (env.system().clone(), Command::TakeIn { observed });
    let asked = {
        let take_in = take_in.clone();
        tokio::spawn(async move { system.command(id, take_in, None).await })
    };
    env.until_busy(id).await;
    env.system().inject_crash(ActorKind::Shard);
    let is_idle = async || env.system().observe_payment(id).await.is_some_and(|view| view.memory.is_some());
    env.until("idle", is_idle).await;
    lock.release().await;
    asked.await.unwrap().unwrap_err();

    let settled = env.until_status(id, Status::Settled).await;
    assert_eq!((settled.transfers.len(), settled.amount_received()), (1, Amount(10_000_000)));
    assert!(env.system().set_aside(id, 100).await.unwrap().is_empty());
    let again = env.system().command(id, take_in, None).await;
    assert!(matches!(again, Err(CommandError::Rejected(Rejection::NothingSetAside))), "{again:?}");
    env.assert_settled(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreported_reorged_transfer_does_not_become_final() {
    let is_final_late = |spec: &mut ChainSpec| spec.finality = FinalityPolicy::flat(Finality::Blocks(30));
    let env = Env::with(Options::default().tweaked(is_final_late)).await;
    let payment = env.initiate_and_pay(1).await.remove(0);
    env.until_payment(payment.id(), "seen", |payment| !payment.transfers.is_empty()).await;
    // Like a watcher that ends between its commit and its notification.
    transfers::Entity::update_many()
        .col_expr(transfers::Column::Presence, Expr::value("orphaned"))
        .col_expr(transfers::Column::Revision, Expr::value(2))
        .filter(transfers::Column::PaymentId.eq(payment.id().to_string()))
        .exec(env.system().database().writer())
        .await
        .unwrap();
    let known = env.until_payment(payment.id(), "told", |now| now.transfers[0].revision == 2).await;
    assert_eq!((known.status, known.sequence), (Status::Pending, 0), "{known:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_initiations_leave_no_payment_without_an_actor() {
    let env = Env::new().await;
    for micros in (0..12_000).step_by(150) {
        let patience = Duration::from_micros(micros);
        let _ = tokio::time::timeout(patience, env.system().initiate(env.request("10"))).await;
    }
    let each_has_an_actor = env.until("each payment has an actor", async || {
        let rows = payments::Entity::find().filter(payments::Column::Live.eq(true));
        let made = rows.count(env.database.reader()).await.unwrap();
        made > 0 && made == env.system().observe().payments_live as u64
    });
    tokio::time::timeout(Duration::from_secs(4), each_has_an_actor).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn temporary_database_outage_only_costs_time() {
    let env = Env::new().await;
    let before = env.initiate("10").await;
    let lock = env.lock_database().await;
    env.pay(&before, "10").await;
    let attempt = tokio::spawn({
        let (system, request) = (env.system().clone(), env.request("7"));
        async move { system.initiate(request).await }
    });
    let refused = env.system().command(before.id(), Command::Cancel, None).await;
    refused.unwrap_err();
    env.until("a write fails", async || env.system().journal().commit_blocker().is_some()).await;
    assert!(env.load(before.id()).await.transfers.is_empty(), "nothing was written");
    lock.release().await;
    env.until_payment(before.id(), "paid or cancelled", |payment| payment.amount_received() == Amount(10_000_000))
        .await;
    if let Ok(made) = attempt.await.unwrap() {
        assert_eq!(env.load(made.id()).await.terms.amount, made.terms.amount, "no success without a row");
    }
    let after = env.initiate_and_pay(1).await;
    env.until_settled(&after).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_during_work_is_bounded_and_keeps_acknowledged_payments() {
    let options = Options::default().configured(|config| config.webhooks.url_policy = UrlPolicy::Sandbox);
    let env = Env::with(options).await;
    // Accepts connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let (system, now) = (env.system(), env.system().clock().real_now());
    endpoints::set(system.database().writer(), system.sealer(), env.psp, &url, None, now).await.unwrap();
    let mut made = env.initiate_and_pay(50).await;
    let requests = (0..100).map(|_| env.system().initiate(env.request("10"))).collect::<Vec<_>>();
    let (acknowledged, stopped) = tokio::join!(futures::future::join_all(requests), async {
        let began = std::time::Instant::now();
        env.system().clone().stop().await;
        began.elapsed()
    });
    assert!(stopped < Duration::from_secs(10), "{stopped:?}");
    made.extend(acknowledged.into_iter().filter_map(Result::ok));
    for payment in &made {
        assert_eq!(env.load(payment.id()).await.terms.wallet, payment.terms.wallet);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_is_bounded_during_a_database_outage() {
    let env = Env::new().await;
    let payment = env.initiate_and_pay(1).await.remove(0);
    env.until_status(payment.id(), Status::Confirmed).await;
    let _lock = env.lock_database().await;
    let watched = env.system().chains().wallets_watched();
    let late = tokio::spawn({
        let (system, request) = (env.system().clone(), env.request("7"));
        async move { system.initiate(request).await }
    });
    env.until("the initiation waits", async || env.system().chains().wallets_watched() > watched).await;
    let began = std::time::Instant::now();
    env.system().clone().stop().await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    late.await.unwrap().unwrap_err();
    // At most two groups: the one before it and its own.
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
}
