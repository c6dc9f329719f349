//! Faults of the database that nodes share.

use std::sync::Arc;
use std::time::Instant;

use payferry_harness::initiators::{first_answer_after, patiently, under_load};
use payferry_harness::short_or_long;

use super::*;

/// Requests that wait for the standby, at each node.
const REQUESTS: usize = 4;
/// Longest time until they are answered after the standby is back.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Two nodes at work: a settlement needs both.
struct AtWork<'a> {
    fixture: &'a Fixture,
    nodes: Nodes<'a>,
    /// A client of the balancer.
    psp: Arc<Psp>,
    /// Of each node.
    psps: Vec<Arc<Psp>>,
    operators: Vec<Psp>,
}

impl<'a> AtWork<'a> {
    async fn start(fixture: &'a Fixture) -> Self {
        let mut nodes = fixture.nodes(2).await;
        let psp = Arc::new(fixture.psp(&nodes.api_url()).await);
        let (mut psps, mut operators) = (Vec::new(), Vec::new());
        for number in 0..2 {
            let node = nodes.node(number);
            let mut of_node = Psp::new(node.api_url(), &fixture.key);
            of_node.merchant_id.clone_from(&psp.merchant_id);
            psps.push(Arc::new(of_node));
            operators.push(fixture.operator(node.operator_url()));
        }
        let ids = both_ready(&operators[0]).await;
        // The first node claimed everything.
        hand_over(&operators[0], "chain:base", &ids["n2"]).await;
        Self { fixture, nodes, psp, psps, operators }
    }

    async fn settle(&self, key: &str) {
        self.fixture.settle(&self.psp, key).await;
    }
}

/// The primary dies under load, and the standby is promoted.
#[tokio::test(flavor = "multi_thread")]
async fn failover_of_the_database_moves_no_lease_and_loses_nothing() {
    let pair = Pair::with_standby().await;
    let fixture = Fixture::on_pair(&pair, pair.urls(DATABASE)).await;
    let work = AtWork::start(&fixture).await;
    let before = all_leases(&work.operators[0]).await;
    let refunded = fixture.underpaid(&work.psp, "refunded").await;
    let refunded_to = REFUNDED_TO.parse().unwrap();
    let balance_before = fixture.outside.chains[0].balance(Token::Usdc, refunded_to).await;
    let mut promoted = None;
    let fault = async {
        let (path, refund) = (format!("/payments/{refunded}/refunds"), json!({ "address": REFUNDED_TO }));
        pair.control(&["kill", "p1"]).await;
        let asked = work.psps[0].post_until_accepted(&path, &refund, "refund", PATIENCE);
        let promoting = async {
            pair.control(&["promote", "p2"]).await;
            promoted = Some(Instant::now());
        };
        let (asked, ()) = tokio::join!(asked, promoting);
        println!("the refund was requested {} times", asked.unwrap().1 + 1);
        work.settle("after").await;
        until_refunded(&work.psp, &refunded).await;
    };
    let made = under_load(&work.psps, fault).await;
    let outage = first_answer_after(&made, promoted.unwrap());
    println!("first answer {outage:?} after the promotion; {} payments acknowledged", made.len());
    // In the short form, other tests use the same processors.
    assert!(outage < Duration::from_secs(short_or_long(10, 3)), "{outage:?}");
    assert_eq!(pair.number(1, DATABASE, PAYMENTS).await, i64::try_from(made.len()).unwrap() + 2);
    let balance = fixture.outside.chains[0].balance(Token::Usdc, refunded_to).await;
    assert_eq!(balance - balance_before, 4_000_000, "the refund is sent once");
    assert_eq!(all_leases(&work.operators[0]).await, before, "no lease moves");
    work.nodes.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_node_acknowledges_while_the_synchronous_standby_is_away() {
    let pair = Pair::with_standby().await;
    let fixture = Fixture::on_pair(&pair, pair.urls(DATABASE)).await;
    let work = AtWork::start(&fixture).await;
    work.settle("before").await;
    let claimed_before = claimed(&work.operators).await;
    pair.control(&["stop", "p2"]).await;
    let requests: Vec<_> = (0..REQUESTS * work.psps.len())
        .map(|request| {
            let psp = Arc::clone(&work.psps[request % work.psps.len()]);
            tokio::spawn(async move { patiently(&psp, &format!("waiting-{request}")).await })
        })
        .collect();
    let waiting = async || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        pair.number(0, DATABASE, sql).await
    };
    eventually("commits wait", async || expect(waiting().await, |count| *count > 0)).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let at_first = waiting().await;
    // Longer than every time limit of a node for its database.
    tokio::time::sleep(Duration::from_secs(short_or_long(12, 60))).await;
    let at_last = waiting().await;
    println!("commits that wait for the standby: {at_first} at first, {at_last} at last");
    assert!(at_last <= at_first + 2, "{at_first} {at_last}: at most one more for each node");
    assert!(requests.iter().all(|request| !request.is_finished()), "{requests:?}");
    pair.control(&["start", "p2"]).await;
    pair.control(&["synced"]).await;
    let back = Instant::now();
    for made in join_all(requests).await {
        let id = made.unwrap();
        // Without a database that commits, no node is ready, and the balancer needs a second to learn that they are.
        assert_eq!(work.psps[0].read(&id).await["status"], "pending");
    }
    let took = back.elapsed();
    println!("all answered {took:?} after the return of the standby");
    assert!(took < ANSWER_MAX.saturating_mul(short_or_long(3, 1)), "{took:?}");
    work.settle("after").await;
    let payments = i64::try_from(REQUESTS * work.psps.len()).unwrap() + 2;
    assert_eq!(pair.number(0, DATABASE, PAYMENTS).await, payments, "each request made one payment");
    assert!(claimed(&work.operators).await <= claimed_before, "no node was declared gone");
    work.nodes.stop();
}

/// Patroni replaces the primary three times.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "long"]
async fn nodes_follow_the_primary_of_patroni() {
    let pair = Pair::of_patroni().await;
    let fixture = Fixture::on_pair(&pair, pair.urls(DATABASE)).await;
    let work = AtWork::start(&fixture).await;
    work.settle("before").await;
    let claimed_before = claimed(&work.operators).await;
    let fault = pair.fail_over(3, async |round| work.settle(&format!("round-{round}")).await);
    let made = under_load(&work.psps, fault).await;
    println!("{} payments acknowledged", made.len());
    let primary = pair.primary().await;
    assert_eq!(pair.number(primary, DATABASE, PAYMENTS).await, i64::try_from(made.len()).unwrap() + 4);
    assert!(claimed(&work.operators).await <= claimed_before, "no node was declared gone");
    work.nodes.stop();
}
