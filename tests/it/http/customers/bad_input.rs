//! Invalid fields of a creation request, one at a time.

use super::*;

shared!(#[tokio::test] bad_input, app = TestApp::start().await, app.renew_psp() =>
    rejects_invalid_fields_of_individuals, rejects_invalid_fields_of_businesses, names_all_missing_fields_together);

/// Sends the request with each change alone; no customer may be created.
async fn refused(app: &TestApp, base: &Value, values: &[(&str, Value)], several: &[(Value, &str)]) {
    let create = async |changes: &Value| app.post(CUSTOMERS, &with(base, changes)).await;
    assert_values_refused(values, create).await;
    assert_refused(several, create).await;
    assert_eq!(app.get(CUSTOMERS).await["total"], 0);
}

async fn rejects_invalid_fields_of_individuals(app: &TestApp) {
    let values = [
        ("type: unknown_value", json!(["person"])),
        ("type: required", json!([null])),
        ("type: wrong_type", json!([1])),
        ("country: unknown_country", json!(["US", "usa", "ZZZ"])),
        ("currency: unknown_currency", json!(["USDC", "usd"])),
        ("email: invalid_email", json!(["ada", "ada@localhost"])),
        ("first_name: empty", json!([""])),
        ("first_name: too_long", json!(["x".repeat(256)])),
        ("last_name: invalid_characters", json!(["a\u{0}b"])),
        ("last_name: required", json!([null])),
        ("dob: invalid_date", json!(["1990-02-30", "10/12/1990"])),
        ("dob: not_past", json!(["2999-01-01"])),
        ("dob: out_of_range", json!(["1700-01-01"])),
        ("dob: wrong_type", json!([19_901_210])),
        ("phone_number: invalid_phone_number", json!(["4155550123", "+1 415 555 0123", "+99912345678"])),
        ("phone_number: wrong_type", json!([14_155_550_123_u64])),
        ("government_id_number: empty", json!([""])),
        ("government_id_number: too_long", json!(["1".repeat(65)])),
        ("tax_id: wrong_type", json!([5])),
        ("residential_address: wrong_type", json!(["Oakland"])),
        ("residential_address: required", json!([null])),
        ("document_type: unknown_value", json!(["incorporation_certificate", "library_card"])),
        ("verification_document: not_settable", json!(["a.pdf"])),
        ("proof_of_residential_address: not_settable", json!(["a.pdf"])),
        ("incorporation_certificate: not_settable", json!(["a.pdf"])),
        ("proof_of_business_address: not_settable", json!([{}])),
    ];
    let wrong = with(&address(), &json!({ "country": "US", "zip": "1".repeat(21) }));
    let several = [
        (
            json!({ "residential_address": {} }),
            "residential_address.street_line_1: required, residential_address.city: required, \
             residential_address.country: required",
        ),
        (
            json!({ "residential_address": wrong }),
            "residential_address.zip: too_long, residential_address.country: unknown_country",
        ),
        (
            json!({ "business_name": "Acme", "website_url": "", "beneficiary_owners": [owner()] }),
            "business_name: only_for_businesses, beneficiary_owners: only_for_businesses",
        ),
        (
            json!({ "registered_business_address": {}, "ownership_percentage": 0 }),
            "ownership_percentage: only_for_businesses, registered_business_address: only_for_businesses",
        ),
    ];
    refused(app, &individual(), &values, &several).await;
}

async fn rejects_invalid_fields_of_businesses(app: &TestApp) {
    let many: Vec<Value> = vec![with(&owner(), &json!({ "ownership_percentage": "1" })); 26];
    let shares = |shares: &[&str]| {
        let owners = shares.iter().map(|share| with(&owner(), &json!({ "ownership_percentage": share })));
        json!({ "beneficiary_owners": owners.collect::<Vec<_>>() })
    };
    let values = [
        ("business_name: required", json!([null])),
        ("incorporation_certificate_number: required", json!([null])),
        ("business_tax_id: required", json!([null])),
        ("ownership_percentage: required", json!([null])),
        ("ownership_percentage: wrong_type", json!([60])),
        ("ownership_percentage: out_of_range", json!(["100.01"])),
        ("ownership_percentage: invalid_percentage", json!(["-5"])),
        ("ownership_percentage: too_many_decimals", json!(["1.23456"])),
        ("registered_business_address: required", json!([null])),
        ("website_url: invalid_url", json!(["engines", "javascript:alert(1)"])),
        ("business_registration_number: wrong_type", json!([[]])),
        ("document_type: unknown_value", json!(["passport"])),
        ("beneficiary_owners: wrong_type", json!([{}])),
        ("beneficiary_owners: too_many", json!([many])),
    ];
    let of_owners = [
        ("first_name", Value::Null, "required"),
        ("last_name", json!(""), "empty"),
        ("dob", json!("2999-01-01"), "not_past"),
        ("email", json!("charles"), "invalid_email"),
        ("phone_number", json!("0"), "invalid_phone_number"),
        ("ownership_percentage", json!("many"), "invalid_percentage"),
        ("address", Value::Null, "required"),
        ("government_id_type", json!(1), "wrong_type"),
        ("government_id_number", json!(""), "empty"),
        ("tax_id", json!("1".repeat(65)), "too_long"),
    ];
    let of_owners = of_owners.map(|(field, value, code)| {
        let owner = with(&owner(), &json!({ field: value }));
        (json!({ "beneficiary_owners": [owner] }), format!("beneficiary_owners[0].{field}: {code}"))
    });
    let mut several: Vec<_> = of_owners.iter().map(|(changes, fault)| (changes.clone(), fault.as_str())).collect();
    several.push((json!({ "beneficiary_owners": ["Charles"] }), "beneficiary_owners[0]: wrong_type"));
    several.push((shares(&["50", "50.0001"]), "beneficiary_owners: ownership_above_100"));
    refused(app, &business(), &values, &several).await;
    // Shares may add up to 100 %.
    app.post(CUSTOMERS, &with(&business(), &shares(&["33.3333", "33.3333", "33.3334"]))).await.ok(201);
}

async fn names_all_missing_fields_together(app: &TestApp) {
    let nothing = app.post(CUSTOMERS, &json!({})).await;
    insta::assert_json_snapshot!("nothing_given", nothing.redacted());
    let no_business = app.post(CUSTOMERS, &with(&individual(), &json!({ "type": "business" }))).await;
    let missing = "business_name: required, incorporation_certificate_number: required, business_tax_id: required, \
                   ownership_percentage: required, registered_business_address: required";
    assert_eq!(no_business.faults(), missing);
}
