//! Data of an earlier build: today's binary opens copies of it and continues.
//!
//! `tests/compat/7996220.tar.gz` contains a sandbox's data folder and two services (SQLite and PostgreSQL) on that sandbox's chains,
//! with payments in every state, outbound transfers and sealed values. `tests/compat/make.py` made it with the binary of commit
//! 7996220. It must not be made again with a later one.
//!
//! The chains of that sandbox have the ids of mainnet, so today's sandbox refuses its folder. The test itself runs them.

mod archive;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use alloy::primitives::{Address, U256};
use alloy::sol_types::SolCall;
use payferry_contracts::Token as TokenContract;
use payferry_devchain::{ChainConfig, DevWallet, Devchain, GenesisAccount, Mining};
use payferry_domain::Amount;
use payferry_harness::node::Node;
use payferry_harness::payers::send_as;
use payferry_harness::process::{Served, Starting};
use payferry_harness::psp::Psp;
use payferry_harness::receiver::Receiver;
use payferry_harness::{eventually, expect};
use tokio_util::task::AbortOnDropHandle;

use crate::prelude::*;
use crate::process::payferry;
use archive::Archive;

/// Fields that depend on the time since the archive was made, which is an outage of the chains: it moves deadlines.
const VARYING: [&str; 2] = ["confirmations", "updated_at"];
/// Payments and a payout that wait for this start, and the status that each has in the end.
const WAITING: [(&str, &str); 3] = [("pending", "settled"), ("pending_polygon", "settled"), ("confirmed", "settled")];

/// Block time of the chains.
const BLOCK_TIME: Duration = Duration::from_millis(100);
/// Payers of the archive's sandbox.
const PAYERS: usize = 16;
/// Gas limit of a token transfer.
const TRANSFER_GAS: u64 = 120_000;

/// A running service, and what the earlier build recorded of it.
struct Service {
    served: Served,
    psp: Psp,
    recorded: Value,
}

impl Service {
    fn of(served: Served, recorded: &Value) -> Self {
        payferry_harness::install_tls();
        let psp = Psp::new(served.api_url(), text(recorded, "api_key"));
        Self { served, psp, recorded: recorded.clone() }
    }

    async fn read(&self, path: &str) -> Value {
        self.psp.ok(Method::GET, path, Value::Null).await
    }

    fn id(&self, name: &str) -> &str {
        text(&self.recorded["ids"], name)
    }

    /// Lifts a pause as the operator.
    async fn lift(&self, scope: &str) {
        let operator = Psp::new(self.served.operator_url(), text(&self.recorded, "operator_token"));
        let lifted = operator.ok(Method::POST, &format!("/ops/pauses/{scope}/lift"), Value::Null).await;
        assert_eq!(lifted["was_paused"], true, "{scope}: {lifted:#}");
    }

    /// All data reads back as it was recorded.
    async fn assert_as_recorded(&self) {
        for (name, read) in self.recorded["read"].as_object().unwrap() {
            let answer = self.read(text(read, "path")).await;
            let recorded = comparable(&read["answer"]);
            assert_eq!(part(&comparable(&answer), &recorded), recorded, "{name}");
        }
        // Sealed with a key that is derived from the master key.
        let document = &self.recorded["document"];
        assert_eq!(self.read(text(document, "path")).await, document["text"]);
    }

    /// Work that was pending at this start is completed, and its webhooks are signed with the recorded secret.
    async fn assert_continues(&self, pay: impl AsyncFn(&Value)) {
        let receiver = Receiver::start().await;
        receiver.verify_with(text(&self.recorded, "signing_secret"));
        self.psp.set_webhook(&receiver).await;
        for scope in ["settlement", "sending"] {
            self.lift(scope).await;
        }
        for (name, _) in WAITING.iter().filter(|(name, _)| name.starts_with("pending")) {
            pay(&self.read(&format!("/payments/{}", self.id(name))).await).await;
        }
        for (name, status) in WAITING {
            self.psp.until_status(self.id(name), status).await;
        }
        let payout = format!("/payouts/{}", self.id("waiting_payout"));
        let look = async || expect(self.read(&payout).await, |payout| payout["status"] == "sent");
        eventually("the payout is sent", look).await;
        // Two payments from the start, one from the confirmation, and the payout: 4 + 4 + 2 + 1 events or more.
        let received = receiver.until(11).await;
        for (name, _) in WAITING {
            let settled = |body: &Value| body["payment_id"] == self.id(name) && body["event"] == "payment.settled";
            assert!(received.values().flatten().any(settled), "no event says that {name} is settled");
        }
    }
}

