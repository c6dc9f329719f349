//! Faults in the service's own database during the load: the load tester must name the payment.

use std::process::{Command, Stdio};

use payferry_entities::Database;
use sea_orm::{ConnectionTrait, Statement};
use serde_json::{Value, json};

use super::{MIX, RETRY_SOON, against, only_finding, report, run, stage};
use crate::call::{assert_has, until};
use crate::process::{Home, Running, payferry};

/// Number of the matching row that gets the fault.
const NTH: u32 = 25;

/// Marks the webhook of one event as delivered without sending it.
pub(super) const DROP_ONE_WEBHOOK: &str = "
    CREATE TRIGGER plant AFTER INSERT ON deliveries
    WHEN NEW.sequence = 3 AND (SELECT count(*) FROM deliveries WHERE sequence = 3) = {nth}
    BEGIN
        UPDATE deliveries SET status = 'delivered', next_attempt_at = NULL WHERE id = NEW.id;
        INSERT INTO planted VALUES (NEW.payment_id);
    END";

/// Marks the webhooks of every event of one payment as delivered without sending them.
const DROP_ALL_WEBHOOKS: &str = "
    CREATE TRIGGER plant AFTER INSERT ON deliveries
    WHEN NEW.payment_id IN (SELECT payment_id FROM planted)
        OR (NEW.sequence = 1 AND (SELECT name FROM events WHERE id = NEW.event_id) = 'payment.confirmed'
            AND (SELECT count(*) FROM events WHERE name = 'payment.confirmed') >= {nth}
            AND (SELECT count(*) FROM planted) = 0)
    BEGIN
        UPDATE deliveries SET status = 'delivered', next_attempt_at = NULL WHERE id = NEW.id;
        INSERT INTO planted SELECT NEW.payment_id WHERE NEW.payment_id NOT IN (SELECT payment_id FROM planted);
    END";

/// Posts nothing to the ledger.
const LOSE_THE_LEDGER: &str = "
    CREATE TRIGGER plant BEFORE INSERT ON ledger_postings BEGIN SELECT RAISE(IGNORE); END";

/// Reports the credit of one payment to the PSP a second time, as another event.
pub(super) const DOUBLE_ONE_CREDIT: &str = "
    CREATE TRIGGER plant AFTER INSERT ON deliveries
    WHEN (SELECT name FROM events WHERE id = NEW.event_id) = 'payin.settled'
        AND (SELECT count(*) FROM events WHERE name = 'payin.settled') >= {nth}
        AND (SELECT count(*) FROM planted) = 0
    BEGIN
        INSERT INTO planted VALUES (NEW.payment_id);
        INSERT INTO events (id, psp_id, payment_id, sequence, name, payload, created_at)
            SELECT id, psp_id, payment_id, sequence + 1, name,
                json_set(payload, '$.sequence', sequence + 1, '$.event_id', id), created_at
            FROM (SELECT substr(id, 1, 28) || iif(substr(id, 29) = '00', '11', '00') AS id,
                      psp_id, payment_id, sequence, name, payload, created_at
                  FROM events WHERE id = NEW.event_id);
        INSERT INTO deliveries (id, event_id, psp_id, payment_id, sequence, position, status, attempt_count,
                retries_left, next_attempt_at, created_at, updated_at)
            SELECT substr(NEW.id, 1, 28) || iif(substr(NEW.id, 29) = '00', '11', '00'), id, psp_id, payment_id,
                sequence, position, NEW.status, 0, NEW.retries_left, NEW.next_attempt_at, created_at, created_at
            FROM events WHERE position = (SELECT max(position) FROM events);
    END";

/// Posts the credit of one payment to the ledger a second time. The balance is right.
pub(super) const DOUBLE_ONE_POSTING: &str = "
    CREATE TRIGGER plant AFTER INSERT ON ledger_postings
    WHEN NEW.kind = 'settled' AND (SELECT count(*) FROM ledger_postings WHERE kind = 'settled') >= {nth}
        AND (SELECT count(*) FROM planted) = 0
    BEGIN
        INSERT INTO planted VALUES (NEW.subject);
        INSERT INTO ledger_postings (subject, version, line, psp_id, kind, debit, credit, chain, token_address, amount,
                reference, at)
            VALUES (NEW.subject, NEW.version, NEW.line + 100, NEW.psp_id, NEW.kind, NEW.debit, NEW.credit, NEW.chain,
                NEW.token_address, NEW.amount, NEW.reference, NEW.at);
    END";

