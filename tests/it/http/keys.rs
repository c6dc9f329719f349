//! The account's own API keys.

use payferry_accounts::tenants::ROTATION_OVERLAP_SECS;
use payferry_entities::audit_log;

use crate::prelude::*;

const KEYS: &str = "/api/v1/keys";
/// Active keys of an account that it creates itself.
const KEYS_MAX: usize = 50;

shared!(#[tokio::test] own_keys, app = TestApp::start().await, app.renew_psp() =>
    a_key_is_created_read_rotated_and_revoked, only_keys_with_full_scope_manage_keys, invalid_keys_are_refused,
    the_last_key_with_full_scope_stays, two_keys_cannot_revoke_each_other_at_once, keys_are_limited,
    repeated_requests_return_the_same_key);

async fn create(app: &TestApp, body: &Value) -> Reply {
    app.post(KEYS, body).await
}

/// The answer without the key.
fn hidden(reply: &Reply) -> Value {
    let mut hidden = reply.redacted();
    assert!(reply.string("api_key").starts_with("sk_test_"));
    hidden["body"]["api_key"] = json!("[key]");
    hidden
}

async fn a_key_is_created_read_rotated_and_revoked(app: &TestApp) {
    let body = json!({ "name": "reports", "scopes": ["webhooks", "read", "read"], "expires_days": 90 });
    let made = create(app, &body).await.ok(201);
    insta::assert_json_snapshot!("key_created", hidden(&made));
    let (id, key) = (made.string("id"), made.string("api_key"));
    app.get_as(key, "/merchants").await.ok(200);

    let list = app.get(KEYS).await.ok(200);
    assert_eq!(list["total"], 2);
    list.assert_hides(&[&key[40..], &app.key[40..]]);
    assert_eq!(column(&list["keys"], "is_current"), [false, true]);
    let path = format!("{KEYS}/{id}");
    let read = app.get(&path).await.ok(200);
    assert_has(&read, json!({ "name": "reports", "scopes": ["read", "webhooks"], "state": "active", "id": id }));
    let current = app.get_as(key, &format!("{KEYS}/current")).await.ok(200);
    assert_has(&current, json!({ "id": id, "is_current": true, "psp_id": app.psp_id.to_string(), "psp_name": "Test" }));

    // The new key has the name and the scopes of the old one, which is accepted for another day.
    let rotated = app.post(&format!("{path}/rotate"), &json!({ "expires_days": "never" })).await.ok(201);
    insta::assert_json_snapshot!("key_rotated", hidden(&rotated));
    let new = rotated.string("api_key");
    for both in [key, new] {
        app.get_as(both, "/merchants").await.ok(200);
    }
    let ends: Timestamp = rotated["replaced"]["expires_at"].as_str().unwrap().parse().unwrap();
    let left = ends.millis_since(app.state.clock().real_now()) / 1_000;
    assert!((ROTATION_OVERLAP_SECS - 60..=ROTATION_OVERLAP_SECS).contains(&left), "{left}");
    // A second rotation does not extend the life of the first key.
    let again = app.post(&format!("{path}/rotate"), &json!({ "expires_days": 30 })).await.ok(201);
    assert_eq!(again["replaced"]["expires_at"], rotated["replaced"]["expires_at"]);

    let revoke = format!("{path}/revoke");
    for _ in 0..2 {
        assert_eq!(app.post(&revoke, &json!({})).await.ok(200)["state"], "revoked");
    }
    app.get_as(key, "/merchants").await.assert_problem(401, "api_key_revoked");
    app.get_as(new, "/merchants").await.ok(200);
    let refused = app.post(&format!("{path}/rotate"), &json!({ "expires_days": 1 })).await;
    refused.assert_problem(409, "key_not_active");

    let entries = audit_log::Entity::find()
        .filter(audit_log::Column::PspId.eq(app.psp_id.to_string()))
        .order_by_asc(audit_log::Column::Number)
        .all(app.reader())
        .await
        .unwrap();
    let actions: Vec<_> = entries.iter().map(|entry| (entry.action.as_str(), entry.actor_kind.as_str())).collect();
    let expected = ["created", "created", "rotated", "created", "rotated", "revoked"];
    assert_eq!(
        actions,
        expected.map(|action| (["key.", action].concat(), "api_key")).each_ref().map(|(a, k)| (a.as_str(), *k))
    );
    let own = app.get(&format!("{KEYS}/current")).await;
    assert!(entries.iter().all(|entry| entry.actor == own.string("id")), "{entries:?}");
    let detail: Value = serde_json::from_str(&entries[2].detail).unwrap();
    assert_eq!((&entries[2].subject, &detail["replaced_by"]), (&id.to_owned(), &rotated["id"]));
}

