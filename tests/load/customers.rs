//! Customers of the mixture: a sound service passes, and a customer that the service no longer finds is named.

use serde_json::{Value, json};

use super::faults::{planted, sandbox_with};
use super::{against, report, run};
use crate::call::assert_has;

#[tokio::test]
async fn passes_customers_of_a_sound_service() {
    let temp = tempfile::tempdir().unwrap();
    let files = ["html", "prom"].map(|name| temp.path().join(name));
    let [page, metrics] = files.each_ref().map(|file| file.display());
    let args = "--rate 20/s --payments 60 --mix exact=50,customer=50 --block-time-ms 100 --json";
    let report = report(&run(&format!("{args} --report {page} --prometheus {metrics}")).await, 0);
    assert_has(&report, json!({ "findings": [], "errors": {}, "audited": true, "notes": [] }));
    assert_has(&report["counted"], json!({ "due": 60, "complete": 60, "foreign": 0 }));
    assert_has(&report["customers"], json!({ "due": 30, "failed": 0 }));
    for stage in report["customers"]["stages"].as_array().unwrap() {
        assert_has(stage, json!({ "timed_out": 0, "from_intended/count": 30 }));
    }
    assert_has(&report["outbound"][0], json!({ "kind": "payout", "requested": 30, "complete": 30 }));
    let [page, metrics] = files.map(|file| std::fs::read_to_string(file).unwrap());
    assert!(page.contains("verified"), "{page}");
    assert!(metrics.contains(r#"payferry_load_customer_seconds{stage="verified",quantile="0.99"}"#), "{metrics}");
}

#[tokio::test]
async fn kills_lose_no_customer() {
    let args = "--rate 10/s --duration 10s --mix exact=50,customer=50 --block-time-ms 100 --json";
    let report = report(&run(&format!("{args} --fault 'kill@3s; kill@7s'")).await, 0);
    assert_has(&report, json!({ "findings": [], "audited": true, "customers/failed": 0 }));
}

/// Makes the service not find one customer by the email address.
const HIDE_ONE_CUSTOMER: &str = "
    CREATE TRIGGER plant AFTER INSERT ON customers
    WHEN (SELECT count(*) FROM customers) >= {nth} AND (SELECT count(*) FROM planted) = 0
    BEGIN
        INSERT INTO planted VALUES (NEW.id);
        UPDATE customers SET email_search = 'hidden' WHERE id = NEW.id;
    END";

#[tokio::test]
async fn finds_a_customer_that_the_service_does_not_find() {
    let (sandbox, database) = sandbox_with(HIDE_ONE_CUSTOMER).await;
    let args = against(&sandbox, "--rate 20/s --payments 60 --mix customer=100 --settle-timeout 15 --json");
    let report = report(&run(&args).await, 1);
    let [id] = planted(&database).await.try_into().expect("the defect was planted");
    sandbox.kill();
    let findings = report["findings"].as_array().unwrap();
    let found: Vec<&str> = findings.iter().filter_map(|finding| finding["found"].as_str()).collect();
    let about = |says: &str| found.iter().filter(|found| found.contains(&format!("{says} {id}"))).count();
    // It is also the reason why the payout is not requested.
    assert_eq!(about("a search for its email address does not find"), 2, "{found:#?}");
    assert_eq!(about("was registered as"), 1, "{found:#?}");
    let unpaid: Vec<&Value> = findings.iter().filter(|finding| finding["kind"] == "unpaid").collect();
    assert_eq!((unpaid.len(), findings.len()), (1, 3), "the payout was not requested: {findings:#?}");
}
