//! Payments that could not be made: counted by kind, and a failure above the allowed percentage.

use std::path::Path;

use payferry_entities::Database;
use reqwest::Method;
use sea_orm::{ConnectionTrait, Statement};
use serde_json::json;

use super::{against, complaint, only_finding, report, run};
use crate::call::{assert_has, until};
use crate::process::{Home, Running};

/// Refuses to store half of the held payments and five of the others, by their references.
const REFUSE_SOME: &str = "
    CREATE TRIGGER plant BEFORE INSERT ON payments
    WHEN NEW.reference GLOB 'load-*-1[0-9]' OR NEW.reference GLOB 'load-*-2[0-4]'
    BEGIN SELECT RAISE(ABORT, 'planted'); END";

#[tokio::test]
async fn a_run_fails_if_too_many_payments_are_not_made() {
    let home = Home::embedded();
    let sandbox = Running::start(&home);
    let database = Database::open(&home.database_url()).await.unwrap();
    database.long_timeout().execute_unprepared(REFUSE_SOME).await.unwrap();
    // 0 to 19 are held, 20 to 119 are paid.
    let asked = against(&sandbox, "--rate 50/s --payments 100 --hold 20 --mix exact=100 --json");
    for (allowed, code) in [("49", 1), ("50", 0)] {
        let output = run(&format!("{asked} --not-made-max {allowed}")).await;
        let report = report(&output, code);
        assert_eq!(report["findings"], json!([]), "accepted payments are right");
        let counted = &report["counted"];
        let counts = ["held", "due", "accepted", "refused", "settled"].map(|name| counted[name].as_u64().unwrap());
        assert_eq!(counts, [10, 100, 95, 5, 95], "{counted:#}");
        assert_has(&report, json!({ "not_made_percent": 5.0, "not_held_percent": 50.0 }));
        let errors = &report["errors"];
        assert_eq!(*errors, json!({"initiate: 503 database_unavailable": 15}), "including held payments");
    }
}

/// Adds the trigger to the database of a starting sandbox, before its first payment.
async fn refuse_some(file: &Path) {
    until("the sandbox makes its database", async || file.exists().then_some(())).await;
    let database = Database::open(&format!("sqlite://{}", file.display())).await.unwrap();
    // The PSP is made after all tables exist.
    let psp = Statement::from_string(database.backend(), "SELECT id FROM psps");
    until("the PSP is made", async || database.reader().query_one_raw(psp.clone()).await.ok().flatten()).await;
    database.long_timeout().execute_unprepared(REFUSE_SOME).await.unwrap();
}

#[tokio::test]
async fn defects_of_a_new_sandbox_are_findings() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("own.db");
    let asked = "--rate 50/s --payments 100 --mix exact=100 --not-made-max 50 --json";
    let args = format!("{asked} --block-time-ms 100 --database-url {}", file.display());
    let (output, ()) = tokio::join!(run(&args), refuse_some(&file));
    let report = report(&output, 1);
    let finding = only_finding(&report);
    assert!(finding["payment_id"].is_null() && finding["kind"] == "wrong", "{finding:#}");
    assert_eq!(finding["found"], "payferry_journal_refused_total is 15", "{finding:#}");
}

#[tokio::test]
async fn a_psp_without_an_endpoint_gets_an_inbox_and_a_note() {
    let sandbox = Running::new().await;
    // Arrivals beyond the first are rejected until it has a response: counted by kind, and too many.
    let asked = "--rate 5000/s --payments 100 --in-flight-max 1 --mix exact=100";
    let output = run(&against(&sandbox, asked)).await;
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{printed}\n{}", complaint(&output));
    assert!(printed.contains("errors by kind") && printed.contains("  not started: too many in flight"), "{printed}");
    assert!(printed.contains("Failed: ") && printed.contains(" not made ("), "{printed}");
    let inbox = format!("{}/sandbox/inbox/load", sandbox.text("api_url"));
    assert!(printed.contains(&format!("its events go to {inbox} now")), "{printed}");
    let endpoint = sandbox.ok(Method::GET, "/api/v1/webhook", None).await;
    assert_eq!(endpoint["webhook_url"], inbox);
    // The next run restores that endpoint and has no note.
    let output = run(&against(&sandbox, "--rate 100/s --payments 20 --mix exact=100")).await;
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}\n{}", complaint(&output));
    assert!(printed.contains("on-chain and in the service's ledger.") && !printed.contains("/inbox/"), "{printed}");
    let endpoint = sandbox.ok(Method::GET, "/api/v1/webhook", None).await;
    assert_eq!(endpoint["webhook_url"], inbox);
}
