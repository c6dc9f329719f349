//! `load --payers`: load on a `payferry serve`, with payers on chains outside of it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use payferry_domain::{Chain, Token};
use payferry_harness::database::TestDatabase;
use payferry_harness::deployment::Deployment;
use payferry_harness::node::Node;
use payferry_harness::process::Served;
use serde_json::{Value, json};

use super::complaint;
use super::serve::{BLOCK_TIME, Outside, binary};
use crate::call::assert_has;

/// Chain ids of test networks.
const TEST_NETWORKS: [(Chain, u64); 2] = [(Chain::Base, 84_532), (Chain::Polygon, 80_002)];

/// A service on chains outside of it, and a file with their payers.
struct Loaded {
    outside: Outside,
    served: Served,
    key: String,
}

impl Loaded {
    async fn start(networks: &[(Chain, u64)]) -> Self {
        let mut nodes = Vec::new();
        for (chain, id) in networks {
            nodes.push((*chain, Node::devchain(*id, BLOCK_TIME).await));
        }
        let mut outside = Outside::of(TestDatabase::create().await, nodes).await;
        outside.deploy().await;
        let (_, key) = binary().make_psp(&outside.folder, "Northern Pay");
        let served = binary().serve(&outside.folder);
        Self { outside, served, key }
    }

    fn file(&self) -> PathBuf {
        let Outside { accounts, chains, folder, .. } = &self.outside;
        let keys: Vec<String> =
            accounts.payers.iter().map(|payer| format!("\"{}\"", payer.signer().to_bytes())).collect();
        let mut text = String::new();
        for chain in chains {
            let Deployment { chain: name, node, contract, .. } = chain;
            let _ = writeln!(
                text,
                "[{name}]\nrpc_url = \"{}\"\ncontract = \"{contract}\"\nusdc = \"{}\"\nprivate_keys = [{}]",
                node.url(),
                chain.token(Token::Usdc),
                keys.join(", ")
            );
        }
        let file = folder.path().join("payers.toml");
        std::fs::write(&file, text).unwrap();
        file
    }

    fn load(&self, args: &str) -> Output {
        self.load_with(&self.file(), args)
    }

    fn load_with(&self, file: &Path, args: &str) -> Output {
        let of_service = ["load", "--url", self.served.api_url(), "--key", &self.key, "--json"];
        let args = of_service.into_iter().chain(["--payers", file.to_str().unwrap()]).chain(args.split(' '));
        binary().output(&self.outside.folder, &args.collect::<Vec<_>>())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn load_pays_a_service_on_test_networks_and_compares_everything() {
    let loaded = Loaded::start(&TEST_NETWORKS).await;
    let output = loaded.load("--rate 20/s --payments 60 --mix exact=50,under=10,over=10,authorized=15,refunded=15");
    assert!(output.status.success(), "{}\n{}", complaint(&output), String::from_utf8_lossy(&output.stdout));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_has(&report, json!({ "passed": true, "findings": [], "errors": {}, "audited": true, "read_back": 60 }));
    assert_has(&report["counted"], json!({ "due": 60, "complete": 60, "foreign": 0, "forged": 0 }));
    let holdings = report["holdings"].as_array().unwrap();
    assert_eq!(holdings.len(), 2, "USDC on two chains: {holdings:#?}");
    for of in holdings {
        assert!(
            of["vault_grew"] != "0.00" && of["equal"] == true && of["balance_grew"] == of["postings_say"],
            "{of:#}"
        );
    }
    // The payers go on with the nonces of the chain.
    let again = loaded.load("--rate 20/s --payments 10 --mix exact=100");
    assert!(again.status.success(), "{}", complaint(&again));

    for (args, says) in [
        ("--mix customer=100", "`customer` needs a sandbox"),
        ("--rate 10/s --duration 9s --fault kill@1s", "only receiver-fail and receiver-slow"),
    ] {
        let refused = loaded.load(args);
        assert_eq!(refused.status.code(), Some(1), "{args}");
        assert!(complaint(&refused).contains(says), "{args}: {}", complaint(&refused));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn load_refuses_to_pay_on_a_main_network() {
    let loaded = Loaded::start(&[(Chain::Base, Chain::Base.default_id())]).await;
    let refused = loaded.load("--payments 10");
    assert_eq!(refused.status.code(), Some(1));
    assert!(complaint(&refused).contains("base: 8453 is a main network"), "{}", complaint(&refused));

    let (file, url) = (loaded.file(), loaded.outside.chains[0].node.url());
    let text = std::fs::read_to_string(&file).unwrap().replace(url, "http://127.0.0.1:1/secret");
    std::fs::write(&file, text).unwrap();
    let refused = loaded.load_with(&file, "--payments 10");
    let error = complaint(&refused);
    assert!(error.contains("base: the endpoint does not answer") && !error.contains("secret"), "{error}");
}
