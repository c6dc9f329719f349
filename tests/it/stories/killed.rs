//! The real binary, stopped and killed while it processes many payments.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use payferry_harness::database::TestDatabase;
use payferry_harness::deployment::{Accounts, Deployment};
use payferry_harness::kill::kill_log::STEPS;
use payferry_harness::node::Node;
use payferry_harness::process::{Binary, Folder, Served};
use payferry_harness::psp::Psp;
use payferry_harness::receiver::Receiver;
use payferry_harness::{PATIENCE, free_ports, short_or_long};
use tempfile::TempDir;
use tokio::sync::RwLock;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::many_payments::check_balances;
use crate::http::authorizations::{signed_by, typed_data};
use crate::prelude::*;
use crate::process::{Home, Running};

const PAYMENTS: usize = 1_000;
const PAYMENTS_SHORT: usize = 240;
const IN_FLIGHT: usize = 48;

#[tokio::test(flavor = "multi_thread")]
async fn many_payments_survive_a_stop_and_a_kill() {
    let (home, ports, receiver, second) =
        (Home::new().await, free_ports(), Receiver::start().await, Receiver::start().await);
    let process = Running::start_with(&home, ports, &[]);
    let psp = Psp::connect(process.text("api_url"), process.text("api_key"), &receiver).await;
    let (psp_id, api_key) = (process.ready["psp_id"].clone(), process.ready["api_key"].clone());
    let endpoint = json!({ "url": second.url(), "events": ["payment.settled"] });
    let (created, _) =
        psp.post_until_accepted("/api/v1/webhook-endpoints", &endpoint, "second", PATIENCE).await.unwrap();
    second.verify_with(created["signing_secret"].as_str().unwrap());
    // Held while the sandbox is down, so that clients do not spin.
    let down = RwLock::new(());
    let made = AtomicUsize::new(0);

    let count = short_or_long(PAYMENTS_SHORT, PAYMENTS);
    let payments = futures::stream::iter(0..count)
        .map(|n| {
            let (psp, down, made) = (&psp, &down, &made);
            async move {
                let (chain, token) = (Chain::ALL[n % 3], Token::ALL[n / 3 % 2]);
                let id = initiate(psp, down, n, chain, token).await;
                pay(psp, down, &id).await;
                made.fetch_add(1, Ordering::Relaxed);
                (id, chain, token)
            }
        })
        .buffer_unordered(IN_FLIGHT)
        .collect::<Vec<_>>();
    let kill_log = async {
        let reached = async |count: usize| {
            while made.load(Ordering::Relaxed) < count {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        reached(count / 3).await;
        let process = {
            let _down = down.write().await;
            tokio::task::block_in_place(|| {
                process.stop();
                Running::start_with(&home, ports, &[])
            })
        };
        assert_eq!((&process.ready["psp_id"], &process.ready["api_key"]), (&psp_id, &api_key), "the same PSP and key");
        reached(count * 2 / 3).await;
        // Without a clean stop of running requests.
        tokio::task::block_in_place(|| {
            process.kill();
            Running::start_with(&home, ports, &[])
        })
    };
    let (payments, process) = tokio::join!(payments, kill_log);

    for (id, _, _) in &payments {
        psp.until_status(id, "settled").await;
    }
    check_balances(&psp, async |chain, token| psp.sandbox_holdings(chain, token).await, &receiver, &payments).await;
    // Each payment has one event for the second endpoint.
    assert_eq!(second.until(count).await.len(), count);
    process.stop();
}

/// At each step of a collection: stored, simulated, signed, sent, mined, recorded and notified.
#[tokio::test(flavor = "multi_thread")]
async fn collection_survives_a_kill_after_every_step() {
    let env = SigningEnv::start().await;
    let mut served = env.serve(&[]);
    let psp = env.psp(&served).await;
    let mut payments = Vec::new();
    for step in STEPS {
        served.process.kill();
        served = env.serve(&[("PAYFERRY_HOLD_AFTER", step)]);
        let id = env.sign(&psp).await;
        let held = format!("held after {step}");
        until(&held, async || served.process.log().contains(&held).then_some(())).await;
        served.process.kill();
        served = env.serve(&[]);
        let settled = psp.until_status(&id, "settled").await;
        assert_eq!(settled["authorization"]["tx_hash"], settled["settlement"]["tx_hash"], "{settled:#}");
        payments.push((id, CHAIN, Token::Usdc));
    }
    env.check_balances(&psp, &payments).await;
    served.process.kill();
}

/// Between the acceptance of an authorization and the answer of the KYT provider.
#[tokio::test(flavor = "multi_thread")]
async fn accepted_authorization_is_screened_and_collected_after_a_kill() {
    let mut env = SigningEnv::start().await;
    let provider = MockServer::start().await;
    let payer = env.accounts.payers[0].address().to_string();
    let assessed = ResponseTemplate::new(200).set_body_json(json!({ "address": payer, "risk": "Low" }));
    let mount = async |answer: ResponseTemplate| Mock::given(any()).respond_with(answer).mount(&provider).await;
    let was_asked = async || (!provider.received_requests().await.unwrap().is_empty()).then_some(());
    let token = env.folder.path().join("kyt.token");
    std::fs::write(&token, "secret").unwrap();
    let kyt = json!({ "api_url": provider.uri(), "api_token_file": token });
    env.folder.settings["kyt"] = toml::Value::try_from(kyt).unwrap();
    env.folder.write();

    mount(assessed.clone().set_delay(PATIENCE)).await;
    let mut served = env.serve(&[]);
    let psp = env.psp(&served).await;
    let id = env.sign(&psp).await;
    until("the provider is asked", was_asked).await;
    served.process.kill();
    provider.reset().await;
    mount(assessed).await;
    served = env.serve(&[]);
    let settled = psp.until_status(&id, "settled").await;
    let once = json!({ "kyt_verdict": "allow", "amount_received": "7.77", "excess_received": "0.00" });
    assert_has(&settled, once);
    was_asked().await.expect("the provider is asked again");
    env.check_balances(&psp, &[(id, CHAIN, Token::Usdc)]).await;
    served.process.kill();
}

const CHAIN: Chain = Chain::Base;

/// Everything around `payferry serve` on one chain with a token that supports signatures.
struct SigningEnv {
    accounts: Arc<Accounts>,
    deployment: Deployment,
    folder: Folder,
    binary: Binary,
    receiver: Receiver,
    psp_id: String,
    api_key: String,
    _database: TestDatabase,
    _temp: TempDir,
}

impl SigningEnv {
    async fn start() -> Self {
        let (accounts, binary) = (Arc::new(Accounts::known(1)), Binary::at(env!("CARGO_BIN_EXE_payferry")));
        let node = Node::devchain(CHAIN.default_id(), Duration::from_millis(100)).await;
        let deployment = Deployment::new(CHAIN, node, &accounts).await;
        let (temp, database) = (tempfile::tempdir().unwrap(), TestDatabase::create().await);
        let deployments = [deployment.clone()];
        let folder = Folder::new(temp.path(), database.url(), &deployments, &accounts, free_ports());
        let (psp_id, api_key) = tokio::task::block_in_place(|| binary.make_psp(&folder, "Ferry PSP"));
        let receiver = Receiver::start().await;
        Self { accounts, deployment, folder, binary, receiver, psp_id, api_key, _database: database, _temp: temp }
    }

    fn serve(&self, env: &[(&str, &str)]) -> Served {
        tokio::task::block_in_place(|| self.binary.spawn(&self.folder, env).ready())
    }

    async fn psp(&self, served: &Served) -> Psp {
        Psp::connect(served.api_url(), &self.api_key, &self.receiver).await
    }

    /// Creates a payment and submits its authorization; returns its id.
    async fn sign(&self, psp: &Psp) -> String {
        let offered = async || {
            let (body, key) = (psp.initiation("7.77", Token::Usdc, CHAIN.as_str()), PaymentId::generate().to_string());
            let made = psp.post_until_accepted("/payments/initiate", &body, &key, PATIENCE).await.unwrap().0;
            let id = made["payment_id"].as_str().unwrap().to_owned();
            let payment = psp.read(&id).await;
            let offered =
                payment["payment_methods"].as_array().unwrap().iter().any(|one| one["type"] == "authorization");
            offered.then_some((id, payment))
        };
        // Which tokens support signatures is known once the chain is read.
        let (id, payment) = until("a payment can be signed", offered).await;
        let body = signed_by(&self.accounts.payers[0], &typed_data(&payment));
        psp.ok(Method::POST, &format!("/payments/{id}/authorization"), body).await;
        id
    }

    async fn check_balances(&self, psp: &Psp, payments: &[(String, Chain, Token)]) {
        let holdings = async |_: Chain, token| self.deployment.holdings(&self.psp_id, token).await;
        check_balances(psp, holdings, &self.receiver, payments).await;
    }
}

/// Initiates with an idempotency key until there is an answer.
async fn initiate(psp: &Psp, down: &RwLock<()>, n: usize, chain: Chain, token: Token) -> String {
    let body = psp.initiation("7.77", token, chain.as_str());
    let _up = down.read().await;
    let made = psp.post_until_accepted("/payments/initiate", &body, &format!("payment-{n}"), PATIENCE).await;
    made.unwrap().0["payment_id"].as_str().unwrap().to_owned()
}

/// Pays once: before a second transfer, the payment's record shows whether an unanswered one was accepted.
async fn pay(psp: &Psp, down: &RwLock<()>, id: &str) {
    let since = Instant::now();
    loop {
        let answer = {
            let _up = down.read().await;
            psp.try_call(Method::POST, &format!("/sandbox/payments/{id}/pay"), &Value::Null, None).await
        };
        if matches!(&answer, Ok((status, _)) if status.is_success()) {
            return;
        }
        // Transactions that the chain accepted before the kill are mined soon after the restart.
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let read = psp.try_call(Method::GET, &format!("/payments/{id}"), &Value::Null, None).await;
            if matches!(read, Ok((_, payment)) if payment["transfers"].as_array().is_some_and(|seen| !seen.is_empty()))
            {
                return;
            }
        }
        assert!(since.elapsed() < PATIENCE, "not paid in time: {answer:?}");
    }
}