async fn only_keys_with_full_scope_manage_keys(app: &TestApp) {
    let narrow = [Scope::Read, Scope::Payments, Scope::Customers, Scope::Money, Scope::Webhooks];
    let (id, narrow) = app.add_key_as(app.psp_id, &narrow, |_| {}).await;
    let body = json!({ "scopes": ["read"], "expires_days": 1 });
    for path in [KEYS.to_owned(), format!("{KEYS}/{id}/rotate"), format!("{KEYS}/{id}/revoke")] {
        app.post_as(&narrow, &path, &body).await.assert_problem(403, "missing_scope");
    }
    for path in [KEYS.to_owned(), format!("{KEYS}/{id}")] {
        app.get_as(&narrow, &path).await.assert_problem(403, "missing_scope");
    }
    app.get_as(&narrow, &format!("{KEYS}/current")).await.ok(200);
}

async fn invalid_keys_are_refused(app: &TestApp) {
    let cases = [
        (json!({}), "scopes: required, expires_days: required"),
        (
            json!({ "name": "a\u{7}", "scopes": ["everything"], "expires_days": 0 }),
            "name: invalid_characters, scopes: unknown_value, expires_days: out_of_range",
        ),
        (json!({ "scopes": [], "expires_days": "soon" }), "scopes: empty, expires_days: out_of_range"),
        (json!({ "scopes": "read", "expires_days": 3_651 }), "scopes: wrong_type, expires_days: out_of_range"),
    ];
    assert_refused(&cases, async |body| create(app, body).await).await;
    let (id, _) = app.add_key_as(app.psp_id, &[Scope::Read], |_| {}).await;
    let rotate = async |body: &Value| app.post(&format!("{KEYS}/{id}/rotate"), body).await;
    assert_refused(&[(json!({}), "expires_days: required")], rotate).await;
    assert_eq!(app.get(KEYS).await["total"], 2, "nothing was created");
    let (expired, _) = app.add_key_as(app.psp_id, &[Scope::Read], |row| row.expires_at = Some(1)).await;
    let rotated = app.post(&format!("{KEYS}/{expired}/rotate"), &json!({ "expires_days": 1 })).await;
    rotated.assert_problem(409, "key_not_active");
}

async fn the_last_key_with_full_scope_stays(app: &TestApp) {
    let own = app.get(&format!("{KEYS}/current")).await;
    let revoke = async |id: &str| app.post(&format!("{KEYS}/{id}/revoke"), &json!({})).await;
    revoke(own.string("id")).await.assert_problem(409, "last_full_key");
    // Neither a key with other scopes nor one that ends soon replaces it.
    app.add_key(app.psp_id, &[Scope::Read, Scope::Money]).await;
    let soon = app.state.clock().real_now::<Timestamp>().plus_secs(ROTATION_OVERLAP_SECS - 60).as_millis();
    let (ending, _) = app.add_key_as(app.psp_id, &[Scope::Full], |row| row.expires_at = Some(soon)).await;
    revoke(own.string("id")).await.assert_problem(409, "last_full_key");
    revoke(&ending.to_string()).await.ok(200);
    let other = create(app, &json!({ "scopes": ["full"], "expires_days": 30 })).await.ok(201);
    revoke(own.string("id")).await.ok(200);
    app.get("/merchants").await.assert_problem(401, "api_key_revoked");
    app.get_as(other.string("api_key"), KEYS).await.ok(200);
}

async fn two_keys_cannot_revoke_each_other_at_once(app: &TestApp) {
    let (other, key) = app.add_key_as(app.psp_id, &[Scope::Full], |_| {}).await;
    let own = app.get(&format!("{KEYS}/current")).await;
    let [one, two] = [own.string("id").to_owned(), other.to_string()].map(|id| format!("{KEYS}/{id}/revoke"));
    let body = json!({});
    let (one, two) = tokio::join!(app.post_as(&key, &one, &body), app.post_as(&app.key, &two, &body));
    let mut statuses = [one.status.as_u16(), two.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses[0], 200, "{} {}", one.text(), two.text());
    // The other request found that its own key is the last one, or that it was revoked.
    assert!([401, 409].contains(&statuses[1]), "{} {}", one.text(), two.text());
}

async fn keys_are_limited(app: &TestApp) {
    let body = json!({ "scopes": ["read"], "expires_days": 1 });
    for _ in 1..KEYS_MAX {
        app.add_key(app.psp_id, &[Scope::Read]).await;
    }
    let refused = create(app, &body).await;
    refused.assert_problem(409, "too_many_keys");
    let list = app.get(KEYS).await;
    let id = list["keys"][0]["id"].as_str().unwrap();
    app.post(&format!("{KEYS}/{id}/rotate"), &json!({ "expires_days": 1 })).await.assert_problem(409, "too_many_keys");
    app.post(&format!("{KEYS}/{id}/revoke"), &json!({})).await.ok(200);
    create(app, &body).await.ok(201);
}

async fn repeated_requests_return_the_same_key(app: &TestApp) {
    let body = json!({ "scopes": ["read"], "expires_days": 1 });
    let first = app.post_keyed("k", KEYS, &body).await.ok(201);
    app.post_keyed("k", KEYS, &body).await.assert_replays(&first);
    assert_eq!(app.get(KEYS).await["total"], 2);
    app.post_keyed("k", KEYS, &json!({ "scopes": ["full"], "expires_days": 1 }))
        .await
        .assert_problem(422, "idempotency_key_reused");
}
