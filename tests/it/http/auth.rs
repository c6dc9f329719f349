//! API keys: authentication, revocation and limits.

use std::num::NonZeroU32;
use std::time::Duration;

use payferry::http::auth::REVOCATION_LAG_MAX;
use payferry_accounts::keys::{ApiKey, KeyMode};
use payferry_entities::api_keys;
use payferry_httpkit::Limits;
use sea_orm::Set;

use crate::app::forged;
use crate::prelude::*;

shared!(#[tokio::test] keys, app = TestApp::start().await, app.renew_psp() =>
    every_kind_of_invalid_key_has_its_own_code, scopes_are_enforced_and_the_last_use_is_recorded,
    revoked_key_is_refused_within_the_time_limit);

async fn every_kind_of_invalid_key_has_its_own_code(app: &TestApp) {
    let own = app.key.clone();
    let cut = &own[..own.len() - 3];
    let live = ApiKey::generate(KeyMode::Live).expose().to_owned();
    let mut other_secret = own.clone().into_bytes();
    other_secret[60] = if other_secret[60] == b'0' { b'1' } else { b'0' };
    let other_secret = String::from_utf8(other_secret).unwrap();
    let (_, expired) = app.add_key_as(app.psp_id, &[Scope::Full], |row| row.expires_at = Some(1)).await;
    let (_, revoked) = app.add_key_as(app.psp_id, &[Scope::Full], |row| row.revoked_at = Some(1)).await;

    for (authorization, code) in [
        ("Basic dTpw".to_owned(), "api_key_missing"),
        ("Bearer".to_owned(), "api_key_malformed"),
        (format!("Bearer {cut}"), "api_key_malformed"),
        (format!("Bearer {other_secret}"), "api_key_malformed"),
        (format!("Bearer {live}"), "api_key_wrong_environment"),
        (format!("Bearer {}", unknown_key()), "api_key_unknown"),
        (format!("Bearer {expired}"), "api_key_expired"),
        (format!("Bearer {revoked}"), "api_key_revoked"),
    ] {
        let reply = app.request(Method::GET, "/merchants").header("authorization", &authorization).send().await;
        reply.assert_problem(401, code);
        assert_eq!(reply.header("www-authenticate"), Some("Bearer realm=\"payferry\""));
        reply.assert_hides(&["sk_test_0", &own[20..]]);
    }
    app.open("/merchants").await.assert_problem(401, "api_key_missing");
    let lower_case = app.request(Method::GET, "/merchants").header("authorization", &format!("bearer {own}"));
    assert_eq!(lower_case.send().await.status, 200);
    app.get_as(&forged(&app.key), "/merchants").await.assert_problem(401, "api_key_unknown");
}

async fn revoked_key_is_refused_within_the_time_limit(app: &TestApp) {
    let (id, key) = app.add_key_as(app.psp_id, &[Scope::Read], |_| {}).await;
    assert_eq!(app.get_as(&key, "/merchants").await.status, 200);
    let row = api_keys::Entity::find_by_id(id.to_string()).one(app.writer()).await.unwrap().unwrap();
    let mut row = row.into_active_model();
    row.revoked_at = Set(Some(1));
    row.update(app.writer()).await.unwrap();
    tokio::time::sleep(REVOCATION_LAG_MAX + Duration::from_millis(100)).await;
    app.get_as(&key, "/merchants").await.assert_problem(401, "api_key_revoked");
    // The new key works in addition to it.
    assert_eq!(app.get("/merchants").await.status, 200);
}

async fn scopes_are_enforced_and_the_last_use_is_recorded(app: &TestApp) {
    let read = app.add_key(app.psp_id, &[Scope::Read]).await;
    let payments = app.add_key(app.psp_id, &[Scope::Payments]).await;
    let both = app.add_key(app.psp_id, &[Scope::Payments, Scope::Read]).await;
    let merchants = json!({ "merchants": [] });
    let sync = || app.request(Method::POST, "/merchants/sync").json(&merchants);
    sync().key(&read).send().await.assert_problem(403, "missing_scope");
    sync().key(&payments).send().await.assert_problem(422, "validation_failed");
    app.get_as(&payments, "/merchants").await.assert_problem(403, "missing_scope");
    assert_eq!(app.get_as(&both, "/merchants").await.status, 200);
    // The scope is checked before the body is read.
    let cut = app.request(Method::POST, "/merchants/sync").bytes("{").key(&read);
    cut.send().await.assert_problem(403, "missing_scope");
    // The last use of a key is recorded.
    let (id, key) = app.add_key_as(app.psp_id, &[Scope::Full], |_| {}).await;
    app.get_as(&key, "/merchants").await;
    let used =
        async || api_keys::Entity::find_by_id(id.to_string()).one(app.writer()).await.unwrap().unwrap().last_used_at;
    until("the last use is recorded", used).await;
}

#[tokio::test]
async fn rate_limited_key_gets_retry_after() {
    let few = NonZeroU32::new(1).unwrap();
    let limits = Some(Limits { key: Some((few, NonZeroU32::new(3).unwrap())), ..Limits::production() });
    let app = TestApp::start_with(TestConfig { is_production: true, limits, ..TestConfig::default() }).await;
    let allowance = |reply: &Reply| {
        ["limit", "remaining", "reset"].map(|name| reply.header(&format!("ratelimit-{name}")).map(str::to_owned))
    };
    let expected = |remaining: &str, reset: &str| ["3", remaining, reset].map(|text| Some(text.to_owned()));
    let first = app.get("/merchants").await.ok(200);
    assert_eq!(allowance(&first), expected("2", "1"));
    let missing = app.get("/merchants/merch_x").await;
    missing.assert_problem(404, "merchant_not_found");
    assert_eq!(allowance(&missing), expected("1", "2"), "failures have the headers, too");
    let invalid = app.post("/merchants/sync", &json!({})).await;
    invalid.assert_problem(422, "validation_failed");
    assert_eq!(allowance(&invalid), expected("0", "3"));
    let reply = app.get("/merchants").await;
    reply.assert_problem(429, "rate_limited");
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(allowance(&reply), expected("0", "3"));
    let unknown = app.get_as(&unknown_key(), "/merchants").await;
    unknown.assert_problem(401, "api_key_wrong_environment");
    assert_eq!(allowance(&unknown), [None, None, None]);
    let other = app.add_key(app.psp_id, &[Scope::Full]).await;
    assert_eq!(app.get_as(&other, "/merchants").await.status, 200, "each key has its own limit");
    // The keys of the sandbox have no limit.
    let sandbox = TestApp::start().await.get("/merchants").await.ok(200);
    assert_eq!(allowance(&sandbox), [None, None, None]);
}
