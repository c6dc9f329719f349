//! `payferry audit verify` and `payferry audit export`, beside the running service that chains the entries.

use payferry_entities::Database;
use payferry_harness::{eventually, expect};
use sea_orm::ConnectionTrait;
use serde_json::{Value, json};

use super::customers::person;
use super::{Running, payferry};

/// Runs `audit verify` until it reports as many chained entries, and returns the report.
async fn until_chained(service: &Running, chained: usize) -> Value {
    eventually("every entry is chained", async || {
        let report: Value = serde_json::from_str(&service.beside(&["audit", "verify", "--json"])).unwrap();
        expect(report, |report| report["chained"] == chained)
    })
    .await
}

#[tokio::test]
async fn audit_chain_is_verified_and_exported() {
    let service = Running::new().await;
    for _ in 0..3 {
        person(&service).await;
    }
    let exported = |service: &Running| -> Vec<Value> {
        service.beside(&["audit", "export"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let entries = exported(&service).len();
    let report = until_chained(&service, entries).await;
    assert_eq!((&report["unchained"], &report["findings"]), (&json!(0), &json!([])));
    let hash = report["newest"].as_str().unwrap();
    // Then every entry names its source and its place in the chain.
    let lines = exported(&service);
    let created: Vec<&Value> = lines.iter().filter(|line| line["action"] == "customer.created").collect();
    assert_eq!(created.len(), 3);
    for line in created {
        assert_eq!((&line["actor_kind"], &line["address"]), (&json!("api_key"), &json!("127.0.0.1")), "{line}");
        assert!(line["request_id"].as_str().unwrap().starts_with("req_"), "{line}");
    }
    let positions: Vec<i64> = lines.iter().map(|line| line["position"].as_i64().unwrap()).collect();
    assert_eq!(positions, (1..=i64::try_from(entries).unwrap()).collect::<Vec<_>>());
    assert_eq!(lines.last().unwrap()["hash"], hash);
    assert!(service.beside(&["audit", "verify", "--expect", hash]).contains("the audit log is intact"));
    let home = service.home.clone();
    service.stop();

    // When the last entry is removed, only the noted hash shows it.
    let database = Database::open(&home.database_url()).await.unwrap();
    let (without, with) = match database.backend() {
        sea_orm::DbBackend::Sqlite => ("DROP TRIGGER audit_log_is_kept; DROP TRIGGER audit_chain_is_kept", "SELECT 1"),
        _ => ("SET session_replication_role = replica", "SET session_replication_role = origin"),
    };
    let cut = format!(
        "{without}; DELETE FROM audit_log WHERE number = (SELECT MAX(number) FROM audit_log);
         DELETE FROM audit_chain WHERE position = {entries}; {with}"
    );
    let transaction = database.begin().await.unwrap();
    transaction.execute_unprepared(&cut).await.unwrap();
    transaction.commit().await.unwrap();
    database.close().await.unwrap();
    let verify = |more: &[&str]| {
        let output = payferry().args(["audit", "verify"]).args(more).args(home.args()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(verify(&[]).0, Some(0));
    let (code, printed) = verify(&["--expect", hash]);
    assert_eq!(code, Some(1));
    assert!(printed.contains("is not in the chain") && printed.contains("the audit log was changed"), "{printed}");
    assert_eq!(verify(&["--expect", "abc"]).0, Some(2), "not a hash");
}
