//! A service on a primary with a synchronous standby (`[database] urls`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use payferry_harness::initiators::{Initiated, first_answer_after, patiently, under_load};
use payferry_harness::pair::Pair;
use payferry_harness::process::Served;
use payferry_harness::psp::Psp;
use payferry_harness::receiver::Receiver;
use payferry_harness::short_or_long;

use super::serve::{Outside, binary};
use super::two_services::settle;

pub(super) const DATABASE: &str = "payferry";
pub(super) const PAYMENTS: &str = "SELECT count(*) FROM payments";
/// Requests that wait for the standby.
const CLIENTS: usize = 4;
/// Connections of the service to its database, and those that a fault may add.
const CONNECTIONS_MAX: i64 = 30 + 30;

struct Fixture {
    pair: Arc<Pair>,
    outside: Outside,
    served: Served,
    psp: Arc<Psp>,
    _receiver: Receiver,
}

impl Fixture {
    /// A service on the database of a pair, at these URLs.
    async fn on(pair: Arc<Pair>, urls: Vec<String>) -> Self {
        let mut outside = Outside::on_pair(&pair, DATABASE, urls).await;
        outside.deploy().await;
        let (binary, receiver) = (binary(), Receiver::start().await);
        binary.run(&outside.folder, &["migrate"]);
        let (_, key) = binary.make_psp(&outside.folder, "Northern Pay");
        let served = binary.serve(&outside.folder);
        let psp = Arc::new(Psp::connect(served.api_url(), &key, &receiver).await);
        Self { pair, outside, served, psp, _receiver: receiver }
    }

    async fn settle(&self, key: &str) {
        settle(&self.outside, &self.psp, key).await;
    }

    async fn with_standby() -> Self {
        let pair = Pair::with_standby().await;
        let urls = pair.urls(DATABASE);
        Self::on(pair, urls).await
    }

    /// Has clients initiate payments during `fault`, until a payment is settled after it. Returns the acknowledged payments.
    async fn under_load(&self, fault: impl Future<Output = ()>) -> Vec<Initiated> {
        let fault = async {
            fault.await;
            self.settle("after").await;
        };
        Box::pin(under_load(&[Arc::clone(&self.psp)], fault)).await
    }
}

/// Point-in-time recovery, as the guide to backups describes it.
#[tokio::test(flavor = "multi_thread")]
async fn base_backup_and_archived_log_restore_any_time_and_the_last_commit() {
    let Fixture { pair, outside, served, psp, .. } = Fixture::with_standby().await;
    let payments = async || pair.number(0, DATABASE, PAYMENTS).await;
    pair.control(&["base", "p1"]).await;
    settle(&outside, &psp, "before").await;
    let mistake = pair.number(0, DATABASE, "SELECT CAST(extract(epoch FROM now()) * 1000000 AS bigint)").await;
    let mistake = chrono::DateTime::from_timestamp_micros(mistake).unwrap().to_rfc3339();
    settle(&outside, &psp, "after").await;
    assert_eq!(payments().await, 2);
    served.stop();
    pair.control(&["kill", "p2"]).await;

    // Without what came after this time, and then with all of it. Each time, the contract refuses to settle anything twice.
    for (arguments, expected, next) in
        [(vec!["recover", "p1", &mistake], 1, "after-the-mistake"), (vec!["recover", "p1"], 2, "after-the-loss")]
    {
        pair.control(&arguments).await;
        assert_eq!(payments().await, expected, "{arguments:?}");
        let served = binary().serve(&outside.folder);
        let mut psp = Psp::new(served.api_url(), &psp.api_key);
        psp.merchant_id = psp.merchant("m-1").await;
        settle(&outside, &psp, next).await;
        assert_eq!(payments().await, expected + 1);
        served.stop();
        pair.control(&["kill", "p1"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn service_continues_on_the_promoted_standby_and_never_on_an_old_primary() {
    let fixture = Fixture::with_standby().await;
    fixture.settle("before").await;
    let mut promoted = None;
    let fault = async {
        fixture.pair.control(&["kill", "p1"]).await;
        fixture.pair.control(&["promote", "p2"]).await;
        promoted = Some(Instant::now());
    };
    let made = Box::pin(fixture.under_load(fault)).await;
    let outage = first_answer_after(&made, promoted.unwrap());
    println!("first answer {outage:?} after the promotion; {} payments acknowledged", made.len());
    // In the short form, other tests use the same processors.
    assert!(outage < Duration::from_secs(short_or_long(10, 3)), "{outage:?}");
    assert_eq!(fixture.pair.number(1, DATABASE, PAYMENTS).await, i64::try_from(made.len()).unwrap() + 2);

    // The old primary returns and takes connections. It has an older timeline, and nothing is written there.
    fixture.pair.control(&["start", "p1"]).await;
    let before = fixture.pair.number(0, DATABASE, PAYMENTS).await;
    fixture.settle("beside-the-old-primary").await;
    assert_eq!(fixture.pair.number(0, DATABASE, PAYMENTS).await, before);
    fixture.served.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_acknowledged_while_the_synchronous_standby_is_away() {
    let fixture = Fixture::with_standby().await;
    fixture.settle("before").await;
    fixture.pair.control(&["stop", "p2"]).await;
    let requests: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let psp = Arc::clone(&fixture.psp);
            tokio::spawn(async move { patiently(&psp, &format!("waiting-{client}")).await })
        })
        .collect();
    // Longer than every time limit of the service for its database.
    tokio::time::sleep(Duration::from_secs(short_or_long(12, 60))).await;
    assert!(requests.iter().all(|request| !request.is_finished()), "{requests:?}");
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'payferry%'";
    let sessions = fixture.pair.number(0, DATABASE, sessions).await;
    assert!(sessions <= CONNECTIONS_MAX, "{sessions}");
    fixture.pair.control(&["start", "p2"]).await;
    fixture.pair.control(&["synced"]).await;
    for made in join_all(requests).await {
        assert_eq!(fixture.psp.read(&made.unwrap()).await["status"], "pending");
    }
    fixture.settle("after").await;
    let payments = fixture.pair.number(0, DATABASE, PAYMENTS).await;
    assert_eq!(payments, i64::try_from(CLIENTS).unwrap() + 2, "each request made one payment");
    fixture.served.stop();
}

async fn survives_patroni(pair: Arc<Pair>, urls: Vec<String>) {
    let fixture = Fixture::on(pair, urls).await;
    fixture.settle("before").await;
    let fault = fixture.pair.fail_over(3, async |round| fixture.settle(&format!("round-{round}")).await);
    let made = Box::pin(fixture.under_load(fault)).await;
    let primary = fixture.pair.primary().await;
    assert_eq!(fixture.pair.number(primary, DATABASE, PAYMENTS).await, i64::try_from(made.len()).unwrap() + 5);
    println!("{} payments acknowledged", made.len());
    fixture.served.stop();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long"]
async fn service_follows_the_primary_of_patroni() {
    let pair = Pair::of_patroni().await;
    let urls = pair.urls(DATABASE);
    Box::pin(survives_patroni(pair, urls)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long"]
async fn service_follows_the_primary_of_patroni_behind_a_proxy() {
    let pair = Pair::of_patroni().await;
    let urls = vec![pair.proxy_url(DATABASE)];
    Box::pin(survives_patroni(pair, urls)).await;
}
