//! One endpoint and one fault at a time; payments are created, paid and settled before, during and after the fault.

use std::time::Duration;

use payferry_domain::Chain;
use payferry_domain::payment::{Payment, Status};
use payferry_harness::endpoint::{Fault, ReportedHead, What};

use super::behind;
use crate::env::senses::{Senses, logged, logged_times, metric};
use crate::env::{BLOCK_TIME, Env, Options};

/// Later than every timeout, except where a test sets a longer one.
const LATE: Duration = Duration::from_secs(10);

/// Creates an environment with two payments: one settled, and one paid just before the fault.
async fn before_a_fault(options: Options) -> (Env, Vec<Payment>) {
    let env = Env::with(options).await;
    let payments = vec![env.initiate_and_settle().await, env.initiate_and_pay(1).await.remove(0)];
    (env, payments)
}

/// Ends the fault and asserts that everything settles, including a new payment.
async fn after_a_fault(env: &Env, mut payments: Vec<Payment>) {
    env.endpoint().behave();
    env.until_read_again().await;
    payments.extend(env.initiate_and_pay(1).await);
    env.finish(&payments).await;
}

/// Tests a fault that prevents all reads: the log describes it in these words, and transfers wait.
async fn waits_out(fault: What, kind: &str, words: &[&str]) {
    let timeout = if matches!(fault, What::Slow(_)) { Duration::from_secs(2) } else { Options::default().timeout };
    let (env, mut payments) = before_a_fault(Options { timeout, ..behind(1) }).await;
    let during = env.initiate("10").await;
    env.show(Fault::of(fault));
    env.pay(&during, "10").await;
    env.until_noticed(kind, words).await;
    env.chain().blocks(5).await;
    assert_eq!(env.load(during.id()).await.status, Status::Pending);
    assert!(metric("payferry_chain_request_errors_total", &["chain=base", "endpoint=0"]) > 0);
    assert_eq!(metric("payferry_chain_reorgs_total", &[]), 0);
    payments.push(during);
    env.assert_true_to_chain(&payments).await;
    after_a_fault(&env, payments).await;
    assert!(logged(&["chain base can be read again"]));
}

