//! New customers in groups.

use payferry_domain::{CustomerId, KeyId, PspId, Timestamp};
use payferry_entities::{audit_log, customers};

use super::*;
use crate::audit::Actor;
use crate::customers::{creation, tests::ada};

const NOW: Timestamp = Timestamp(1_000);

/// A customer of this PSP, which may not exist.
fn customer(psp: &str, key: Option<&str>) -> JournalWrite {
    let new = ada(CustomerId::generate(), PspId::generate());
    let row = customers::Model { psp_id: psp.to_owned(), ..new.row(NOW) };
    creation(row, &Actor::ApiKey(KeyId::generate()), NOW, key.map(key_row))
}

#[tokio::test]
async fn one_commit_writes_many_customers_with_audit_entries() {
    let env = Env::new().await;
    let group = (0..40).map(|_| customer("psp_1", None)).chain([initiation("1", None)]);
    assert!(env.write_queued(group).await.iter().all(Result::is_ok));
    assert_eq!(env.journal.stats().groups, 1);
    let made = env.all::<customers::Entity>().await;
    assert_eq!((made.len(), made[0].email_search.as_str(), made[0].is_active), (40, "ada@example.com", true));
    let entries = env.all::<audit_log::Entity>().await;
    let notified: std::collections::BTreeSet<_> = entries.iter().map(|entry| &entry.subject).collect();
    assert_eq!(notified, made.iter().map(|row| &row.id).collect());
    assert!(entries.iter().all(|entry| entry.number > 0 && entry.action == "customer.created"));
}

#[tokio::test]
async fn a_used_key_or_an_invalid_row_fails_alone() {
    let env = Env::running().await;
    env.submit(customer("psp_1", Some("key"))).await.unwrap();
    let group = [
        customer("psp_1", None),
        customer("psp_1", Some("key")),
        customer("psp_nobody", None),
        customer("psp_1", Some("other")),
    ];
    let answers = answers(env.queue(group).await).await;
    assert!(answers[0].is_ok() && answers[3].is_ok(), "{answers:?}");
    assert!(matches!(answers[1], Err(JournalError::IdempotencyKeyTaken)), "{:?}", answers[1]);
    assert!(matches!(answers[2], Err(JournalError::Refused(_))), "{:?}", answers[2]);
    assert_eq!(env.count::<customers::Entity>().await, 3);
    assert_eq!(env.count::<audit_log::Entity>().await, 3);
}
