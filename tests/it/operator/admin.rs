//! `/ops/psps` and the PSPs' keys.

use super::{TOKEN, reply};
use crate::prelude::*;

shared!(#[tokio::test] psps_and_keys, service = ServiceFixture::start().await, service.app.renew_psp() =>
    psp_is_created_changed_and_listed, psp_page_lists_revocable_keys_first, keys_are_created_used_and_revoked);

async fn psp_page_lists_revocable_keys_first(service: &ServiceFixture) {
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
    page.assert_shows(&[&format!("rel=\"next\" href=\"{here}?keys=50\"")]);
    let rest = service.get(&format!("{here}?keys=50")).await;
    assert_eq!((rows(rest.text()), rest.text().matches("/revoke\"").count()), (4, 0), "{}", rest.text());
    rest.assert_shows(&[&format!("rel=\"prev\" href=\"{here}?keys=0\"")]);
}

async fn psp_is_created_changed_and_listed(service: &ServiceFixture) {
    let made =
        service.post("/ops/psps", &json!({ "name": " Northern Pay ", "fee_bps": 80, "tolerance": "0.05" })).await;
    insta::assert_json_snapshot!("psp_created", made.redacted());
    let path = format!("/ops/psps/{}", made["psp_id"].as_str().unwrap());
    let patch = async |body: Value| service.patch(&path, &body).await;
    let changed =
        patch(json!({ "overpayment": "refund_excess", "refund_to_sender": true, "dust_floor": "0" })).await.ok(200);
    let shown = service.get(&path).await.json;
    assert_eq!(shown, changed.json);
    let policies =
        ["fee_bps", "tolerance", "overpayment", "refund_to_sender", "dust_floor"].map(|name| shown[name].clone());
    assert_eq!(json!(policies), json!([80, "0.05", "refund_excess", true, "0.00"]));
    let list = service.get("/ops/psps").await.json;
    assert_eq!((&list["total"], list["psps"].as_array().unwrap().len()), (&json!(2), 2));
    assert_eq!(service.get("/ops/psps?limit=1&offset=1").await["psps"].as_array().unwrap().len(), 1);

    let bad = json!({ "name": "", "fee_bps": 10_001, "tolerance": 5, "tolerance_bps": -1, "overpayment": "keep",
        "refund_to_sender": "yes", "dust_floor": "1e3", "fee": 1 });
    let refused = service.post("/ops/psps", &bad).await;
    refused.assert_problem(422, "validation_failed");
    let faults = refused.faults_sorted();
    let expected = "dust_floor: amount_malformed, fee: unknown_field, fee_bps: out_of_range, name: empty, \
        overpayment: unknown_value, refund_to_sender: wrong_type, tolerance: wrong_type, tolerance_bps: out_of_range";
    assert_eq!(faults, expected);
    patch(json!({ "name": "x".repeat(201) })).await.assert_problem(422, "validation_failed");
    for internal in [json!("keep_excess"), json!({ "hold": null })] {
        let refused = patch(json!({ "overpayment": internal })).await;
        refused.assert_invalid("overpayment: unknown_value");
    }
    assert_eq!(service.get(&path).await.json, shown, "nothing was changed");
    service.get("/ops/psps/psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3").await.assert_problem(404, "psp_not_found");
    service.get("/ops/psps/northern").await.assert_problem(400, "invalid_parameters");
    let form = service.call(Method::POST, "/ops/psps").body("name=x");
    reply(form).await.assert_problem(415, "unsupported_media_type");
    let cut = service.call(Method::POST, "/ops/psps").header("content-type", "application/json").body("{");
    reply(cut).await.assert_problem(400, "malformed_json");
}

#[tokio::test]
async fn changed_policy_applies_immediately() {
    let service = ServiceFixture::start_with_chains().await;
    service.app.add_payment().await;
    let path = format!("/ops/psps/{}", service.app.psp_id);
    for required in [true, false] {
        let changed = service.patch(&path, &json!({ "require_customer": required })).await;
        assert_eq!(changed["require_customer"], required);
        service.app.initiate(&json!({})).await.ok(if required { 422 } else { 201 });
    }
}

async fn keys_are_created_used_and_revoked(service: &ServiceFixture) {
    let keys = format!("/ops/psps/{}/keys", service.app.psp_id);
    let made = service
        .post(&keys, &json!({ "name": "reports", "scopes": ["webhooks", "read"], "expires_days": 90 }))
        .await
        .ok(201);
    let key = made["api_key"].as_str().unwrap();
    assert!(key.starts_with("sk_test_"), "{key}");
    let mut hidden = made.json.clone();
    hidden["api_key"] = json!("[key]");
    insta::assert_json_snapshot!("key_created", crate::call::redact(&hidden));
    service.app.get_as(key, "/merchants").await.ok(200);
    let listed = service.get(&keys).await;
    assert_eq!(listed["total"], 2);
    assert!(!listed.text().contains(&key[40..]), "a key is shown once");

    let revoke = format!("{keys}/{}/revoke", made["key_id"].as_str().unwrap());
    for _ in 0..2 {
        assert_eq!(service.post(&revoke, &Value::Null).await["state"], "revoked");
    }
    // At once, although this node has cached the key.
    service.app.get_as(key, "/merchants").await.assert_problem(401, "api_key_revoked");

    let other = service.app.add_psp().await;
    let (own, _) = service.app.add_key_as(service.app.psp_id, &[Scope::Full], |_| {}).await;
    let foreign = format!("/ops/psps/{other}/keys/{own}/revoke");
    service.post(&foreign, &Value::Null).await.assert_problem(404, "key_not_found");
    let bad = json!({ "name": "a\u{7}", "scopes": ["everything"], "expires_days": 0, "scope": "read" });
    let bad = service.post(&keys, &bad).await;
    let faults = bad.faults_sorted();
    let expected = "expires_days: out_of_range, name: invalid_characters, scope: unknown_field, scopes: unknown_value";
    assert_eq!(faults, expected);
    let nobody = "/ops/psps/psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3/keys";
    let missing = service.post(nobody, &json!({})).await;
    missing.assert_invalid("scopes: required, expires_days: required");
    let never = json!({ "scopes": ["read"], "expires_days": "never" });
    service.post(nobody, &never).await.assert_problem(404, "psp_not_found");
    let never = service.post(&keys, &never).await.ok(201);
    assert_eq!(never["expires_at"], Value::Null);
    // A PSP's key has no access here, regardless of its scopes.
    let psps = service.bare(Method::GET, &keys).bearer_auth(&service.app.key);
    reply(psps).await.assert_problem(401, "operator_token_wrong");
    assert!(!service.get(&keys).await.text().contains(TOKEN));
}
