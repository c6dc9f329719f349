//! `/ops/psps` and the PSPs' keys.

use payferry_domain::KeyScope as Scope;
use reqwest::Method;
use serde_json::{Value, json};

use super::{ServiceFixture, TOKEN, reply};

#[tokio::test]
async fn psp_page_lists_revocable_keys_first() {
    let service = ServiceFixture::start().await;
    let psp = service.app.add_psp().await;
    let (oldest, _) = service.app.add_key_as(psp, &[Scope::Read], |row| row.created_at = -1).await;
    // More than a page of unusable keys, all younger.
    for _ in 0..26 {
        service.app.add_key_as(psp, &[Scope::Read], |row| row.revoked_at = Some(1)).await;
        service.app.add_key_as(psp, &[Scope::Read], |row| row.expires_at = Some(1)).await;
    }
    let (newest, _) = service.app.add_key_as(psp, &[Scope::Read], |row| row.expires_at = Some(i64::MAX)).await;
    let here = format!("/ops/view/psps/{psp}");
    let page = service.get(&here).await;
    let rows = |page: &str| page.matches("<tr id=\"key_").count();
    let places = [newest, oldest].map(|key| page.text().find(&format!("<tr id=\"{key}\"")));
    assert!(places[0].is_some() && places.is_sorted(), "{places:?}");
    assert_eq!((rows(page.text()), page.text().matches("/revoke\"").count()), (50, 2), "{}", page.text());
    assert!(page.text().contains(&format!("rel=\"next\" href=\"{here}?keys=50\"")), "{}", page.text());
    let rest = service.get(&format!("{here}?keys=50")).await;
    assert_eq!((rows(rest.text()), rest.text().matches("/revoke\"").count()), (4, 0), "{}", rest.text());
    assert!(rest.text().contains(&format!("rel=\"prev\" href=\"{here}?keys=0\"")), "{}", rest.text());
    service.stop().await;
}

#[tokio::test]
async fn psp_is_created_changed_and_listed() {
    let service = ServiceFixture::start().await;
    let made =
        service.post("/ops/psps", &json!({ "name": " Northern Pay ", "fee_bps": 80, "tolerance": "0.05" })).await;
    insta::assert_json_snapshot!("psp_created", made.redacted());
    let path = format!("/ops/psps/{}", made.json["psp_id"].as_str().unwrap());
    let patch = async |body: Value| reply(service.call(Method::PATCH, &path).json(&body)).await;
    let changed = patch(json!({ "overpayment": "refund_excess", "refund_to_sender": true, "dust_floor": "0" })).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    let shown = service.get(&path).await.json;
    assert_eq!(shown, changed.json);
    let policies =
        ["fee_bps", "tolerance", "overpayment", "refund_to_sender", "dust_floor"].map(|name| shown[name].clone());
    assert_eq!(json!(policies), json!([80, "0.05", "refund_excess", true, "0.00"]));
    let list = service.get("/ops/psps").await.json;
    assert_eq!((&list["total"], list["psps"].as_array().unwrap().len()), (&json!(2), 2));
    assert_eq!(service.get("/ops/psps?limit=1&offset=1").await.json["psps"].as_array().unwrap().len(), 1);

    let bad = json!({ "name": "", "fee_bps": 10_001, "tolerance": 5, "tolerance_bps": -1, "overpayment": "keep",
        "refund_to_sender": "yes", "dust_floor": "1e3", "fee": 1 });
    let refused = service.post("/ops/psps", &bad).await;
    refused.assert_problem(422, "validation_failed");
    let mut faults = refused.faults();
    faults.sort();
    assert_eq!(
        faults,
        [
            "dust_floor: amount_malformed",
            "fee: unknown_field",
            "fee_bps: out_of_range",
            "name: empty",
            "overpayment: unknown_value",
            "refund_to_sender: wrong_type",
            "tolerance: wrong_type",
            "tolerance_bps: out_of_range",
        ]
    );
    patch(json!({ "name": "x".repeat(201) })).await.assert_problem(422, "validation_failed");
    for internal in [json!("keep_excess"), json!({ "hold": null })] {
        let refused = patch(json!({ "overpayment": internal })).await;
        assert_eq!((refused.status.as_u16(), refused.faults()), (422, vec!["overpayment: unknown_value".to_owned()]));
    }
    assert_eq!(service.get(&path).await.json, shown, "nothing was changed");
    service.get("/ops/psps/psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3").await.assert_problem(404, "psp_not_found");
    service.get("/ops/psps/northern").await.assert_problem(400, "invalid_parameters");
    let form = service.call(Method::POST, "/ops/psps").body("name=x");
    reply(form).await.assert_problem(415, "unsupported_media_type");
    let cut = service.call(Method::POST, "/ops/psps").header("content-type", "application/json").body("{");
    reply(cut).await.assert_problem(400, "malformed_json");
    service.stop().await;
}

