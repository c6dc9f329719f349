//! Customers in payments.

use payferry_entities::payments;
use payferry_journal::psps::PspPolicies;
use sea_orm::sea_query::Expr;

use super::*;
use crate::http::mismatches::set_policies;

shared!(#[tokio::test] customers, app = TestApp::start_with_chains().await, app.renew_psp() =>
    customers_without_approval_are_refused, approved_customer_is_named_wherever_the_payment_is,
    psp_may_require_a_customer_for_every_payment);

async fn approved_customer_is_named_wherever_the_payment_is(app: &TestApp) {
    let id = add(app, &individual()).await;
    clear(app, &id).await;
    let made = app.initiate(&json!({ "customer_id": id })).await.ok(201);
    app.add_payment().await;
    let payment = made.id();
    assert_eq!(app.get(&format!("/payments/{payment}")).await["customer_id"], id.as_str());
    let filtered = app.get(&format!("/payments?customer_id={id}")).await.json;
    assert_has(&filtered, json!({ "total": 1, "payments/0/payment_id": payment }));
    let other = add(app, &individual()).await;
    assert_eq!(app.get(&format!("/payments?customer_id={other}")).await["total"], 0);

    // A deactivation does not stop running payments.
    deactivate(app, &id).await;
    app.pay(&made, "10").await;
    app.payment_when(&made, "settled").await;
    let feed = app.get("/api/v1/events").await.json;
    let events = feed["events"].as_array().unwrap();
    let of_payment: Vec<_> = events.iter().filter(|event| event["payment_id"] == payment).collect();
    assert!(of_payment.len() >= 4);
    assert!(of_payment.iter().all(|event| event["customer_id"] == id.as_str()), "{feed}");
    let log = app.get(&format!("/payments/{payment}/webhooks")).await.json;
    assert_eq!(log["deliveries"][0]["payload"]["customer_id"], id.as_str());
}

async fn customers_without_approval_are_refused(app: &TestApp) {
    let id = add(app, &individual_in_full()).await;
    let initiate = async || app.initiate(&json!({ "customer_id": id })).await;
    initiate().await.assert_problem(409, "customer_not_cleared");
    clear(app, &id).await;
    assert_eq!(initiate().await.status, 201);
    app.patch(&format!("{CUSTOMERS}/{id}"), &json!({ "phone_number": "+447700900123" })).await;
    initiate().await.assert_problem(409, "customer_not_cleared");
    deactivate(app, &id).await;
    initiate().await.assert_problem(409, "customer_inactive");
    let nobody = app.initiate(&json!({ "customer_id": "cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3" })).await;
    nobody.assert_problem(404, "customer_not_found");
    assert_eq!(app.count::<payments::Entity>().await, 1);

    // The status `success` counts as approved.
    let id = add(app, &individual()).await;
    payferry_entities::customers::Entity::update_many()
        .col_expr(payferry_entities::customers::Column::KycStatus, Expr::value("success"))
        .exec(app.writer())
        .await
        .unwrap();
    assert_eq!(app.initiate(&json!({ "customer_id": id })).await.status, 201);
}

async fn psp_may_require_a_customer_for_every_payment(app: &TestApp) {
    let id = add(app, &individual()).await;
    clear(app, &id).await;
    set_policies(app, &PspPolicies { require_customer: true, ..PspPolicies::default() }).await;
    app.initiate(&json!({})).await.assert_invalid("customer_id: required");
    app.initiate(&json!({ "customer_id": id })).await.ok(201);
}
