//! Invalid fields of a creation request, one at a time.

use super::*;

/// Asserts that each change alone is refused with exactly these faults, and that no customer is created.
async fn refused(app: &TestApp, base: &Value, cases: &[(Value, &[&str])]) {
    for (changes, faults) in cases {
        let reply = app.post(CUSTOMERS, &with(base, changes)).await;
        reply.assert_problem(422, "validation_failed");
        assert_eq!(reply.faults(), *faults, "{changes}");
    }
    assert_eq!(app.get(CUSTOMERS).await.json["total"], 0);
}

#[tokio::test]
async fn rejects_invalid_common_fields() {
    let app = TestApp::start().await;
    let long = "x".repeat(256);
    refused(
        &app,
        &individual(),
        &[
            (json!({ "type": "person" }), &["type: unknown_value"]),
            (json!({ "type": null }), &["type: required"]),
            (json!({ "type": 1 }), &["type: wrong_type"]),
            (json!({ "country": "US" }), &["country: unknown_country"]),
            (json!({ "country": "usa" }), &["country: unknown_country"]),
            (json!({ "country": "ZZZ" }), &["country: unknown_country"]),
            (json!({ "currency": "USDC" }), &["currency: unknown_currency"]),
            (json!({ "currency": "usd" }), &["currency: unknown_currency"]),
            (json!({ "email": "ada" }), &["email: invalid_email"]),
            (json!({ "email": "ada@localhost" }), &["email: invalid_email"]),
            (json!({ "first_name": "" }), &["first_name: empty"]),
            (json!({ "first_name": long }), &["first_name: too_long"]),
            (json!({ "last_name": "a\u{0}b" }), &["last_name: invalid_characters"]),
            (json!({ "last_name": null }), &["last_name: required"]),
            (json!({ "dob": "1990-02-30" }), &["dob: invalid_date"]),
            (json!({ "dob": "10/12/1990" }), &["dob: invalid_date"]),
            (json!({ "dob": "2999-01-01" }), &["dob: not_past"]),
            (json!({ "dob": "1700-01-01" }), &["dob: out_of_range"]),
            (json!({ "dob": 19_901_210 }), &["dob: wrong_type"]),
            (json!({ "phone_number": "4155550123" }), &["phone_number: invalid_phone_number"]),
            (json!({ "phone_number": "+1 415 555 0123" }), &["phone_number: invalid_phone_number"]),
            (json!({ "phone_number": "+99912345678" }), &["phone_number: invalid_phone_number"]),
            (json!({ "phone_number": 14_155_550_123_u64 }), &["phone_number: wrong_type"]),
            (json!({ "government_id_number": "" }), &["government_id_number: empty"]),
            (json!({ "government_id_number": "1".repeat(65) }), &["government_id_number: too_long"]),
            (json!({ "tax_id": 5 }), &["tax_id: wrong_type"]),
            (json!({ "residential_address": "Oakland" }), &["residential_address: wrong_type"]),
            (json!({ "residential_address": null }), &["residential_address: required"]),
            (
                json!({ "residential_address": {} }),
                &[
                    "residential_address.street_line_1: required",
                    "residential_address.city: required",
                    "residential_address.country: required",
                ],
            ),
            (
                json!({ "residential_address": with(&address(), &json!({ "country": "US", "zip": "1".repeat(21) })) }),
                &["residential_address.zip: too_long", "residential_address.country: unknown_country"],
            ),
            (json!({ "document_type": "incorporation_certificate" }), &["document_type: unknown_value"]),
            (json!({ "document_type": "library_card" }), &["document_type: unknown_value"]),
        ],
    )
    .await;
}