/// An answer without what varies: hosts, distances from the head, deadlines of payments that are still open.
fn comparable(answer: &Value) -> Value {
    let mut answer = answer.clone();
    let is_open = matches!(answer["status"].as_str(), Some("pending" | "confirmed" | "mismatched"));
    if let Some(history) = answer["status_history"].as_array_mut() {
        history.retain(|entry| entry["reason"] != "deadline_moved");
    }
    if let Some(fields) = answer.as_object_mut() {
        fields.retain(|name, _| !(VARYING.contains(&name.as_str()) || is_open && name == "expires_at"));
        if let Some(Value::String(link)) = fields.get_mut("magic_link") {
            *link = link.split_once("/pay/").map(|(_, token)| token.to_owned()).unwrap();
        }
    }
    answer
}

/// The part of an answer that has the fields of an earlier one: later builds add fields.
fn part(answer: &Value, earlier: &Value) -> Value {
    match (answer, earlier) {
        (Value::Object(fields), Value::Object(earlier)) => {
            let kept =
                earlier.iter().filter_map(|(name, earlier)| Some((name.clone(), part(fields.get(name)?, earlier))));
            kept.collect()
        }
        (Value::Array(items), Value::Array(earlier)) if items.len() == earlier.len() => {
            items.iter().zip(earlier).map(|(item, earlier)| part(item, earlier)).collect()
        }
        _ => answer.clone(),
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("no {field} in {value:#}"))
}

fn start(arguments: &[&str], log: &Path) -> Served {
    let mut command: Command = payferry();
    command.args(arguments);
    Starting::spawn(command, log, &[]).ready()
}

/// The chains of the archive's sandbox.
struct Chains {
    nodes: BTreeMap<String, Node>,
    /// URL that stands for the sandbox's in the configurations.
    url: String,
    _serving: AbortOnDropHandle<()>,
}

impl Chains {
    async fn of(archive: &Archive) -> Self {
        let accounts = ["deployer", "operator"].map(str::to_owned).into_iter();
        let accounts = accounts.chain((0..PAYERS).map(|n| format!("payer {n}"))).chain(["sanctioned payer".to_owned()]);
        let balance = U256::from(1_000_000_000) * U256::from(10).pow(U256::from(18));
        let rich =
            |name: String| GenesisAccount { address: account(&name).address(), balance, ..GenesisAccount::default() };
        let genesis: Vec<_> = accounts.map(rich).collect();
        let (mut nodes, mut router) = (BTreeMap::new(), axum::Router::new());
        for chain in Chain::ALL {
            let config = ChainConfig {
                chain_id: chain.default_id(),
                path: Some(archive.path("sandbox").join(format!("{chain}.chain"))),
                mining: Mining::Interval(BLOCK_TIME),
                genesis: genesis.clone(),
                ..ChainConfig::default()
            };
            let opened = Devchain::open(config).await.unwrap();
            router = router.nest_service(&format!("/sandbox/rpc/{chain}"), opened.router());
            nodes.insert(chain.to_string(), Node::serving(opened).await);
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { nodes, url, _serving: AbortOnDropHandle::new(serving) }
    }

    /// Pays a payment in full.
    async fn pay(&self, config: &Path, payment: &Value) {
        let settings: toml::Table = std::fs::read_to_string(config).unwrap().parse().unwrap();
        let (chain, token) = (text(payment, "chain"), text(payment, "currency").to_lowercase());
        let token: Address = settings["chains"][chain][&token].as_str().unwrap().parse().unwrap();
        let amount: Amount = text(payment, "amount").parse().unwrap();
        let to = text(payment, "intermediary_wallet").parse().unwrap();
        let call = TokenContract::transferCall { to, value: U256::from(amount.units()) };
        send_as(&self.nodes[chain], &account("payer 0"), token, call.abi_encode().into(), TRANSFER_GAS).await;
    }
}

/// An account of that sandbox.
fn account(name: &str) -> DevWallet {
    DevWallet::from_seed(&format!("payferry sandbox {name}"))
}

/// A service of the archive continues on the chains of the archive's sandbox.
async fn service_continues(archive: &Archive, name: &str, database_url: &str) {
    let chains = Chains::of(archive).await;
    let recorded = &archive.recorded[name];
    let config = archive.configure(name, &chains.url, database_url);
    let served = start(&["serve", "--json", "--config", config.to_str().unwrap()], &archive.path(name));
    let service = Service::of(served, recorded);
    service.assert_as_recorded().await;
    service.assert_continues(async |payment: &Value| chains.pay(&config, payment).await).await;
    service.served.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sqlite_database_opens_and_continues() {
    let archive = Archive::open();
    let file = archive.path("sqlite").join("payferry.db");
    service_continues(&archive, "sqlite", file.to_str().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_database_opens_and_continues() {
    let archive = Archive::open();
    let database = archive.postgres().await;
    service_continues(&archive, "postgres", database.url()).await;
}
