//! One endpoint and one fault at a time; payments are created, paid and settled before, during and after the fault.

use std::time::Duration;

use payferry_domain::payment::{Payment, Status};
use payferry_harness::endpoint::{Fault, HeadShown, What};

use crate::senses::{logged, logged_times, metric};
use crate::world::{BLOCK_TIME, Options, World};

/// Creates two payments: one settled, and one paid just before the fault.
async fn before_a_fault(world: &World) -> Vec<Payment> {
    let settled = world.initiate().await;
    world.pay(&settled).await;
    world.until_status(&settled, Status::Settled).await;
    let under_way = world.initiate().await;
    world.pay(&under_way).await;
    vec![settled, under_way]
}

/// Ends the fault and asserts that everything settles, including a new payment.
async fn after_a_fault(world: &World, mut payments: Vec<Payment>) {
    world.endpoint().behave();
    world.until("the chain is read again", async || world.trouble().is_none()).await;
    world.until_read(world.site()).await;
    let after = world.initiate().await;
    world.pay(&after).await;
    payments.push(after);
    world.until_settled(&payments).await;
    world.assert_true_to_chain(&payments).await;
    world.assert_books(&payments, payments.len()).await;
}

/// Tests a fault that prevents all reads: the log describes it in these words, and transfers wait.
async fn waits_out(options: Options, fault: What, kind: &str, words: &[&str]) {
    let world = World::with(options).await;
    let mut payments = before_a_fault(&world).await;
    let during = world.initiate().await;
    world.endpoint().show([Fault::of(fault)]);
    world.pay(&during).await;
    world.until_noticed(kind, words).await;
    world.site().blocks(5).await;
    assert_eq!(world.load(during.id()).await.status, Status::Pending);
    assert!(metric("payferry_chain_request_errors_total", &["chain=base", "endpoint=0"]) > 0);
    assert_eq!(metric("payferry_chain_reorgs_total", &[]), 0);
    payments.push(during);
    world.assert_true_to_chain(&payments).await;
    after_a_fault(&world, payments).await;
    assert!(logged(&["chain base can be read again"]));
}

/// Tests a fault that does not prevent reads: transfers settle while it lasts.
async fn reads_on(options: Options, faults: Vec<Fault>) -> World {
    let world = World::with(options).await;
    let mut payments = before_a_fault(&world).await;
    world.endpoint().show(faults);
    let during = world.initiate().await;
    world.pay(&during).await;
    payments.push(during);
    world.until_settled(&payments).await;
    world.assert_true_to_chain(&payments).await;
    assert_eq!(metric("payferry_chain_reorgs_total", &[]), 0);
    after_a_fault(&world, payments).await;
    world
}

