//! Rows that violate an invariant: the next command stops the payment, and nothing is written.

use payferry_domain::payment::{Command, Payment, Status};
use payferry_domain::{CommandError, PaymentId};
use payferry_entities::payments;
use payferry_runtime::observe::ActorKind;
use sea_orm::{ActiveModelTrait, EntityTrait, IntoActiveModel};

use crate::env::Env;

async fn row(env: &Env, id: PaymentId) -> payments::Model {
    payments::Entity::find_by_id(id.to_string()).one(env.database.reader()).await.unwrap().unwrap()
}

/// Writes a state that violates PAY-16, which its actor reads when it restarts.
async fn break_row(env: &Env, id: PaymentId) {
    let payment = env.load(id).await;
    let broken = Payment { first_expires_at: payment.expires_at.plus_secs(1), ..payment };
    let state = payferry_journal::payments::row_of(&broken).unwrap().state;
    let row = payments::Model { state, ..row(env, id).await };
    row.into_active_model().reset_all().update(env.database.writer()).await.unwrap();
    env.system().inject_panic(id);
    env.until_restarts(ActorKind::Payment, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_violates_an_invariant_is_quarantined_with_its_number_and_unchanged() {
    let env = Env::new().await;
    let (bad, good) = (env.initiate("10").await, env.initiate("10").await);
    break_row(&env, bad.id()).await;
    let before = row(&env, bad.id()).await;

    let refused = env.system().command(bad.id(), Command::Cancel, None).await;
    let Err(CommandError::Violated(violated)) = refused else { panic!("{refused:?}") };
    assert_eq!(violated.0.iter().map(|one| one.id).collect::<Vec<_>>(), ["PAY-16"]);
    env.until("quarantined", async || env.system().is_quarantined(bad.id())).await;
    let quarantined = env.system().given_up(None, 2);
    assert_eq!(quarantined.iter().map(|one| one.id).collect::<Vec<_>>(), [bad.id().into()]);
    assert!(quarantined[0].quarantine.reason.contains("PAY-16 (deadlines only move later)"), "{quarantined:?}");
    assert_eq!(row(&env, bad.id()).await, before);
    // It is not restarted, and its sibling continues.
    let refused = env.system().command(bad.id(), Command::Cancel, None).await;
    assert!(matches!(refused, Err(CommandError::Quarantined)), "{refused:?}");
    env.pay(&bad, "10").await;
    env.pay(&good, "10").await;
    env.until_status(good.id(), Status::Settled).await;
    assert_eq!(env.kind(ActorKind::Payment).quarantined, 1);
    assert_eq!(row(&env, bad.id()).await, before);
}
