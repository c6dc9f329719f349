//! Customer list: content, filters and order.

use super::*;

async fn total_of(app: &TestApp, query: &str) -> u64 {
    let reply = app.get(&format!("{CUSTOMERS}?{query}")).await.ok(200);
    let listed = reply["customers"].as_array().unwrap().len();
    let total = reply["total"].as_u64().unwrap();
    assert_eq!(u64::try_from(listed).unwrap(), total.min(50), "{query}");
    total
}

shared!(#[tokio::test] lists, app = TestApp::start().await, app.renew_psp() =>
    summaries_contain_only_public_fields, pages_cover_the_list_once_newest_first,
    search_matches_substrings_case_insensitively_and_literally, filters_by_active_status, invalid_parameters_are_named);

async fn summaries_contain_only_public_fields(app: &TestApp) {
    add(app, &individual_in_full()).await;
    // Within one millisecond their order would be undefined.
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    add(app, &business_in_full()).await;
    insta::assert_json_snapshot!("list", app.get(CUSTOMERS).await.redacted());
}

async fn pages_cover_the_list_once_newest_first(app: &TestApp) {
    let many = |from: usize| -> Value {
        (from..from + 30).map(|n| with(&individual(), &json!({ "email": format!("c{n}@example.com") }))).collect()
    };
    for from in [0, 30, 60] {
        app.post(CUSTOMERS, &many(from)).await;
    }
    let whole = app.get(&format!("{CUSTOMERS}?limit=200")).await.json;
    let ids = |page: &Value| column(&page["customers"], "id");
    let all = ids(&whole);
    assert_eq!((all.len(), &whole["total"]), (90, &json!(90)));
    let made = column(&whole["customers"], "created_at");
    assert!(made.is_sorted_by(|newer, older| newer.as_str() >= older.as_str()));
    assert_eq!(ids(&app.get(CUSTOMERS).await.json), all[..50], "50 is the default limit");
    let mut paged = Vec::new();
    for offset in (0..=90).step_by(30) {
        let page = app.get(&format!("{CUSTOMERS}?limit=30&offset={offset}")).await.json;
        assert_has(&page, json!({ "total": 90, "limit": 30, "offset": offset }));
        paged.extend(ids(&page));
    }
    assert_eq!(paged, all);
    let beyond = app.get(&format!("{CUSTOMERS}?offset=1000")).await;
    assert_has(&beyond, json!({ "total": 90, "customers": [] }));
}

async fn search_matches_substrings_case_insensitively_and_literally(app: &TestApp) {
    for email in ["Ada.Lovelace@Example.com", "grace_hopper@navy.example", "100%@percent.example", "ÜNAL@türk.example"]
    {
        add(app, &with(&individual(), &json!({ "email": email }))).await;
    }
    for (total, searches) in [
        (4, ["example", "%40", ""].as_slice()),
        (1, &["ada", "LOVELACE@EXAMPLE", "%25", "_", "%25%40", "%C3%BCnal", "T%C3%9CRK"]),
        (0, &["a_a", "%5C", "%27", "nobody"]),
    ] {
        for search in searches {
            assert_eq!(total_of(app, &format!("search={search}")).await, total, "{search}");
        }
    }
    let whole = app.get(&format!("{CUSTOMERS}?search=ada")).await;
    assert_eq!(whole["customers"][0]["email"], "Ada.Lovelace@Example.com", "as submitted");
    let first = app.get(&format!("{CUSTOMERS}?search=example&limit=1")).await;
    assert_eq!((&first["total"], first["customers"].as_array().unwrap().len()), (&json!(4), 1));
}

async fn filters_by_active_status(app: &TestApp) {
    let gone = add(app, &individual()).await;
    add(app, &individual()).await;
    add(app, &business()).await;
    deactivate(app, &gone).await;
    for (query, total) in [
        ("status=active", 2),
        ("status=inactive", 1),
        ("status=", 3),
        ("status=active&search=ada", 1),
        ("status=inactive&search=engines", 0),
    ] {
        assert_eq!(total_of(app, query).await, total, "{query}");
    }
}

async fn invalid_parameters_are_named(app: &TestApp) {
    let long = format!("search={}", "a".repeat(256));
    for (query, faults) in [
        ("limit=0", "limit: out_of_range"),
        ("limit=-1", "limit: out_of_range"),
        ("limit=201", "limit: out_of_range"),
        ("limit=99999999999999999999", "limit: out_of_range"),
        ("limit=ten", "limit: out_of_range"),
        ("limit=1.5", "limit: out_of_range"),
        ("offset=-1", "offset: out_of_range"),
        ("offset=1000001", "offset: out_of_range"),
        ("offset=x", "offset: out_of_range"),
        ("status=pending", "status: unknown_value"),
        ("status=ACTIVE", "status: unknown_value"),
        ("search=%00", "search: invalid_characters"),
        (&long, "search: too_long"),
        ("limit=0&offset=x&status=y", "status: unknown_value, limit: out_of_range, offset: out_of_range"),
    ] {
        let refused = app.get(&format!("{CUSTOMERS}?{query}")).await;
        refused.assert_problem(400, "invalid_parameters");
        assert_eq!(refused.faults(), faults, "{query}");
    }
}
