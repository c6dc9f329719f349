//! Customers in a real database.
#![allow(clippy::unwrap_used)]

use payferry_domain::customer::{
    Command, CustomerKind, DocumentKind, Documents, IdentityVerdict, KycStatus, Rejection,
};
use payferry_domain::{CheckId, CustomerId, EndpointId, PspId, Timestamp};
use payferry_entities::{
    Database, audit_log, checks, customer_events, customers, deliveries, events, webhook_endpoints,
};
use payferry_harness::database::TestDatabase;
use sea_orm::{ConnectionTrait, EntityTrait, QueryOrder};

use super::events::announce;
use super::*;
use crate::audit::Actor;
use crate::psps::{Ceilings, PspDirectory};
use crate::writer::Journal;

const NOW: Timestamp = Timestamp(1_700_000_000_000);

/// A new person.
pub(crate) fn ada(id: CustomerId, psp_id: PspId) -> NewCustomer {
    NewCustomer {
        id,
        psp_id,
        kind: CustomerKind::Individual,
        email: "Ada@Example.com".to_owned(),
        country: "GBR".to_owned(),
        currency: "GBP".to_owned(),
        particulars: "sealed".to_owned(),
    }
}

struct Env {
    database: Database,
    psp_id: PspId,
    id: CustomerId,
    _test_database: TestDatabase,
}

impl Env {
    /// Creates a database with one customer.
    async fn new() -> Self {
        let test_database = TestDatabase::create().await;
        let database = Database::open(test_database.url()).await.unwrap();
        let (psp_id, id) = (PspId::generate(), CustomerId::generate());
        test_database.add_psp(&psp_id.to_string(), "merch_1").await;
        create(database.writer(), &[ada(id, psp_id).row(NOW)], &Actor::Service, NOW).await.unwrap();
        Self { database, psp_id, id, _test_database: test_database }
    }

    async fn open(&self) -> Opened {
        Opened::find(&self.database, self.id, Some(self.psp_id)).await.unwrap()
    }

    async fn apply(&self, command: Command) {
        let mut opened = self.open().await;
        opened.apply(&command, &Actor::Operator, NOW).await.unwrap();
        opened.commit().await.unwrap();
    }

    /// Adds an endpoint with this filter.
    async fn subscribe(&self, pattern: &str) {
        let endpoint = webhook_endpoints::Model {
            id: EndpointId::generate().to_string(),
            psp_id: self.psp_id.to_string(),
            events: json!([pattern]).to_string(),
            schedule: "default".to_owned(),
            ..webhook_endpoints::Model::default()
        };
        let insert = webhook_endpoints::Entity::insert(endpoint.into_active_model());
        insert.exec_without_returning(self.database.writer()).await.unwrap();
    }

    /// Starts a journal, as a node does.
    fn journal(&self) -> Journal {
        let (journal, task) = Journal::start(self.database.clone());
        tokio::spawn(task.run());
        journal
    }

    async fn row(&self) -> customers::Model {
        customers::Entity::find_by_id(self.id.to_string()).one(self.database.reader()).await.unwrap().unwrap()
    }

    async fn checks(&self) -> Vec<(String, String)> {
        // Ids of the same millisecond have no order, so sort by purpose. A test has at most one check of each purpose.
        let by_purpose = checks::Entity::find().order_by_asc(checks::Column::Purpose);
        let rows = by_purpose.all(self.database.reader()).await.unwrap();
        rows.into_iter().map(|row| (row.purpose, row.status.to_string())).collect()
    }

    async fn actions(&self) -> Vec<String> {
        let entries = audit_log::Entity::find().order_by_asc(audit_log::Column::Number);
        let rows = entries.all(self.database.reader()).await.unwrap();
        rows.into_iter().map(|row| format!("{} {}", row.actor_kind, row.action)).collect()
    }
}

#[tokio::test]
async fn changes_of_a_customer_round_trip() {
    let env = Env::new().await;
    assert_eq!(env.row().await.email_search, "ada@example.com");
    let documents = Documents::NONE.with(DocumentKind::ProofOfResidentialAddress);
    env.apply(Command::AcceptTerms).await;
    env.apply(Command::AddDocuments(documents)).await;
    let (first, second) = (CheckId::generate(), CheckId::generate());
    env.apply(Command::RequestCheck(first)).await;
    assert_eq!(env.checks().await, [("identity".to_owned(), "queued".to_owned())]);
    let row = env.row().await;
    let customer = customer_of(&row).unwrap();
    assert_eq!(customer.check.unwrap().id, first);
    assert_eq!((customer.tos_accepted_at, customer.documents, customer.version), (Some(NOW), documents, 4));

    let mut opened = env.open().await;
    opened.row.particulars = "sealed anew".to_owned();
    opened.apply(&Command::ChangePhone(second), &Actor::Provider("x".to_owned()), NOW).await.unwrap();
    opened.commit().await.unwrap();
    let row = env.row().await;
    assert_eq!((row.kyc_status.as_str(), row.particulars.as_str()), ("pending_update", "sealed anew"));
    let two = [("identity", "superseded"), ("rescreen", "queued")];
    assert_eq!(env.checks().await, two.map(|(purpose, status)| (purpose.to_owned(), status.to_owned())));
    env.apply(Command::ConcludeCheck { check: second, verdict: IdentityVerdict::Approved }).await;
    let customer = customer_of(&env.row().await).unwrap();
    assert_eq!((customer.kyc_status, customer.before_update), (KycStatus::Pending, None));
    assert_eq!(env.checks().await[1].1, "passed");
    let expected = [
        "service customer.created",
        "operator customer.terms_accepted",
        "operator customer.documents_added",
        "operator customer.check_queued",
        "provider customer.phone_changed",
        "provider customer.check_superseded",
        "provider customer.update_begun",
        "provider customer.check_queued",
        "operator customer.check_passed",
        "operator customer.restored",
    ];
    assert_eq!(env.actions().await, expected);
}

