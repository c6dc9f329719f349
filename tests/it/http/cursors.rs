//! Cursors of lists.

use std::collections::BTreeSet;

use super::customers::paid_out::{payee, payout, register, withdrawal};
use super::customers::{add, individual};
use crate::prelude::*;

/// Ids of the items of a page.
fn ids(page: &Value, items: &str) -> Vec<String> {
    let id = |item: &Value| ["id", "refund_id"].iter().find_map(|name| item[*name].as_str()).unwrap().to_owned();
    page[items].as_array().unwrap().iter().map(id).collect()
}

/// Reads a list in pages of one item, and inserts an item after the first page.
pub(crate) async fn assert_walk(get: &impl AsyncFn(&str) -> Reply, list: &str, items: &str, insert: impl AsyncFn()) {
    for _ in 0..3 {
        insert().await;
    }
    let before = ids(&get(list).await.ok(200), items);
    assert!(before.len() >= 3, "{list}: {before:?}");
    let mut page = get(&format!("{list}?limit=1")).await.ok(200);
    insert().await;
    let mut walked = ids(&page, items);
    while let Some(cursor) = page["next_cursor"].as_str() {
        page = get(&format!("{list}?limit=1&cursor={cursor}")).await.ok(200);
        walked.extend(ids(&page, items));
        assert!(walked.len() < 200, "{list} does not end");
    }
    assert_eq!(walked[..before.len()], before, "{list}");
    assert_eq!(walked.iter().collect::<BTreeSet<_>>().len(), walked.len(), "{list} repeats an item");
    assert!(get(&format!("{list}?limit=200")).await["next_cursor"].is_null(), "{list}");
}

#[tokio::test]
async fn every_list_has_cursors_that_neither_repeat_nor_skip() {
    let app = TestApp::start_with_chains().await;
    let settled = app.paid("10", "settled").await;
    let customer = payee(&app).await;
    register(&app).await;
    let post = async |path: &str, body: Value| {
        app.post(path, &body).await.ok(202);
    };
    let cancel = async || {
        let made = app.add_payment().await;
        app.post(&format!("{}/cancel", made.path()), &json!({})).await.ok(200);
    };
    let sync = async || {
        let count = app.get("/merchants").await["total"].clone();
        let merchant =
            json!({ "external_id": format!("m-{count}"), "name": "M", "email": "m@shop.example", "business_id": "1" });
        app.post("/merchants/sync", &json!({ "merchants": [merchant] })).await.ok(200);
    };
    let get = async |path: &str| app.get(path).await;
    let refunds = format!("{}/refunds", settled.path());
    let refund = json!({ "amount": "0.01", "address": "0x000000000000000000000000000000000000ada6" });
    assert_walk(&get, "/payments", "payments", cancel).await;
    assert_walk(&get, "/api/v1/events", "events", cancel).await;
    assert_walk(&get, "/api/v1/webhook/undelivered", "deliveries", cancel).await;
    let refund_again = async || post(&refunds, refund.clone()).await;
    assert_walk(&get, &format!("{}/webhooks", settled.path()), "deliveries", refund_again).await;
    assert_walk(&get, "/merchants", "merchants", sync).await;
    let another = async || drop(add(&app, &individual()).await);
    assert_walk(&get, "/api/v1/customers", "customers", another).await;
    assert_walk(&get, "/payouts", "payouts", async || post("/payouts", payout(&customer, "0.01")).await).await;
    assert_walk(&get, "/ledger/entries", "entries", async || post("/payouts", payout(&customer, "0.01")).await).await;
    assert_walk(&get, "/withdrawals", "withdrawals", async || post("/withdrawals", withdrawal("0.01")).await).await;
    assert_walk(&get, "/transfers", "transfers", async || post("/transfers", payout(&customer, "1")).await).await;
    assert_walk(&get, &refunds, "refunds", refund_again).await;

    let document = app.get("/openapi.json").await.json;
    let lists = lists(&document);
    assert!(lists.len() >= 10, "{lists:?}");
    for (path, parameters, schema) in lists {
        assert!(parameters.contains("cursor"), "{path}");
        let schema = schema["$ref"].as_str().unwrap().trim_start_matches('#');
        let cursor = &document.pointer(schema).unwrap()["properties"]["next_cursor"];
        assert_eq!(cursor["type"], json!(["string", "null"]), "{path}");
        let path = path.replace("{payment_id}", settled.id());
        let refused = app.get(&format!("{path}?cursor=x")).await;
        refused.assert_problem(400, "invalid_parameters");
        assert_eq!(refused.faults(), "cursor: invalid_cursor", "{path}");
    }
}

/// Path, parameters and schema of every list in the document.
fn lists(document: &Value) -> Vec<(&str, BTreeSet<&str>, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    let lists = paths.iter().filter_map(|(path, item)| {
        let get = item.get("get")?;
        let parameters: BTreeSet<_> =
            get["parameters"].as_array().into_iter().flatten().filter_map(|one| one["name"].as_str()).collect();
        let schema = &get["responses"]["200"]["content"]["application/json"]["schema"];
        parameters.contains("limit").then_some((path.as_str(), parameters, schema))
    });
    lists.collect()
}
