//! Behaviour of a database server: deadlocks, serialization failures, and connections that are cut during a commit.

use std::collections::BTreeSet;

use payferry_harness::proxy::Proxy;
use sea_orm::{ConnectionTrait, Statement, TransactionTrait};
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::take_lines;

/// Payments that two journals change, half of them each.
const PAYMENTS: usize = 400;

async fn running() -> Env {
    let env = Env::on(TestDatabase::postgres().await).await;
    env.run();
    env
}

/// Inserts an event with this id, PSP, payment and sequence.
async fn insert_event(connection: &impl ConnectionTrait, values: &str) {
    let insert = format!(
        "INSERT INTO events (id, psp_id, payment_id, sequence, name, payload, created_at)
         VALUES ({values}, 'payment.confirmed', '{{}}', 0)"
    );
    connection.execute_unprepared(&insert).await.unwrap();
}

/// Makes `times` inserts into a table fail with this SQLSTATE, immediately or at the commit.
async fn fail_inserts(env: &Env, table: &str, code: &str, times: usize, when: &str) {
    let trouble = format!(
        "CREATE SEQUENCE trouble;
         CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           IF nextval('trouble') <= {times} THEN RAISE EXCEPTION 'trouble' USING ERRCODE = '{code}'; END IF;
           RETURN NULL;
         END $$;
         CREATE CONSTRAINT TRIGGER trouble AFTER INSERT ON {table} DEFERRABLE INITIALLY {when}
           FOR EACH ROW EXECUTE FUNCTION trouble()"
    );
    env.test_database.connect().await.execute_unprepared(&trouble).await.unwrap();
}

