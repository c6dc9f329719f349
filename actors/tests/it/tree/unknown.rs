//! Commands with an unknown result. The caller learns that the result is unknown and must not simply repeat the
//! command, because a repeated refund request is paid again. Also payments that exist although their creation
//! seemed to fail, and changes whose notification was lost.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use payferry_actors::{InitiateError, InitiatePayment};
use payferry_domain::payment::{Command, Payment, RefundState, SettlementState, Status, transition};
use payferry_domain::{Amount, CommandError, PaymentId};
use payferry_entities::{OperationStatus, operations};
use payferry_journal::payments::{CommandOutcome, RequestRows, transition_write};
use payferry_journal::psps::Destinations;
use payferry_runtime::observe::ActorKind;
use sea_orm::sea_query::{Expr, ExprTrait};
use sea_orm::{ActiveModelTrait, ColumnTrait, EntityTrait, IntoActiveModel, QueryFilter};

use super::{RETURNED_TO, idempotency_key, refund};
use crate::env::Env;

const RETURNED: &str = "2";

async fn is_sent_once(env: &Env, id: PaymentId) {
    let is_sent = |now: &Payment| now.refunds.iter().any(|refund| refund.state == RefundState::Sent);
    let refunded = env.until_payment(id, "refunded", is_sent).await;
    assert_eq!(refunded.refunds.len(), 1, "{:#?}", refunded.refunds);
    assert_eq!(env.balance(RETURNED_TO).await, 2_000_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn refund_committed_after_its_actor_died_is_not_reported_as_failed() {
    let env = Env::new().await;
    let id = env.underpaid("4").await.id();
    let lock = env.lock_database().await;
    let system = env.system().clone();
    let asked = tokio::spawn(async move { system.command(id, refund(RETURNED), None).await });
    env.until_busy(id).await;
    env.system().inject_crash(ActorKind::Shard);
    let answer = asked.await.unwrap();
    assert!(matches!(answer, Err(CommandError::Unknown(_))), "{answer:?}");
    lock.release().await;
    is_sent_once(&env, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refund_with_unknown_commit_result_is_not_reported_as_failed() {
    let env = Env::new().await;
    let id = env.underpaid("4").await.id();
    let failing = env.test_database.fail_commits("payments").await;
    let answer = env.system().command(id, refund(RETURNED), None).await;
    assert!(matches!(answer, Err(CommandError::Unknown(_))), "{answer:?}");
    failing.end().await;
    // A read shows that it was not created, so it may be requested again.
    assert_eq!(env.load(id).await.refunds.len(), 0);
    env.system().command(id, refund(RETURNED), None).await.unwrap();
    is_sent_once(&env, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payment_committed_after_a_reported_failure_gets_an_actor() {
    let env = Env::new().await;
    let decided: Arc<Mutex<Option<Payment>>> = Arc::default();
    let noted = decided.clone();
    let answer = move |payment: &Payment| {
        *noted.lock() = Some(payment.clone());
        idempotency_key(payment, &payment.id().to_string())
    };
    let failing = env.test_database.fail_commits("payments").await;
    let request = InitiatePayment { answer: Some(Box::new(answer)), ..env.request("10") };
    let answer = env.system().initiate(request).await;
    assert!(matches!(answer, Err(InitiateError::Unknown(_))), "{answer:?}");
    failing.end().await;
    // Like a server that commits what it received before the connection broke.
    let payment = decided.lock().take().unwrap();
    let row = payferry_journal::payments::row_of(&payment).unwrap();
    row.into_active_model().insert(env.system().database().writer()).await.unwrap();
    env.until_payments_live(1).await;
    env.pay(&payment, "10").await;
    env.until_status(payment.id(), Status::Settled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn live_payment_without_an_actor_is_found() {
    let mut env = Env::new().await;
    let payment = env.initiate("10").await;
    env.set_live(payment.id(), false).await;
    env.restart(true).await;
    assert_eq!(env.system().observe().payments_live, 0);
    env.set_live(payment.id(), true).await;
    env.until("the payment is found", async || {
        env.system().sweep_payments();
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        env.system().observe().payments_live > 0
    })
    .await;
    // A payment with an actor is not started again.
    env.system().sweep_payments();
    env.pay(&payment, "10").await;
    env.until_status(payment.id(), Status::Settled).await;
    assert_eq!(env.system().observe().payments_spawned, 1);
}

/// Commits a command without a notification, as a node that dies just after its commit.
async fn commit_elsewhere(env: &Env, id: PaymentId, command: &Command) {
    let (payment, now) = (env.load(id).await, env.clock().now());
    let transition = transition(&payment, command, now).unwrap().unwrap();
    let (rows, to) = (RequestRows::default(), |_| Destinations::default());
    let outcome = CommandOutcome { before: &payment, command, transition: &transition, took: Duration::ZERO };
    let write = transition_write(outcome, rows, now, Amount::MAX, to).unwrap();
    env.system().journal().submit(write).await.unwrap();
}

/// The payment has an actor, which is behind the row.
#[tokio::test(flavor = "multi_thread")]
async fn refund_that_another_node_committed_is_sent_after_a_sweep() {
    let env = Env::new().await;
    let id = env.underpaid("4").await.id();
    commit_elsewhere(&env, id, &refund(RETURNED)).await;
    let queued = operations::Entity::find().filter(operations::Column::PaymentId.eq(id.to_string()));
    env.until("the refund is queued", async || {
        env.system().sweep_payments();
        queued.clone().one(env.database.reader()).await.unwrap().is_some()
    })
    .await;
    is_sent_once(&env, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payment_learns_that_its_settlement_was_undone_although_the_notification_was_lost() {
    use operations::Column::{NotBefore, PaymentId, Revision, Status as State};
    let env = Env::new().await;
    let id = env.initiate_and_settle().await.id();
    let settlement = PaymentId.eq(id.to_string());
    let operation = async || operations::Entity::find().filter(settlement.clone()).one(env.database.reader()).await;
    env.until("applied", async || operation().await.unwrap().unwrap().status == OperationStatus::Succeeded).await;
    // As the settler records it after a reorganisation; it stays queued.
    operations::Entity::update_many()
        .filter(settlement.clone())
        .col_expr(State, Expr::value(OperationStatus::Queued))
        .col_expr(Revision, Expr::col(Revision).add(1))
        .col_expr(NotBefore, Expr::value(i64::MAX))
        .exec(env.database.writer())
        .await
        .unwrap();
    let is_undone = |now: &Payment| {
        now.settlement.as_deref().is_some_and(|settlement| settlement.state != SettlementState::Settled)
    };
    env.until_payment(id, "no longer settled", is_undone).await;
}
