//! Watched wallets: those of all live payments, before anyone can know them, and across a restart.

use payferry_actors::destination::Unsuitable;
use payferry_actors::{InitiateError, InitiatePayment};
use payferry_domain::Address;
use payferry_domain::payment::{Command, Payment, RefundState, Status};
use payferry_entities::{payments, transfers};
use sea_orm::{ActiveModelTrait, ActiveValue, ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter};

use super::{idempotency_key, refund};
use crate::env::Env;

/// Waits until this many wallets are watched.
async fn until_watched(env: &Env, wanted: usize) {
    env.until(&format!("{wanted} wallets are watched"), async || {
        env.system().retire_wallets().await.unwrap();
        env.system().chains().wallets_watched() == wanted
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wallet_is_watched_whenever_its_payment_is_live() {
    let mut env = Env::new().await;
    let (cancelled, other) = (env.initiate("10").await, env.initiate("10").await);
    assert_eq!(env.system().chains().wallets_watched(), 2);
    env.restart(true).await;
    assert_eq!(env.system().chains().wallets_watched(), 2);
    env.system().command(cancelled.id(), Command::Cancel, None).await.unwrap();
    until_watched(&env, 1).await;
    // A late transfer wakes the payment, and it leaves again.
    env.pay(&cancelled, "4").await;
    env.until_status(cancelled.id(), Status::Mismatched).await;
    env.pay(&cancelled, "5").await;
    env.until_payment(cancelled.id(), "paid twice", |payment| payment.transfers.len() == 2).await;
    until_watched(&env, 1).await;
    env.pay(&other, "10").await;
    env.until_status(other.id(), Status::Settled).await;
    until_watched(&env, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_initiation_leaves_no_watched_wallet() {
    let env = Env::new().await;
    let request = || {
        let answer = |payment: &Payment| idempotency_key(payment, "order-1");
        InitiatePayment { answer: Some(Box::new(answer)), ..env.request("10") }
    };
    env.system().initiate(request()).await.unwrap();
    let again = env.system().initiate(request()).await;
    assert!(matches!(again, Err(InitiateError::IdempotencyKeyTaken)), "{again:?}");
    assert_eq!(env.system().chains().wallets_watched(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_for_a_departed_actor_reach_its_successor() {
    let env = Env::new().await;
    let payment = env.initiate("10").await;
    env.system().command(payment.id(), Command::Cancel, None).await.unwrap();
    env.pay(&payment, "10").await;
    env.until_status(payment.id(), Status::Mismatched).await;
    for _ in 0..8 {
        env.until_payments_live(0).await;
        // The shard wakes it for the first request, which is refused. The actor then leaves with the second request in
        // its mailbox.
        let (refused, made) = tokio::join!(env.system().command(payment.id(), refund("99"), None), async {
            env.system().command(payment.id(), refund("1"), None).await
        });
        assert!(refused.is_err());
        made.unwrap();
        assert_eq!(env.system().observe().payments_live, 1, "a refund is in progress");
        let is_sent = |now: &Payment| now.refunds.iter().all(|refund| refund.state == RefundState::Sent);
        env.until_payment(payment.id(), "refunded", is_sent).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn payment_revived_without_its_actor_stays_watched() {
    let env = Env::new().await;
    let payment = env.initiate("10").await;
    env.system().command(payment.id(), Command::Cancel, None).await.unwrap();
    env.until_payments_live(0).await;
    // Like a late commit of an actor that died.
    env.set_live(payment.id(), true).await;
    env.system().retire_wallets().await.unwrap();
    assert_eq!(env.system().chains().wallets_watched(), 1);
    env.pay(&payment, "10").await;
    let late = env.until_status(payment.id(), Status::Mismatched).await;
    assert_eq!(late.amount_received(), payment.terms.amount);
    until_watched(&env, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transfer_to_an_unreadable_live_payment_is_recorded() {
    let mut env = Env::new().await;
    let payment = env.initiate("10").await;
    let state = ActiveValue::Set("{}".to_owned());
    let row = payments::ActiveModel { state, ..env.payment_row(payment.id()).await };
    row.update(env.system().database().writer()).await.unwrap();
    env.restart(true).await;
    assert_eq!(env.system().observe().payments_waiting, 1);
    env.pay(&payment, "10").await;
    let of_payment = transfers::Entity::find().filter(transfers::Column::PaymentId.eq(payment.id().to_string()));
    let is_recorded = async || of_payment.clone().count(env.database.reader()).await.unwrap() > 0;
    env.until("the transfer is recorded", is_recorded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outbound_transfers_to_own_wallets_are_refused() {
    let env = Env::new().await;
    let (live, over) = (env.initiate("10").await, env.initiate("10").await);
    env.system().command(over.id(), Command::Cancel, None).await.unwrap();
    until_watched(&env, 1).await;
    for payment in [&live, &over] {
        let reason = env.system().unsuitable(payment.terms.wallet).await.unwrap();
        assert_eq!(reason.map(Unsuitable::code), Some("service_vault"), "{}", payment.status.as_str());
    }
    assert_eq!(env.system().unsuitable(Address([0x5a; 20])).await.unwrap(), None);
}