#[tokio::test]
async fn changed_policy_applies_immediately() {
    let service = ServiceFixture::start_with_chains().await;
    let merchant = service.app.add_merchant().await;
    service.app.add_payment(&merchant).await;
    let path = format!("/ops/psps/{}", service.app.psp_id);
    for required in [true, false] {
        let changed = reply(service.call(Method::PATCH, &path).json(&json!({ "require_customer": required }))).await;
        assert_eq!(changed.json["require_customer"], required);
        let body = json!({ "merchant_id": merchant, "amount": "10", "currency": "USDC", "chain": "base" });
        let made = service.app.post("/payments/initiate", &body).await;
        assert_eq!(made.status, if required { 422 } else { 201 }, "{}", made.text());
    }
    service.stop().await;
}

#[tokio::test]
async fn keys_are_created_used_and_revoked() {
    let service = ServiceFixture::start().await;
    let keys = format!("/ops/psps/{}/keys", service.app.psp_id);
    let made =
        service.post(&keys, &json!({ "name": "reports", "scopes": ["webhooks", "read"], "expires_days": 90 })).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let key = made.json["api_key"].as_str().unwrap();
    assert!(key.starts_with("sk_test_"), "{key}");
    let mut hidden = made.json.clone();
    hidden["api_key"] = json!("[key]");
    insta::assert_json_snapshot!("key_created", crate::app::redact(&hidden));
    let used = service.app.request(Method::GET, "/merchants").key(key).send().await;
    assert_eq!(used.status, 200, "{}", used.text());
    let listed = service.get(&keys).await;
    assert_eq!(listed.json["total"], 2);
    assert!(!listed.text().contains(&key[40..]), "a key is shown once");

    let revoke = format!("{keys}/{}/revoke", made.json["key_id"].as_str().unwrap());
    for _ in 0..2 {
        assert_eq!(service.post(&revoke, &Value::Null).await.json["state"], "revoked");
    }
    let refused = async |service: &ServiceFixture| {
        let used = service.app.request(Method::GET, "/merchants").key(key).send().await;
        (used.code() == "api_key_revoked").then_some(())
    };
    service.until("the key is refused", refused).await;

    let other = service.app.add_psp().await;
    let (own, _) = service.app.add_key_as(service.app.psp_id, &[Scope::Full], |_| {}).await;
    service
        .post(&format!("/ops/psps/{other}/keys/{own}/revoke"), &Value::Null)
        .await
        .assert_problem(404, "key_not_found");
    let bad = service
        .post(&keys, &json!({ "name": "a\u{7}", "scopes": ["everything"], "expires_days": 0, "scope": "read" }))
        .await;
    let mut faults = bad.faults();
    faults.sort();
    assert_eq!(
        faults,
        ["expires_days: out_of_range", "name: invalid_characters", "scope: unknown_field", "scopes: unknown_value"]
    );
    service
        .post("/ops/psps/psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3/keys", &json!({}))
        .await
        .assert_problem(404, "psp_not_found");
    // A PSP's key has no access here, regardless of its scopes.
    reply(service.bare(Method::GET, &keys).bearer_auth(&service.app.key))
        .await
        .assert_problem(401, "operator_token_wrong");
    assert!(!service.get(&keys).await.text().contains(TOKEN));
    service.stop().await;
}
