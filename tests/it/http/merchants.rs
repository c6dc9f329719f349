//! Merchants: sync, list, read.

use payferry_entities::merchants;

use crate::prelude::*;

fn merchant(external_id: &str, business_id: &str) -> Value {
    json!({ "external_id": external_id, "name": "Shop", "email": "a@shop.example", "business_id": business_id })
}

async fn sync(app: &TestApp, merchants: &[Value]) -> Reply {
    app.post("/merchants/sync", &json!({ "merchants": merchants })).await
}

shared!(#[tokio::test] merchants, app = TestApp::start().await, app.renew_psp() =>
    sync_creates_then_updates, one_invalid_item_rejects_the_batch_and_all_are_named, business_id_is_immutable,
    spellings_of_a_reference_are_one_merchant, lists_are_paged, merchants_of_another_psp_are_not_found, concurrent_batches_create_each_merchant_once);

async fn sync_creates_then_updates(app: &TestApp) {
    let first = sync(app, &[merchant("b", "1"), merchant("a", "2")]).await;
    insta::assert_json_snapshot!("sync", first.redacted());
    let again =
        app.post("/api/v1/merchants/sync", &json!({ "merchants": [merchant("a", "2"), merchant("c", "3")] })).await;
    assert_has(&again, json!({ "created": 1, "updated": 1 }));
    assert_eq!(again["merchants"][0]["merchant_id"], first["merchants"][1]["merchant_id"], "permanent");

    let id = first["merchants"][1]["merchant_id"].as_str().unwrap();
    let before = app.get(&format!("/merchants/{id}")).await;
    insta::assert_json_snapshot!("get_merchant", before.redacted());
    let before = &before["merchant"];
    assert_eq!(before["updated_at"], before["created_at"], "an unchanged merchant is not modified");
    let renamed = with(&merchant("a", "2"), &json!({ "name": "Other", "unknown": "ignored" }));
    let reply = sync(app, &[renamed]).await;
    assert_has(&reply, json!({ "created": 0, "updated": 1 }));
    let after = app.get(&format!("/api/v1/merchants/{id}")).await;
    assert_has(&after["merchant"], json!({ "name": "Other", "created_at": before["created_at"] }));
}

async fn one_invalid_item_rejects_the_batch_and_all_are_named(app: &TestApp) {
    let batch = json!({ "merchants": [
        merchant("good", "1"),
        { "external_id": "x", "name": " ", "email": "nowhere" },
        7,
        merchant("good", "2"),
        { "external_id": 5, "name": null, "email": "a@b.example", "business_id": "1\u{0}" },
    ] });
    let reply = app.post("/merchants/sync", &batch).await;
    insta::assert_json_snapshot!("sync_invalid", reply.redacted());
    assert_eq!(app.get("/merchants").await["total"], 0);
    // The batch size is limited.
    let batch = |n: usize| {
        let items: Vec<_> = (0..n).map(|i| merchant(&format!("m{i:05}"), "1")).collect();
        json!({ "merchants": items })
    };
    let reply = app.post("/merchants/sync", &batch(1_000)).await;
    reply.assert(200, json!({ "created": 1000, "merchants/999/external_id": "m00999" }));
    assert_eq!(app.post("/merchants/sync", &batch(1_001)).await.faults(), "merchants: too_many");
    assert_eq!(app.post("/merchants/sync", &batch(0)).await.faults(), "merchants: empty");
    assert_eq!(app.post("/merchants/sync", &json!({})).await.faults(), "merchants: required");
    assert_eq!(app.post("/merchants/sync", &json!({ "merchants": {} })).await.faults(), "merchants: wrong_type");
    let large = json!({ "merchants": [merchant("a", "1")], "padding": "x".repeat(5 * 1024 * 1024) });
    app.post("/merchants/sync", &large).await.assert_problem(413, "body_too_large");
}

async fn business_id_is_immutable(app: &TestApp) {
    sync(app, &[merchant("a", "1"), merchant("b", "1")]).await;
    let batch = json!({ "merchants": [merchant("new", "1"), merchant("a", "2"), merchant("b", "3")] });
    let reply = app.post("/merchants/sync", &batch).await;
    insta::assert_json_snapshot!("sync_immutable", reply.redacted());
    assert_eq!(app.get("/merchants").await["total"], 2, "nothing was written");
    let mixed = json!({ "merchants": [merchant("a", "2"), merchant("", "1")] });
    app.post("/merchants/sync", &mixed).await.assert_problem(422, "validation_failed");
}

