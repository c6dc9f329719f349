//! Several PSPs in one run: each is compared by itself, and money of one never counts for another.

use std::collections::HashSet;

use serde_json::json;

use super::injected::plant_at_start;
use super::{report, run};
use crate::call::assert_has;

#[tokio::test]
async fn passes_several_psps_of_a_sound_service() {
    let mix = "exact=40,under=10,late=10,refunded=20,paid_out=20";
    let args = format!("--rate 20/s --payments 90 --mix {mix} --hold 9 --psps 3 --block-time-ms 100 --json");
    let report = report(&run(&args).await, 0);
    assert_has(&report, json!({ "findings": [], "errors": {}, "audited": true, "notes": [], "asked/psps": 3 }));
    assert_has(&report["counted"], json!({ "due": 90, "complete": 90, "held": 9, "foreign": 0, "forged": 0 }));
    assert_eq!(report["read_back"], 99);
    let holdings = report["holdings"].as_array().unwrap();
    let psps: HashSet<&str> = holdings.iter().map(|of| of["psp_id"].as_str().unwrap()).collect();
    assert_eq!((holdings.len(), psps.len()), (18, 3), "three chains, two tokens: {holdings:#?}");
    for psp in psps {
        let of_psp = holdings.iter().filter(|of| of["psp_id"] == psp);
        assert!(of_psp.clone().any(|of| of["vault_grew"] != "0.00"), "{psp} got payments: {holdings:#?}");
        assert!(of_psp.clone().all(|of| of["balance_grew"] == of["postings_say"]), "{holdings:#?}");
    }
}

/// Adds the credit of one payment to the balance of another PSP, too. The postings are right.
const CREDIT_ANOTHER_PSP: &str = "
    CREATE TRIGGER plant AFTER INSERT ON ledger_postings
    WHEN NEW.kind = 'settled' AND (SELECT count(*) FROM ledger_postings WHERE kind = 'settled') >= {nth}
        AND (SELECT count(*) FROM planted) = 0
    BEGIN
        INSERT INTO planted VALUES (NEW.subject);
        INSERT INTO balances (psp_id, chain, token_address, available, reserved, updated_at)
            SELECT id, NEW.chain, NEW.token_address, NEW.amount, 0, NEW.at FROM psps WHERE id <> NEW.psp_id LIMIT 1
            ON CONFLICT (psp_id, chain, token_address) DO UPDATE SET available = available + excluded.available;
    END";

#[tokio::test]
async fn finds_a_credit_of_another_psp() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("own.db");
    let args = "--rate 20/s --payments 80 --mix exact=100 --psps 2 --settle-timeout 20 --block-time-ms 100 --json";
    let args = format!("{args} --database-url {}", file.display());
    let (output, _database) = tokio::join!(run(&args), plant_at_start(&file, CREDIT_ANOTHER_PSP));
    let report = report(&output, 1);
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().filter_map(|finding| finding["found"].as_str());
    let wrong: Vec<&str> = found.filter(|found| found.starts_with("the balance of ")).collect();
    assert_eq!(wrong.len(), 1, "{findings:#?}");
    assert!(findings.iter().all(|finding| finding["payment_id"].is_null()), "no payment is wrong: {findings:#?}");
    let differs = report["holdings"].as_array().unwrap().iter().filter(|of| of["balance_grew"] != of["postings_say"]);
    assert_eq!(differs.count(), 1, "one balance of one PSP: {:#}", report["holdings"]);
}
