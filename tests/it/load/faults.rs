//! Faults in the service's own database during the load: the load tester must name the payment.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use payferry_entities::Database;
use sea_orm::{ConnectionTrait, Statement};
use serde_json::Value;

use super::{MIX, against, complaint, report, run};
use crate::process::{Home, Running, payferry};

/// Longest time until a fault occurs.
const PATIENCE: Duration = Duration::from_mins(1);

/// Number of the matching row that gets the fault.
const NTH: u32 = 25;

/// Marks the webhook of one event as delivered without sending it.
const DROP_ONE_WEBHOOK: &str = "
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
const DOUBLE_ONE_CREDIT: &str = "
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
const DOUBLE_ONE_POSTING: &str = "
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
const LOSE_ONE_PAYMENT: &str = "
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
async fn sandbox_with(home: &Home, fault: &str) -> (Running, Database) {
    let sandbox = Running::start(home);
    let file = payferry::sandbox::database_file(home.path());
    let database = Database::open(&format!("sqlite://{}", file.display())).await.unwrap();
    for statement in ["CREATE TABLE planted (payment_id TEXT NOT NULL)", &fault.replace("{nth}", &NTH.to_string())] {
        database.long_timeout().execute_unprepared(statement).await.unwrap();
    }
    (sandbox, database)
}

/// Returns the payments with the fault.
async fn planted(database: &Database) -> Vec<String> {
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

/// Puts load on a sandbox with this fault. Returns the payment with the fault, and the report.
async fn load_with(fault: &str) -> (String, Value) {
    let home = Home::embedded();
    let (sandbox, database) = sandbox_with(&home, fault).await;
    let further = ["--rate", "100/s", "--payments", "200", "--mix", MIX, "--advance-clock", "--settle-timeout", "25"];
    let json = [&further[..], &["--json"]].concat();
    let output = run(against(&sandbox, &json)).await;
    assert_eq!(output.status.code(), Some(1), "{}\n{}", complaint(&output), String::from_utf8_lossy(&output.stdout));
    let [payment_id] = planted(&database).await.try_into().expect("the fault was planted");
    sandbox.kill();
    (payment_id, report(&output))
}

/// Returns the only finding about a payment.
fn about<'a>(found: &'a Value, payment_id: &str) -> &'a Value {
    let found: Vec<&Value> =
        found.as_array().unwrap().iter().filter(|finding| finding["payment_id"] == payment_id).collect();
    assert_eq!(found.len(), 1, "{payment_id}: {found:#?}");
    found[0]
}

#[tokio::test]
async fn finds_the_payment_of_a_dropped_webhook() {
    let (payment_id, report) = load_with(DROP_ONE_WEBHOOK).await;
    let found = &report["findings"];
    let finding = about(found, &payment_id);
    assert_eq!(finding["kind"], "undelivered", "{finding:#}");
    let words = finding["found"].as_str().unwrap();
    assert!(words.contains("missing:") && words.contains("(event 3)"), "{words}");
    assert!(words.contains("delivery log:") && words.contains("delivered after 0 attempts"), "{words}");
    assert_eq!(found.as_array().unwrap().len(), 1, "no other finding: {found:#}");
}

/// Returns the number of payments that timed out at a stage.
fn timed_out(report: &Value, stage: &str) -> u64 {
    let stages = report["stages"].as_array().unwrap();
    stages.iter().find(|found| found["stage"] == stage).unwrap()["in_vain"].as_u64().unwrap()
}

#[tokio::test]
#[ignore = "long"]
async fn a_payment_without_webhooks_is_undelivered_and_counts_with_its_wait() {
    let (payment_id, report) = load_with(DROP_ALL_WEBHOOKS).await;
    let found = &report["findings"];
    let finding = about(found, &payment_id);
    // The chain and the payment agree. Only the webhooks are missing.
    assert_eq!((&finding["kind"], &finding["payer"]), (&"undelivered".into(), &"exact".into()), "{finding:#}");
    let words = finding["found"].as_str().unwrap();
    let names = ["payment.confirmed (event 1)", "payin.confirmed (event 2)", "payment.settled (event 3)"];
    assert!(names.iter().all(|name| words.contains(name)) && words.contains("delivery log:"), "{words}");
    assert_eq!(found.as_array().unwrap().len(), 1, "no other finding: {found:#}");
    let waited = ["mined", "confirmed", "settled", "webhook", "complete"].map(|stage| timed_out(&report, stage));
    assert_eq!(waited, [0, 1, 1, 4, 1], "{:#}", report["stages"]);
    let stages = report["stages"].as_array().unwrap();
    let complete = &stages.iter().find(|found| found["stage"] == "complete").unwrap()["from_intended"];
    assert_eq!(complete["count"], 160, "exact, under and over: {complete:#}");
    assert!(complete["max_ms"].as_f64().unwrap() >= 25_000.0, "all of --settle-timeout: {complete:#}");
}

