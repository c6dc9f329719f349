//! Changes of customers: their phone number, the only changeable field, and their deactivation.

use payferry_entities::{audit_log, checks};

use super::*;

async fn checks_of(app: &TestApp, id: &str) -> Vec<(String, String, i64)> {
    let rows = checks::Entity::find().filter(checks::Column::CustomerId.eq(id));
    let rows = rows.all(app.reader()).await.unwrap();
    let mut rows: Vec<_> = rows.into_iter().map(|row| (row.purpose, row.status.to_string(), row.revision)).collect();
    rows.sort_by_key(|(_, _, revision)| *revision);
    rows
}

shared!(#[tokio::test] changes, app = TestApp::start().await, app.renew_psp() =>
    only_a_different_number_starts_a_screening, other_fields_are_refused_by_name, repeated_change_is_replayed,
    deactivation_is_final_and_repeatable, writes_after_deactivation_are_refused);

async fn only_a_different_number_starts_a_screening(app: &TestApp) {
    let id = add(app, &individual_in_full()).await;
    let path = format!("{CUSTOMERS}/{id}");
    let before = read(app, &id).await;
    let same = app.patch(&path, &json!({ "phone_number": "+14155550123" })).await;
    assert_eq!((same.status.as_u16(), &same["customer"]), (200, &before), "nothing changed");
    assert!(checks_of(app, &id).await.is_empty());

    let changed = app.patch(&path, &json!({ "phone_number": "+447700900123" })).await;
    insta::assert_json_snapshot!("phone_changed", changed.redacted());
    assert_eq!(changed["customer"], read(app, &id).await);
    let [(purpose, _, revision)] = checks_of(app, &id).await.try_into().unwrap();
    assert_eq!((purpose.as_str(), revision), ("rescreen", 2));

    // The first number of a customer also starts one.
    let id = add(app, &individual()).await;
    assert!(read(app, &id).await.get("phone_number").is_none());
    let set = app.patch(&format!("{CUSTOMERS}/{id}"), &json!({ "phone_number": "+14155550123" })).await;
    assert_has(&set["customer"], json!({ "phone_number": "+14155550123", "kyc_status": "pending_update" }));
}

async fn other_fields_are_refused_by_name(app: &TestApp) {
    let id = add(app, &individual_in_full()).await;
    let path = format!("{CUSTOMERS}/{id}");
    let before = read(app, &id).await;
    let cases = [
        (json!({}), "phone_number: required"),
        (json!({ "phone_number": null }), "phone_number: required"),
        (json!({ "phone_number": "1" }), "phone_number: invalid_phone_number"),
        (json!({ "phone_number": "+447700900123", "email": "b@example.com" }), "email: not_accepted"),
        (json!({ "phone_number": "+447700900123", "email": null }), "email: not_accepted"),
        (
            json!({ "first_name": "B", "is_active": false }),
            "first_name: not_accepted, is_active: not_accepted, phone_number: required",
        ),
    ];
    assert_refused(&cases, async |body| app.patch(&path, body).await).await;
    assert_eq!(read(app, &id).await, before);
    app.patch(&path, &json!([])).await.assert_problem(400, "malformed_json");
    let nobody = format!("{CUSTOMERS}/cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3");
    app.patch(&nobody, &json!({ "phone_number": "+447700900123" })).await.assert_problem(404, "customer_not_found");
}

async fn repeated_change_is_replayed(app: &TestApp) {
    let id = add(app, &individual_in_full()).await;
    let path = format!("{CUSTOMERS}/{id}");
    let change = || {
        let body = json!({ "phone_number": "+447700900123" });
        app.request(Method::PATCH, &path).idempotency_key("p1").json(&body).send()
    };
    let first = change().await;
    change().await.assert_replays(&first);
    assert_eq!(checks_of(app, &id).await.len(), 1);
}

async fn deactivation_is_final_and_repeatable(app: &TestApp) {
    let id = add(app, &individual_in_full()).await;
    set_details(app, &id, &json!({ "wallet_address": WALLET })).await;
    let first = deactivate(app, &id).await;
    insta::assert_json_snapshot!("deactivated", first.redacted());
    assert_eq!(first["customer"]["wallet_address"], WALLET);
    let again = deactivate(app, &id).await;
    assert_eq!((again.status, &again.bytes), (first.status, &first.bytes), "the same answer");
    assert_eq!(read(app, &id).await, first["customer"], "it stays readable");
    let log = audit_log::Entity::find().filter(audit_log::Column::Action.eq("customer.deactivated"));
    assert_eq!(log.all(app.reader()).await.unwrap().len(), 1);

    // Without a wallet it shows none.
    let id = add(app, &business()).await;
    let gone = deactivate(app, &id).await;
    assert_has(&gone["customer"], json!({ "wallet_address": null, "is_active": false }));
}

async fn writes_after_deactivation_are_refused(app: &TestApp) {
    let id = add(app, &individual_in_full()).await;
    let details = json!({ "wallet_address": WALLET });
    set_details(app, &id, &details).await;
    deactivate(app, &id).await;
    let gone = read(app, &id).await;
    let path = format!("{CUSTOMERS}/{id}");
    for number in ["+447700900123", "+14155550123"] {
        app.patch(&path, &json!({ "phone_number": number })).await.assert_problem(409, "customer_inactive");
    }
    for details in [details, json!({ "wallet_address": OTHER_WALLET })] {
        set_details(app, &id, &details).await.assert_problem(409, "customer_inactive");
    }
    assert_eq!(read(app, &id).await, gone);
}