/// Adds the credit of one payment to the PSP's balance a second time. The postings are right.
const DOUBLE_ONE_CREDIT_ON_THE_BALANCE: &str = "
    CREATE TRIGGER plant AFTER INSERT ON ledger_postings
    WHEN NEW.kind = 'settled' AND (SELECT count(*) FROM ledger_postings WHERE kind = 'settled') >= {nth}
        AND (SELECT count(*) FROM planted) = 0
    BEGIN
        INSERT INTO planted VALUES (NEW.subject);
        INSERT INTO balances (psp_id, chain, token_address, available, reserved, updated_at)
            VALUES (NEW.psp_id, NEW.chain, NEW.token_address, NEW.amount, 0, NEW.at)
            ON CONFLICT (psp_id, chain, token_address) DO UPDATE SET available = available + excluded.available;
    END";

/// Deletes one payment after its last event.
pub(super) const LOSE_ONE_PAYMENT: &str = "
    CREATE TRIGGER plant AFTER INSERT ON deliveries
    WHEN (SELECT name FROM events WHERE id = NEW.event_id) = 'payin.mismatched'
        AND (SELECT count(*) FROM events WHERE name = 'payin.mismatched') >= {nth}
        AND (SELECT count(*) FROM planted) = 0
    BEGIN
        INSERT INTO planted VALUES (NEW.payment_id);
        DELETE FROM payment_transitions WHERE payment_id = NEW.payment_id;
        DELETE FROM transfers WHERE payment_id = NEW.payment_id;
        DELETE FROM payments WHERE id = NEW.payment_id;
    END";

/// Starts a sandbox with this fault. Also returns its database. The triggers are for SQLite, whatever database is
/// chosen.
pub(super) async fn sandbox_with(fault: &str) -> (Running, Database) {
    let sandbox = Running::start_with(&Home::embedded(), [0, 0], &[RETRY_SOON]);
    let database = Database::open(&sandbox.home.database_url()).await.unwrap();
    plant(&database, fault).await;
    (sandbox, database)
}

/// Adds a fault to a database.
pub(super) async fn plant(database: &Database, fault: &str) {
    for statement in ["CREATE TABLE planted (payment_id TEXT NOT NULL)", &fault.replace("{nth}", &NTH.to_string())] {
        database.long_timeout().execute_unprepared(statement).await.unwrap();
    }
}

/// Returns the payments with the fault.
pub(super) async fn planted(database: &Database) -> Vec<String> {
    let select = Statement::from_string(database.backend(), "SELECT payment_id FROM planted");
    let rows = database.reader().query_all_raw(select).await.unwrap();
    rows.iter().map(|row| row.try_get("", "payment_id").unwrap()).collect()
}

/// Returns true if a surplus event of the payment was delivered.
async fn is_delivered(database: &Database, payment_id: &str) -> bool {
    let select = "SELECT id FROM deliveries WHERE payment_id = $1 AND sequence > 4 AND status = 'delivered'";
    let select = Statement::from_sql_and_values(database.backend(), select, [payment_id.into()]);
    database.reader().query_one_raw(select).await.unwrap().is_some()
}

/// Puts load on a sandbox with this fault. Returns the report, whose only finding is about the payment with the fault.
async fn load_with(fault: &str) -> Value {
    let (sandbox, database) = sandbox_with(fault).await;
    let further = format!("--rate 100/s --payments 200 --mix {MIX} --advance-clock --settle-timeout 25 --json");
    let output = run(&against(&sandbox, &further)).await;
    let report = report(&output, 1);
    let [payment_id] = planted(&database).await.try_into().expect("the fault was planted");
    sandbox.kill();
    assert_eq!(only_finding(&report)["payment_id"], payment_id, "{:#}", report["findings"]);
    report
}

/// Asserts the kind and the payer of a finding, and that its text contains these parts.
pub(super) fn assert_found(finding: &Value, kind: &str, payer: Option<&str>, parts: &[&str]) {
    assert_eq!(finding["kind"], kind, "{finding:#}");
    assert!(payer.is_none_or(|payer| finding["payer"] == payer), "{finding:#}");
    let words = finding["found"].as_str().unwrap();
    assert!(parts.iter().all(|part| words.contains(part)), "{words}");
}

#[tokio::test]
async fn finds_the_payment_of_a_dropped_webhook() {
    let report = load_with(DROP_ONE_WEBHOOK).await;
    let parts = ["missing:", "(event 3)", "delivery log:", "delivered after 0 attempts"];
    assert_found(only_finding(&report), "undelivered", None, &parts);
}

