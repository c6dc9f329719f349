//! The real binary, stopped and killed while it processes many payments.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use payferry_harness::database::TestDatabase;
use payferry_harness::deployment::{Accounts, Deployment};
use payferry_harness::kill::kill_log::STEPS;
use payferry_harness::node::Node;
use payferry_harness::process::{Binary, Folder};
use payferry_harness::psp::Psp;
use payferry_harness::receiver::Receiver;
use payferry_harness::{PATIENCE, free_ports, short_or_long};
use tokio::sync::RwLock;

use super::many_payments::check_balances;
use crate::http::authorizations::signed_by;
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
    let made = std::sync::atomic::AtomicUsize::new(0);

    let count = short_or_long(PAYMENTS_SHORT, PAYMENTS);
    let payments = futures::stream::iter(0..count)
        .map(|n| {
            let (psp, down, made) = (&psp, &down, &made);
            async move {
                let (chain, token) = (Chain::ALL[n % 3], Token::ALL[n / 3 % 2]);
                let id = initiate(psp, down, n, chain, token).await;
                pay(psp, down, &id).await;
                made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                (id, chain, token)
            }
        })
        .buffer_unordered(IN_FLIGHT)
        .collect::<Vec<_>>();
    let kill_log = async {
        let reached = async |count: usize| {
            while made.load(std::sync::atomic::Ordering::Relaxed) < count {
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
    let (chain, accounts, binary) =
        (Chain::Base, Arc::new(Accounts::known(1)), Binary::at(env!("CARGO_BIN_EXE_payferry")));
    let node = Node::devchain(chain.default_id(), Duration::from_millis(100)).await;
    let deployments = [Deployment::new(chain, node, &accounts).await];
    let (temp, database, receiver) =
        (tempfile::tempdir().unwrap(), TestDatabase::create().await, Receiver::start().await);
    let folder = Folder::new(temp.path(), database.url(), &deployments, &accounts, free_ports());
    folder.write();
    let start = |env: &[(&str, &str)]| tokio::task::block_in_place(|| binary.spawn(&folder, env).ready());
    let (psp_id, api_key) = tokio::task::block_in_place(|| binary.make_psp(&folder, "Ferry PSP"));
    let mut served = start(&[]);
    let psp = Psp::connect(served.api_url(), &api_key, &receiver).await;
    let mut payments = Vec::new();
    for step in STEPS {
        served.process.kill();
        served = start(&[("PAYFERRY_HOLD_AFTER", step)]);
        let offered = async || {
            let id = psp.payment("7.77", Token::Usdc, chain).await;
            let payment = psp.read(&id).await;
            let offered =
                payment["payment_methods"].as_array().unwrap().iter().any(|one| one["type"] == "authorization");
            offered.then_some((id, payment))
        };
        // Which tokens support signatures is known once the chain is read.
        let (id, payment) = until("a payment can be signed", offered).await;
        let method = payment["payment_methods"].as_array().unwrap().iter().find(|one| one["type"] == "authorization");
        let body = signed_by(&accounts.payers[0], &method.unwrap()["typed_data"]);
        psp.ok(Method::POST, &format!("/payments/{id}/authorization"), body).await;
        let held = format!("held after {step}");
        until(&held, async || served.process.log().contains(&held).then_some(())).await;
        served.process.kill();
        served = start(&[]);
        let settled = psp.until_status(&id, "settled").await;
        assert_eq!(settled["authorization"]["tx_hash"], settled["settlement"]["tx_hash"], "{settled:#}");
        payments.push((id, chain, Token::Usdc));
    }
    let holdings = async |_: Chain, token| deployments[0].holdings(&psp_id, token).await;
    check_balances(&psp, holdings, &receiver, &payments).await;
    served.process.kill();
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
