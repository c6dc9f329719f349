//! A sandbox with several nodes, and the cost of an idle one.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use payferry_harness::process::{Served, Starting};
use payferry_harness::short_or_long;
use tempfile::TempDir;
use tokio_util::task::AbortOnDropHandle;

use super::*;

/// A sandbox whose nodes are processes, and a client of each node.
struct Group {
    served: Served,
    psps: Vec<Psp>,
    operators: Vec<Psp>,
    _temp: TempDir,
}

impl Group {
    async fn start(database: &TestDatabase, nodes: usize) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let mut command = binary().command();
        command.args(["sandbox", "--json", "--ephemeral", "--block-time-ms", "100", "--nodes", &nodes.to_string()]);
        command.args(["--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"]);
        let starting = Starting::spawn(command, temp.path(), &[("PAYFERRY_SANDBOX_DATABASE_URL", database.url())]);
        let served = tokio::task::spawn_blocking(|| starting.ready()).await.unwrap();
        let ready = served.ready["nodes"].as_array().unwrap();
        assert_eq!(ready.len(), nodes);
        let client = |node: &Value, url: &str, key: &str| Psp::new(node[url].as_str().unwrap(), served.text(key));
        let mut psps: Vec<Psp> = ready.iter().map(|node| client(node, "api_url", "api_key")).collect();
        let operators = ready.iter().map(|node| client(node, "operator_url", "operator_token")).collect();
        let merchant_id = psps[0].merchant("m-1").await;
        for psp in &mut psps {
            psp.merchant_id.clone_from(&merchant_id);
        }
        Self { served, psps, operators, _temp: temp }
    }

    fn pids(&self) -> Vec<u64> {
        self.served.ready["nodes"].as_array().unwrap().iter().map(|node| node["pid"].as_u64().unwrap()).collect()
    }

    /// Initiates and pays a payment of 10 USDC on Base at a node. Returns its id.
    async fn paid(&self, node: usize) -> String {
        let id = self.psps[node].payment("10", Token::Usdc, Chain::Base).await;
        self.psps[node].ok(Method::POST, &format!("/sandbox/payments/{id}/pay"), json!({})).await;
        id
    }
}

/// A node answers every route of the sandbox. The clock and the chains are those of the first node.
#[tokio::test(flavor = "multi_thread")]
async fn sandbox_of_processes_works_at_every_node_and_without_a_killed_one() {
    let database = TestDatabase::empty_postgres().await;
    let group = Group::start(&database, 3).await;
    let pids = group.pids();
    assert_eq!(pids.iter().collect::<BTreeSet<_>>().len(), 3, "{pids:?}");
    let deadlines = async || join_all(group.psps.iter().map(async |psp| deadline(psp).await)).await;
    let before = deadlines().await;
    group.psps[1].ok(Method::POST, "/sandbox/clock/advance", json!({"seconds": 86_400})).await;
    for (before, after) in before.into_iter().zip(deadlines().await) {
        assert!((86_400..86_460).contains(&(after - before).num_seconds()), "{before} {after}");
    }
    for node in [2, 1, 0] {
        let id = group.paid(node).await;
        for psp in &group.psps {
            psp.until_status(&id, "settled").await;
        }
    }
    kill(pids[2]);
    let through_the_proxy = Psp::new(group.served.api_url(), group.served.text("api_key"));
    let id = group.paid(1).await;
    through_the_proxy.until_status(&id, "settled").await;
    // The others end with the first one, even if it is killed.
    kill(pids[0]);
    let ended = async || expect(std::path::Path::new(&format!("/proc/{}", pids[1])).exists(), |exists| !exists);
    eventually("the second process has ended", ended).await;
}

/// When a payment that is initiated now expires, by the clock of the node.
async fn deadline(psp: &Psp) -> DateTime<Utc> {
    let payment = psp.initiate("10", Token::Usdc, "base").await;
    payment["expires_at"].as_str().unwrap_or_else(|| panic!("{payment}")).parse().unwrap()
}