#[tokio::test]
async fn public_events_are_in_the_feed_once_and_in_order() {
    let env = Env::new().await;
    // No endpoint subscribes to them yet.
    env.apply(Command::AcceptTerms).await;
    assert_eq!(customer_events::Entity::find().all(env.database.reader()).await.unwrap(), []);
    env.subscribe("customer.*").await;
    env.apply(Command::ReplaceWallet(CheckId::generate())).await;
    env.apply(Command::Deactivate).await;
    let mut dropped = env.open().await;
    assert!(dropped.apply(&Command::AcceptTerms, &Actor::Service, NOW).await.is_err());
    drop(dropped);

    // Two nodes announce at the same time.
    let nodes = [env.journal(), env.journal()];
    let psps = PspDirectory::new(env.database.clone(), Ceilings::default());
    let all = nodes.iter().map(|journal| announce(&env.database, journal, &psps, NOW));
    for announced in futures::future::join_all(all).await {
        announced.unwrap();
    }
    let by_position = events::Entity::find().order_by_asc(events::Column::Position);
    let feed = by_position.all(env.database.reader()).await.unwrap();
    let names: Vec<_> = feed.iter().map(|event| (event.sequence, event.name.as_str())).collect();
    assert_eq!(names, [(1, "customer.kyc_updated"), (2, "customer.deactivated")]);
    let body: serde_json::Value = serde_json::from_str(&feed[1].payload).unwrap();
    assert_eq!((&body["customer_id"], &body["is_active"]), (&json!(env.id), &json!(false)));
    let deliveries = deliveries::Entity::find().all(env.database.reader()).await.unwrap();
    assert_eq!(deliveries.len(), 2);
    assert!(!announce(&env.database, &nodes[0], &psps, NOW).await.unwrap());
    assert_eq!(customer_events::Entity::find().all(env.database.reader()).await.unwrap(), []);
}

#[tokio::test]
async fn an_unreadable_event_holds_back_only_its_customer() {
    let env = Env::new().await;
    env.subscribe("customer.*").await;
    let other = CustomerId::generate();
    create(env.database.writer(), &[ada(other, env.psp_id).row(NOW)], &Actor::Service, NOW).await.unwrap();
    env.apply(Command::AcceptTerms).await;
    let spoil = "UPDATE customer_events SET kyc_status = 'unknown'";
    env.database.writer().execute_unprepared(spoil).await.unwrap();
    env.apply(Command::Deactivate).await;
    let mut opened = Opened::find(&env.database, other, None).await.unwrap();
    opened.apply(&Command::AcceptTerms, &Actor::Customer, NOW).await.unwrap();
    opened.commit().await.unwrap();

    let (journal, psps) = (env.journal(), PspDirectory::new(env.database.clone(), Ceilings::default()));
    announce(&env.database, &journal, &psps, NOW).await.unwrap();
    let feed = events::Entity::find().all(env.database.reader()).await.unwrap();
    assert_eq!(feed.iter().map(|event| &event.payment_id).collect::<Vec<_>>(), [&other.to_string()]);
    let left = customer_events::Entity::find().all(env.database.reader()).await.unwrap();
    assert_eq!(left.iter().map(|event| event.sequence).collect::<Vec<_>>(), [1, 2]);
}

#[tokio::test]
async fn rejected_or_uncommitted_changes_leave_nothing() {
    let env = Env::new().await;
    let before = env.row().await;
    let foreign = Opened::find(&env.database, env.id, Some(PspId::generate())).await;
    assert!(matches!(foreign, Err(CustomerChangeError::NotFound)));
    let mut opened = env.open().await;
    let ask = Command::RequestCheck(CheckId::generate());
    let refused = opened.apply(&ask, &Actor::Service, NOW).await;
    assert!(matches!(
        refused,
        Err(CustomerChangeError::Rejected(TransitionError::Rejected(Rejection::TermsNotAccepted)))
    ));
    opened.apply(&Command::AcceptTerms, &Actor::Customer, NOW).await.unwrap();
    assert!(opened.customer().tos_accepted_at.is_some());
    drop(opened);
    assert_eq!(env.row().await, before);
    assert_eq!(env.actions().await, ["service customer.created"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_changes_are_decided_one_after_the_other() {
    let env = Env::new().await;
    let all = (0..20).map(|_| env.apply(Command::ChangePhone(CheckId::generate())));
    futures::future::join_all(all).await;
    let customer = customer_of(&env.row().await).unwrap();
    assert_eq!((customer.revision, customer.version), (21, 21));
    let open = env.checks().await.into_iter().filter(|(_, status)| status == "queued").count();
    assert_eq!(open, 1, "only one screening is current");
}

#[tokio::test]
async fn the_audit_log_is_append_only() {
    let env = Env::new().await;
    for statement in ["UPDATE audit_log SET actor = 'x'", "DELETE FROM audit_log"] {
        let refused = env.database.writer().execute_unprepared(statement).await.unwrap_err();
        assert!(refused.to_string().contains("append-only"), "{refused}");
    }
    assert_eq!(env.actions().await.len(), 1);
}