/// Tests a fault that does not prevent reads: transfers settle while it lasts.
async fn reads_on(options: Options, faults: Vec<Fault>) -> Env {
    let (env, mut payments) = before_a_fault(options).await;
    env.endpoint().show(faults);
    payments.extend(env.initiate_and_pay(1).await);
    env.until_settled(&payments).await;
    env.assert_true_to_chain(&payments).await;
    assert_eq!(metric("payferry_chain_reorgs_total", &[]), 0);
    after_a_fault(&env, payments).await;
    env
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_out_a_dead_endpoint() {
    let (env, mut payments) = before_a_fault(behind(1)).await;
    let during = env.initiate("10").await;
    env.endpoint().close_connections().await;
    env.pay(&during, "10").await;
    env.until_noticed("away", &["endpoint 0 of base is skipped", "no connection"]).await;
    env.chain().blocks(5).await;
    assert_eq!(env.load(during.id()).await.status, Status::Pending);
    payments.push(during);
    env.endpoint().listen_again().await;
    after_a_fault(&env, payments).await;
    assert!(logged(&["chain base cannot be read", "no connection"]));
    assert!(logged(&["endpoint 0 of base is healthy again"]));
}

cases! {
    #[tokio::test(flavor = "multi_thread")]

    waits_out_closed_connections => waits_out(What::Closed, "away", &["chain base cannot be read"]);
    waits_out_late_answers =>
        waits_out(What::Slow(LATE), "slow", &["chain base cannot be read", "did not respond in time"]);
    waits_out_server_errors => waits_out(What::Status(503, None), "away", &["cannot be read", "HTTP 503"]);
    waits_out_rate_limits =>
        waits_out(What::Status(429, None), "rate_limited", &["cannot be read", "limits the rate of requests"]);
    waits_out_json_rpc_errors =>
        waits_out(What::Error(-32_603, "internal error"), "refused", &["cannot be read", "refused"]);
    waits_out_garbage => waits_out(What::Garbage, "inconsistent", &["cannot be read", "malformed"]);
    waits_out_html_pages => waits_out(What::Html, "inconsistent", &["cannot be read", "malformed"]);
    waits_out_truncated_answers => waits_out(What::Truncated, "away", &["cannot be read", "no connection"]);
    waits_out_null_blocks => waits_out(What::NullBlocks, "lagging", &["cannot be read", "does not know the block"]);
    waits_out_unknown_blocks =>
        waits_out(What::Error(-32_000, "header not found"), "lagging", &["cannot be read", "does not know the block"]);
    waits_out_a_changed_chain_id =>
        waits_out(What::ChainId(10), "wrong_chain", &["cannot be read", "chain 10, expected chain id 8453"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn honours_retry_after() {
    let (env, payments) = before_a_fault(behind(1)).await;
    env.show(Fault::of(What::StatusError(429, Some(4), -32_000, "slow down")));
    env.until_noticed("rate_limited", &["endpoint 0 of base is skipped", "limits the rate"]).await;
    // Concurrent requests may each get the limit; then there must be silence for the requested time.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let calls = || ["eth_getBlockByNumber", "eth_chainId", "eth_getLogs"].map(|method| env.endpoint().calls(method));
    let before = calls();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(calls(), before, "it was queried again too early");
    after_a_fault(&env, payments).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_chain_after_a_restart_is_not_read() {
    let (env, mut payments) = before_a_fault(behind(1)).await;
    let during = env.initiate("10").await;
    env.endpoint().close_connections().await;
    env.show(Fault::of(What::ChainId(1)));
    env.endpoint().listen_again().await;
    env.pay(&during, "10").await;
    env.until_noticed("wrong_chain", &["endpoint 0 of base is skipped", "chain 1, expected chain id 8453"]).await;
    assert_eq!(metric("payferry_chain_endpoint_wrong_chain", &["chain=base", "endpoint=0"]), 1);
    // Only its chain id is requested.
    let asked = || ["eth_getBlockByNumber", "eth_sendRawTransaction", "eth_getTransactionCount", "eth_getLogs"];
    let before = asked().map(|method| env.endpoint().calls(method));
    env.chain().blocks(10).await;
    assert_eq!(asked().map(|method| env.endpoint().calls(method)), before);
    assert_eq!(env.load(during.id()).await.status, Status::Pending);
    payments.push(during);
    after_a_fault(&env, payments).await;
    assert_eq!(metric("payferry_chain_endpoint_wrong_chain", &["chain=base", "endpoint=0"]), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn head_that_goes_backwards_and_stays_reads_nothing() {
    let (env, mut payments) = before_a_fault(behind(1).tweaked(|spec| spec.outage_secs = 3)).await;
    let during = env.initiate("10").await;
    let head = env.view().read_number;
    env.show(Fault::of(What::Head(ReportedHead::At(head - 6))));
    env.pay(&during, "10").await;
    env.until_noticed("lagging", &["chain base cannot be read", "does not know the block"]).await;
    env.until("it is stale", async || env.view().is_stale(env.system().clock().now())).await;
    env.until_logged(&["chain base has no new blocks", "no deadline passes"]).await;
    let read = env.view().read_number;
    assert!(read >= head && read < head + 20, "nothing was reorged and nothing was read: {read}, {head}");
    assert_eq!(env.load(during.id()).await.status, Status::Pending);
    assert_eq!(metric("payferry_chain_reorgs_total", &[]), 0);
    assert!(metric("payferry_chain_head_age_seconds", &["chain=base"]) >= 3);
    // The chain is not offered for new payments.
    assert!(env.try_initiate(env.chain().chain, 1_200).await.is_err());
    payments.push(during);
    after_a_fault(&env, payments).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_deadline_passes_while_the_head_is_halted() {
    let options = behind(1).tweaked(|spec| spec.outage_secs = 4);
    let env = Env::with(options).await;
    let during = env.try_initiate(env.chain().chain, 300).await.unwrap();
    let head = env.view().read_number;
    env.show(Fault::of(What::Head(ReportedHead::At(head))));
    env.until_logged(&["chain base has no new blocks", "no deadline passes"]).await;
    // Longer than the payment's lifetime, in few blocks.
    env.chain().devchain.advance_time(600, 3).await.unwrap();
    env.chain().blocks(5).await;
    assert_eq!(env.load(during.id()).await.status, Status::Pending);
    env.endpoint().behave();
    env.until_status(during.id(), Status::Failed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_on_through_alternating_heads() {
    let env = reads_on(behind(1), vec![Fault::of(What::Head(ReportedHead::Alternating(0, 3)))]).await;
    assert_eq!(env.view().degraded_reason, None);
    assert!(metric("payferry_chain_looks_failed_total", &["chain=base", "kind=lagging"]) > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_on_without_json_rpc_batches() {
    let _world = reads_on(behind(1), vec![Fault::of(What::NoBatches)]).await;
    assert_eq!(logged_times(&["endpoint 0 of base rejects JSON-RPC batches"]), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn recognises_all_range_limit_errors() {
    let limits = [
        (-32_005, "query returned more than 10000 results"),
        (-32_602, "block range is too wide"),
        (-32_614, "eth_getLogs is limited to a 7 block range"),
        (-32_000, "query returned more than 10000 results"),
        (413, "content too large"),
    ];
    // With one recent block, almost everything is requested by range.
    let (env, mut payments) = before_a_fault(behind(1).tweaked(|spec| spec.recent_blocks = 1)).await;
    for (code, words) in limits {
        let (early, late) = (env.initiate("10").await, env.initiate("10").await);
        env.endpoint().close_connections().await;
        env.pay(&early, "10").await;
        env.chain().blocks(30).await;
        env.pay(&late, "10").await;
        env.show(Fault::of(What::RangeMax(7, code, words)));
        env.endpoint().listen_again().await;
        payments.extend([early, late]);
        env.until_settled(&payments).await;
        env.endpoint().behave();
    }
    assert!(metric("payferry_chain_request_errors_total", &["chain=base", "kind=range"]) > 0);
    after_a_fault(&env, payments).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_on_with_ten_seconds_per_answer() {
    let options = Options { timeout: Duration::from_secs(20), senses: Senses::Shared, ..behind(1) };
    let (env, mut payments) = before_a_fault(options).await;
    env.until_settled(&payments).await;
    let during = env.initiate("10").await;
    let read = env.view().read_number;
    env.show(Fault::of(What::Slow(LATE)));
    env.pay(&during, "10").await;
    env.until_logged(&["endpoint 0 of base is skipped", "its responses are slow"]).await;
    // The chain continues slowly.
    env.until("blocks are read", async || env.view().read_number > read + 100).await;
    env.until("it is confirmed", async || env.load(during.id()).await.status != Status::Pending).await;
    payments.push(during);
    env.assert_true_to_chain(&payments).await;
    after_a_fault(&env, payments).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_chain_delays_no_other_chain() {
    let options = Options { chains: vec![Chain::Base, Chain::Polygon], ..behind(1) };
    let env = Env::with(options).await;
    env.show(Fault::of(What::Slow(LATE)));
    tokio::time::sleep(BLOCK_TIME * 10).await;
    let started = std::time::Instant::now();
    let mut payments = Vec::new();
    for _ in 0..3 {
        let payment = env.try_initiate(Chain::Polygon, 1_200).await.unwrap();
        env.pay(&payment, "10").await;
        payments.push(env.until_status(payment.id(), Status::Settled).await);
    }
    assert!(started.elapsed() < payferry_harness::PATIENCE);
    assert!(metric("payferry_chain_request_errors_total", &["chain=polygon", "kind=slow"]) < 1);
    env.assert_balances(&payments, 3).await;
}
