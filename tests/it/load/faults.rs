//! Faults that are planted in the service's own database, while the load tester runs: it must name the payment.

use payferry_entities::Database;
use sea_orm::{ConnectionTrait, Statement};
use serde_json::Value;

use super::{MIX, against, complaint, report, run};
use crate::process::{Home, Running};

/// Which of the rows that could have it has the fault.
const NTH: u32 = 25;

/// The webhook of one event is marked as delivered, and never sent.
const DROP_ONE_WEBHOOK: &str = "
    CREATE TRIGGER plant AFTER INSERT ON deliveries
    WHEN NEW.sequence = 3 AND (SELECT count(*) FROM deliveries WHERE sequence = 3) = {nth}
    BEGIN
        UPDATE deliveries SET status = 'delivered', next_attempt_at = NULL WHERE id = NEW.id;
        INSERT INTO planted VALUES (NEW.payment_id);
    END";

/// One payment's credit is told to the PSP a second time, as an event of its own.
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

/// One payment is gone when all was told of it.
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

/// Loads a sandbox with this fault; answers the payment that has it, and what was found.
async fn load_with(fault: &str) -> (String, Value) {
    // Triggers are written for SQLite, whatever database is chosen.
    let home = Home::embedded();
    let sandbox = Running::start(&home);
    let file = payferry::sandbox::database_file(home.path());
    let database = Database::open(&format!("sqlite://{}", file.display())).await.unwrap();
    for statement in ["CREATE TABLE planted (payment_id TEXT NOT NULL)", &fault.replace("{nth}", &NTH.to_string())] {
        database.patient().execute_unprepared(statement).await.unwrap();
    }
    let further = ["--rate", "100/s", "--payments", "200", "--mix", MIX, "--advance-clock", "--settle-timeout", "25"];
    let json = [&further[..], &["--json"]].concat();
    let output = run(against(&sandbox, &json)).await;
    assert_eq!(output.status.code(), Some(1), "{}\n{}", complaint(&output), String::from_utf8_lossy(&output.stdout));
    let select = Statement::from_string(database.backend(), "SELECT payment_id FROM planted");
    let planted = database.reader().query_all_raw(select).await.unwrap();
    assert_eq!(planted.len(), 1, "the fault was planted");
    let payment_id: String = planted[0].try_get("", "payment_id").unwrap();
    let mut report = report(&output);
    let found = report["findings"].take();
    sandbox.kill();
    (payment_id, found)
}

/// The one finding about a payment.
fn about<'a>(found: &'a Value, payment_id: &str) -> &'a Value {
    let found: Vec<&Value> =
        found.as_array().unwrap().iter().filter(|finding| finding["payment_id"] == payment_id).collect();
    assert_eq!(found.len(), 1, "{payment_id}: {found:#?}");
    found[0]
}

#[tokio::test]
async fn a_dropped_webhook_is_found_and_its_payment_named() {
    let (payment_id, found) = load_with(DROP_ONE_WEBHOOK).await;
    let finding = about(&found, &payment_id);
    assert_eq!(finding["kind"], "undelivered", "{finding:#}");
    let words = finding["found"].as_str().unwrap();
    assert!(words.contains("never came:") && words.contains("(event 3)"), "{words}");
    assert!(words.contains("the service says:") && words.contains("delivered after 0 attempts"), "{words}");
    assert_eq!(found.as_array().unwrap().len(), 1, "and nothing else: {found:#}");
}

#[tokio::test]
async fn a_doubled_credit_is_found_and_its_payment_named() {
    let (payment_id, found) = load_with(DOUBLE_ONE_CREDIT).await;
    let finding = about(&found, &payment_id);
    assert_eq!((&finding["kind"], &finding["payer"]), (&"wrong".into(), &"exact".into()), "{finding:#}");
    let words = finding["found"].as_str().unwrap();
    assert!(words.contains("payin.settled came as event 5") && words.contains("4 are to come"), "{words}");
    assert_eq!(found.as_array().unwrap().len(), 1, "and nothing else: {found:#}");
}

#[tokio::test]
async fn a_lost_payment_is_found_and_named() {
    let (payment_id, found) = load_with(LOSE_ONE_PAYMENT).await;
    let finding = about(&found, &payment_id);
    assert_eq!(finding["kind"], "lost", "{finding:#}");
    assert!(finding["expected"].as_str().unwrap().starts_with("mismatched"), "{finding:#}");
    assert_eq!(found.as_array().unwrap().len(), 1, "and nothing else: {found:#}");
}
