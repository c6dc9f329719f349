//! `serve`, `check` and `deploy`, against chains outside the process.

use std::sync::Arc;
use std::time::Duration;

use payferry_domain::{Chain, Token};
use payferry_harness::PATIENCE;
use payferry_harness::database::TestDatabase;
use payferry_harness::deployment::{Accounts, Deployment};
use payferry_harness::node::Node;
use payferry_harness::pair::Pair;
use payferry_harness::payers::{Payer, Payers};
use payferry_harness::process::{Binary, Folder};
use payferry_harness::psp::Psp;
use payferry_harness::receiver::Receiver;
use serde_json::Value;

use super::complaint;

pub(super) const BLOCK_TIME: Duration = Duration::from_millis(100);

/// Chains with tokens and payers, and a configuration for them; the contract is not yet deployed.
pub(super) struct Outside {
    pub(super) accounts: Arc<Accounts>,
    pub(super) chains: Vec<Deployment>,
    pub(super) folder: Folder,
    pub(super) database: TestDatabase,
    _temp: tempfile::TempDir,
}

impl Outside {
    pub(super) async fn with(chains: &[Chain]) -> Self {
        Self::on(TestDatabase::create().await, chains).await
    }

    /// On this database.
    pub(super) async fn on(database: TestDatabase, chains: &[Chain]) -> Self {
        let mut nodes = Vec::new();
        for chain in chains {
            nodes.push((*chain, Node::devchain(chain.default_id(), BLOCK_TIME).await));
        }
        Self::of(database, nodes).await
    }

    /// On these nodes.
    pub(super) async fn of(database: TestDatabase, nodes: Vec<(Chain, Node)>) -> Self {
        let (accounts, temp) = (Arc::new(Accounts::known(2)), tempfile::tempdir().unwrap());
        let mut deployments = Vec::new();
        for (chain, node) in nodes {
            deployments.push(Deployment::tokens_only(chain, node, &accounts).await);
        }
        let folder = Folder::new(temp.path(), database.url(), &deployments, &accounts, [0, 0]);
        Self { accounts, chains: deployments, folder, database, _temp: temp }
    }

    /// Base, and an empty database of a pair of servers at these URLs.
    pub(super) async fn on_pair(pair: &Pair, database: &str, urls: Vec<String>) -> Self {
        pair.create_database(database).await;
        let mut outside = Self::on(TestDatabase::sqlite(), &[Chain::Base]).await;
        let urls: Vec<toml::Value> = urls.into_iter().map(Into::into).collect();
        outside.folder.settings["database"].as_table_mut().unwrap().insert("urls".to_owned(), urls.into());
        outside
    }

    /// Deploys the contract on every chain.
    pub(super) async fn deploy(&mut self) {
        for chain in &mut self.chains {
            chain.deploy_payferry(&self.accounts).await;
        }
        self.folder.settings["contracts"]["address"] = self.chains[0].contract.to_string().into();
        self.folder.write();
    }

    /// Lines of `check --json` as `place: what`, grade and text, and the exit code.
    pub(super) fn check(&self) -> (Vec<(String, String, String)>, Option<i32>) {
        let output = binary().output(&self.folder, &["check", "--json"]);
        let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
        let line = |row: &Value| {
            (format!("{}: {}", text(row, "place"), text(row, "what")), text(row, "grade"), text(row, "detail"))
        };
        (rows.iter().map(line).collect(), output.status.code())
    }
}

pub(super) fn binary() -> Binary {
    Binary::at(env!("CARGO_BIN_EXE_payferry"))
}

