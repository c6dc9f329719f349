//! `GET /ledger/entries`: pages by position and by time.

use std::time::Duration;

use payferry::http::money::entries::TOTAL_MAX;
use payferry_entities::ledger_postings::{Entity, Model};
use sea_orm::ActiveValue;

use crate::prelude::*;

const ENTRIES: &str = "/ledger/entries";

fn positions(page: &Value) -> Vec<i64> {
    column(&page["entries"], "position").iter().map(|position| position.as_i64().unwrap()).collect()
}

#[tokio::test]
async fn ledger_is_paged_by_offset_and_by_position() {
    let app = TestApp::start_with_chains().await;
    for _ in 0..2 {
        app.paid("10", "settled").await;
    }
    let all = app.get(ENTRIES).await.json;
    let places = positions(&all);
    assert_eq!(places.len(), 6, "received, settled and fee of each: {all:#}");
    assert_eq!([&all["total"], &all["limit"], &all["offset"]], [&json!(6), &json!(50), &json!(0)]);
    assert_eq!(all["next_after"], places[5]);
    assert_eq!(column(&all["entries"], "currency"), ["USDC"; 6]);

    let some = app.get(&format!("{ENTRIES}?limit=2&offset=3")).await.json;
    assert_eq!(positions(&some), places[3..5]);
    assert_eq!([&some["total"], &some["limit"], &some["offset"]], [&json!(6), &json!(2), &json!(3)]);
    let rest = app.get(&format!("{ENTRIES}?after={}", some["next_after"])).await.json;
    assert_eq!((positions(&rest), &rest["total"]), (places[5..].to_vec(), &Value::Null));
    let both = app.get(&format!("{ENTRIES}?after=1&offset=1")).await;
    both.assert_problem(400, "invalid_parameters");
    assert_eq!(both.faults(), "offset: not_with_after");

    // Inclusive start, exclusive end.
    let times: Vec<&str> =
        all["entries"].as_array().unwrap().iter().map(|entry| entry["at"].as_str().unwrap()).collect();
    let until = app.get(&format!("{ENTRIES}?to={}", times[3])).await.json;
    assert_eq!(positions(&until), places[..3], "{all:#}");
    let since = app.get(&format!("{ENTRIES}?from={}", times[3])).await.json;
    assert_eq!((positions(&since), &since["total"]), (places[3..].to_vec(), &json!(3)));
    let between = app.get(&format!("{ENTRIES}?from={}&to={}", times[0], times[3])).await.json;
    assert_eq!(positions(&between), places[..3]);

    // Long after, the query skips earlier hours without losing entries of the requested period.
    sleep(&app, Duration::from_hours(4)).await;
    app.paid("10", "settled").await;
    let first = app.get(&format!("{ENTRIES}?after={}&limit=1", places[5])).await.json;
    let late = app.get(&format!("{ENTRIES}?from={}", first["entries"][0]["at"].as_str().unwrap())).await.json;
    assert_eq!((positions(&late).len(), &late["total"], &late["entries"][0]), (3, &json!(3), &first["entries"][0]));
    let never = app.get(&format!("{ENTRIES}?from=2999-01-01T00:00:00Z")).await.json;
    assert_eq!((positions(&never), &never["total"], &never["next_after"]), (vec![], &json!(0), &Value::Null));
}

#[tokio::test]
async fn long_ledger_is_not_counted() {
    let app = TestApp::start().await;
    let psp = app.add_psp().await;
    let key = app.add_key(psp, &[Scope::Read]).await;
    let row = |at: i64| {
        let mut row = Model {
            position: 0,
            subject: PaymentId::generate().to_string(),
            version: 1,
            line: 0,
            psp_id: psp.to_string(),
            kind: "received".to_owned(),
            debit: "external".to_owned(),
            credit: "payment".to_owned(),
            chain: "base".to_owned(),
            token_address: format!("0x{}", "0".repeat(40)),
            amount: 1,
            reference: String::new(),
            at,
        }
        .into_active_model();
        row.position = ActiveValue::NotSet;
        row
    };
    let rows: Vec<_> = (0..=i64::try_from(TOTAL_MAX).unwrap()).map(row).collect();
    for some in rows.chunks(1_000) {
        Entity::insert_many(some.to_vec()).exec_without_returning(app.writer()).await.unwrap();
    }
    let total = async |query: &str| {
        let page = app.get_as(&key, &format!("{ENTRIES}?limit=1{query}")).await;
        assert_eq!(positions(&page.json).len(), 1, "{}", page.text());
        assert_has(&page.json, json!({ "entries/0/currency": null, "entries/0/chain": "base" }));
        page["total"].clone()
    };
    assert_eq!(total("").await, Value::Null);
    assert_eq!(total("&from=1970-01-01T00:00:00.001Z").await, TOTAL_MAX);
}
