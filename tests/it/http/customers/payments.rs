//! Customers in payments.

use axum::http::Method;
use payferry_entities::{payments, psps};
use payferry_journal::psps::PspPolicies;
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter};

use super::*;

fn asked(merchant_id: &str, customer_id: Option<&str>) -> Value {
    json!({ "merchant_id": merchant_id, "amount": "10", "currency": "USDC", "chain": "base", "customer_id": customer_id })
}

#[tokio::test]
async fn approved_customer_is_named_wherever_the_payment_is() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let id = add(&app, &individual()).await;
    clear(&app, &id).await;
    let made = app.post("/payments/initiate", &asked(&merchant, Some(&id))).await;
    assert_eq!(made.status, 201, "{}", made.text());
    app.add_payment(&merchant).await;
    let payment = made.json["payment_id"].as_str().unwrap();
    assert_eq!(app.get(&format!("/payments/{payment}")).await.json["customer_id"], id.as_str());
    let filtered = app.get(&format!("/payments?customer_id={id}")).await.json;
    assert_eq!((&filtered["total"], &filtered["payments"][0]["payment_id"]), (&json!(1), &json!(payment)));
    let other = add(&app, &individual()).await;
    assert_eq!(app.get(&format!("/payments?customer_id={other}")).await.json["total"], 0);

    // A deactivation does not stop running payments.
    deactivate(&app, &id).await;
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

#[tokio::test]
async fn customers_without_approval_are_refused() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let id = add(&app, &individual_in_full()).await;
    let initiate = async || app.post("/payments/initiate", &asked(&merchant, Some(&id))).await;
    initiate().await.assert_problem(409, "customer_not_cleared");
    clear(&app, &id).await;
    assert_eq!(initiate().await.status, 201);
    patch(&app, &format!("{CUSTOMERS}/{id}"), &json!({ "phone_number": "+447700900123" })).await;
    initiate().await.assert_problem(409, "customer_not_cleared");
    deactivate(&app, &id).await;
    initiate().await.assert_problem(409, "customer_inactive");
    let nobody = app.post("/payments/initiate", &asked(&merchant, Some("cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3"))).await;
    nobody.assert_problem(404, "customer_not_found");
    let made = payments::Entity::find().count(app.state.database().reader()).await.unwrap();
    assert_eq!(made, 1);
}

#[tokio::test]
async fn status_success_counts_as_approved() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let id = add(&app, &individual()).await;
    payferry_entities::customers::Entity::update_many()
        .col_expr(payferry_entities::customers::Column::KycStatus, Expr::value("success"))
        .exec(app.writer())
        .await
        .unwrap();
    assert_eq!(app.post("/payments/initiate", &asked(&merchant, Some(&id))).await.status, 201);
}

#[tokio::test]
async fn psp_may_require_a_customer_for_every_payment() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let id = add(&app, &individual()).await;
    clear(&app, &id).await;
    let policies = PspPolicies { require_customer: true, ..PspPolicies::default() };
    psps::Entity::update_many()
        .col_expr(psps::Column::Settings, Expr::value(serde_json::to_string(&policies).unwrap()))
        .filter(psps::Column::Id.eq(app.psp_id.to_string()))
        .exec(app.writer())
        .await
        .unwrap();
    let refused = app.post("/payments/initiate", &asked(&merchant, None)).await;
    refused.assert_problem(422, "validation_failed");
    assert_eq!(refused.faults(), ["customer_id: required"]);
    let made = app.request(Method::POST, "/payments/initiate").json(&asked(&merchant, Some(&id))).send().await;
    assert_eq!(made.status, 201, "{}", made.text());
}
