//! Data of other versions.
//!
//! - Data of versions before the first schema is refused: transfers, operations and addresses of vaults differ.
//!   `tests/compat/7996220.tar.gz` contains a sandbox's data folder and the databases of two services (SQLite and
//!   PostgreSQL), made by the binary of commit 7996220.
//! - Data of the first schema opens and continues, in this version and in later ones. `tests/compat/m0001_schema.tar.gz`
//!   contains the data folders of two sandboxes, one with its SQLite database, one with a dump of its PostgreSQL database,
//!   and the answers that they gave. `PAYFERRY_UPDATE_COMPAT=1` makes it anew, which is right only while no version with
//!   this schema is in use.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use payferry_harness::database::TestDatabase;
use tempfile::TempDir;

use crate::cli::controls::upload_document;
use crate::cli::customers::person;
use crate::prelude::*;
use crate::process::{Home, Running, complaint, payferry, printed};

const FIRST_SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compat/m0001_schema.tar.gz");
const DUMP: &str = "dump.sql";
const RECORDED: &str = "recorded.json";
/// Scopes that are paused in the archive, so that a confirmed payment and a withdrawal wait for the next start.
const PAUSES: [&str; 2] = ["settlement", "sending"];

const ARCHIVE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compat/7996220.tar.gz");

fn unpacked() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    succeeds(Command::new("tar").args(["-xzf", ARCHIVE, "-C"]).arg(folder.path()));
    folder
}

/// Runs a program, which must succeed; returns its output.
fn succeeds(command: &mut Command) -> String {
    printed(&command.output().unwrap())
}

/// Loads a dump into an empty database.
async fn restore(database: &TestDatabase, dump: &Path) {
    let connection = database.connect().await;
    connection.execute_unprepared(&std::fs::read_to_string(dump).unwrap()).await.unwrap();
    connection.close().await.unwrap();
}

fn assert_refused(arguments: &[&str], reason: &str) {
    let refused = payferry().args(arguments).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let complaint = complaint(&refused);
    assert!(complaint.contains(reason), "{complaint}");
}

fn assert_database_refused(url: &str) {
    for arguments in [&["migrate", "--database-url", url][..], &["migrate", "--check", "--database-url", url]] {
        assert_refused(arguments, "another version of Payferry made this database");
    }
}

#[test]
fn a_sandbox_folder_with_the_ids_of_mainnet_is_refused() {
    let archive = unpacked();
    let folder = archive.path().join("sandbox");
    let arguments = ["sandbox", "--listen", "127.0.0.1:0", "--data-dir", folder.to_str().unwrap()];
    assert_refused(&arguments, "start with a new data folder (--data-dir)");
}