#[tokio::test(flavor = "multi_thread")]
async fn serves_after_deploy_and_check() {
    let mut outside = Outside::with(&[Chain::Base, Chain::Arbitrum]).await;
    let binary = binary();
    outside.folder.settings["contracts"]["address"] = alloy::primitives::Address::ZERO.to_string().into();
    outside.folder.write();
    let (lines, code) = outside.check();
    assert_eq!(code, Some(1));
    let wrong: Vec<&str> = lines.iter().filter(|line| line.1 == "wrong").map(|line| line.0.as_str()).collect();
    assert_eq!(wrong, ["base: contract", "arbitrum: contract"], "{lines:#?}");

    let admin = outside.accounts.admin.address().to_string();
    let printed = binary.run(&outside.folder, &["deploy", "--admin", &admin]);
    let printed: toml::Table = printed.parse().unwrap();
    let address = printed["contracts"]["address"].clone();
    let again = binary.output(&outside.folder, &["deploy", "--admin", &admin]);
    assert!(again.status.success());
    assert_eq!(complaint(&again), "base: already deployed\narbitrum: already deployed");
    outside.folder.settings["contracts"]["address"] = address.clone();
    outside.folder.write();
    for chain in &mut outside.chains {
        chain.contract = address.as_str().unwrap().parse().unwrap();
    }
    let (lines, code) = outside.check();
    assert_eq!(code, Some(1));
    let wrong: Vec<&str> = lines.iter().filter(|line| line.1 == "wrong").map(|line| line.0.as_str()).collect();
    let roles = [
        "base: settler",
        "base: sender",
        "base: treasury",
        "arbitrum: settler",
        "arbitrum: sender",
        "arbitrum: treasury",
    ];
    assert_eq!(wrong, roles, "{lines:#?}");

    let grant = ["contract", "grant", "--limit", "2000000"];
    let printed = binary.run(&outside.folder, &grant);
    assert_eq!(printed.lines().count(), 10, "{printed}");
    assert!(printed.lines().all(|line| line.contains(&format!(" {} 0x", address.as_str().unwrap()))), "{printed}");
    let key_file = outside.folder.path().join("admin.key");
    std::fs::write(&key_file, hex::encode(outside.accounts.admin.signer().to_bytes())).unwrap();
    let send = [&grant[..], &["--admin-key-file", key_file.to_str().unwrap()]].concat();
    for expected in ["granted in 5 transactions", "everything was granted before"] {
        let granted = binary.output(&outside.folder, &send);
        assert!(granted.status.success(), "{}", complaint(&granted));
        assert_eq!(complaint(&granted), format!("base: {expected}\narbitrum: {expected}"));
    }
    let (lines, code) = outside.check();
    assert_eq!(code, Some(0), "{lines:#?}");
    // No identity provider is configured, which does not prevent payments.
    let (identity, others): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.0 == "service: identity");
    assert!(identity.len() == 1 && identity[0].1 == "look", "{lines:#?}");
    assert!(others.iter().all(|line| line.1 == "ok"), "{lines:#?}");

    let (psp_id, key) = binary.make_psp(&outside.folder, "Northern Pay");
    let (served, receiver) = (binary.serve(&outside.folder), Receiver::start().await);
    let psp = Psp::connect(served.api_url(), &key, &receiver).await;
    for chain in &outside.chains {
        // Unavailable until the chain was read for the first time.
        let (name, path) = (chain.chain.as_str(), "/payments/initiate");
        let (made, _) =
            psp.post_until_accepted(path, &psp.initiation("10", Token::Usdt, name), name, PATIENCE).await.unwrap();
        let id = made["payment_id"].as_str().unwrap();
        let wallet = made["intermediary_wallet"].as_str().unwrap().parse().unwrap();
        let payers = Payers::new(chain, &outside.accounts);
        payers.transfer(Payer::Clean, Token::Usdt, wallet, 10_000_000).await;
        psp.until_status(id, "settled").await;
        assert_eq!(chain.holdings(&psp_id, Token::Usdt).await, (9_900_000, 100_000));
    }
    receiver.until(8).await;
    let metrics = reqwest::get(format!("{}/metrics", served.operator_url())).await.unwrap();
    assert_eq!(metrics.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let metrics = metrics.text().await.unwrap();
    let requests = "payferry_http_requests_total{method=\"POST\",route=\"/payments/initiate\",status=\"201\"} 2";
    assert!(metrics.contains(requests), "{metrics}");
    served.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn production_refuses_unsafe_settings_unless_they_are_allowed_by_name() {
    let mut outside = Outside::with(&[Chain::Base]).await;
    outside.deploy().await;
    // The files of the test are world-readable, the key is bare, no public URL is set, one endpoint is named.
    outside.folder.settings["server"]["environment"] = "production".into();
    outside.folder.write();
    let names = ["bare_key_file", "readable_secrets", "public_url", "one_endpoint"];
    let unsafe_lines = |outside: &Outside| -> Vec<(String, String)> {
        let (lines, code) = outside.check();
        let lines: Vec<_> = lines.into_iter().filter(|line| line.0.starts_with("service: unsafe setting ")).collect();
        assert_eq!(code, Some(i32::from(lines.iter().any(|line| line.1 == "wrong"))), "{lines:#?}");
        lines.into_iter().map(|line| (line.0.rsplit(' ').next().unwrap().to_owned(), line.1)).collect()
    };
    let mut served = binary().command();
    let refused = served.arg("--config").arg(outside.folder.config()).arg("serve").output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    for name in names {
        assert!(complaint(&refused).contains(&format!("\n  {name}: `")), "{}", complaint(&refused));
        assert!(unsafe_lines(&outside).contains(&(name.to_owned(), "wrong".to_owned())));
    }

    // PostgreSQL's settings are known only when it is opened.
    let allow = names.into_iter().chain(["no_synchronous_standby"]).map(toml::Value::from).collect::<Vec<_>>();
    outside
        .folder
        .settings
        .insert("unsafe".to_owned(), toml::Table::from_iter([("allow".to_owned(), allow.into())]).into());
    outside.folder.write();
    assert!(unsafe_lines(&outside).iter().all(|(_, grade)| grade == "look"));
    let binary = binary();
    let served = binary.serve(&outside.folder);
    let metrics = reqwest::get(format!("{}/metrics", served.operator_url())).await.unwrap().text().await.unwrap();
    let get = |path: &str| {
        let request = reqwest::Client::new().get(format!("{}{path}", served.operator_url()));
        request.bearer_auth(&outside.folder.operator_token).send()
    };
    let overview: Value = get("/ops/overview").await.unwrap().json().await.unwrap();
    let page = get("/ops").await.unwrap().text().await.unwrap();
    for name in names {
        assert!(metrics.contains(&format!("payferry_unsafe_setting{{setting=\"{name}\"}} 1")), "{name}");
        let settings = overview["unsafe_settings"].as_array().unwrap();
        assert!(settings.iter().any(|one| one["setting"] == name), "{overview:#}");
        assert!(page.contains(&format!("<span class=\"mono\">{name}</span>")), "{name}");
    }
    served.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_chain_does_not_run_and_the_others_do() {
    let mut outside = Outside::with(&[Chain::Base, Chain::Polygon]).await;
    outside.deploy().await;
    // The second endpoint's URL contains a key, which must not appear anywhere.
    let chains = &mut outside.folder.settings["chains"];
    let base = chains["base"]["endpoints"][0].clone();
    chains["polygon"]["endpoints"] = vec![base, "http://127.0.0.1:1/very-secret-key".into()].into();
    outside.folder.write();

    let (lines, code) = outside.check();
    assert_eq!(code, Some(1));
    let wrong: Vec<&str> = lines.iter().filter(|line| line.1 == "wrong").map(|line| line.2.as_str()).collect();
    let expected = ["it serves chain 8453, expected chain id 137", "the endpoint is unavailable: no connection"];
    assert_eq!(wrong, expected, "{lines:#?}");
    assert!(!format!("{lines:?}").contains("very-secret-key"));

    let binary = binary();
    let (_, key) = binary.make_psp(&outside.folder, "Northern Pay");
    let served = binary.serve(&outside.folder);
    let mut psp = Psp::new(served.api_url(), &key);
    psp.merchant_id = psp.merchant("shop").await;
    // Unavailable until Base was read.
    let body = psp.initiation("10", Token::Usdc, "best");
    let (made, _) =
        psp.post_until_accepted("/payments/initiate", &body, "on-the-one-that-runs", PATIENCE).await.unwrap();
    assert_eq!(made["chain"], "base");
    let (status, problem) =
        psp.call(reqwest::Method::POST, "/payments/initiate", psp.initiation("10", Token::Usdc, "polygon")).await;
    assert_eq!((status.as_u16(), &problem["code"]), (503, &Value::from("chain_unavailable")));
    let log = served.process.log();
    assert!(log.contains("serves chain 8453"), "{log}");
    assert!(!log.contains("very-secret-key"), "{log}");
    served.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn serve_names_missing_configuration() {
    let outside = Outside::with(&[Chain::Base]).await;
    let refused = |env: &[(&str, &str)]| {
        let output = binary()
            .command()
            .arg("--config")
            .arg(outside.folder.config())
            .envs(env.iter().copied())
            .args(["serve", "--json"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        complaint(&output)
    };
    for (name, value, expected) in [
        ("PAYFERRY_SIGNER__SETTLER__PRIVATE_KEY_FILE", "", "no signer: set one of `signer.settler.private_key_file`"),
        ("PAYFERRY_SIGNER__SETTLER__MNEMONIC_FILE", "words", "several signers"),
        ("PAYFERRY_SIGNER__SETTLER__PRIVATE_KEY_FILE", "/nowhere/key", "/nowhere/key: No such file"),
        (
            "PAYFERRY_CONTRACTS__ADDRESS",
            "",
            "`contracts.address` is not set: deploy the contract with `payferry deploy`",
        ),
        ("PAYFERRY_CONTRACTS__TREASURY", "", "`contracts.treasury` is not set"),
        ("PAYFERRY_CHAINS__BASE__ENDPOINTS", "[]", "no chain has endpoints: set `chains.base.endpoints`"),
        ("PAYFERRY_SECRETS__MASTER_KEY_FILE", "", "`secrets.master_key_file` is not set"),
        ("PAYFERRY_SECRETS__OPERATOR_TOKEN_FILE", "", "`secrets.operator_token_file` is not set"),
        ("PAYFERRY_KYT__SANCTIONS_FILE", "", "no KYT provider"),
        ("PAYFERRY_KYT__ALLOW_EVERYTHING", "true", "`kyt.allow_everything` conflicts"),
        ("PAYFERRY_KYT__API_URL", "https://kyt.example/", "`kyt.api_token_file` is not set"),
        ("PAYFERRY_DATABASE__URL", "postgres://me:hunter2@127.0.0.1:1/x", "the database cannot be opened"),
    ] {
        let complaint = refused(&[(name, value)]);
        assert!(complaint.contains(expected), "{name}={value}: {complaint}");
        assert!(!complaint.contains("hunter2"), "{complaint}");
    }
}
