//! Several nodes on one database.

mod database;
mod faults;
mod figures;
mod restarts;
mod sandbox;
mod traces;
mod work;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use payferry_domain::{Chain, Token};
use payferry_harness::database::{TestDatabase, number};
use payferry_harness::nodes::Nodes;
use payferry_harness::pair::Pair;
use payferry_harness::payers::{Payer, Payers};
use payferry_harness::process::Binary;
use payferry_harness::psp::Psp;
use payferry_harness::receiver::Receiver;
use payferry_harness::{PATIENCE, eventually, expect};
use reqwest::Method;
use serde_json::{Value, json};

use super::failover::{DATABASE, PAYMENTS};
use super::serve::{Outside, binary};
use super::two_services::settle;

/// Variable that names another binary to measure, such as one of a release build.
const MEASURED: &str = "PAYFERRY_MEASURED_BINARY";
/// Address for refunds, which has no tokens.
const REFUNDED_TO: &str = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
/// Longest time from a failure of a node to the first step of its successor: 1.5 times the TTL of 6 s, and the first read.
const TAKEOVER_MAX: Duration = Duration::from_secs(9 + 3);

/// An outside world with deployed contracts, for nodes.
struct Fixture {
    outside: Outside,
    binary: Binary,
    psp_id: String,
    key: String,
    receiver: Receiver,
}

impl Fixture {
    async fn new() -> Self {
        Self::of(binary()).await
    }

    /// With another binary.
    async fn of(binary: Binary) -> Self {
        Self::on(Outside::on(TestDatabase::postgres().await, &[Chain::Base]).await, binary).await
    }

    async fn on(mut outside: Outside, binary: Binary) -> Self {
        outside.deploy().await;
        let receiver = Receiver::start().await;
        let (psp_id, key) = binary.make_psp(&outside.folder, "Northern Pay");
        // The nodes of a test differ only in name and ports.
        let ports = payferry_harness::free_ports::<2>().map(|port| format!("127.0.0.1:{port}"));
        let server = outside.folder.settings["server"].as_table_mut().unwrap();
        server.insert("listen".to_owned(), ports[0].clone().into());
        server.insert("operator_listen".to_owned(), ports[1].clone().into());
        outside.folder.write();
        Self { outside, binary, psp_id, key, receiver }
    }

    /// With the binary that is measured.
    async fn measured() -> Self {
        Self::of(std::env::var(MEASURED).map_or_else(|_| binary(), Binary::at)).await
    }

    /// On a pair of database servers, at these URLs.
    async fn on_pair(pair: &Pair, urls: Vec<String>) -> Self {
        Self::on(Outside::on_pair(pair, DATABASE, urls).await, binary()).await
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

    /// Initiates a payment, and pays 4 of its 10 USDC. Returns its id when it is mismatched.
    async fn underpaid(&self, psp: &Psp, key: &str) -> String {
        let payment = initiate(psp, key).await;
        let wallet = payment["intermediary_wallet"].as_str().unwrap().parse().unwrap();
        let payers = Payers::new(&self.outside.chains[0], &self.outside.accounts);
        payers.transfer(Payer::Clean, Token::Usdc, wallet, 4_000_000).await;
        let id = payment["payment_id"].as_str().unwrap();
        psp.until_status(id, "mismatched").await;
        id.to_owned()
    }

    async fn settle(&self, psp: &Psp, key: &str) {
        settle(&self.outside, psp, key).await;
    }
}

async fn initiate(psp: &Psp, key: &str) -> Value {
    let body = psp.initiation("10", Token::Usdc, "base");
    psp.post_until_accepted("/payments/initiate", &body, key, PATIENCE).await.unwrap().0
}

/// Waits until the only refund of a payment is sent.
async fn until_refunded(psp: &Psp, id: &str) {
    let is_sent =
        |payment: &Value| payment["refunds"].as_array().is_some_and(|all| all.len() == 1 && all[0]["status"] == "sent");
    psp.until(id, "refunded", is_sent).await;
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
    until_owned(operator, lease, node_id).await;
}

/// Waits until a node has a lease.
async fn until_owned(operator: &Psp, lease: &str, node_id: &str) {
    // A lease that moves between two pages is on neither.
    let owner = async || all_leases(operator).await.get(lease).and_then(|(owner, _)| owner.clone()).unwrap_or_default();
    let moved = async || expect(owner().await, |owner| owner == node_id);
    eventually(format!("{lease} moves to {node_id}"), moved).await;
}

/// Leases that nodes have claimed: at the start, and those of nodes that were declared gone.
async fn claimed(operators: &[Psp]) -> f64 {
    let claimed = r#"payferry_lease_takeovers_total{cause="claimed"}"#;
    join_all(operators.iter().map(|operator| operator.metric(claimed))).await.iter().sum()
}
