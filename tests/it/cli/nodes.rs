//! Several nodes on one database.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use payferry::config::Config;
use payferry::sandbox::{Sandbox, SandboxOptions};
use payferry_actors::System;
use payferry_domain::payment::{Command, Status};
use payferry_domain::{Chain, CommandError, PaymentId, Token};
use payferry_harness::database::TestDatabase;
use payferry_harness::nodes::Nodes;
use payferry_harness::pair::Pair;
use payferry_harness::payers::{Payer, Payers};
use payferry_harness::process::Binary;
use payferry_harness::proxy::{Line, Proxy};
use payferry_harness::psp::Psp;
use payferry_harness::receiver::Receiver;
use payferry_harness::{PATIENCE, eventually, expect, short_or_long};
use payferry_nodes::LeaseName;
use reqwest::Method;
use sea_orm::{ConnectionTrait, DbBackend, Statement};
use serde_json::{Value, json};

use super::serve::{Outside, binary};

const DATABASE: &str = "payferry";
/// Longest time from a failure of a node to the first step of its successor: 1.5 times the TTL of 6 s, and the first read.
const TAKEOVER_MAX: Duration = Duration::from_secs(9 + 3);
/// Concurrent clients.
const CLIENTS: usize = 4;

/// An outside world with deployed contracts, for nodes.
struct Fixture {
    outside: Outside,
    binary: Binary,
    key: String,
    receiver: Receiver,
}

impl Fixture {
    async fn new() -> Self {
        Self::on(Outside::on(TestDatabase::postgres().await, &[Chain::Base]).await).await
    }

    async fn on(mut outside: Outside) -> Self {
        outside.deploy().await;
        let (binary, receiver) = (binary(), Receiver::start().await);
        let (_, key) = binary.make_psp(&outside.folder, "Northern Pay");
        // The nodes of a test differ only in name and ports.
        let ports = payferry_harness::free_ports::<2>().map(|port| format!("127.0.0.1:{port}"));
        let server = outside.folder.settings["server"].as_table_mut().unwrap();
        server.insert("listen".to_owned(), ports[0].clone().into());
        server.insert("operator_listen".to_owned(), ports[1].clone().into());
        outside.folder.write();
        Self { outside, binary, key, receiver }
    }

    async fn nodes(&self, count: usize) -> Nodes<'_> {
        Nodes::start(&self.binary, &self.outside.folder, count).await
    }

    async fn psp(&self, url: &str) -> Psp {
        Psp::connect(url, &self.key, &self.receiver).await
    }

    fn operator(&self, url: &str) -> Psp {
        Psp::new(url, &self.outside.folder.operator_token)
    }

    async fn pay(&self, payment: &Value) {
        let wallet = payment["intermediary_wallet"].as_str().unwrap().parse().unwrap();
        let payers = Payers::new(&self.outside.chains[0], &self.outside.accounts);
        payers.transfer(Payer::Clean, Token::Usdc, wallet, 10_000_000).await;
    }
}

async fn initiate(psp: &Psp, key: &str) -> Value {
    let body = psp.initiation("10", Token::Usdc, "base");
    psp.post_until_accepted("/payments/initiate", &body, key, PATIENCE).await.unwrap().0
}

async fn all_leases(operator: &Psp) -> BTreeMap<String, (Option<String>, i64)> {
    let mut leases = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let page = operator.ok(Method::GET, &format!("/ops/leases?limit=100{cursor}"), Value::Null).await;
        for lease in page["leases"].as_array().unwrap() {
            let owner = lease["owner"].as_str().map(str::to_owned);
            leases.insert(lease["name"].as_str().unwrap().to_owned(), (owner, lease["epoch"].as_i64().unwrap()));
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return leases,
        }
    }
}

/// Ids of the nodes that are ready, by name.
async fn ready(operator: &Psp) -> BTreeMap<String, String> {
    let page = operator.ok(Method::GET, "/ops/nodes", Value::Null).await;
    let nodes = page["nodes"].as_array().unwrap().iter().filter(|node| node["state"] == "ready");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    nodes.map(|node| (text(&node["name"]), text(&node["id"]))).collect()
}

async fn both_ready(operator: &Psp) -> BTreeMap<String, String> {
    let found = async || {
        let nodes = ready(operator).await;
        if nodes.len() == 2 { Ok(nodes) } else { Err(format!("{nodes:?}")) }
    };
    eventually("both nodes are ready", found).await
}