#[tokio::test]
async fn rejects_fields_that_cannot_be_set() {
    let app = TestApp::start().await;
    refused(
        &app,
        &individual(),
        &[
            (json!({ "verification_document": "a.pdf" }), &["verification_document: not_settable"]),
            (json!({ "proof_of_residential_address": "a.pdf" }), &["proof_of_residential_address: not_settable"]),
            (json!({ "incorporation_certificate": "a.pdf" }), &["incorporation_certificate: not_settable"]),
            (json!({ "proof_of_business_address": {} }), &["proof_of_business_address: not_settable"]),
            (
                json!({ "business_name": "Acme", "website_url": "", "beneficiary_owners": [owner()] }),
                &["business_name: only_for_businesses", "beneficiary_owners: only_for_businesses"],
            ),
            (
                json!({ "registered_business_address": {}, "ownership_percentage": 0 }),
                &["ownership_percentage: only_for_businesses", "registered_business_address: only_for_businesses"],
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn rejects_invalid_fields_of_businesses() {
    let app = TestApp::start().await;
    let many: Vec<Value> = vec![with(&owner(), &json!({ "ownership_percentage": "1" })); 26];
    let owned = |changes: Value| json!({ "beneficiary_owners": [with(&owner(), &changes)] });
    let shares = |shares: &[&str]| {
        let owners: Vec<_> =
            shares.iter().map(|share| with(&owner(), &json!({ "ownership_percentage": share }))).collect();
        json!({ "beneficiary_owners": owners })
    };
    refused(
        &app,
        &business(),
        &[
            (json!({ "business_name": null }), &["business_name: required"]),
            (json!({ "incorporation_certificate_number": null }), &["incorporation_certificate_number: required"]),
            (json!({ "business_tax_id": null }), &["business_tax_id: required"]),
            (json!({ "ownership_percentage": null }), &["ownership_percentage: required"]),
            (json!({ "ownership_percentage": 60 }), &["ownership_percentage: wrong_type"]),
            (json!({ "ownership_percentage": "100.01" }), &["ownership_percentage: out_of_range"]),
            (json!({ "ownership_percentage": "-5" }), &["ownership_percentage: invalid_percentage"]),
            (json!({ "ownership_percentage": "1.23456" }), &["ownership_percentage: too_many_decimals"]),
            (json!({ "registered_business_address": null }), &["registered_business_address: required"]),
            (json!({ "website_url": "engines" }), &["website_url: invalid_url"]),
            (json!({ "website_url": "javascript:alert(1)" }), &["website_url: invalid_url"]),
            (json!({ "business_registration_number": [] }), &["business_registration_number: wrong_type"]),
            (json!({ "document_type": "passport" }), &["document_type: unknown_value"]),
            (json!({ "beneficiary_owners": {} }), &["beneficiary_owners: wrong_type"]),
            (json!({ "beneficiary_owners": ["Charles"] }), &["beneficiary_owners[0]: wrong_type"]),
            (json!({ "beneficiary_owners": many }), &["beneficiary_owners: too_many"]),
            (shares(&["50", "50.0001"]), &["beneficiary_owners: ownership_above_100"]),
            (owned(json!({ "first_name": null })), &["beneficiary_owners[0].first_name: required"]),
            (owned(json!({ "last_name": "" })), &["beneficiary_owners[0].last_name: empty"]),
            (owned(json!({ "dob": "2999-01-01" })), &["beneficiary_owners[0].dob: not_past"]),
            (owned(json!({ "email": "charles" })), &["beneficiary_owners[0].email: invalid_email"]),
            (owned(json!({ "phone_number": "0" })), &["beneficiary_owners[0].phone_number: invalid_phone_number"]),
            (
                owned(json!({ "ownership_percentage": "many" })),
                &["beneficiary_owners[0].ownership_percentage: invalid_percentage"],
            ),
            (owned(json!({ "address": null })), &["beneficiary_owners[0].address: required"]),
            (owned(json!({ "government_id_type": 1 })), &["beneficiary_owners[0].government_id_type: wrong_type"]),
            (owned(json!({ "government_id_number": "" })), &["beneficiary_owners[0].government_id_number: empty"]),
            (owned(json!({ "tax_id": "1".repeat(65) })), &["beneficiary_owners[0].tax_id: too_long"]),
        ],
    )
    .await;
    // Shares may add up to 100 %.
    let whole = app.post(CUSTOMERS, &with(&business(), &shares(&["33.3333", "33.3333", "33.3334"]))).await;
    assert_eq!(whole.status, 201, "{}", whole.text());
}

#[tokio::test]
async fn names_all_missing_fields_together() {
    let app = TestApp::start().await;
    let nothing = app.post(CUSTOMERS, &json!({})).await;
    insta::assert_json_snapshot!("nothing_given", nothing.redacted());
    let no_business = app.post(CUSTOMERS, &with(&individual(), &json!({ "type": "business" }))).await;
    assert_eq!(
        no_business.faults(),
        [
            "business_name: required",
            "incorporation_certificate_number: required",
            "business_tax_id: required",
            "ownership_percentage: required",
            "registered_business_address: required",
        ]
    );
}
