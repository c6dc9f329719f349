//! The ledger auditor: imbalances are found, named, counted, and cleared when they are corrected.

use payferry_runtime::observe::ActorKind;

use crate::prelude::*;

/// Gauge of USDC on Base.
const GAUGE: &str = "payferry_ledger_imbalance{chain=\"base\",token=\"USDC\"}";

async fn plant(service: &ServiceFixture, sql: &str) {
    let changed = service.app.writer().execute_unprepared(sql).await.unwrap();
    assert_eq!(changed.rows_affected(), 1, "{sql}");
}

/// Waits until this many imbalances are listed and the gauge shows this amount.
async fn until_found(service: &ServiceFixture, count: usize, units: &str) -> Vec<Value> {
    let ask = async || {
        let kinds = service.get("/ops/stuck?kind=ledger_imbalance").await["kinds"].clone();
        let items = kinds[0]["items"].as_array().cloned().unwrap_or_default();
        let metrics = service.get("/metrics").await;
        let shown = metrics.text().lines().find_map(|line| line.strip_prefix(GAUGE)).map(str::trim);
        (items.len() == count && shown == Some(units)).then_some(items)
    };
    until(&format!("{count} imbalances of {units}"), ask).await
}

#[tokio::test]
async fn wrong_balance_is_listed_until_corrected() {
    let service = ServiceFixture::start_with_chains().await;
    service.app.paid("10", "settled").await;
    until_found(&service, 0, "0").await;
    plant(&service, "UPDATE balances SET available = available + 7 WHERE available > 0").await;
    until_found(&service, 1, "7").await;
    let stuck = service.get("/ops/stuck").await;
    insta::assert_json_snapshot!("ledger_imbalance", stuck.redacted());
    let item = &stuck["kinds"][0]["items"][0];
    assert_eq!(item["psp_id"], service.app.psp_id.to_string());
    service.get("/ops/view/stuck").await.assert_shows(&["the running balance is 9.900007"]);

    // The auditor crashes, runs again, and reports the same imbalance.
    service.app.state.system.inject_crash(ActorKind::Auditor);
    let restarted = async || {
        let view = service.app.state.system.observe();
        view.restarts.contains_key(&ActorKind::Auditor).then_some(())
    };
    until("the auditor runs again", restarted).await;
    assert_eq!(until_found(&service, 1, "7").await[0]["since"], item["since"], "it is the same imbalance");

    plant(&service, "UPDATE balances SET available = available - 7 WHERE available > 0").await;
    until_found(&service, 0, "0").await;
    assert_eq!(service.get("/ops/stuck").await["kinds"], json!([]));
}

#[tokio::test]
async fn payment_with_mismatched_postings_is_listed() {
    let service = ServiceFixture::start_with_chains().await;
    let made = service.app.paid("10", "settled").await;
    until_found(&service, 0, "0").await;
    let id = made.id();

    // A posting without an event is found because it is new.
    let post = |line: u32, debit: &str, credit: &str| {
        format!(
            "INSERT INTO ledger_postings (subject, version, line, psp_id, kind, debit, credit, chain, token_address, \
             amount, reference, at) SELECT subject, 999, {line}, psp_id, kind, '{debit}', '{credit}', chain, \
             token_address, 5, reference, at FROM ledger_postings \
             WHERE subject = '{id}' AND kind = 'received' AND version < 999"
        )
    };
    plant(&service, &post(0, "external", "payment")).await;
    // Both sides are wrong: the wallet, and the external account.
    let items = until_found(&service, 2, "10").await;
    for item in items {
        assert_has(&item, json!({ "id": id, "payment_id": id, "psp_id": service.app.psp_id.to_string() }));
        let reason = item["reason"].as_str().unwrap();
        assert!(reason.contains("on base in USDC") && reason.contains("the state requires"), "{reason}");
    }
    plant(&service, &post(1, "payment", "external")).await;
    until_found(&service, 0, "0").await;

    // A state without a posting is found by the full scan.
    let state = |from: &str, to: &str| {
        format!("UPDATE payments SET state = REPLACE(state, '{from}', '{to}') WHERE id = '{id}'")
    };
    let (is, other) = ("\"psp_amount\":9900000", "\"psp_amount\":9900003");
    plant(&service, &state(is, other)).await;
    let items = until_found(&service, 2, "6").await;
    assert!(items.iter().all(|item| item["payment_id"] == id), "{items:#?}");
    plant(&service, &state(other, is)).await;
    until_found(&service, 0, "0").await;
}
