//! `GET /ledger/statement`.

use crate::prelude::*;

const PATH: &str = "/ledger/statement?from=2020-01-01&to=2020-12-31T00:00:00Z";
/// A period that covers the whole test.
fn now() -> String {
    let at = |secs: i64| {
        (chrono::Utc::now() + chrono::Duration::seconds(secs)).to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
    };
    format!("/ledger/statement?from={}&to={}", at(-3_600), at(3_600))
}

async fn settled(app: &TestApp, reference: &str) -> Reply {
    let made = app.initiate(&json!({ "reference": reference })).await.ok(201);
    app.pay(&made, "10").await;
    app.payment_when(&made, "settled").await
}

/// Replaces the values that differ each time.
fn redacted_csv(text: &str) -> String {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
    let mut writer = csv::Writer::from_writer(Vec::new());
    for record in reader.records() {
        let record = record.unwrap();
        let cells = record.iter().enumerate().map(|(place, cell)| match (place, redact(&json!(cell))) {
            (5, _) if !cell.is_empty() && cell != "position" => "[position]".to_owned(),
            (_, cell) => cell.as_str().unwrap().to_owned(),
        });
        writer.write_record(cells.collect::<Vec<_>>()).unwrap();
    }
    String::from_utf8(writer.into_inner().unwrap()).unwrap()
}

fn redacted_json(reply: &Reply) -> Value {
    let mut redacted = reply.redacted();
    for account in redacted["body"]["accounts"].as_array_mut().unwrap() {
        for entry in account["entries"].as_array_mut().unwrap() {
            entry["position"] = json!("[position]");
        }
    }
    redacted
}

#[tokio::test]
async fn statement_leads_from_opening_to_closing_balance() {
    let app = TestApp::start_with_chains().await;
    let first = settled(&app, "=HYPERLINK(\"http://evil.example\")").await;
    // Refunded from the vault after the settlement.
    let refund = json!({ "amount": "4", "address": "0x000000000000000000000000000000000000ada1" });
    app.refunded(&first, &refund).await;

    let path = now();
    let read = app.get(&path).await.ok(200);
    insta::assert_json_snapshot!("statement", redacted_json(&read));
    let base = &read["accounts"][0];
    assert_has(base, json!({ "chain": "base", "currency": "USDC", "closing_balance": "5.90" }));
    let balances = app.get("/balances").await;
    assert_eq!(balances["balances"][0]["available"], "5.90", "matches the balances");

    let narrow = app.get(&format!("/api/v1{path}&chain=base&currency=USDC&format=csv")).await;
    assert_eq!(narrow.header("content-type"), Some("text/csv; charset=utf-8; header=present"));
    assert!(narrow.header("content-disposition").unwrap().starts_with("attachment; filename=\"payferry-statement-20"));
    insta::assert_snapshot!("statement_csv", redacted_csv(narrow.text()));
    let accepted =
        app.request(Method::GET, &format!("{path}&chain=base&currency=USDC")).header("accept", "text/csv").send().await;
    assert_eq!(accepted.bytes, narrow.bytes, "format by header");
    let json = app.request(Method::GET, &path).header("accept", "application/json, text/csv").send().await;
    assert_eq!(json.header("content-type"), Some("application/json"));

    // Before the first posting, and for another PSP.
    let before = app.get(PATH).await;
    let is_empty = |account: &Value| account["entries"] == json!([]) && account["closing_balance"] == "0.00";
    assert!(before["accounts"].as_array().unwrap().iter().all(is_empty), "{}", before.text());
    let stranger = app.add_psp().await;
    let key = app.add_key(stranger, &[Scope::Read]).await;
    let theirs = app.get_as(&key, &path).await;
    assert_eq!(theirs["psp_id"], stranger.to_string());
    assert!(theirs["accounts"].as_array().unwrap().iter().all(is_empty), "{}", theirs.text());
    let ada = balance(&app, Chain::Base, Token::Usdc, "0x000000000000000000000000000000000000ada1");
    assert_eq!(ada.await, 4_000_000);
}

#[tokio::test]
async fn invalid_periods_are_refused_with_every_fault() {
    let app = TestApp::start().await;
    let nothing = app.get("/ledger/statement").await;
    nothing.assert_problem(400, "invalid_parameters");
    assert_eq!(nothing.faults(), "from: required, to: required");
    for (query, faults) in [
        ("from=2026-11-01&to=2026-11-01", "to: not_after_from"),
        ("from=2026-11-02&to=2026-11-01", "to: not_after_from"),
        ("from=2024-11-01&to=2026-11-01", "to: period_too_long"),
        ("from=yesterday&to=2026-13-01", "from: invalid_timestamp, to: invalid_timestamp"),
        (
            "from=2026-11-01&to=2026-11-02&chain=doge&currency=EUR&format=pdf",
            "chain: unknown_value, currency: unknown_value, format: unknown_value",
        ),
    ] {
        let refused = app.get(&format!("/ledger/statement?{query}")).await;
        refused.assert_problem(400, "invalid_parameters");
        assert_eq!(refused.faults(), faults, "{query}");
    }
}
