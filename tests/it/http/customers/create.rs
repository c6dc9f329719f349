//! Creation of customers.

use axum::http::Method;
use payferry_entities::{audit_log, customers};
use sea_orm::{EntityTrait, PaginatorTrait};
use serde_json::{Value, json};

use super::*;

async fn count(app: &TestApp) -> u64 {
    customers::Entity::find().count(app.state.database().reader()).await.unwrap()
}

#[tokio::test]
async fn creates_an_individual_with_required_fields_only() {
    let app = TestApp::start().await;
    let made = app.post(CUSTOMERS, &individual()).await;
    insta::assert_json_snapshot!("individual", made.redacted());
    assert_eq!(made.json["customers"][0]["dob"], "1990-12-10T00:00:00.000Z");
    let id = made.json["customers"][0]["id"].as_str().unwrap();
    assert!(id.starts_with("cr_"));
    assert_eq!(read(&app, id).await, made.json["customers"][0], "reads return the creation's answer");
}

#[tokio::test]
async fn creates_an_individual_with_all_fields() {
    let app = TestApp::start().await;
    let made = app.post(CUSTOMERS, &individual_in_full()).await;
    insta::assert_json_snapshot!("individual_in_full", made.redacted());
    let id = made.json["customers"][0]["id"].as_str().unwrap();
    assert_eq!(read(&app, id).await, made.json["customers"][0]);
}

#[tokio::test]
async fn creates_a_business_with_required_fields_only() {
    let app = TestApp::start().await;
    let made = app.post(CUSTOMERS, &business()).await;
    insta::assert_json_snapshot!("business", made.redacted());
    let id = made.json["customers"][0]["id"].as_str().unwrap();
    assert_eq!(read(&app, id).await, made.json["customers"][0]);
}

#[tokio::test]
async fn creates_a_business_with_all_fields() {
    let app = TestApp::start().await;
    let made = app.post(CUSTOMERS, &business_in_full()).await;
    insta::assert_json_snapshot!("business_in_full", made.redacted());
    let id = made.json["customers"][0]["id"].as_str().unwrap();
    assert_eq!(read(&app, id).await, made.json["customers"][0]);
}

#[tokio::test]
async fn null_equals_absent() {
    let app = TestApp::start().await;
    let nulls = json!({ "phone_number": null, "tax_id": null, "document_type": null, "business_name": null,
        "beneficiary_owners": null, "verification_document": null, "proof_of_residential_address": null,
        "something": { "unknown": true } });
    let made = app.post(CUSTOMERS, &with(&individual(), &nulls)).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let empty = app.post(CUSTOMERS, &with(&business(), &json!({ "beneficiary_owners": [] }))).await;
    assert_eq!(empty.json["customers"][0]["has_beneficiary_owners"], false);
}

#[tokio::test]
async fn empty_business_fields_do_not_make_a_business() {
    let app = TestApp::start().await;
    let empty = json!({ "business_name": "", "incorporation_certificate_number": "", "business_tax_id": " ",
        "ownership_percentage": "", "registered_business_address": "", "website_url": "",
        "business_registration_number": "", "beneficiary_owners": [] });
    let made = app.post(CUSTOMERS, &with(&individual(), &empty)).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let customer = &made.json["customers"][0];
    let plain = read(&app, &add(&app, &individual()).await).await;
    let fields = |customer: &Value| customer.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!((&customer["type"], fields(customer)), (&json!("individual"), fields(&plain)));
    assert_eq!(customer["business_name"], plain["business_name"]);
    // For a business the same field is missing.
    let business = app.post(CUSTOMERS, &with(&business(), &json!({ "business_name": "" }))).await;
    assert_eq!(business.faults(), ["business_name: empty"]);
}

#[tokio::test]
async fn batch_is_created_in_order() {
    let app = TestApp::start().await;
    let many: Vec<Value> = (0..100)
        .map(|n| {
            with(
                &if n % 2 == 0 { individual() } else { business_in_full() },
                &json!({ "email": format!("c{n}@example.com") }),
            )
        })
        .collect();
    let made = app.post(CUSTOMERS, &Value::Array(many)).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(made.json["message"], "100 customers created");
    let emails: Vec<_> =
        made.json["customers"].as_array().unwrap().iter().map(|one| one["email"].as_str().unwrap()).collect();
    assert_eq!(emails, (0..100).map(|n| format!("c{n}@example.com")).collect::<Vec<_>>());
    assert_eq!(app.get(CUSTOMERS).await.json["total"], 100);
    let one = app.post(CUSTOMERS, &json!([individual()])).await;
    assert_eq!(one.json["message"], "1 customer created");
}

