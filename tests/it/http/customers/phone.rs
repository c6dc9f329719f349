//! Phone number, the only changeable field of a customer.

use axum::http::Method;
use payferry_entities::checks;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};

use super::*;

async fn checks_of(app: &TestApp, id: &str) -> Vec<(String, String, i64)> {
    let rows = checks::Entity::find().filter(checks::Column::CustomerId.eq(id));
    let rows = rows.all(app.state.database().reader()).await.unwrap();
    let mut rows: Vec<_> = rows.into_iter().map(|row| (row.purpose, row.status, row.revision)).collect();
    rows.sort_by_key(|(_, _, revision)| *revision);
    rows
}

#[tokio::test]
async fn only_a_different_number_starts_a_screening() {
    let app = TestApp::start().await;
    let id = add(&app, &individual_in_full()).await;
    let path = format!("{CUSTOMERS}/{id}");
    let before = read(&app, &id).await;
    let same = patch(&app, &path, &json!({ "phone_number": "+14155550123" })).await;
    assert_eq!((same.status.as_u16(), &same.json["customer"]), (200, &before), "nothing changed");
    assert!(checks_of(&app, &id).await.is_empty());

    let changed = patch(&app, &path, &json!({ "phone_number": "+447700900123" })).await;
    insta::assert_json_snapshot!("phone_changed", changed.redacted());
    assert_eq!(changed.json["customer"], read(&app, &id).await);
    let [(purpose, _, revision)] = checks_of(&app, &id).await.try_into().unwrap();
    assert_eq!((purpose.as_str(), revision), ("rescreen", 2));
}

#[tokio::test]
async fn first_number_starts_a_screening() {
    let app = TestApp::start().await;
    let id = add(&app, &individual()).await;
    assert!(read(&app, &id).await.get("phone_number").is_none());
    let set = patch(&app, &format!("{CUSTOMERS}/{id}"), &json!({ "phone_number": "+14155550123" })).await;
    assert_eq!(set.json["customer"]["phone_number"], "+14155550123");
    assert_eq!(set.json["customer"]["kyc_status"], "pending_update");
}

#[tokio::test]
async fn other_fields_are_refused_by_name() {
    let app = TestApp::start().await;
    let id = add(&app, &individual_in_full()).await;
    let path = format!("{CUSTOMERS}/{id}");
    let before = read(&app, &id).await;
    for (body, faults) in [
        (json!({}), ["phone_number: required"].as_slice()),
        (json!({ "phone_number": null }), &["phone_number: required"]),
        (json!({ "phone_number": "1" }), &["phone_number: invalid_phone_number"]),
        (json!({ "phone_number": "+447700900123", "email": "b@example.com" }), &["email: not_accepted"]),
        (json!({ "phone_number": "+447700900123", "email": null }), &["email: not_accepted"]),
        (
            json!({ "first_name": "B", "is_active": false }),
            &["first_name: not_accepted", "is_active: not_accepted", "phone_number: required"],
        ),
    ] {
        let refused = patch(&app, &path, &body).await;
        refused.assert_problem(422, "validation_failed");
        assert_eq!(refused.faults(), faults, "{body}");
    }
    assert_eq!(read(&app, &id).await, before);
    patch(&app, &path, &json!([])).await.assert_problem(400, "malformed_json");
    let nobody = format!("{CUSTOMERS}/cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3");
    patch(&app, &nobody, &json!({ "phone_number": "+447700900123" })).await.assert_problem(404, "customer_not_found");
}

#[tokio::test]
async fn repeated_change_is_replayed() {
    let app = TestApp::start().await;
    let id = add(&app, &individual_in_full()).await;
    let path = format!("{CUSTOMERS}/{id}");
    let change = || {
        let body = json!({ "phone_number": "+447700900123" });
        app.request(Method::PATCH, &path).idempotency_key("p1").json(&body).send()
    };
    let first = change().await;
    let again = change().await;
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.bytes, first.bytes);
    assert_eq!(checks_of(&app, &id).await.len(), 1);
}