#[tokio::test]
async fn finds_an_empty_ledger() {
    let home = Home::embedded();
    let (sandbox, _database) = sandbox_with(&home, LOSE_THE_LEDGER).await;
    let output = run(against(&sandbox, &["--rate", "50/s", "--payments", "50", "--mix", "exact=100", "--json"])).await;
    let report = report(&output);
    assert_eq!(output.status.code(), Some(1), "{}\n{report:#}", complaint(&output));
    let [finding] = report["findings"].as_array().unwrap().as_slice() else { panic!("{report:#}") };
    assert!(finding["payment_id"].is_null() && finding["kind"] == "wrong", "{finding:#}");
    let words = finding["found"].as_str().unwrap();
    assert!(words.contains("The service's ledger has no entry of this run"), "{words}");
    sandbox.kill();
}

#[tokio::test]
async fn finds_the_payment_of_a_doubled_credit() {
    let (payment_id, report) = load_with(DOUBLE_ONE_CREDIT).await;
    let found = &report["findings"];
    let finding = about(found, &payment_id);
    assert_eq!((&finding["kind"], &finding["payer"]), (&"wrong".into(), &"exact".into()), "{finding:#}");
    let words = finding["found"].as_str().unwrap();
    assert!(words.contains("payin.settled arrived as event 5") && words.contains("4 events are expected"), "{words}");
    assert_eq!(found.as_array().unwrap().len(), 1, "no other finding: {found:#}");
}

#[tokio::test]
async fn finds_a_lost_payment() {
    let (payment_id, report) = load_with(LOSE_ONE_PAYMENT).await;
    let found = &report["findings"];
    let finding = about(found, &payment_id);
    assert_eq!(finding["kind"], "lost", "{finding:#}");
    assert!(finding["expected"].as_str().unwrap().starts_with("mismatched"), "{finding:#}");
    assert_eq!(found.as_array().unwrap().len(), 1, "no other finding: {found:#}");
}

#[tokio::test]
#[ignore = "long"]
async fn finds_the_payment_of_a_doubled_posting() {
    let (payment_id, report) = load_with(DOUBLE_ONE_POSTING).await;
    let found = &report["findings"];
    let finding = about(found, &payment_id);
    assert_eq!((&finding["kind"], &finding["payer"]), (&"wrong".into(), &"exact".into()), "{finding:#}");
    let words = finding["found"].as_str().unwrap();
    assert!(words.contains("the ledger has ") && words.contains(" to the PSP, not "), "{words}");
    assert!(words.contains("the balance of ") && words.ends_with("the difference is its share"), "{words}");
    assert_eq!(found.as_array().unwrap().len(), 1, "no other finding: {found:#}");
}

#[tokio::test]
#[ignore = "long"]
async fn finds_the_payment_of_a_doubled_balance_change() {
    let (payment_id, report) = load_with(DOUBLE_ONE_CREDIT_ON_THE_BALANCE).await;
    let found = &report["findings"];
    let finding = about(found, &payment_id);
    assert_eq!(finding["kind"], "wrong", "{finding:#}");
    let words = finding["found"].as_str().unwrap();
    assert!(words.starts_with("the balance of ") && words.ends_with("the difference is its share"), "{words}");
    assert_eq!(found.as_array().unwrap().len(), 1, "no other finding: {found:#}");
}

#[tokio::test]
async fn an_interrupted_run_reports_known_faults() {
    let home = Home::embedded();
    let (sandbox, database) = sandbox_with(&home, DOUBLE_ONE_CREDIT).await;
    let args = against(&sandbox, &["--rate", "20/s", "--payments", "100000", "--mix", "exact=100", "--json"]);
    let mut load = payferry();
    load.arg("load").args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let load = load.spawn().unwrap();
    let since = Instant::now();
    let payment_id = loop {
        if let [payment_id] = planted(&database).await.as_slice() {
            break payment_id.clone();
        }
        assert!(since.elapsed() < PATIENCE, "the fault was not planted");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    // Waits until the webhook with the fault was delivered.
    while !is_delivered(&database, &payment_id).await {
        assert!(since.elapsed() < PATIENCE, "the fault was not delivered");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(Command::new("kill").args(["-INT", &load.id().to_string()]).status().unwrap().success());
    let output = tokio::task::spawn_blocking(move || load.wait_with_output().unwrap()).await.unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stdout));
    let report = report(&output);
    assert_eq!((&report["interrupted"], &report["audited"]), (&true.into(), &false.into()));
    let words = about(&report["findings"], &payment_id)["found"].as_str().unwrap();
    assert!(words.contains("payin.settled arrived as event 5"), "{words}");
    sandbox.kill();
}
