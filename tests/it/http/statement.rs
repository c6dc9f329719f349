//! `GET /ledger/statement`.

use axum::http::Method;
use payferry_domain::KeyScope as Scope;
use serde_json::{Value, json};

use crate::app::{Reply, TestApp};
use crate::chainside::balance;

const PATH: &str = "/ledger/statement?from=2020-01-01&to=2020-12-31T00:00:00Z";
/// A period that covers the whole test.
fn now() -> String {
    let at = |secs: i64| {
        (chrono::Utc::now() + chrono::Duration::seconds(secs)).to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
    };
    format!("/ledger/statement?from={}&to={}", at(-3_600), at(3_600))
}

async fn settled(app: &TestApp, reference: &str) -> Reply {
    let merchant = app.add_merchant().await;
    let body =
        json!({ "merchant_id": merchant, "amount": "10", "currency": "USDC", "chain": "base", "reference": reference });
    let made = app.post("/payments/initiate", &body).await;
    assert_eq!(made.status, 201, "{}", made.text());
    app.pay(&made, "10").await;
    app.payment_when(&made, "settled").await
}

/// Replaces the values that differ each time.
fn redacted_csv(text: &str) -> String {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
    let mut writer = csv::Writer::from_writer(Vec::new());
    for record in reader.records() {
        let record = record.unwrap();
        let cells = record.iter().enumerate().map(|(place, cell)| match (place, crate::app::redact(&json!(cell))) {
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
    let path = format!("/payments/{}/refunds", first.json["payment_id"].as_str().unwrap());
    let asked = app.post(&path, &refund).await;
    assert_eq!(asked.status, 202, "{}", asked.text());
    let one = format!("{path}/{}", asked.json["refund_id"].as_str().unwrap());
    app.until("it is sent", async |app| (app.get(&one).await.json["status"] == "sent").then_some(())).await;

    let path = now();
    let read = app.get(&path).await;
    assert_eq!(read.status, 200, "{}", read.text());
    insta::assert_json_snapshot!("statement", redacted_json(&read));
    let base = &read.json["accounts"][0];
    assert_eq!(
        (&base["chain"], &base["currency"], &base["closing_balance"]),
        (&json!("base"), &json!("USDC"), &json!("5.90"))
    );
    let balances = app.get("/balances").await;
    assert_eq!(balances.json["balances"][0]["available"], "5.90", "matches the balances");

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
    assert!(before.json["accounts"].as_array().unwrap().iter().all(is_empty), "{}", before.text());
    let stranger = app.add_psp().await;
    let key = app.add_key(stranger, &[Scope::Read]).await;
    let theirs = app.request(Method::GET, &path).key(&key).send().await;
    assert_eq!(theirs.json["psp_id"], stranger.to_string());
    assert!(theirs.json["accounts"].as_array().unwrap().iter().all(is_empty), "{}", theirs.text());
    let ada = balance(
        &app,
        payferry_domain::Chain::Base,
        payferry_domain::Token::Usdc,
        "0x000000000000000000000000000000000000ada1",
    );
    assert_eq!(ada.await, 4_000_000);
}

#[tokio::test]
async fn invalid_periods_are_refused_with_every_fault() {
    let app = TestApp::start().await;
    let nothing = app.get("/ledger/statement").await;
    nothing.assert_problem(400, "invalid_parameters");
    assert_eq!(nothing.faults(), ["from: required", "to: required"]);
    for (query, faults) in [
        ("from=2026-11-01&to=2026-11-01", vec!["to: not_after_from"]),
        ("from=2026-11-02&to=2026-11-01", vec!["to: not_after_from"]),
        ("from=2024-11-01&to=2026-11-01", vec!["to: period_too_long"]),
        ("from=yesterday&to=2026-13-01", vec!["from: invalid_timestamp", "to: invalid_timestamp"]),
        (
            "from=2026-11-01&to=2026-11-02&chain=doge&currency=EUR&format=pdf",
            vec!["chain: unknown_value", "currency: unknown_value", "format: unknown_value"],
        ),
    ] {
        let refused = app.get(&format!("/ledger/statement?{query}")).await;
        refused.assert_problem(400, "invalid_parameters");
        assert_eq!(refused.faults(), faults, "{query}");
    }
}