#[test]
fn a_sqlite_database_is_refused() {
    let archive = unpacked();
    assert_database_refused(archive.path().join("sqlite/payferry.db").to_str().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_database_is_refused() {
    let archive = unpacked();
    let database = TestDatabase::empty_postgres().await;
    restore(&database, &archive.path().join("postgres").join(DUMP)).await;
    assert_database_refused(database.url());
}

/// Answers of the sandbox at these paths, without the address at which it listens and the progress of its chains.
async fn answers(sandbox: &Running, paths: impl IntoIterator<Item = &str>) -> Value {
    let mut answers = json!({});
    for path in paths {
        let answer = sandbox.ok(Method::GET, path, None).await.to_string();
        answers[path] = serde_json::from_str(&answer.replace(sandbox.text("api_url"), "https://pay.example")).unwrap();
        if let Some(answer) = answers[path].as_object_mut() {
            answer.remove("confirmations");
        }
    }
    answers
}

/// Brings a sandbox into many states. Returns what waits for the next start, and the answers that do not change until then.
async fn play(sandbox: &Running) -> Value {
    let post = async |path: &str, body: Value| sandbox.ok(Method::POST, path, Some(body)).await;
    let pay =
        async |id: &str, amount: &str| post(&format!("/sandbox/payments/{id}/pay"), json!({ "amount": amount })).await;
    let until = async |path: &str, status: &str| sandbox.until(path, |read| read["status"] == status).await;
    let id = |made: &Value| made["id"].as_str().unwrap().to_owned();
    let to = format!("0x{}", "ad".repeat(20));

    let customer = person(sandbox).await;
    sandbox.psp().accept_terms(&customer).await;
    upload_document(sandbox, &customer).await;
    let details = json!({ "customer_id": customer, "wallet_address": to });
    sandbox.ok(Method::PATCH, "/api/v1/customers/payment-details", Some(details)).await;
    post(&format!("/sandbox/customers/{customer}/kyc"), json!({ "outcome": "approved" })).await;

    let settled = id(&sandbox.settled_payment().await);
    let refunds = format!("/payments/{settled}/refunds");
    let refund = post(&refunds, json!({ "amount": "2.5", "address": to })).await;
    until(&format!("{refunds}/{}", refund["refund_id"].as_str().unwrap()), "sent").await;
    let accepted = sandbox.payment().await;
    pay(&accepted, "7").await;
    until(&format!("/payments/{accepted}"), "mismatched").await;
    post(&format!("/payments/{accepted}/resolve"), json!({ "action": "accept" })).await;
    sandbox.until_settled(&accepted).await;
    let cancelled = sandbox.payment().await;
    post(&format!("/payments/{cancelled}/cancel"), json!({})).await;

    let money =
        |amount: &str| json!({ "customer_id": customer, "amount": amount, "currency": "USDC", "chain": "base" });
    let payout = id(&post("/payouts", money("1.5")).await);
    until(&format!("/payouts/{payout}"), "sent").await;
    for scope in PAUSES {
        let pause = json!({ "scope": scope, "reason": "kept for the next start" });
        assert_eq!(sandbox.operator(Method::POST, "/ops/pauses", Some(pause)).await.0, 200);
    }
    let confirmed = sandbox.payment().await;
    sandbox.pay(&confirmed).await;
    until(&format!("/payments/{confirmed}"), "confirmed").await;
    let waiting = id(&post("/payouts", money("1.25")).await);

    let mut paths: Vec<_> = [settled, accepted, cancelled].iter().map(|id| format!("/payments/{id}")).collect();
    paths.extend(["/balances", "/api/v1/settings", "/ledger/entries?limit=200", "/merchants"].map(str::to_owned));
    paths.extend([format!("/payouts/{payout}"), format!("/api/v1/customers/{customer}"), refunds]);
    let answers = answers(sandbox, paths.iter().map(String::as_str)).await;
    json!({ "answers": answers, "confirmed": confirmed, "waiting": waiting })
}

/// Writes the archive.
async fn make_archive() {
    let archive = tempfile::tempdir().unwrap();
    for home in [Home::embedded(), Home::with(TestDatabase::postgres().await)] {
        let sandbox = Running::start(&home);
        let recorded = play(&sandbox).await;
        sandbox.stop();
        std::fs::write(home.path().join(RECORDED), serde_json::to_string_pretty(&recorded).unwrap()).unwrap();
        std::fs::remove_file(home.path().join("stderr.log")).unwrap();
        let is_postgres = home.database_url().starts_with("postgres");
        if is_postgres {
            let options = ["--inserts", "--no-owner", "--no-privileges", "--dbname", &home.database_url()];
            let dump = succeeds(Command::new("pg_dump").args(options));
            // Commands of psql are no SQL.
            let sql = dump.lines().filter(|line| !line.starts_with('\\')).collect::<Vec<_>>();
            std::fs::write(home.path().join(DUMP), sql.join("\n")).unwrap();
        }
        let folder = archive.path().join(if is_postgres { "postgres" } else { "sqlite" });
        succeeds(Command::new("cp").arg("-r").arg(home.path()).arg(folder));
    }
    succeeds(Command::new("tar").arg("-C").arg(archive.path()).args(["-czf", FIRST_SCHEMA, "sqlite", "postgres"]));
}

/// Asserts that `now` has everything that `then` has. Later versions may add fields.
fn assert_includes(now: &Value, then: &Value, at: &str) {
    match (now, then) {
        (Value::Object(now), Value::Object(then)) => {
            let field = |name: &String| now.get(name).unwrap_or(&Value::Null);
            then.iter().for_each(|(name, then)| assert_includes(field(name), then, &format!("{at}/{name}")));
        }
        (Value::Array(now), Value::Array(then)) if now.len() == then.len() => {
            now.iter().zip(then).for_each(|(now, then)| assert_includes(now, then, at));
        }
        _ => assert_eq!(now, then, "{at}"),
    }
}

/// Opens a home of the archive, and completes what waits there.
async fn assert_opens(home: &Arc<Home>) {
    succeeds(payferry().args(["migrate", "--database-url", &home.database_url()]));
    let recorded: Value = serde_json::from_slice(&std::fs::read(home.path().join(RECORDED)).unwrap()).unwrap();
    let sandbox = Running::start(home);
    let paths = recorded["answers"].as_object().unwrap().keys().map(String::as_str);
    assert_includes(&answers(&sandbox, paths).await, &recorded["answers"], "");
    for scope in PAUSES {
        let (_, lifted) = sandbox.operator(Method::POST, &format!("/ops/pauses/{scope}/lift"), Some(json!({}))).await;
        assert_eq!(lifted["was_paused"], true, "{scope}");
    }
    sandbox.until_settled(recorded["confirmed"].as_str().unwrap()).await;
    let waiting = format!("/payouts/{}", recorded["waiting"].as_str().unwrap());
    sandbox.until(&waiting, |payout| payout["status"] == "sent").await;
    sandbox.settled_payment().await;
    sandbox.beside(&["reconcile", "--pause-secs", "1"]);
    sandbox.beside(&["audit", "verify"]);
    sandbox.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn data_of_the_first_schema_opens_and_continues() {
    if std::env::var_os("PAYFERRY_UPDATE_COMPAT").is_some() {
        make_archive().await;
    }
    let unpack = |home: &Home, name: &str| {
        let to = ["--strip-components=1", "-C", home.path().to_str().unwrap()];
        succeeds(Command::new("tar").args(["-xzf", FIRST_SCHEMA]).args(to).arg(name));
    };
    let embedded = Home::embedded();
    unpack(&embedded, "sqlite");
    assert_opens(&embedded).await;

    let database = TestDatabase::empty_postgres().await;
    let home = Home::with(database);
    unpack(&home, "postgres");
    restore(home.database().unwrap(), &home.path().join(DUMP)).await;
    assert_opens(&home).await;
}