#[tokio::test]
#[ignore = "long"]
async fn a_payment_without_webhooks_is_undelivered_and_counts_with_its_wait() {
    let report = load_with(DROP_ALL_WEBHOOKS).await;
    // The chain and the payment agree. Only the webhooks are missing.
    let names = ["payment.confirmed (event 1)", "payin.confirmed (event 2)", "payment.settled (event 3)"];
    assert_found(only_finding(&report), "undelivered", Some("exact"), &[&names[..], &["delivery log:"]].concat());
    let timed_out = |name: &str| stage(&report, name)["in_vain"].as_u64().unwrap();
    let waited = ["mined", "confirmed", "settled", "webhook", "complete"].map(timed_out);
    assert_eq!(waited, [0, 1, 1, 4, 1], "{:#}", report["stages"]);
    let complete = &stage(&report, "complete")["from_intended"];
    assert_eq!(complete["count"], 160, "exact, under and over: {complete:#}");
    assert!(complete["max_ms"].as_f64().unwrap() >= 25_000.0, "all of --settle-timeout: {complete:#}");
}

#[tokio::test]
async fn finds_an_empty_ledger() {
    let (sandbox, _database) = sandbox_with(LOSE_THE_LEDGER).await;
    let output = run(&against(&sandbox, "--rate 50/s --payments 50 --mix exact=100 --json")).await;
    let report = report(&output, 1);
    let finding = only_finding(&report);
    assert!(finding["payment_id"].is_null(), "{finding:#}");
    assert_found(finding, "wrong", None, &["The service's ledger has no entry of this run"]);
    sandbox.kill();
}

#[tokio::test]
async fn finds_the_payment_of_a_doubled_credit() {
    let report = load_with(DOUBLE_ONE_CREDIT).await;
    let parts = ["payin.settled arrived as event 5", "4 events are expected"];
    assert_found(only_finding(&report), "wrong", Some("exact"), &parts);
}

#[tokio::test]
async fn finds_a_lost_payment() {
    let report = load_with(LOSE_ONE_PAYMENT).await;
    let finding = only_finding(&report);
    assert_found(finding, "lost", None, &[]);
    assert!(finding["expected"].as_str().unwrap().starts_with("mismatched"), "{finding:#}");
}

#[tokio::test]
#[ignore = "long"]
async fn finds_the_payment_of_a_doubled_posting() {
    let report = load_with(DOUBLE_ONE_POSTING).await;
    let finding = only_finding(&report);
    let parts = ["the ledger has ", " to the PSP, not ", "the balance of "];
    assert_found(finding, "wrong", Some("exact"), &parts);
    assert!(finding["found"].as_str().unwrap().ends_with("the difference is its share"), "{finding:#}");
}

#[tokio::test]
#[ignore = "long"]
async fn finds_the_payment_of_a_doubled_balance_change() {
    let report = load_with(DOUBLE_ONE_CREDIT_ON_THE_BALANCE).await;
    let finding = only_finding(&report);
    assert_found(finding, "wrong", None, &[]);
    let words = finding["found"].as_str().unwrap();
    assert!(words.starts_with("the balance of ") && words.ends_with("the difference is its share"), "{words}");
}

#[tokio::test]
async fn an_interrupted_run_reports_known_faults() {
    let (sandbox, database) = sandbox_with(DOUBLE_ONE_CREDIT).await;
    let args = against(&sandbox, "--rate 20/s --payments 100000 --mix exact=100 --json");
    let mut load = payferry();
    load.arg("load").args(args.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let load = load.spawn().unwrap();
    let payment_id = until("the fault is planted", async || planted(&database).await.pop()).await;
    // Waits until the webhook with the fault was delivered.
    until("the fault is delivered", async || is_delivered(&database, &payment_id).await.then_some(())).await;
    assert!(Command::new("kill").args(["-INT", &load.id().to_string()]).status().unwrap().success());
    let output = tokio::task::spawn_blocking(move || load.wait_with_output().unwrap()).await.unwrap();
    let report = report(&output, 130);
    assert_has(&report, json!({ "interrupted": true, "audited": false }));
    let about = |finding: &&Value| finding["payment_id"] == payment_id.as_str();
    let found: Vec<_> = report["findings"].as_array().unwrap().iter().filter(about).collect();
    assert_eq!(found.len(), 1, "{payment_id}: {found:#?}");
    assert_found(found[0], "wrong", None, &["payin.settled arrived as event 5"]);
    sandbox.kill();
}
