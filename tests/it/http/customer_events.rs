//! Events of customers, which an endpoint must name.

use payferry_domain::customer::{Command, CustomerKind, IdentityVerdict};
use payferry_harness::receiver::Receiver;
use payferry_journal::audit::Actor;

use crate::conformance::Document;
use crate::prelude::*;

async fn feed(app: &TestApp, customer: CustomerId) -> Vec<Value> {
    let feed = app.get(&format!("/api/v1/events?payment_id={customer}")).await.ok(200);
    feed["events"].as_array().unwrap().clone()
}

async fn add_endpoint(app: &TestApp, receiver: &Receiver, events: &[&str]) {
    let body = json!({ "url": receiver.url(), "events": events });
    let created = app.post("/api/v1/webhook-endpoints", &body).await.ok(201);
    receiver.verify_with(created.string("signing_secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_get_the_customer_events_that_they_name() {
    let app = TestApp::start().await;
    let (every, one, others) = (Receiver::start().await, Receiver::start().await, Receiver::start().await);
    add_endpoint(&app, &others, &["*"]).await;
    let unseen = app.add_customer(CustomerKind::Individual, "{}").await;
    app.change_customer(unseen, &Command::AcceptTerms, &Actor::Customer).await;

    add_endpoint(&app, &every, &["customer.*"]).await;
    add_endpoint(&app, &one, &["customer.deactivated"]).await;
    let customer = app.add_customer(CustomerKind::Individual, "{}").await;
    let approved = Command::Decide(IdentityVerdict::Approved);
    for (command, by) in [(Command::AcceptTerms, Actor::Customer), (approved, Actor::Operator)] {
        app.change_customer(customer, &command, &by).await;
    }
    app.change_customer(customer, &Command::Deactivate, &Actor::Operator).await;

    let events: Vec<Value> = every.until(3).await.into_values().flatten().collect();
    let of = |name: &str| events.iter().find(|event| event["event"] == name).unwrap();
    let shown = json!({ "customer_id": customer, "payment_id": customer, "sequence": 2, "kyc_status": "approved", "is_active": true });
    assert_has(of("customer.kyc_updated"), shown);
    assert_has(of("customer.consent_accepted"), json!({ "sequence": 1, "kyc_status": "pending" }));
    assert_has(of("customer.deactivated"), json!({ "sequence": 3, "is_active": false }));
    assert_eq!(one.until(1).await.into_values().flatten().collect::<Vec<_>>(), [of("customer.deactivated").clone()]);

    let feed_of_it = feed(&app, customer).await;
    assert_eq!(feed_of_it.iter().map(|event| &event["sequence"]).collect::<Vec<_>>(), [1, 2, 3]);
    let document = Document::new(app.open("/openapi.json").await.json);
    for event in &feed_of_it {
        document.assert_describes(event);
    }
    // There were no events before an endpoint named them, and `*` does not.
    assert_eq!(feed(&app, unseen).await, Vec::<Value>::new());
    assert_eq!(others.deliveries().len(), 0);
}
