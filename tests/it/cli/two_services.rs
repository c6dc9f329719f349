//! Two services on one PostgreSQL database: only one of them writes.

use std::collections::BTreeSet;

use payferry_domain::{Chain, Token};
use payferry_harness::database::TestDatabase;
use payferry_harness::payers::{Payer, Payers};
use payferry_harness::psp::Psp;
use payferry_harness::receiver::Receiver;
use payferry_harness::{PATIENCE, eventually, expect};
use reqwest::Method;
use sea_orm::{ConnectOptions, ConnectionTrait, DatabaseConnection, DbBackend, Statement};

use super::complaint;
use super::serve::{Outside, binary};

/// Key of the lock, as in `pg_locks`.
const LOCK_KEY: i64 = 0x7061_7966_6572_7279;
/// Advisory locks on the current database.
const LOCKS: &str = "FROM pg_locks WHERE locktype = 'advisory'
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
/// Condition for the sessions of journals on the current database.
const OF_JOURNAL: &str = "datname = current_database() AND application_name LIKE 'payferry journal %'";

/// A deployed chain, and a configuration on a PostgreSQL database.
async fn outside() -> Outside {
    let mut outside = Outside::on(TestDatabase::postgres().await, &[Chain::Base]).await;
    outside.deploy().await;
    outside
}

/// A session of the database beside the service.
async fn session(outside: &Outside, name: &str) -> DatabaseConnection {
    let url = format!("{}?application_name={name}", outside.database.url());
    sea_orm::Database::connect(ConnectOptions::new(url).max_connections(1).clone()).await.unwrap()
}

async fn count(session: &DatabaseConnection, of: &str) -> i64 {
    let sql = Statement::from_string(DbBackend::Postgres, format!("SELECT count(*) {of}"));
    session.query_one_raw(sql).await.unwrap().unwrap().try_get_by_index(0).unwrap()
}

/// Number of sessions that hold the lock.
async fn holders(session: &DatabaseConnection) -> i64 {
    count(session, &format!("{LOCKS} AND granted")).await
}

/// Ends the session of the service's journal.
async fn end_journal_session(session: &DatabaseConnection) {
    assert_eq!(count(session, &format!("FROM pg_stat_activity WHERE {OF_JOURNAL}")).await, 1);
    session
        .execute_unprepared(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OF_JOURNAL}"))
        .await
        .unwrap();
}