fn impatient() -> Options {
    Options { timeout: Duration::from_secs(2), ..Options::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_out_a_dead_endpoint() {
    let world = World::new().await;
    let mut payments = before_a_fault(&world).await;
    let during = world.initiate().await;
    world.endpoint().go_away().await;
    world.pay(&during).await;
    world.until_noticed("away", &["endpoint 0 of base is skipped", "no connection"]).await;
    world.site().blocks(5).await;
    assert_eq!(world.load(during.id()).await.status, Status::Pending);
    payments.push(during);
    world.endpoint().come_back().await;
    after_a_fault(&world, payments).await;
    assert!(logged(&["chain base cannot be read", "no connection"]));
    assert!(logged(&["endpoint 0 of base is healthy again"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_out_closed_connections() {
    waits_out(Options::default(), What::Closed, "away", &["chain base cannot be read"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_out_late_answers() {
    let fault = What::Slow(Duration::from_secs(10));
    waits_out(impatient(), fault, "slow", &["chain base cannot be read", "did not respond in time"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_out_server_errors() {
    waits_out(Options::default(), What::Status(503, None), "away", &["cannot be read", "HTTP 503"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_out_rate_limits() {
    let words = ["cannot be read", "limits the rate of requests"];
    waits_out(Options::default(), What::Status(429, None), "rate_limited", &words).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn honours_retry_after() {
    let world = World::new().await;
    let payments = before_a_fault(&world).await;
    world.endpoint().show([Fault::of(What::StatusError(429, Some(4), -32_000, "slow down"))]);
    world.until_noticed("rate_limited", &["endpoint 0 of base is skipped", "limits the rate"]).await;
    // Concurrent requests may each get the limit; then there must be silence for the requested time.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let calls = || ["eth_getBlockByNumber", "eth_chainId", "eth_getLogs"].map(|method| world.endpoint().calls(method));
    let before = calls();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(calls(), before, "it was queried again too early");
    after_a_fault(&world, payments).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_out_json_rpc_errors() {
    waits_out(Options::default(), What::Error(-32_603, "internal error"), "refused", &["cannot be read", "refused"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_out_garbage() {
    waits_out(Options::default(), What::Garbage, "inconsistent", &["cannot be read", "malformed"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_out_html_pages() {
    waits_out(Options::default(), What::Html, "inconsistent", &["cannot be read", "malformed"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_out_truncated_answers() {
    waits_out(Options::default(), What::Truncated, "away", &["cannot be read", "no connection"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_out_null_blocks() {
    waits_out(Options::default(), What::NullBlocks, "lagging", &["cannot be read", "does not know the block"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_out_unknown_blocks() {
    let fault = What::Error(-32_000, "header not found");
    waits_out(Options::default(), fault, "lagging", &["cannot be read", "does not know the block"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_chain_after_a_restart_is_not_read() {
    let world = World::new().await;
    let mut payments = before_a_fault(&world).await;
    let during = world.initiate().await;
    world.endpoint().go_away().await;
    world.endpoint().show([Fault::of(What::ChainId(1))]);
    world.endpoint().come_back().await;
    world.pay(&during).await;
    world.until_noticed("wrong_chain", &["endpoint 0 of base is skipped", "chain 1, expected chain id 8453"]).await;
    assert_eq!(metric("payferry_chain_endpoint_wrong_chain", &["chain=base", "endpoint=0"]), 1);
    // Only its chain id is requested.
    let asked = || ["eth_getBlockByNumber", "eth_sendRawTransaction", "eth_getTransactionCount", "eth_getLogs"];
    let before = asked().map(|method| world.endpoint().calls(method));
    world.site().blocks(10).await;
    assert_eq!(asked().map(|method| world.endpoint().calls(method)), before);
    assert_eq!(world.load(during.id()).await.status, Status::Pending);
    payments.push(during);
    after_a_fault(&world, payments).await;
    assert_eq!(metric("payferry_chain_endpoint_wrong_chain", &["chain=base", "endpoint=0"]), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_out_a_changed_chain_id() {
    let words = ["cannot be read", "chain 10, expected chain id 8453"];
    waits_out(Options::default(), What::ChainId(10), "wrong_chain", &words).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn head_that_goes_backwards_and_stays_reads_nothing() {
    let options = Options { tweak: |spec| spec.outage_secs = 3, ..Options::default() };
    let world = World::with(options).await;
    let mut payments = before_a_fault(&world).await;
    let during = world.initiate().await;
    let head = world.view().read_number;
    world.endpoint().show([Fault::of(What::Head(HeadShown::At(head - 6)))]);
    world.pay(&during).await;
    world.until_noticed("lagging", &["chain base cannot be read", "does not know the block"]).await;
    world.until("it is stale", async || world.view().is_stale(world.system.clock().now())).await;
    world.until("the halt is logged", async || logged(&["chain base shows no new block", "no deadline passes"])).await;
    let read = world.view().read_number;
    assert!(read >= head && read < head + 20, "nothing was reorged and nothing was read: {read}, {head}");
    assert_eq!(world.load(during.id()).await.status, Status::Pending);
    assert_eq!(metric("payferry_chain_reorgs_total", &[]), 0);
    assert!(metric("payferry_chain_head_age_seconds", &["chain=base"]) >= 3);
    // The chain is not offered for new payments.
    assert!(world.try_initiate(world.site().chain, 1_200).await.is_err());
    payments.push(during);
    after_a_fault(&world, payments).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_deadline_passes_while_the_head_is_halted() {
    let options = Options { tweak: |spec| spec.outage_secs = 4, ..Options::default() };
    let world = World::with(options).await;
    let during = world.try_initiate(world.site().chain, 300).await.unwrap();
    let head = world.view().read_number;
    world.endpoint().show([Fault::of(What::Head(HeadShown::At(head)))]);
    world.until("the halt is logged", async || logged(&["chain base shows no new block", "no deadline passes"])).await;
    // Longer than the payment's lifetime, in few blocks.
    world.site().devchain.advance_time(600, 3).await.unwrap();
    world.site().blocks(5).await;
    assert_eq!(world.load(during.id()).await.status, Status::Pending);
    world.endpoint().behave();
    world.until_status(&during, Status::Failed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_on_through_alternating_heads() {
    let world = reads_on(Options::default(), vec![Fault::of(What::Head(HeadShown::Alternating(0, 3)))]).await;
    assert_eq!(world.view().trouble, None);
    assert!(metric("payferry_chain_looks_failed_total", &["chain=base", "kind=lagging"]) > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_on_without_json_rpc_batches() {
    let _world = reads_on(Options::default(), vec![Fault::of(What::NoBatches)]).await;
    assert_eq!(logged_times(&["endpoint 0 of base refuses JSON-RPC batches"]), 1);
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
    let world = World::with(Options { tweak: |spec| spec.recent_blocks = 1, ..Options::default() }).await;
    let mut payments = before_a_fault(&world).await;
    for (code, words) in limits {
        let (early, late) = (world.initiate().await, world.initiate().await);
        world.endpoint().go_away().await;
        world.pay(&early).await;
        world.site().blocks(30).await;
        world.pay(&late).await;
        world.endpoint().show([Fault::of(What::RangeMax(7, code, words))]);
        world.endpoint().come_back().await;
        payments.extend([early, late]);
        world.until_settled(&payments).await;
        world.endpoint().behave();
    }
    assert!(metric("payferry_chain_request_errors_total", &["chain=base", "kind=range"]) > 0);
    after_a_fault(&world, payments).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_on_with_ten_seconds_per_answer() {
    let options = Options { timeout: Duration::from_secs(20), alone: false, ..Options::default() };
    let world = World::with(options).await;
    let mut payments = before_a_fault(&world).await;
    world.until_settled(&payments).await;
    let during = world.initiate().await;
    let read = world.view().read_number;
    world.endpoint().show([Fault::of(What::Slow(Duration::from_secs(10)))]);
    world.pay(&during).await;
    world
        .until("the skip is logged", async || logged(&["endpoint 0 of base is skipped", "its responses are slow"]))
        .await;
    // The chain continues slowly.
    world.until("blocks are read", async || world.view().read_number > read + 100).await;
    world.until("it is confirmed", async || world.load(during.id()).await.status != Status::Pending).await;
    payments.push(during);
    world.assert_true_to_chain(&payments).await;
    after_a_fault(&world, payments).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_chain_delays_no_other_chain() {
    use payferry_domain::Chain;
    let options = Options { chains: vec![Chain::Base, Chain::Polygon], ..Options::default() };
    let world = World::with(options).await;
    world.endpoint().show([Fault::of(What::Slow(Duration::from_secs(10)))]);
    tokio::time::sleep(BLOCK_TIME * 10).await;
    let started = std::time::Instant::now();
    let mut payments = Vec::new();
    for _ in 0..3 {
        let payment = world.try_initiate(Chain::Polygon, 1_200).await.unwrap();
        world.sites[1].pay(payment.terms.wallet, "10").await;
        world.until_status(&payment, Status::Settled).await;
        payments.push(payment);
    }
    assert!(started.elapsed() < crate::world::PATIENCE);
    assert!(metric("payferry_chain_request_errors_total", &["chain=polygon", "kind=slow"]) < 1);
    world.assert_books(&payments, 3).await;
}