async fn spellings_of_a_reference_are_one_merchant(app: &TestApp) {
    let (composed, decomposed) = ("caf\u{e9}", " cafe\u{301} ");
    let first = sync(app, &[merchant(decomposed, "1")]).await;
    first.assert(200, json!({ "created": 1, "merchants/0/external_id": composed }));
    let id = &first["merchants"][0]["merchant_id"];
    for spelling in [composed, decomposed, "caf\u{e9}\u{2003}"] {
        let again = sync(app, &[merchant(spelling, "1")]).await;
        again.assert(200, json!({ "updated": 1, "merchants/0/merchant_id": id }));
    }
    let found = app.get("/merchants?external_id=%20cafe%CC%81").await;
    found.assert(200, json!({ "total": 1, "merchants/0/merchant_id": id }));
    sync(app, &[merchant("a", "1"), merchant(" a", "1")]).await.assert_invalid("merchants[1].external_id: duplicate");
    // The normal form of this letter is two letters long.
    sync(app, &[merchant(&"\u{958}".repeat(128), "1")]).await.assert_invalid("merchants[0].external_id: too_long");

    // Earlier versions stored any spelling: such a merchant keeps its id and its spelling.
    let stored = sync(app, &[merchant("old", "1")]).await;
    let stored_id = &stored["merchants"][0]["merchant_id"];
    let row = merchants::Entity::find_by_id(stored_id.as_str().unwrap()).one(app.reader()).await.unwrap().unwrap();
    let mut row = row.into_active_model();
    row.external_id = sea_orm::Set(" old".to_owned());
    row.update(app.writer()).await.unwrap();
    let again = sync(app, &[merchant(" old", "1"), merchant("new", "1")]).await;
    let expected = json!({
        "created": 1, "updated": 1, "merchants/0/merchant_id": stored_id, "merchants/0/external_id": " old",
    });
    again.assert(200, expected);
    let found = app.get("/merchants?external_id=%20old").await;
    found.assert(200, json!({ "total": 1, "merchants/0/merchant_id": stored_id }));
    let other = sync(app, &[merchant("old", "1")]).await;
    other.assert(200, json!({ "created": 1, "merchants/0/external_id": "old" }));
    sync(app, &[merchant(" old", "2")]).await.assert_problem(409, "business_id_immutable");
}

async fn lists_are_paged(app: &TestApp) {
    for name in ["a", "b", "c"] {
        sync(app, &[merchant(name, "1")]).await;
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    let page = app.get("/merchants?limit=2&offset=1").await;
    insta::assert_json_snapshot!("list_merchants", page.redacted());
    let after_the_last = app.get("/merchants?offset=9").await;
    after_the_last.assert(200, json!({ "total": 3, "merchants": [], "next_cursor": null }));
    app.get("/merchants?external_id=none").await.assert(200, json!({ "total": 0, "merchants": [] }));
    let bad = app.get("/merchants?limit=201&offset=x").await;
    bad.assert_problem(400, "invalid_parameters");
    assert_eq!(bad.faults(), "limit: out_of_range, offset: out_of_range");
}

async fn merchants_of_another_psp_are_not_found(app: &TestApp) {
    let reply = sync(app, &[merchant("a", "1")]).await;
    let id = reply["merchants"][0]["merchant_id"].as_str().unwrap();
    let key = app.stranger().await;
    let as_other = |path: &str| app.request(Method::GET, path).key(&key);
    as_other(&format!("/merchants/{id}")).send().await.assert_problem(404, "merchant_not_found");
    assert_eq!(as_other("/merchants").send().await["total"], 0);
    for missing in ["merch_01J9Z3K4M5N6P7Q8R9S0T1V2W3", "nonsense", &id.to_lowercase()] {
        app.get(&format!("/merchants/{missing}")).await.assert_problem(404, "merchant_not_found");
    }
    // The same external_id is another merchant there, with its own business_id.
    let batch = json!({ "merchants": [merchant("a", "other")] });
    let theirs = app.post_as(&key, "/merchants/sync", &batch).await;
    assert_eq!(theirs["created"], 1);
    assert_ne!(theirs["merchants"][0]["merchant_id"], id);
}

async fn concurrent_batches_create_each_merchant_once(app: &TestApp) {
    let batch = |reversed: bool| {
        let mut items: Vec<_> = (0..50).map(|i| merchant(&format!("m{i}"), "1")).collect();
        if reversed {
            items.reverse();
        }
        json!({ "merchants": items })
    };
    let (forth, back) = (batch(false), batch(true));
    let calls = (0..8).map(|n| app.post("/merchants/sync", if n % 2 == 0 { &forth } else { &back }));
    let replies = futures::future::join_all(calls).await;
    assert!(replies.iter().all(|reply| reply.status == 200));
    let created: u64 = replies.iter().map(|reply| reply["created"].as_u64().unwrap()).sum();
    assert_eq!(created, 50);
    assert_eq!(app.get("/merchants").await["total"], 50);
}