async fn hand_over(operator: &Psp, lease: &str, node_id: &str) {
    let path = format!("/ops/leases/{lease}/hand_over");
    operator.ok(Method::POST, &path, json!({ "node_id": node_id })).await;
    // A lease that moves between two pages is on neither.
    let owner = async || all_leases(operator).await.get(lease).and_then(|(owner, _)| owner.clone()).unwrap_or_default();
    let moved = async || expect(owner().await, |owner| owner == node_id);
    eventually(format!("{lease} is handed over"), moved).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_takes_any_request_whichever_node_does_the_work() {
    let fixture = Fixture::new().await;
    let mut nodes = fixture.nodes(2).await;
    let urls = [0, 1].map(|number| {
        let node = nodes.node(number);
        (node.api_url().to_owned(), node.operator_url().to_owned())
    });
    let [first, second] = [fixture.psp(&urls[0].0).await, fixture.psp(&urls[1].0).await];
    let operator = fixture.operator(&urls[1].1);
    let ids = both_ready(&operator).await;
    // The first node claimed everything. The second one reads the chain and signs on it.
    hand_over(&operator, "chain:base", &ids["n2"]).await;
    for (psp, key) in [(&first, "at-the-owner"), (&second, "at-the-other-node")] {
        let payment = initiate(psp, key).await;
        fixture.pay(&payment).await;
        let id = payment["payment_id"].as_str().unwrap();
        for psp in [&first, &second] {
            psp.until_status(id, "settled").await;
        }
        assert_eq!(first.events(id).await, second.events(id).await);
    }
    // A command on a payment that the other node runs, and a read there.
    let payment = initiate(&first, "cancelled").await;
    let id = payment["payment_id"].as_str().unwrap();
    let cancelled = second.ok(Method::POST, &format!("/payments/{id}/cancel"), Value::Null).await;
    assert_eq!(cancelled["status"], "failed", "{cancelled}");
    assert_eq!(first.read(id).await["status"], "failed");
    // Each event is delivered once, although both nodes publish events.
    let expected = first.feed().await.len();
    fixture.receiver.until(expected).await;
    assert_eq!(fixture.receiver.deliveries().len(), expected);
    // A page of one node asks the other.
    let page = reqwest::Client::new().get(format!("{}/ops/view/nodes", urls[0].1));
    let page = page.bearer_auth(&fixture.outside.folder.operator_token).send().await.unwrap().text().await.unwrap();
    for words in ["n1", "n2", "this node", "Live payments", "to n2"] {
        assert!(page.contains(words), "{words} in {page}");
    }
    assert!(!page.contains("missing:"), "{page}");
    nodes.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn node_with_other_settings_and_service_without_a_name_are_refused() {
    let mut fixture = Fixture::new().await;
    let folder = fixture.outside.folder.path().to_owned();
    let nodes = fixture.nodes(1).await;
    // Another master key.
    let master = folder.join("other.key");
    std::fs::write(&master, "ab".repeat(32)).unwrap();
    let env = [
        ("PAYFERRY_NODE__NAME", "n2"),
        ("PAYFERRY_SERVER__LISTEN", "127.0.0.1:0"),
        ("PAYFERRY_SERVER__OPERATOR_LISTEN", "127.0.0.1:0"),
        ("PAYFERRY_SECRETS__MASTER_KEY_FILE", master.to_str().unwrap()),
    ];
    let refused = fixture.binary.spawn(&fixture.outside.folder, &env).try_ready().unwrap_err();
    assert!(refused.contains("node n1 shares the database and has another configuration"), "{refused}");
    nodes.stop();
    // A node cannot use SQLite.
    let sqlite = format!("sqlite://{}?mode=rwc", folder.join("payferry.db").display());
    fixture.outside.folder.settings["database"]["url"] = sqlite.into();
    fixture.outside.folder.write();
    let refused = fixture.binary.spawn(&fixture.outside.folder, &env[..3]).try_ready().unwrap_err();
    assert!(refused.contains("only PostgreSQL can be shared by several nodes"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn work_of_a_frozen_node_goes_on_and_the_thawed_node_ends() {
    let fixture = Fixture::new().await;
    let mut nodes = fixture.nodes(2).await;
    let urls = [0, 1].map(|number| nodes.node(number).api_url().to_owned());
    let [first, second] = [fixture.psp(&urls[0]).await, fixture.psp(&urls[1]).await];
    // The first node has every lease. It freezes between the transfer and the settlement.
    let payment = initiate(&first, "frozen").await;
    nodes.node(0).process.signal("STOP");
    let frozen_at = Instant::now();
    fixture.pay(&payment).await;
    second.until_status(payment["payment_id"].as_str().unwrap(), "settled").await;
    let took = frozen_at.elapsed();
    println!("settled {took:?} after the owner froze");
    assert!(took < TAKEOVER_MAX.saturating_mul(short_or_long(3, 1)), "{took:?}");
    let node = nodes.node(0);
    node.process.signal("CONT");
    let status = tokio::task::block_in_place(|| node.process.until_ended(Duration::from_secs(30)));
    assert_eq!(status.code(), Some(1), "{}", node.process.log());
    assert!(node.process.log().contains("this node was declared gone"), "{}", node.process.log());
    let after = initiate(&second, "after").await;
    fixture.pay(&after).await;
    second.until_status(after["payment_id"].as_str().unwrap(), "settled").await;
}

/// The network between the first node, which has every lease, and the database falls silent.
#[tokio::test(flavor = "multi_thread")]
async fn work_of_a_node_without_a_database_goes_on_and_the_node_ends_when_it_returns() {
    let fixture = Fixture::new().await;
    let url = fixture.outside.database.url().to_owned();
    let proxy = Proxy::start(&url).await;
    let env = vec![("PAYFERRY_DATABASE__URL", proxy.url(&url))];
    let mut nodes = Nodes::start_with(&fixture.binary, &fixture.outside.folder, 2, env).await;
    let urls = [0, 1].map(|number| nodes.node(number).api_url().to_owned());
    let [first, second] = [fixture.psp(&urls[0]).await, fixture.psp(&urls[1]).await];
    let payment = initiate(&first, "cut-off").await;
    proxy.set(Line::Silent);
    let since = Instant::now();
    fixture.pay(&payment).await;
    let ready = async || {
        let answer = reqwest::get(format!("{}/readyz", urls[0])).await;
        expect(answer.map_or(0, |answer| answer.status().as_u16()), |status| *status == 503)
    };
    eventually("the node is not ready", ready).await;
    let unready_after = since.elapsed();
    second.until_status(payment["payment_id"].as_str().unwrap(), "settled").await;
    let took = since.elapsed();
    println!("unready {unready_after:?} and settled {took:?} after the database was cut off");
    assert!(took < TAKEOVER_MAX.saturating_mul(short_or_long(3, 1)), "{took:?}");
    proxy.set(Line::Open);
    let node = nodes.node(0);
    let status = tokio::task::block_in_place(|| node.process.until_ended(Duration::from_secs(30)));
    assert_eq!(status.code(), Some(1), "{}", node.process.log());
    assert!(node.process.log().contains("this node was declared gone"), "{}", node.process.log());
}

/// The actor of a payment panics until it is quarantined, on the node that runs it; another node releases it.
#[tokio::test(flavor = "multi_thread")]
async fn payment_is_quarantined_for_all_nodes_and_released_from_any() {
    let database = TestDatabase::empty_postgres().await;
    let mut config = Config::default();
    config.server.listen = "127.0.0.1:0".parse().unwrap();
    config.server.operator_listen = "127.0.0.1:0".parse().unwrap();
    let database_url = Some(database.url().to_owned());
    let options = SandboxOptions { nodes: 2, database_url, ..SandboxOptions::ephemeral() };
    let sandbox = Sandbox::start(options, &config).await.unwrap();
    let mut psp = Psp::new(&sandbox.ready().api_url, &sandbox.ready().api_key);
    psp.merchant_id = psp.merchant("m-1").await;
    let id: PaymentId = psp.payment("10", Token::Usdc, Chain::Base).await.parse().unwrap();
    let systems: Vec<_> = sandbox.systems().collect();
    let holds = |system: &&&System| system.node().leases().holds(LeaseName::Shard(id.shard()));
    let owner = systems.iter().find(holds).unwrap();
    let other = systems.iter().find(|system| !holds(system)).unwrap();
    let quarantined = async |system: &System| expect(system.is_quarantined(id), |is_quarantined| *is_quarantined);
    let panics = async || {
        owner.inject_panic(id);
        quarantined(owner).await
    };
    eventually("the payment is quarantined", panics).await;
    eventually("the other node knows it", async || quarantined(other).await).await;
    for system in &systems {
        let refused = system.command(id, Command::Cancel, None).await;
        assert!(matches!(refused, Err(CommandError::Quarantined)), "{refused:?}");
    }
    assert!(other.release(id, Vec::new()).await.unwrap());
    let cancelled = async || {
        let answer = other.command(id, Command::Cancel, None).await;
        answer.map(|payment| payment.status).map_err(|error| error.to_string())
    };
    assert_eq!(eventually("the payment is cancelled", cancelled).await, Status::Failed);
    eventually("the owner released it", async || expect(owner.is_quarantined(id), |is_quarantined| !is_quarantined))
        .await;
    sandbox.stop().await;
}

/// Restarts each node in turn while clients initiate payments through the balancer without retries.
#[tokio::test(flavor = "multi_thread")]
async fn rolling_restart_fails_no_request() {
    let fixture = Fixture::new().await;
    let mut nodes = fixture.nodes(3).await;
    let psp = Arc::new(fixture.psp(&nodes.api_url()).await);
    initiate(&psp, "first").await;
    let (over, body) = (Arc::new(AtomicBool::new(false)), psp.initiation("10", Token::Usdc, "base"));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (psp, over, body) = (Arc::clone(&psp), Arc::clone(&over), body.clone());
            tokio::spawn(async move {
                let mut times = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let (key, since) = (format!("{client}-{}", times.len()), Instant::now());
                    let (status, answer) =
                        psp.try_call(Method::POST, "/payments/initiate", &body, Some(&key)).await.expect("an answer");
                    assert!(status.is_success(), "{status} {answer}");
                    times.push((since, since.elapsed()));
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                times
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(short_or_long(3, 20))).await;
    let restarted_at = Instant::now();
    for number in 0..3 {
        nodes.restart(number).await;
    }
    over.store(true, Ordering::Relaxed);
    let times: Vec<_> = join_all(clients).await.into_iter().flat_map(|times| times.unwrap()).collect();
    let (before, during): (Vec<_>, Vec<_>) = times.iter().copied().partition(|(since, _)| *since < restarted_at);
    let (before, during) = (p99(before), p99(during));
    // The starts of new processes keep the processors of a small machine busy.
    println!("{} requests, none failed; p99 {before:?} before the restarts and {during:?} meanwhile", times.len());
    assert_eq!(psp.payments().await.len(), times.len() + 1);
    nodes.stop();
}

/// 99th percentile of the durations.
fn p99(times: Vec<(Instant, Duration)>) -> Duration {
    let mut durations: Vec<Duration> = times.into_iter().map(|(_, took)| took).collect();
    durations.sort_unstable();
    durations[(durations.len() * 99).div_ceil(100) - 1]
}

/// Readers on every node, each with a cursor of its own, while payments are made on all nodes.
#[tokio::test(flavor = "multi_thread")]
async fn readers_on_every_node_miss_no_event() {
    let fixture = Fixture::new().await;
    let mut nodes = fixture.nodes(2).await;
    let urls = [0, 1].map(|number| nodes.node(number).api_url().to_owned());
    let psps = [Arc::new(fixture.psp(&urls[0]).await), Arc::new(fixture.psp(&urls[1]).await)];
    let over = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = psps
        .iter()
        .map(|psp| {
            let (psp, over) = (Arc::clone(psp), Arc::clone(&over));
            tokio::spawn(async move {
                let (mut seen, mut after) = (Vec::new(), String::new());
                loop {
                    let is_last = over.load(Ordering::Relaxed);
                    let page = psp.ok(Method::GET, &format!("/api/v1/events?limit=100{after}"), Value::Null).await;
                    let events = page["events"].as_array().unwrap();
                    seen.extend(events.iter().map(|event| event["event_id"].as_str().unwrap().to_owned()));
                    if let Some(next) = page["next_after"].as_str() {
                        after = format!("&after={next}");
                    }
                    if is_last && events.is_empty() {
                        return seen;
                    }
                }
            })
        })
        .collect();
    let each = short_or_long(30, 300);
    let writers = (0..CLIENTS).map(|client| {
        let [psp, other] = [0, 1].map(|place| Arc::clone(&psps[(client + place) % 2]));
        async move {
            for number in 0..each {
                let payment = initiate(&psp, &format!("{client}-{number}")).await;
                let id = payment["payment_id"].as_str().unwrap();
                other.ok(Method::POST, &format!("/payments/{id}/cancel"), Value::Null).await;
            }
        }
    });
    join_all(writers).await;
    over.store(true, Ordering::Relaxed);
    let feed: Vec<String> =
        psps[0].feed().await.iter().map(|event| event["event_id"].as_str().unwrap().to_owned()).collect();
    assert!(feed.len() >= CLIENTS * each, "{}", feed.len());
    for seen in join_all(readers).await {
        assert_eq!(seen.unwrap(), feed);
    }
    nodes.stop();
}

/// Statements and processor time of a second node that has nothing to do.
#[tokio::test(flavor = "multi_thread")]
async fn idle_second_node_costs_little() {
    let fixture = Fixture::new().await;
    let connection = fixture.outside.database.connect().await;
    let transactions = async || {
        let sql = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
        let row = connection.query_one_raw(Statement::from_string(DbBackend::Postgres, sql)).await.unwrap().unwrap();
        row.try_get_by_index::<i64>(0).unwrap()
    };
    let window = Duration::from_secs(short_or_long(8, 20));
    let in_window = async || {
        let before = transactions().await;
        tokio::time::sleep(window).await;
        f64::from(i32::try_from(transactions().await - before).unwrap()) / window.as_secs_f64()
    };
    let mut nodes = fixture.nodes(2).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let pid = nodes.node(1).process.id();
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u32>().unwrap() + fields[12].parse::<u32>().unwrap()
    };
    let before = ticks();
    let two = in_window().await;
    // A tick is 10 ms.
    let percent = f64::from(ticks() - before) / window.as_secs_f64();
    // Without it.
    nodes.node(1).process.kill();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let one = in_window().await;
    println!("one node: {one:.1} transactions/s; a second one adds {:.1}/s and {percent:.1} % of a core", two - one);
    // The chain of the test has ten blocks a second, and this is a build without optimisation.
    assert!(two - one < 40.0 && percent < 10.0, "{one} {two} {percent}");
}

/// The primary dies under load, and the standby is promoted.
#[tokio::test(flavor = "multi_thread")]
async fn failover_of_the_database_moves_no_lease_and_loses_nothing() {
    let pair = Arc::new(tokio::task::spawn_blocking(Pair::with_standby).await.unwrap());
    pair.create_database(DATABASE).await;
    let mut outside = Outside::on(TestDatabase::sqlite(), &[Chain::Base]).await;
    let urls: Vec<toml::Value> = pair.urls(DATABASE).into_iter().map(Into::into).collect();
    outside.folder.settings["database"].as_table_mut().unwrap().insert("urls".to_owned(), urls.into());
    let fixture = Fixture::on(outside).await;
    let mut nodes = fixture.nodes(2).await;
    let operator = fixture.operator(nodes.node(0).operator_url());
    let psp = Arc::new(fixture.psp(&nodes.api_url()).await);
    let ids = both_ready(&operator).await;
    hand_over(&operator, "chain:base", &ids["n2"]).await;
    let before = all_leases(&operator).await;
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (psp, over) = (Arc::clone(&psp), Arc::clone(&over));
            tokio::spawn(async move {
                let mut made = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let payment = initiate(&psp, &format!("{client}-{}", made.len())).await;
                    made.push(payment["payment_id"].as_str().unwrap().to_owned());
                }
                made
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let control = async |arguments: &'static [&'static str]| {
        let pair = Arc::clone(&pair);
        tokio::task::spawn_blocking(move || pair.control(arguments)).await.unwrap()
    };
    control(&["kill", "p1"]).await;
    control(&["promote", "p2"]).await;
    let payment = initiate(&psp, "after").await;
    fixture.pay(&payment).await;
    psp.until_status(payment["payment_id"].as_str().unwrap(), "settled").await;
    over.store(true, Ordering::Relaxed);
    let made: Vec<String> = join_all(clients).await.into_iter().flat_map(Result::unwrap).collect();
    println!("{} payments acknowledged", made.len());
    for id in &made {
        assert_eq!(psp.read(id).await["id"], id.as_str());
    }
    assert_eq!(all_leases(&operator).await, before, "no lease moves");
    nodes.stop();
}

/// The load tester on a sandbox with three nodes.
#[tokio::test(flavor = "multi_thread")]
async fn load_on_three_nodes_has_no_findings() {
    let database = TestDatabase::empty_postgres().await;
    let payments = short_or_long("60", "3000");
    let mut command = super::payferry();
    command.args(["load", "--nodes", "3", "--rate", "20/s", "--payments", payments, "--json"]);
    let output = command.env("PAYFERRY_SANDBOX_DATABASE_URL", database.url()).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    assert!(output.status.success(), "{report:#} {}", String::from_utf8_lossy(&output.stderr));
    println!("{report:#}");
    let refused = super::run(&["sandbox", "--ephemeral", "--nodes", "2", "--listen", "127.0.0.1:0"]);
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.contains("only PostgreSQL can be shared by several nodes"), "{refused}");
}