#[tokio::test]
async fn one_invalid_customer_rejects_the_batch() {
    let app = TestApp::start().await;
    let batch = json!([
        individual(),
        with(
            &business_in_full(),
            &json!({ "email": "nowhere", "beneficiary_owners": [owner(), with(&owner(), &json!({
            "email": "x", "address": { "street_line_1": "1", "city": "", "country": "UK" } }))] })
        ),
        7,
        with(&individual(), &json!({ "type": "person" })),
    ]);
    let refused = app.post(CUSTOMERS, &batch).await;
    refused.assert_problem(422, "validation_failed");
    assert_eq!(
        refused.faults(),
        [
            "[1].email: invalid_email",
            "[1].beneficiary_owners[1].email: invalid_email",
            "[1].beneficiary_owners[1].address.city: empty",
            "[1].beneficiary_owners[1].address.country: unknown_country",
            "[2]: wrong_type",
            "[3].type: unknown_value",
        ]
    );
    assert_eq!(count(&app).await, 0);
    for (batch, code) in [(json!([]), "empty"), (Value::Array(vec![individual(); 101]), "too_many")] {
        let refused = app.post(CUSTOMERS, &batch).await;
        assert_eq!(refused.faults(), [format!("body: {code}")]);
    }
    app.post(CUSTOMERS, &json!("customer")).await.assert_problem(400, "malformed_json");
    assert_eq!(count(&app).await, 0);
}

#[tokio::test]
async fn repeated_creation_is_replayed() {
    let app = TestApp::start().await;
    let call = || app.request(Method::POST, CUSTOMERS).idempotency_key("k1").json(&individual_in_full());
    let first = call().send().await;
    let again = call().send().await;
    assert_eq!((again.status.as_u16(), again.header("idempotent-replayed")), (201, Some("true")));
    assert_eq!(again.bytes, first.bytes);
    assert_eq!(count(&app).await, 1);
    let other = app.request(Method::POST, CUSTOMERS).idempotency_key("k1").json(&individual()).send().await;
    other.assert_problem(422, "idempotency_key_reused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_requests_with_one_key_create_one_customer() {
    let app = TestApp::start().await;
    let body = individual_in_full();
    let call = || app.request(Method::POST, CUSTOMERS).idempotency_key("k1").json(&body).send();
    let replies = futures::future::join_all((0..50).map(|_| call())).await;
    for reply in &replies {
        assert!(reply.status == 201 || reply.code() == "idempotency_request_running", "{}", reply.text());
    }
    assert_eq!(call().await.status, 201);
    assert_eq!(count(&app).await, 1);
}

#[tokio::test]
async fn audit_names_the_creator_and_contains_no_personal_data() {
    let app = TestApp::start().await;
    let id = add(&app, &individual_in_full()).await;
    let entries = audit_log::Entity::find().all(app.state.database().reader()).await.unwrap();
    assert_eq!(entries.len(), 1);
    let entry = &entries[0];
    assert_eq!(
        (entry.action.as_str(), &entry.subject, entry.actor_kind.as_str()),
        ("customer.created", &id, "api_key")
    );
    assert!(entry.actor.starts_with("key_"), "{}", entry.actor);
    assert_eq!(entry.psp_id, Some(app.psp_id.to_string()));
    // No sealed value is in the row.
    let row = customers::Entity::find_by_id(&id).one(app.state.database().reader()).await.unwrap().unwrap();
    let row = format!("{row:?} {entry:?}");
    for secret in ["P1234567", "1990-12-10", "123-45-6789", "+14155550123", "Lovelace", "Harbour"] {
        assert!(!row.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn accepts_the_largest_batch_and_rejects_a_larger_body() {
    let app = TestApp::start().await;
    let owners = vec![with(&owner(), &json!({ "ownership_percentage": "4" })); 25];
    let business = with(&business_in_full(), &json!({ "beneficiary_owners": owners }));
    let body = Value::Array(vec![business; 100]);
    let made = app.post(CUSTOMERS, &body).await;
    assert_eq!(made.status, 201, "{}", made.json["detail"]);
    let mut padded = body.to_string().into_bytes();
    padded.resize(4 * 1024 * 1024 + 1, b' ');
    let refused = app.request(Method::POST, CUSTOMERS).bytes(padded).send().await;
    refused.assert_problem(413, "body_too_large");
}
