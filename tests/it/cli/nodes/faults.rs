//! Faults of a node.

use std::time::Instant;

use payferry_harness::kill::kill_log::{HOLD_AFTER, STEPS};
use payferry_harness::proxy::{Line, Proxy};
use payferry_harness::short_or_long;

use super::*;

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

/// The owner of the chain freezes between two steps of a settlement, and thaws when another node has settled the payment.
#[tokio::test(flavor = "multi_thread")]
async fn settlement_of_a_node_that_freezes_between_two_steps_is_finished_once() {
    let fixture = Fixture::new().await;
    let steps = short_or_long(&["stored"][..], &STEPS[..]);
    for (done, step) in steps.iter().enumerate() {
        let env = vec![(HOLD_AFTER, (*step).to_owned())];
        let mut nodes = Nodes::start_with(&fixture.binary, &fixture.outside.folder, 2, env).await;
        let urls = [0, 1].map(|number| nodes.node(number).api_url().to_owned());
        let [first, second] = [fixture.psp(&urls[0]).await, fixture.psp(&urls[1]).await];
        let operator = fixture.operator(nodes.node(1).operator_url());
        let ids = both_ready(&operator).await;
        let payment = initiate(&first, step).await;
        fixture.pay(&payment).await;
        let process = &nodes.node(0).process;
        let held = async || expect(process.log(), |log| log.contains(&format!("held after {step}")));
        eventually(format!("the settlement is held after {step}"), held).await;
        process.signal("STOP");
        let id = payment["payment_id"].as_str().unwrap();
        second.until_status(id, "settled").await;
        // After the last steps, the first node has settled it.
        until_owned(&operator, "chain:base", &ids["n2"]).await;
        let node = nodes.node(0);
        node.process.signal("CONT");
        let status = tokio::task::block_in_place(|| node.process.until_ended(Duration::from_secs(30)));
        assert_eq!(status.code(), Some(1), "{step}: {}", node.process.log());
        let events = second.events(id).await;
        let settled = events.iter().filter(|name| *name == "payment.settled").count();
        assert_eq!(settled, 1, "{step}: {events:?}");
        let (vault, treasury) = fixture.outside.chains[0].holdings(&fixture.psp_id, Token::Usdc).await;
        let paid = i64::try_from(done + 1).unwrap() * 10_000_000;
        assert_eq!(vault + treasury, paid, "{step}: a payment is settled once");
        nodes.node(1).process.stop();
    }
}
