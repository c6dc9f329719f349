//! Restarts and upgrades of nodes.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use payferry_harness::initiators::{Initiated, Initiators};
use payferry_harness::short_or_long;
use sea_orm::ConnectionTrait;

use super::*;

/// Largest p99 of the response time during restarts, if it is more than twice that before.
const RESPONSE_P99_MAX: Duration = Duration::from_millis(100);
/// Id of a node of a later version.
const LATER: &str = "node_01JZZZZZZZZZZZZZZZZZZZZZZZ";

/// Restarts each node in turn while clients initiate payments through the balancer without retries.
#[tokio::test(flavor = "multi_thread")]
async fn rolling_restart_fails_no_request() {
    let fixture = Fixture::measured().await;
    let mut nodes = fixture.nodes(3).await;
    let psp = Arc::new(fixture.psp(&nodes.api_url()).await);
    initiate(&psp, "first").await;
    let clients = Initiators::without_retries(&[Arc::clone(&psp)]);
    tokio::time::sleep(Duration::from_secs(short_or_long(3, 20))).await;
    let restarted_at = Instant::now();
    for number in 0..3 {
        nodes.restart(number).await;
    }
    let initiated = clients.stop().await;
    let (before, meanwhile): (Vec<_>, Vec<_>) = initiated.iter().partition(|payment| payment.sent_at < restarted_at);
    let (before, meanwhile) = (p99(&before), p99(&meanwhile));
    println!(
        "{} requests, none failed; p99 {before:?} before the restarts and {meanwhile:?} meanwhile",
        initiated.len()
    );
    // The starts of new processes, and other tests in the short form, keep the processors of a small machine busy.
    assert!(
        meanwhile <= before * 2 || meanwhile <= RESPONSE_P99_MAX * short_or_long(20, 1),
        "{before:?} {meanwhile:?}"
    );
    assert_eq!(psp.payments().await.len(), initiated.len() + 1);
    nodes.stop();
}

