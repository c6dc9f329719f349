//! Faults that the load tester injects (`--fault`, `--receiver`): a sound service passes, and a defect is found in spite
//! of them.

use std::path::Path;
use std::process::Output;

use payferry_entities::Database;
use sea_orm::{ConnectionTrait, Statement};
use serde_json::{Value, json};

use super::between::{Changes, KeptWith, load_through};
use super::faults::{
    DOUBLE_ONE_CREDIT, DROP_ONE_WEBHOOK, LOSE_ONE_PAYMENT, assert_found, plant, planted, sandbox_with,
};
use super::{RETRY_SOON, against, complaint, finish, load, only_finding, report, run};
use crate::call::{assert_has, until};
use crate::process::Running;

/// Every fault that a run against another sandbox can inject.
const WITHOUT_KILL: &str = "--fault 'reorg base 3@2s; rpc-errors 0.2@500ms-1s; receiver-fail 0.3@500ms-2s; \
    receiver-slow 100ms@1s-2s'";
const MIX: &str = "exact=60,under=20,over=10,authorized=10";

/// Runs the command with a service that soon delivers a refused webhook again.
async fn run_faults(args: &str) -> Output {
    let mut load = load(args);
    load.env(RETRY_SOON.0, RETRY_SOON.1);
    finish(load).await
}

#[tokio::test]
async fn nothing_is_lost_while_every_fault_is_injected() {
    let temp = tempfile::tempdir().unwrap();
    let page = temp.path().join("page.html");
    // The kill is the last one: a slow machine takes long to start the sandbox again.
    let faults = "receiver-fail 0.5@1s-9s; receiver-slow 100ms@2s-9s; rpc-errors 0.1@3s-5s; reorg base 30@7s; kill@10s";
    let args = format!("--rate 15/s --duration 14s --mix {MIX} --block-time-ms 200 --json --fault '{faults}'");
    let output = run_faults(&format!("{args} --report {}", page.display())).await;
    let report = report(&output, 0);
    assert_has(&report, json!({ "passed": true, "findings": [], "audited": true }));
    let injected: Vec<&str> =
        report["faults"].as_array().unwrap().iter().map(|fault| fault["fault"].as_str().unwrap()).collect();
    let planned: Vec<&str> = faults.split("; ").collect();
    assert_eq!(injected.len(), planned.len(), "{injected:?}");
    assert!(planned.iter().all(|fault| injected.contains(fault)), "{injected:?}");
    let counted = |name: &str| report["counted"][name].as_u64().unwrap();
    assert_eq!(counted("due"), 210);
    // Faults explain all payments that were not made.
    assert_eq!(counted("accepted") + counted("excused"), 210, "{:#}", report["counted"]);
    assert!(counted("denied") > 0 && counted("reorged") > 0, "{:#}", report["counted"]);
    let down = report["faults"].as_array().unwrap().last().unwrap();
    assert_eq!(down["fault"], "kill@10s");
    assert!(down["until_secs"].as_f64().unwrap() > down["at_secs"].as_f64().unwrap(), "{down:#}");

    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("Nothing is lost at p99 accepted ") && page.contains(": killed once, "), "{page}");
    let plots = page.matches("<svg").count();
    for fault in planned {
        let marks = page.matches(&format!(": {fault}</title>")).count();
        // The plot of the percentiles has no time.
        assert_eq!(marks, plots - 1, "{fault}");
    }
}

#[tokio::test]
async fn a_failing_receiver_gets_every_webhook_in_the_end() {
    // More failures in a row would open the circuit breaker of the endpoint, which then waits.
    let args = "--rate 10/s --payments 8 --mix exact=100 --block-time-ms 100 --json --receiver fail=0.5,slow=20ms";
    let report = report(&run_faults(args).await, 0);
    assert_has(&report, json!({ "findings": [], "asked/receiver": {"slow_ms": 20, "fail": 0.5} }));
    assert_has(&report["counted"], json!({ "complete": 8, "repeated": 0 }));
    assert!(report["counted"]["denied"].as_u64().unwrap() > 0, "{:#}", report["counted"]);
}

/// Plants a defect, and injects faults without a kill. Returns the finding, which is about the payment with the defect.
async fn found_beside_faults(defect: &str) -> Value {
    let (sandbox, database) = sandbox_with(defect).await;
    let further = format!("--rate 60/s --payments 180 --mix {MIX} --settle-timeout 30 --json {WITHOUT_KILL}");
    let report = report(&run_faults(&against(&sandbox, &further)).await, 1);
    let [payment_id] = planted(&database).await.try_into().expect("the defect was planted");
    sandbox.kill();
    let finding = only_finding(&report).clone();
    assert_eq!(finding["payment_id"], payment_id, "{finding:#}");
    finding
}

#[tokio::test]
async fn finds_a_dropped_webhook_beside_faults() {
    let finding = found_beside_faults(DROP_ONE_WEBHOOK).await;
    assert_found(&finding, "undelivered", None, &["missing:", "(event 3)"]);
}

