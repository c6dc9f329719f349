//! Many concurrent payments.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use payferry_domain::{Chain, Token};
use payferry_harness::psp::{Psp, units};
use payferry_harness::receiver::Receiver;
use payferry_harness::short_or_long;

use crate::stage::{Client, Stage, Transfer, on_every_stage};

const PAYMENTS: usize = 1_000;
const PAYMENTS_SHORT: usize = 150;
/// Maximum number of concurrent requests.
const IN_FLIGHT: usize = 64;

on_every_stage!(all_settle_and_all_are_announced);

/// Many payments at once all settle and are all announced.
async fn all_settle_and_all_are_announced<S: Stage>(stage: &S, psp: &Client) {
    let ids = initiate_and_pay(stage, psp, short_or_long(PAYMENTS_SHORT, PAYMENTS)).await;
    for (id, _, _) in &ids {
        psp.until_status(id, "settled").await;
    }
    check_balances(psp, async |chain, token| stage.holdings(chain, token).await, &psp.receiver, &ids).await;
}

/// Creates and pays `count` payments over all chains and tokens.
async fn initiate_and_pay<S: Stage>(stage: &S, psp: &Psp, count: usize) -> Vec<(String, Chain, Token)> {
    let wanted = (0..count).map(|n| (Chain::ALL[n % 3], Token::ALL[n / 3 % 2]));
    futures::stream::iter(wanted)
        .map(|(chain, token)| async move {
            let id = psp.payment("7.77", token, chain).await;
            stage.pay(&id, Transfer::exact()).await;
            (id, chain, token)
        })
        .buffer_unordered(IN_FLIGHT)
        .collect()
        .await
}

/// Asserts that vaults and treasury hold the paid amounts, that every event was delivered under one id, and that every
/// sequence is gapless.
pub async fn check_balances(
    psp: &Psp,
    holdings: impl AsyncFn(Chain, Token) -> (i64, i64),
    receiver: &Receiver,
    ids: &[(String, Chain, Token)],
) {
    let mut paid: BTreeMap<(Chain, &str), (i64, i64)> = BTreeMap::new();
    for (id, chain, token) in ids {
        let payment = psp.read(id).await;
        assert_eq!(payment["transfers"].as_array().unwrap().iter().filter(|t| t["counted"] == true).count(), 1);
        let sums = paid.entry((*chain, token.as_str())).or_default();
        sums.0 += units(&payment["settlement"]["psp_amount"]);
        sums.1 += units(&payment["settlement"]["treasury_fee"]);
    }
    for ((chain, token), sums) in paid {
        assert_eq!(holdings(chain, token.parse().unwrap()).await, sums, "{chain} {token}");
    }
    let mut sequences: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    let feed = psp.feed().await;
    for event in &feed {
        let id = event["payment_id"].as_str().unwrap().to_owned();
        sequences.entry(id).or_default().push(event["sequence"].as_i64().unwrap());
    }
    for (id, _, _) in ids {
        assert_eq!(sequences[id], [1, 2, 3, 4], "{id}");
    }
    let announced: BTreeSet<String> = feed.iter().map(|e| e["event_id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(announced.len(), feed.len());
    let received = receiver.until(announced.len()).await;
    assert_eq!(received.keys().cloned().collect::<BTreeSet<_>>(), announced, "every event arrived under its own id");
    for bodies in received.values() {
        assert!(bodies.iter().all(|body| *body == bodies[0]), "a repeated delivery has the same body: {bodies:#?}");
    }
}
