//! Rows that violate an invariant: the next command stops the payment or customer, and nothing is written.

use payferry_domain::payment::{Command, Payment, Status};
use payferry_domain::{CommandError, CustomerId, PaymentId, TransitionError, customer};
use payferry_entities::{customers, payments};
use payferry_journal::audit::Actor;
use payferry_journal::customers::CustomerChangeError;
use payferry_runtime::observe::ActorKind;
use sea_orm::{ActiveModelTrait, EntityTrait, IntoActiveModel};

use crate::env::senses::{Senses, metric};
use crate::env::{Env, Options};

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

async fn customer_row(env: &Env, id: CustomerId) -> customers::Model {
    customers::Entity::find_by_id(id.to_string()).one(env.database.reader()).await.unwrap().unwrap()
}

/// Changes a customer as a handler does.
async fn set_details(env: &Env, id: CustomerId) -> Result<(), CustomerChangeError> {
    let mut opened = env.system().open_customer(id, None).await?;
    opened.apply(&customer::Command::SetDetails, &Actor::Service, env.clock().now()).await?;
    opened.commit().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_customer_that_violates_an_invariant_is_quarantined_with_its_number_and_unchanged() {
    let env = Env::with(Options { senses: Senses::Alone, ..Options::default() }).await;
    let person = async |email| env.create_customer(email, &serde_json::json!({})).await;
    let (bad, good) = (person("bad@example.com").await, person("good@example.com").await);
    let intact = customer_row(&env, bad).await;
    // CUS-5: only a rejected customer has reasons.
    let broken = customers::Model { rejection_reasons: r#"["expired"]"#.to_owned(), ..intact.clone() };
    broken.clone().into_active_model().reset_all().update(env.database.writer()).await.unwrap();

    let refused = set_details(&env, bad).await;
    let Err(CustomerChangeError::Rejected(TransitionError::Violated(violated))) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(violated.0.iter().map(|one| one.id).collect::<Vec<_>>(), ["CUS-5"]);
    let quarantined = env.system().given_up(None, 2);
    assert_eq!(quarantined.iter().map(|one| one.id).collect::<Vec<_>>(), [bad.into()]);
    assert!(quarantined[0].quarantine.reason.contains("CUS-5 (rejection reasons"), "{quarantined:?}");
    assert_eq!(env.system().observe().customers_quarantined, 1);
    assert_eq!(metric("payferry_customers_quarantined_total", &[]), 1);
    assert_eq!(metric("payferry_invariant_violations_total", &["invariant=CUS-5"]), 1);
    // Another customer changes, and this one does not even after the row was repaired.
    set_details(&env, good).await.unwrap();
    intact.into_active_model().reset_all().update(env.database.writer()).await.unwrap();
    let refused = set_details(&env, bad).await;
    assert!(matches!(refused, Err(CustomerChangeError::Quarantined)), "{refused:?}");
    assert_eq!(customer_row(&env, bad).await, customers::Model { rejection_reasons: "[]".to_owned(), ..broken });

    assert!(env.release(bad).await && !env.release(bad).await);
    set_details(&env, bad).await.unwrap();
}