fn kill(pid: u64) {
    assert!(std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
}

/// The actor of a payment panics until it is quarantined, on the node that runs it; another node releases it.
#[tokio::test(flavor = "multi_thread")]
async fn payment_is_quarantined_for_all_nodes_and_released_from_any() {
    let database = TestDatabase::empty_postgres().await;
    let group = Group::start(&database, 2).await;
    // The first node claimed every lease.
    let (owner, other) = (&group.psps[0], &group.psps[1]);
    let id = owner.payment("10", Token::Usdc, Chain::Base).await;
    let panic = format!("/sandbox/payments/{id}/panic");
    let panicked = async || {
        let (status, answer) = owner.call(Method::POST, &panic, json!({})).await;
        expect(format!("{status} {answer}"), |_| answer["quarantined"] == true)
    };
    eventually("the payment is quarantined", panicked).await;
    let cancel = format!("/payments/{id}/cancel");
    let known = async || {
        let overview = group.operators[1].ok(Method::GET, "/ops/overview", Value::Null).await;
        expect(overview["payments_quarantined"].clone(), |count| *count == 1)
    };
    eventually("the other node knows it", known).await;
    for psp in [owner, other] {
        let (status, answer) = psp.call(Method::POST, &cancel, Value::Null).await;
        assert_eq!((status.as_u16(), &answer["code"]), (503, &json!("payment_quarantined")), "{answer}");
    }
    group.operators[1].ok(Method::POST, &format!("/ops/actors/{id}/release"), Value::Null).await;
    let cancelled = async || {
        let (status, answer) = other.call(Method::POST, &cancel, Value::Null).await;
        expect(format!("{status} {answer}"), |_| answer["status"] == "failed")
    };
    eventually("the payment is cancelled", cancelled).await;
    owner.until_status(&id, "failed").await;
    group.served.stop();
}

/// The load tester on a sandbox with three nodes.
#[tokio::test(flavor = "multi_thread")]
async fn load_on_three_nodes_has_no_findings() {
    let database = TestDatabase::empty_postgres().await;
    let payments = short_or_long("60", "3000");
    let mut command = super::super::payferry();
    command.args(["load", "--nodes", "3", "--rate", "20/s", "--payments", payments, "--json"]);
    let output = command.env("PAYFERRY_SANDBOX_DATABASE_URL", database.url()).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    assert!(output.status.success(), "{report:#} {}", String::from_utf8_lossy(&output.stderr));
    println!("{report:#}");
    let refused = super::super::run(&["sandbox", "--ephemeral", "--nodes", "2", "--listen", "127.0.0.1:0"]);
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.contains("only PostgreSQL can be shared by several nodes"), "{refused}");
}

/// Statements and processor time of a second node that has nothing to do.
#[tokio::test(flavor = "multi_thread")]
async fn idle_second_node_costs_little() {
    let mut fixture = Fixture::measured().await;
    // As on Base: a block every 2 s, and a poll every second.
    let chain = fixture.outside.chains[0].node.clone();
    fixture.outside.folder.settings["chains"]["base"]["poll_interval_ms"] = 1_000.into();
    fixture.outside.folder.write();
    chain.pause_mining().await;
    let _mining = AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            chain.mine(1).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }));
    let connection = fixture.outside.database.connect().await;
    let transactions = async || {
        let sql = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
        number(&connection, sql).await
    };
    let window = Duration::from_secs(short_or_long(8, 20));
    let in_window = async || {
        let before = transactions().await;
        tokio::time::sleep(window).await;
        f64::from(i32::try_from(transactions().await - before).unwrap()) / window.as_secs_f64()
    };
    let mut nodes = fixture.nodes(2).await;
    // Until the pools have opened their connections and the statistics show it.
    tokio::time::sleep(Duration::from_secs(short_or_long(5, 15))).await;
    let before = nodes.node(1).process.cpu_time();
    let two = in_window().await;
    let percent = 100.0 * nodes.node(1).process.cpu_time().saturating_sub(before).div_duration_f64(window);
    // Without it.
    nodes.node(1).process.kill();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let one = in_window().await;
    println!("one node: {one:.1} transactions/s; a second one adds {:.1}/s and {percent:.1} % of a core", two - one);
    // Includes the health checks of two balancers, and the preparation of statements. Usually a build without optimisation.
    assert!(two - one <= 40.0 && percent <= 5.0, "{one} {two} {percent}");
}