/// Takes a payment from its start to the settled state.
pub(super) async fn settle(outside: &Outside, psp: &Psp, key: &str) {
    let body = psp.initiation("10", Token::Usdc, "base");
    let (made, _) = psp.post_until_accepted("/payments/initiate", &body, key, PATIENCE).await.unwrap();
    let wallet = made["intermediary_wallet"].as_str().unwrap().parse().unwrap();
    let payers = Payers::new(&outside.chains[0], &outside.accounts);
    payers.transfer(Payer::Clean, Token::Usdc, wallet, 10_000_000).await;
    psp.until_status(made["payment_id"].as_str().unwrap(), "settled").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn second_service_is_refused_and_no_webhook_is_sent_twice() {
    let (outside, receiver, binary) = (outside().await, Receiver::start().await, binary());
    let (_, key) = binary.make_psp(&outside.folder, "Northern Pay");
    let served = binary.serve(&outside.folder);
    let psp = Psp::connect(served.api_url(), &key, &receiver).await;
    let mut second = binary.spawn(&outside.folder, &[]);
    settle(&outside, &psp, "while-the-second-waits").await;
    let ended = async || second.ended().ok_or("it runs");
    let status = eventually("the second service ends", ended).await;
    assert_eq!(status.code(), Some(1), "{}", second.log());
    let error = second.log();
    for words in ["another running service uses the database", "application `payferry journal ", "stop it first"] {
        assert!(error.contains(words), "{words} in {error}");
    }
    // The first continues, and other commands run beside it.
    settle(&outside, &psp, "after-the-second").await;
    binary.run(&outside.folder, &["migrate", "--check"]);
    binary.make_psp(&outside.folder, "Southern Pay");
    assert_eq!(holders(&session(&outside, "test").await).await, 1);
    receiver.until(8).await;
    let sent: Vec<_> = receiver.deliveries().into_iter().map(|delivery| delivery.webhook_id).collect();
    assert_eq!(sent.len(), sent.iter().collect::<BTreeSet<_>>().len(), "{sent:?}");
    served.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn service_takes_the_lock_again_after_its_connection_ended() {
    let (outside, receiver, binary) = (outside().await, Receiver::start().await, binary());
    let (_, key) = binary.make_psp(&outside.folder, "Northern Pay");
    let mut served = binary.serve(&outside.folder);
    let psp = Psp::connect(served.api_url(), &key, &receiver).await;
    let session = session(&outside, "test").await;
    for round in 0..3 {
        end_journal_session(&session).await;
        settle(&outside, &psp, &format!("round-{round}")).await;
        assert_eq!(holders(&session).await, 1);
    }
    // An idle service takes it again as well.
    end_journal_session(&session).await;
    eventually("the lock is taken", async || expect(holders(&session).await, |holders| *holders == 1)).await;
    // A killed service leaves no lock behind.
    served.process.kill();
    let served = binary.serve(&outside.folder);
    settle(&outside, &Psp::connect(served.api_url(), &key, &receiver).await, "after-the-kill").await;
    served.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn service_ends_when_another_one_has_taken_the_lock() {
    let (outside, receiver, binary) = (outside().await, Receiver::start().await, binary());
    let (_, key) = binary.make_psp(&outside.folder, "Northern Pay");
    let mut served = binary.serve(&outside.folder);
    let psp = Psp::connect(served.api_url(), &key, &receiver).await;
    settle(&outside, &psp, "before").await;
    let (session, other) = (session(&outside, "test").await, session(&outside, "the_other").await);
    let taking = tokio::spawn(async move {
        other.execute_unprepared(&format!("SELECT pg_advisory_lock({LOCK_KEY})")).await.unwrap();
        other
    });
    let waits = format!("{LOCKS} AND NOT granted");
    eventually("the other waits", async || expect(count(&session, &waits).await, |waiting| *waiting > 0)).await;
    end_journal_session(&session).await;
    let other = taking.await.unwrap();
    let before = count(&session, "FROM payments").await;
    let refused = psp.initiation("10", Token::Usdc, "base");
    let url = format!("{}/payments/initiate", served.api_url());
    let request = reqwest::Client::new().request(Method::POST, url).bearer_auth(&key).json(&refused);
    assert!(!request.send().await.is_ok_and(|answer| answer.status().is_success()), "another service writes");
    let status = eventually("the service ends", async || served.process.ended().ok_or("it runs")).await;
    assert_eq!(status.code(), Some(1));
    let log = served.process.log();
    assert!(log.contains("another running service uses the database") && log.contains("`the_other`"), "{log}");
    assert_eq!(count(&session, "FROM payments").await, before);
    other.close().await.unwrap();
    let served = binary.serve(&outside.folder);
    settle(&outside, &Psp::connect(served.api_url(), &key, &receiver).await, "after").await;
    served.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn production_refuses_a_database_that_can_lose_acknowledged_commits() {
    let mut outside = outside().await;
    let name = outside.database.url().rsplit('/').next().unwrap().to_owned();
    let session = session(&outside, "test").await;
    session.execute_unprepared(&format!("ALTER DATABASE \"{name}\" SET synchronous_commit = 'local'")).await.unwrap();
    outside.folder.settings["server"]["environment"] = "production".into();
    let allow = |outside: &mut Outside, names: &[&str]| {
        let names: Vec<toml::Value> = names.iter().map(|name| (*name).into()).collect();
        let section = toml::Table::from_iter([("allow".to_owned(), names.into())]);
        outside.folder.settings.insert("unsafe".to_owned(), section.into());
        outside.folder.write();
    };
    let others = ["bare_key_file", "readable_secrets", "public_url", "one_endpoint"];
    allow(&mut outside, &others);
    let of_server = ["asynchronous_commit", "no_synchronous_standby"];
    let grades = |outside: &Outside| {
        let (lines, _) = outside.check();
        of_server.map(|setting| {
            let line = lines.iter().find(|line| line.0 == format!("service: unsafe setting {setting}"));
            line.map_or("none", |line| &*line.1).to_owned()
        })
    };
    assert_eq!(grades(&outside), ["wrong", "wrong"]);
    let refused = binary().output(&outside.folder, &["serve"]);
    assert_eq!(refused.status.code(), Some(1));
    let error = complaint(&refused);
    assert!(error.contains("\n  asynchronous_commit: `synchronous_commit` of the database is `local`"), "{error}");
    assert!(
        error.contains("\n  no_synchronous_standby: `synchronous_standby_names` of the database is empty"),
        "{error}"
    );

    allow(&mut outside, &[&others[..], &of_server].concat());
    assert_eq!(grades(&outside), ["look", "look"]);
    binary().serve(&outside.folder).stop();
    session.execute_unprepared(&format!("ALTER DATABASE \"{name}\" SET synchronous_commit = 'on'")).await.unwrap();
    assert_eq!(grades(&outside), ["none", "look"]);
}