/// A node restarts beside a node of a later version, which has added a table, a column, a lease and a kind of nudge, and whose
/// schema permits this version.
#[tokio::test(flavor = "multi_thread")]
async fn node_restarts_beside_a_later_version_and_leaves_its_lease_to_it() {
    let fixture = Fixture::new().await;
    let mut nodes = fixture.nodes(1).await;
    let psp = fixture.psp(&nodes.api_url()).await;
    let connection = fixture.outside.database.connect().await;
    let execute = async |sql: &str| connection.execute_unprepared(sql).await.unwrap();
    execute("INSERT INTO seaql_migrations (version, applied_at) VALUES ('m9999_later', 0)").await;
    execute("CREATE TABLE later (id TEXT NOT NULL PRIMARY KEY)").await;
    execute("ALTER TABLE payments ADD COLUMN later TEXT").await;
    // It joins, so it gets no leases. The second one is a lease that this version knows.
    let node = format!(
        "INSERT INTO nodes SELECT '{LATER}', 'later', '9.0.0', config_digest, api_url, operator_url, 'joining', joined_at, seen_at, 0, \
         false FROM nodes WHERE state = 'ready'"
    );
    execute(&node).await;
    let lease = "INSERT INTO leases (name, kind, owner, epoch, changed_at) VALUES ('job:later', 'job'";
    execute(&format!("{lease}, '{LATER}', 1, 0)")).await;
    execute(&format!("UPDATE leases SET owner = '{LATER}', epoch = epoch + 1 WHERE name = 'job:vaults'")).await;
    let beating = async {
        loop {
            execute("UPDATE nodes SET seen_at = seen_at + 1000 WHERE name = 'later' AND state = 'joining'").await;
            execute(&format!("SELECT pg_notify('payferry_nudges', E'{LATER}\\nlater x')")).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let work = async {
        nodes.restart(0).await;
        fixture.settle(&psp, "beside-the-later-version").await;
        let operator = fixture.operator(&nodes.operator_url());
        let page = operator.ok(Method::GET, "/ops/nodes", Value::Null).await;
        let versions: Vec<&str> =
            page["nodes"].as_array().unwrap().iter().filter_map(|node| node["version"].as_str()).collect();
        assert!(versions.contains(&"9.0.0"), "{page}");
    };
    tokio::select! {
        () = beating => {}
        () = work => {}
    }
    // The later version ends, and this version takes over the lease that it knows.
    let count = async |condition: &str| {
        let sql = format!("SELECT count(*) FROM leases l LEFT JOIN nodes n ON n.id = l.owner WHERE {condition}");
        number(&connection, &sql).await
    };
    let taken = async || expect(count("l.name = 'job:vaults' AND n.name = 'n1'").await, |count| *count == 1);
    eventually("the lease has a new owner", taken).await;
    assert_eq!(count("l.name = 'job:later' AND n.name = 'later'").await, 1);
    fixture.settle(&psp, "after-the-later-version").await;
    nodes.stop();
}

/// Nodes of the previous version and of this one share a database, the older one restarts, and then it is upgraded, too.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "long"]
async fn nodes_of_the_previous_version_work_beside_nodes_of_this_one() {
    let previous = concat!(env!("CARGO_MANIFEST_DIR"), "/.tools/previous/payferry");
    assert!(Path::new(previous).exists(), "`PAYFERRY_CHECK_LONG=1 tests/tools` makes {previous}");
    let this = binary();
    let fixture = Fixture::of(Binary::at(previous)).await;
    let mut nodes = fixture.nodes(2).await;
    work_at_both(&fixture, &mut nodes, "previous").await;
    nodes.set_binary(&this);
    nodes.restart(0).await;
    work_at_both(&fixture, &mut nodes, "both").await;
    nodes.set_binary(&fixture.binary);
    nodes.restart(1).await;
    work_at_both(&fixture, &mut nodes, "restarted").await;
    nodes.set_binary(&this);
    nodes.restart(1).await;
    work_at_both(&fixture, &mut nodes, "this").await;
    for number in 0..2 {
        let operator = fixture.operator(nodes.node(number).operator_url());
        assert!(operator.metric("payferry_payments_quarantined").await < 1.0, "{number}");
    }
    let log = std::fs::read_to_string(fixture.outside.folder.path().join("stderr.log")).unwrap();
    let errors: Vec<&str> =
        log.lines().filter(|line| line.contains("ERROR") || line.contains("cannot be read")).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    nodes.stop();
    this.run(&fixture.outside.folder, &["reconcile", "--treasury-kept", "--pause-secs", "1"]);
}

/// Each node initiates a payment that is settled and one that is refunded at the other node. Both nodes show the same payments.
async fn work_at_both(fixture: &Fixture, nodes: &mut Nodes<'_>, key: &str) {
    let urls = [0, 1].map(|number| nodes.node(number).api_url().to_owned());
    let psps = [fixture.psp(&urls[0]).await, fixture.psp(&urls[1]).await];
    for (number, psp) in psps.iter().enumerate() {
        fixture.settle(psp, &format!("{key}-{number}")).await;
        let id = fixture.underpaid(psp, &format!("{key}-{number}-refunded")).await;
        let other = &psps[1 - number];
        other.ok(Method::POST, &format!("/payments/{id}/refunds"), json!({ "address": REFUNDED_TO })).await;
        until_refunded(psp, &id).await;
    }
    let mut listed = [psps[0].payments().await, psps[1].payments().await];
    for payment in listed.iter_mut().flatten() {
        // These depend on the newest block that the node knows.
        payment["confirmations"] = Value::Null;
        payment["transfers"].as_array_mut().unwrap().iter_mut().for_each(|one| one["confirmations"] = Value::Null);
    }
    let [first, second] = &mut listed;
    assert!(first.len() >= 4 && first.len() == second.len(), "{first:?} {second:?}");
    for (one, other) in first.iter_mut().zip(second) {
        // A newer version may have fields that the older one lacks.
        let (one, other) = (one.as_object_mut().unwrap(), other.as_object_mut().unwrap());
        one.retain(|field, _| other.contains_key(field));
        other.retain(|field, _| one.contains_key(field));
        assert_eq!(one, other);
    }
}

/// 99th percentile of the response times.
fn p99(initiated: &[&Initiated]) -> Duration {
    let mut took: Vec<Duration> = initiated.iter().map(|payment| payment.answered_at - payment.sent_at).collect();
    took.sort_unstable();
    took[(took.len() * 99).div_ceil(100) - 1]
}