#[tokio::test]
#[ignore = "long"]
async fn finds_a_doubled_credit_beside_faults() {
    let finding = found_beside_faults(DOUBLE_ONE_CREDIT).await;
    assert_found(&finding, "wrong", None, &["payin.settled"]);
}

#[tokio::test]
#[ignore = "long"]
async fn finds_a_lost_payment_beside_faults() {
    assert_found(&found_beside_faults(LOSE_ONE_PAYMENT).await, "lost", None, &[]);
}

/// Plants a defect in the database of a starting sandbox, before its first payment.
pub(super) async fn plant_at_start(file: &Path, defect: &str) -> Database {
    until("the sandbox makes its database", async || file.exists().then_some(())).await;
    let database = Database::open(&format!("sqlite://{}", file.display())).await.unwrap();
    // The PSP is made after all tables exist.
    let psp = Statement::from_string(database.backend(), "SELECT id FROM psps");
    until("the PSP is made", async || database.reader().query_one_raw(psp.clone()).await.ok().flatten()).await;
    plant(&database, defect).await;
    database
}

/// Plants a defect, and kills the sandbox. Returns the findings.
async fn found_beside_kills(defect: &str) -> Value {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("own.db");
    // Enough payments are made before the first kill for the defect.
    let args = format!("--rate 20/s --payments 400 --mix {MIX} --settle-timeout 60 --block-time-ms 100 --json");
    let args = format!("{args} --fault 'kill@12s; kill@16s' --database-url {}", file.display());
    let (output, database) = tokio::join!(run_faults(&args), plant_at_start(&file, defect));
    let report = report(&output, 1);
    let [payment_id] = planted(&database).await.try_into().expect("the defect was planted");
    // The metrics of the sandbox may report the defect as well.
    let findings = report["findings"].as_array().unwrap().iter().filter(|finding| !finding["payment_id"].is_null());
    let [finding] = findings.collect::<Vec<_>>().try_into().unwrap_or_else(|all| panic!("{all:#?}"));
    assert_eq!(finding["payment_id"], payment_id, "{finding:#}");
    finding.clone()
}

#[tokio::test]
async fn finds_a_lost_payment_beside_kills() {
    assert_found(&found_beside_kills(LOSE_ONE_PAYMENT).await, "lost", None, &[]);
}

#[tokio::test]
#[ignore = "long"]
async fn finds_a_dropped_webhook_beside_kills() {
    assert_found(&found_beside_kills(DROP_ONE_WEBHOOK).await, "undelivered", None, &["missing:", "(event 3)"]);
}

#[tokio::test]
#[ignore = "long"]
async fn finds_a_doubled_credit_beside_kills() {
    assert_found(&found_beside_kills(DOUBLE_ONE_CREDIT).await, "wrong", None, &["payin.settled arrived as event 5"]);
}

#[tokio::test]
async fn a_fault_excuses_no_refusal_of_another_kind() {
    let sandbox = Running::new().await;
    let changes = Changes { initiations_kept: 5, kept_with: Some(KeptWith::Overloaded), ..Changes::default() };
    let asked = "--rate 30/s --payments 60 --fault 'receiver-fail 0.2@100ms-1s'";
    let loaded = load_through(&sandbox, changes, asked).await;
    assert_eq!(loaded.output.status.code(), Some(1), "{}", complaint(&loaded.output));
    let report: Value = serde_json::from_slice(&loaded.output.stdout).unwrap();
    assert_has(&report, json!({ "passed": false, "findings": [], "counted/excused": 0, "counted/overloaded": 5 }));
}

#[tokio::test]
async fn rejects_faults_before_any_change() {
    for (args, says) in [
        ("--fault flood@1s", "`flood` is no fault; write it as kill@6s"),
        ("--fault 'rpc-errors 2@1s-2s'", "`2` is no share above 0 and at most 1"),
        ("--fault kill@60s", "--fault: `kill@1m` ends after the last arrival"),
        ("--fault kill@1s --in-turn", "--in-turn"),
        ("--fault kill@1s --open-max 5", "--open-max"),
        ("--fault kill@1s --find-knee", "--fault"),
        ("--fault kill@1s --nodes 2 --database-url postgres://nowhere/db", "--nodes starts several"),
        ("--fault kill@1s --url http://127.0.0.1:1 --key sk_test_x", "--url names another one"),
        ("--receiver late=2s", "`late` is unknown; known are slow, fail"),
        ("--receiver slow=1h", "at most 4 s"),
    ] {
        let output = run_faults(args).await;
        assert!(!output.status.success(), "{args}");
        assert!(complaint(&output).contains(says), "{args}: {}", complaint(&output));
    }
    assert!(
        run("--fault kill@1s --payments 50").await.status.code() == Some(1),
        "all payments are due in half a second"
    );
}
