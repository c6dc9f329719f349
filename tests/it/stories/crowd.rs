//! Many payments at once.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use payferry_domain::{Chain, Token};
use serde_json::json;

use super::story_with_receiver;
use crate::receiver::Receiver;
use crate::world::{World, units};

const PAYMENTS: usize = 1_000;
/// Requests under way at once; bounded, as every load here.
const IN_FLIGHT: usize = 64;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_payments_at_once_all_settle_and_are_all_announced() {
    let (app, world, receiver) = story_with_receiver().await;
    let ids = initiate_and_pay(&world, PAYMENTS).await;
    for (id, _, _) in &ids {
        world.until_status(id, "settled").await;
    }
    check_books(&world, &receiver, &ids).await;
    app.stop().await;
}

/// Makes and pays `count` payments over all chains and tokens.
pub async fn initiate_and_pay(world: &World, count: usize) -> Vec<(String, Chain, Token)> {
    let wanted = (0..count).map(|n| (Chain::ALL[n % 3], Token::ALL[n / 3 % 2]));
    futures::stream::iter(wanted)
        .map(|(chain, token)| async move {
            let id = world.payment("7.77", token, chain).await;
            world.pay(&id, json!({})).await;
            (id, chain, token)
        })
        .buffer_unordered(IN_FLIGHT)
        .collect()
        .await
}

/// Vaults and treasury hold what was paid, every event was delivered once under one id, every sequence is gapless.
pub async fn check_books(world: &World, receiver: &Receiver, ids: &[(String, Chain, Token)]) {
    let mut paid: BTreeMap<(Chain, &str), (i64, i64)> = BTreeMap::new();
    for (id, chain, token) in ids {
        let payment = world.read(id).await;
        assert_eq!(payment["transfers"].as_array().unwrap().iter().filter(|t| t["counted"] == true).count(), 1);
        let sums = paid.entry((*chain, token.as_str())).or_default();
        sums.0 += units(&payment["settlement"]["psp_amount"]);
        sums.1 += units(&payment["settlement"]["treasury_fee"]);
    }
    for ((chain, token), sums) in paid {
        assert_eq!(world.holdings(chain, token.parse().unwrap()).await, sums, "{chain} {token}");
    }
    let mut sequences: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    let feed = world.feed().await;
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
        assert!(bodies.iter().all(|body| *body == bodies[0]), "a repeated delivery says the same: {bodies:#?}");
    }
}