async fn until_waiting_for_a_lock(env: &Env) {
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let waiting = Statement::from_string(DbBackend::Postgres, waiting);
    let looking = env.test_database.connect().await;
    loop {
        let waiting = looking.query_one_raw(waiting.clone()).await.unwrap().unwrap();
        if waiting.try_get_by_index::<i64>(0).unwrap() > 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_deadlock_that_aborts_the_journal_is_retried() {
    let env = running().await;
    let payment = env.payment("1").await;
    let other = env.test_database.connect().await;
    let held = other.begin().await.unwrap();
    // The journal is the first to check for a deadlock, so its transaction is aborted.
    held.execute_unprepared("SET LOCAL deadlock_timeout = '10min'").await.unwrap();
    insert_event(&held, "'evt_pay_1_100', 'psp_1', 'pay_1', 100").await;
    let submitting = env.queue([boxed(transition(&payment, 1))]).await;
    until_waiting_for_a_lock(&env).await;
    held.execute_unprepared("UPDATE payments SET updated_at = 9 WHERE id = 'pay_1'").await.unwrap();
    held.rollback().await.unwrap();
    assert!(answers(submitting).await[0].is_ok());
    assert!(env.journal.stats().retries > 0);
    assert_eq!(env.all::<payments::Entity>().await[0].version, 2);
}

#[tokio::test]
async fn serialization_failures_are_retried_at_statements_and_commits() {
    for when in ["IMMEDIATE", "DEFERRED"] {
        let env = running().await;
        fail_inserts(&env, "payments", "40001", 2, when).await;
        env.submit(initiation("1", None)).await.unwrap();
        assert_eq!((env.journal.stats().retries, env.count::<payments::Entity>().await), (2, 1), "{when}");
        env.submit(boxed(transition(&payment_row("1"), 1))).await.unwrap();
        env.test_database
            .connect()
            .await
            .execute_unprepared("DROP FUNCTION trouble CASCADE; DROP SEQUENCE trouble")
            .await
            .unwrap();
        fail_inserts(&env, "events", "40001", 2, when).await;
        let payment = payments::Model { version: 2, ..payment_row("1") };
        env.submit(boxed(transition(&payment, 1))).await.unwrap();
        assert_eq!((env.journal.stats().retries, env.count::<events::Entity>().await), (4, 2), "{when}");
    }
}

#[tokio::test]
async fn any_other_error_of_a_commit_is_unknown() {
    let env = running().await;
    let payment = env.payment("1").await;
    fail_inserts(&env, "events", "53100", 1, "DEFERRED").await;
    let answer = env.submit(boxed(transition(&payment, 1))).await;
    assert!(matches!(answer, Err(JournalError::Unknown(_))), "{answer:?}");
    assert_eq!(env.count::<events::Entity>().await, 0);
    env.submit(boxed(transition(&payment, 1))).await.unwrap();
}

#[tokio::test]
async fn a_failed_single_statement_transaction_is_certainly_rolled_back() {
    let env = running().await;
    fail_inserts(&env, "payments", "53100", 1, "DEFERRED").await;
    env.submit(initiation("1", None)).await.unwrap();
    assert_eq!((env.journal.stats().retries, env.count::<payments::Entity>().await), (1, 1));
}

#[tokio::test]
async fn a_commit_that_is_cut_off_has_an_unknown_outcome() {
    let env = Env::on(TestDatabase::postgres().await).await;
    let before: Vec<_> = (0..12).map(|n| payment_row(&format!("{n}"))).collect();
    // New payments use one statement that is a transaction by itself; transitions use several statements.
    let new = before.iter().map(|payment| initiation(payment.id.trim_start_matches("pay_"), None)).collect::<Vec<_>>();
    let moved = before.iter().map(|payment| boxed(transition(payment, 1))).collect();
    env.run();
    cut_off(&env, new).await;
    for n in 0..12 {
        // Submits only the missing ones successfully.
        let _ = env.submit(initiation(&n.to_string(), None)).await;
    }
    cut_off(&env, moved).await;
}

/// Submits the writes one by one, and cuts off every commit.
async fn cut_off(env: &Env, writes: Vec<JournalWrite>) {
    let proxy = Proxy::start(env.test_database.url()).await;
    let database = Database::open(&proxy.url(env.test_database.url())).await.unwrap();
    let (journal, task) = Journal::start(database);
    let _running = AbortOnDropHandle::new(tokio::spawn(task.supervise(|_| {})));
    let written = env.count::<payment_transitions::Entity>().await;
    proxy.cut_commits(100);
    for write in writes {
        let answer = journal.submit(write).await;
        assert!(matches!(answer, Err(JournalError::Unknown(_))), "{answer:?}");
    }
    let (before, after) = proxy.commits_cut();
    assert!(before > 0 && after > 0 && before + after == 12, "{before} and {after}");
    assert_eq!(env.count::<payment_transitions::Entity>().await, written + after as u64);
    proxy.cut_commits(0);
    journal.submit(initiation(&format!("more{written}"), None)).await.unwrap();
}

#[tokio::test]
async fn waits_for_a_commit_in_progress_to_keep_the_feed_in_order() {
    let env = running().await;
    let payment = env.payment("1").await;
    // A commit with a lost response, or of another node: its event has a position, but is not visible yet.
    let held = env.database.begin().await.unwrap();
    take_lines(&held, ["psp_1"]).await.unwrap();
    insert_event(&held, "'evt_before', 'psp_1', 'pay_0', 1").await;
    let submitting = env.queue([boxed(transition(&payment, 1))]).await;
    until_waiting_for_a_lock(&env).await;
    assert_eq!(env.count::<events::Entity>().await, 0, "no later event is visible");
    held.commit().await.unwrap();
    assert!(answers(submitting).await[0].is_ok());
    let mut feed = env.all::<events::Entity>().await;
    feed.sort_by_key(|event| event.position);
    assert_eq!(feed[0].id, "evt_before");
    assert!(feed.len() > 1, "{feed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_a_psps_events_and_postings_misses_nothing_that_two_journals_write() {
    let env = running().await;
    let mut payments = Vec::new();
    for n in 0..PAYMENTS {
        payments.push(env.payment(&n.to_string()).await);
    }
    let mut writing = Vec::new();
    for half in payments.chunks(PAYMENTS / 2) {
        let (journal, task) = Journal::start(Database::open(env.test_database.url()).await.unwrap());
        let running = AbortOnDropHandle::new(tokio::spawn(task.supervise(|_| {})));
        let half = half.to_vec();
        writing.push(tokio::spawn(async move {
            let _running = running;
            // A group for each write, so that the two journals commit as often as possible.
            for payment in &half {
                let mut write = transition(payment, 1);
                write.consequences.postings.push(posting(&write.payment));
                journal.submit(boxed(write)).await.unwrap();
            }
        }));
    }
    let (mut after, mut read) = ([0; 2], [BTreeSet::new(), BTreeSet::new()]);
    loop {
        let is_last = writing.iter().all(JoinHandle::is_finished);
        for (n, table) in ["events", "ledger_postings"].into_iter().enumerate() {
            let next = format!("SELECT position FROM {table} WHERE position > {} ORDER BY position", after[n]);
            let next = Statement::from_string(DbBackend::Postgres, next);
            for row in env.database.reader().query_all_raw(next).await.unwrap() {
                after[n] = row.try_get_by_index::<i64>(0).unwrap();
                read[n].insert(after[n]);
            }
        }
        if is_last {
            break;
        }
    }
    for written in writing {
        written.await.unwrap();
    }
    let events = env.all::<events::Entity>().await.into_iter().map(|event| event.position).collect();
    let postings = env.all::<ledger_postings::Entity>().await.into_iter().map(|posting| posting.position).collect();
    assert_eq!((read[0].len(), read[1].len()), (PAYMENTS, PAYMENTS));
    assert_eq!(read, [events, postings]);
}
