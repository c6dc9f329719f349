//! Several endpoints of one chain: one that fails, lies or lags is skipped for the next, and is used again later.

use std::time::Duration;

use payferry_domain::payment::{Payment, Status};
use payferry_harness::endpoint::{Endpoint, Fault, ReportedHead, What};

use super::behind;
use crate::env::senses::metric;
use crate::env::{Env, Options};

async fn usable(env: &Env, endpoint: &str, wanted: i64) {
    let labels = ["chain=base", endpoint];
    let shown = async || metric("payferry_chain_endpoint_usable", &labels) == wanted;
    env.until(&format!("{endpoint} is shown as {wanted}"), shown).await;
}

/// Settles one more payment, and asserts that everything is settled once and nothing was reorged.
async fn finish(env: &Env, mut payments: Vec<Payment>) {
    payments.push(env.initiate_and_settle().await);
    env.finish(&payments).await;
    assert_eq!(metric("payferry_chain_reorgs_total", &[]), 0);
}

/// The first endpoint shows this fault: the chain continues with the second endpoint, and with the first again
/// afterwards.
async fn makes_way(fault: What, reason: &str) {
    let is_slow = matches!(fault, What::Slow(_));
    let timeout = if is_slow { Duration::from_secs(12) } else { Options::default().timeout };
    let env = Env::with(Options { timeout, ..behind(2) }).await;
    let mut payments = vec![env.initiate_and_settle().await];
    usable(&env, "endpoint=0", 1).await;
    env.show(Fault::of(fault));
    usable(&env, "endpoint=0", 0).await;
    // The gauge is set just before the line is written.
    env.until_logged(&["endpoint 0 of base is skipped", reason]).await;
    payments.push(env.initiate_and_settle().await);
    env.endpoint().behave();
    usable(&env, "endpoint=0", 1).await;
    let (first, second) = (&env.chain().endpoints[0], &env.chain().endpoints[1]);
    let polls = |endpoint: &Endpoint| endpoint.calls("eth_getBlockByNumber");
    env.until("the preferred endpoint is used again", async || {
        let before = (polls(first), polls(second));
        env.chain().blocks(10).await;
        polls(first) > before.0 && polls(second) == before.1
    })
    .await;
    finish(&env, payments).await;
}

cases! {
    #[tokio::test(flavor = "multi_thread")]

    skips_a_dead_endpoint => makes_way(What::Closed, "no connection");
    skips_an_endpoint_that_takes_ten_seconds =>
        makes_way(What::Slow(Duration::from_secs(10)), "its responses are slow");
    skips_an_endpoint_of_another_chain => makes_way(What::ChainId(1), "chain 1, expected chain id 8453");
    skips_an_endpoint_whose_head_goes_backwards =>
        makes_way(What::Head(ReportedHead::Behind(8)), "behind the blocks already read");
}

#[tokio::test(flavor = "multi_thread")]
async fn skips_an_endpoint_that_limits_the_rate() {
    let env = Env::with(behind(2)).await;
    let mut payments = Vec::new();
    env.show(Fault::of(What::Status(429, Some(3))));
    env.until_logged(&["endpoint 0 of base is skipped", "limits the rate"]).await;
    payments.push(env.initiate_and_settle().await);
    assert_eq!(env.degraded_reason(), None);
    env.endpoint().behave();
    let polls = || env.endpoint().calls("eth_getBlockByNumber");
    let before = polls();
    env.until("it is used again", async || polls() > before + 5).await;
    finish(&env, payments).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoint_of_another_chain_is_neither_used_nor_trusted() {
    let env = Env::with(behind(2)).await;
    let (wrong, right) = (&env.chain().endpoints[0], &env.chain().endpoints[1]);
    let mut payments = vec![env.initiate_and_settle().await];
    wrong.show([Fault::of(What::ChainId(1))]);
    usable(&env, "endpoint=0", 0).await;
    let methods = ["eth_sendRawTransaction", "eth_getTransactionCount", "eth_getLogs"];
    let before = methods.map(|method| wrong.calls(method));
    let sent = right.calls("eth_sendRawTransaction");
    payments.push(env.initiate_and_settle().await);
    payments.push(env.initiate_and_settle().await);
    assert_eq!(before, methods.map(|method| wrong.calls(method)));
    assert!(right.calls("eth_sendRawTransaction") > sent);
    wrong.behave();
    usable(&env, "endpoint=0", 1).await;
    let sent = wrong.calls("eth_sendRawTransaction");
    payments.push(env.initiate_and_settle().await);
    assert!(wrong.calls("eth_sendRawTransaction") > sent, "it is used again once its chain is right");
    finish(&env, payments).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn skips_an_endpoint_that_halts_at_the_read_position() {
    let env = Env::with(behind(2)).await;
    let mut payments = vec![env.initiate_and_settle().await];
    let read = env.view().read_number;
    env.show(Fault::of(What::Head(ReportedHead::At(read))));
    payments.push(env.initiate_and_settle().await);
    assert_eq!(env.degraded_reason(), None);
    finish(&env, payments).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn survives_failure_of_all_endpoints_and_continues_with_the_last() {
    let env = Env::with(behind(3)).await;
    let payments = vec![env.initiate("10").await];
    for endpoint in &env.chain().endpoints {
        endpoint.close_connections().await;
    }
    env.pay(&payments[0], "10").await;
    env.until_noticed("away", &["chain base cannot be read", "no connection"]).await;
    assert_eq!(env.load(payments[0].id()).await.status, Status::Pending);
    env.chain().endpoints[2].listen_again().await;
    env.until_read_again().await;
    finish(&env, payments).await;
}
