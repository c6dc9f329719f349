//! Deactivation of customers.

use payferry_entities::audit_log;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};

use super::*;

#[tokio::test]
async fn deactivation_is_final_and_repeatable() {
    let app = TestApp::start().await;
    let id = add(&app, &individual_in_full()).await;
    set_details(&app, &id, &json!({ "wallet_address": WALLET })).await;
    let first = deactivate(&app, &id).await;
    insta::assert_json_snapshot!("deactivated", first.redacted());
    assert_eq!(first.json["customer"]["wallet_address"], WALLET);
    let again = deactivate(&app, &id).await;
    assert_eq!((again.status, &again.bytes), (first.status, &first.bytes), "the same answer");
    assert_eq!(read(&app, &id).await, first.json["customer"], "it stays readable");
    let log = audit_log::Entity::find().filter(audit_log::Column::Action.eq("customer.deactivated"));
    assert_eq!(log.all(app.state.database().reader()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn deactivation_without_a_wallet_shows_none() {
    let app = TestApp::start().await;
    let id = add(&app, &business()).await;
    let gone = deactivate(&app, &id).await;
    assert_eq!(gone.json["customer"]["wallet_address"], Value::Null);
    assert_eq!(gone.json["customer"]["is_active"], false);
}

#[tokio::test]
async fn writes_after_deactivation_are_refused() {
    let app = TestApp::start().await;
    let id = add(&app, &individual_in_full()).await;
    let details = json!({ "wallet_address": WALLET });
    set_details(&app, &id, &details).await;
    deactivate(&app, &id).await;
    let gone = read(&app, &id).await;
    let path = format!("{CUSTOMERS}/{id}");
    for number in ["+447700900123", "+14155550123"] {
        patch(&app, &path, &json!({ "phone_number": number })).await.assert_problem(409, "customer_inactive");
    }
    for details in [details, json!({ "wallet_address": OTHER_WALLET })] {
        set_details(&app, &id, &details).await.assert_problem(409, "customer_inactive");
    }
    assert_eq!(read(&app, &id).await, gone);
}
