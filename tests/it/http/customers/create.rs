//! Creation of customers.

use payferry_entities::{audit_log, customers};

use super::*;

shared!(#[tokio::test] creations, app = TestApp::start().await, app.renew_psp() =>
    one_invalid_customer_rejects_the_batch, creates_individuals_and_businesses,
    null_equals_absent_and_empty_business_fields_make_no_business, batch_is_created_in_order,
    accepts_the_largest_batch_and_rejects_a_larger_body);

async fn creates_individuals_and_businesses(app: &TestApp) {
    for (name, body) in [
        ("individual", individual()),
        ("individual_in_full", individual_in_full()),
        ("business", business()),
        ("business_in_full", business_in_full()),
    ] {
        let made = app.post(CUSTOMERS, &body).await;
        insta::assert_json_snapshot!(name, made.redacted());
        let customer = &made["customers"][0];
        assert_eq!(customer["dob"], "1990-12-10T00:00:00.000Z", "{name}");
        let id = customer["id"].as_str().unwrap();
        assert!(id.starts_with("cr_"), "{name}: {id}");
        assert_eq!(read(app, id).await, *customer, "{name}: reads return the creation's answer");
    }
}

async fn null_equals_absent_and_empty_business_fields_make_no_business(app: &TestApp) {
    let nulls = json!({ "phone_number": null, "tax_id": null, "document_type": null, "business_name": null,
        "beneficiary_owners": null, "verification_document": null, "proof_of_residential_address": null,
        "something": { "unknown": true } });
    app.post(CUSTOMERS, &with(&individual(), &nulls)).await.ok(201);
    let empty = app.post(CUSTOMERS, &with(&business(), &json!({ "beneficiary_owners": [] }))).await;
    assert_eq!(empty["customers"][0]["has_beneficiary_owners"], false);

    // Empty business fields do not make a business.
    let empty = json!({ "business_name": "", "incorporation_certificate_number": "", "business_tax_id": " ",
        "ownership_percentage": "", "registered_business_address": "", "website_url": "",
        "business_registration_number": "", "beneficiary_owners": [] });
    let made = app.post(CUSTOMERS, &with(&individual(), &empty)).await.ok(201);
    let customer = &made["customers"][0];
    let plain = read(app, &add(app, &individual()).await).await;
    let fields = |customer: &Value| customer.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!((&customer["type"], fields(customer)), (&json!("individual"), fields(&plain)));
    assert_eq!(customer["business_name"], plain["business_name"]);
    // For a business the same field is missing.
    let business = app.post(CUSTOMERS, &with(&business(), &json!({ "business_name": "" }))).await;
    assert_eq!(business.faults(), "business_name: empty");
}

async fn batch_is_created_in_order(app: &TestApp) {
    let emails: Vec<_> = (0..100).map(|n| format!("c{n}@example.com")).collect();
    let kinds = [individual(), business_in_full()].into_iter().cycle();
    let many = emails.iter().zip(kinds).map(|(email, kind)| with(&kind, &json!({ "email": email }))).collect();
    let made = app.post(CUSTOMERS, &Value::Array(many)).await.ok(201);
    assert_eq!(made["message"], "100 customers created");
    assert_eq!(column(&made["customers"], "email"), emails);
    assert_eq!(app.get(CUSTOMERS).await["total"], 100);
    let one = app.post(CUSTOMERS, &json!([individual()])).await;
    assert_eq!(one["message"], "1 customer created");
}

async fn one_invalid_customer_rejects_the_batch(app: &TestApp) {
    let wrong_owner =
        with(&owner(), &json!({ "email": "x", "address": { "street_line_1": "1", "city": "", "country": "UK" } }));
    let wrong = json!({ "email": "nowhere", "beneficiary_owners": [owner(), wrong_owner] });
    let wrong_type = with(&individual(), &json!({ "type": "person" }));
    let batch = json!([individual(), with(&business_in_full(), &wrong), 7, wrong_type]);
    app.post(CUSTOMERS, &batch).await.assert_invalid(
        "[1].email: invalid_email, [1].beneficiary_owners[1].email: invalid_email, \
         [1].beneficiary_owners[1].address.city: empty, [1].beneficiary_owners[1].address.country: unknown_country, \
         [2]: wrong_type, [3].type: unknown_value",
    );
    assert_eq!(app.count::<customers::Entity>().await, 0);
    for (batch, code) in [(json!([]), "empty"), (Value::Array(vec![individual(); 101]), "too_many")] {
        assert_eq!(app.post(CUSTOMERS, &batch).await.faults(), format!("body: {code}"));
    }
    app.post(CUSTOMERS, &json!("customer")).await.assert_problem(400, "malformed_json");
    assert_eq!(app.count::<customers::Entity>().await, 0);
}

#[tokio::test]
async fn repeated_creation_is_replayed() {
    let app = TestApp::start().await;
    let first = app.post_keyed("k1", CUSTOMERS, &individual_in_full()).await.ok(201);
    app.post_keyed("k1", CUSTOMERS, &individual_in_full()).await.assert_replays(&first);
    assert_eq!(app.count::<customers::Entity>().await, 1);
    app.post_keyed("k1", CUSTOMERS, &individual()).await.assert_problem(422, "idempotency_key_reused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_requests_with_one_key_create_one_customer() {
    let app = TestApp::start().await;
    let body = individual_in_full();
    let call = || app.post_keyed("k1", CUSTOMERS, &body);
    let replies = futures::future::join_all((0..50).map(|_| call())).await;
    for reply in &replies {
        assert!(reply.status == 201 || reply.code() == "idempotency_request_running", "{}", reply.text());
    }
    assert_eq!(call().await.status, 201);
    assert_eq!(app.count::<customers::Entity>().await, 1);
}

#[tokio::test]
async fn audit_names_the_creator_and_contains_no_personal_data() {
    let app = TestApp::start().await;
    let id = add(&app, &individual_in_full()).await;
    let entries = audit_log::Entity::find().all(app.reader()).await.unwrap();
    let [entry] = entries.as_slice() else { panic!("{entries:?}") };
    let shown = (entry.action.as_str(), &entry.subject, entry.actor_kind.as_str(), entry.psp_id.as_deref());
    assert_eq!(shown, ("customer.created", &id, "api_key", Some(&*app.psp_id.to_string())));
    assert!(entry.actor.starts_with("key_"), "{}", entry.actor);
    // No sealed value is in the row.
    let row = customers::Entity::find_by_id(&id).one(app.reader()).await.unwrap().unwrap();
    let row = format!("{row:?} {entry:?}");
    for secret in ["P1234567", "1990-12-10", "123-45-6789", "+14155550123", "Lovelace", "Harbour"] {
        assert!(!row.contains(secret), "{secret}");
    }
}

async fn accepts_the_largest_batch_and_rejects_a_larger_body(app: &TestApp) {
    let owners = vec![with(&owner(), &json!({ "ownership_percentage": "4" })); 25];
    let business = with(&business_in_full(), &json!({ "beneficiary_owners": owners }));
    let body = Value::Array(vec![business; 100]);
    let made = app.post(CUSTOMERS, &body).await;
    assert_eq!(made.status, 201, "{}", made["detail"]);
    let mut padded = body.to_string().into_bytes();
    padded.resize(4 * 1024 * 1024 + 1, b' ');
    app.request(Method::POST, CUSTOMERS).bytes(padded).send().await.assert_problem(413, "body_too_large");
}
