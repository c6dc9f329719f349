//! A service on a primary with a synchronous standby (`[database] urls`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use payferry_domain::{Chain, Token};
use payferry_harness::database::TestDatabase;
use payferry_harness::pair::Pair;
use payferry_harness::process::Served;
use payferry_harness::psp::Psp;
use payferry_harness::receiver::Receiver;
use payferry_harness::{PATIENCE, short_or_long};
use sea_orm::{ConnectionTrait, DbBackend, Statement};

use super::serve::{Outside, binary};
use super::two_services::settle;

const DATABASE: &str = "payferry";
const PAYMENTS: &str = "SELECT count(*) FROM payments";
/// Requests at the same time.
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
    /// A service on the database of a pair, at the URLs that `urls` returns.
    async fn on(start: fn() -> Pair, urls: fn(&Pair) -> Vec<String>) -> Self {
        let pair = Arc::new(tokio::task::spawn_blocking(start).await.unwrap());
        pair.create_database(DATABASE).await;
        let mut outside = Outside::on(TestDatabase::create().await, &[Chain::Base]).await;
        outside.chains[0].deploy_payferry(&outside.accounts).await;
        outside.folder.settings["contracts"]["address"] = outside.chains[0].contract.to_string().into();
        let urls: Vec<toml::Value> = urls(&pair).into_iter().map(Into::into).collect();
        outside.folder.settings["database"].as_table_mut().unwrap().insert("urls".to_owned(), urls.into());
        outside.folder.write();
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
        Self::on(Pair::with_standby, |pair| pair.urls(DATABASE)).await
    }

    async fn control(&self, arguments: &'static [&'static str]) -> String {
        let pair = Arc::clone(&self.pair);
        tokio::task::spawn_blocking(move || pair.control(arguments)).await.unwrap()
    }

    /// Has clients initiate payments while `fault` happens. Returns the ids of the acknowledged payments, with their times.
    async fn under_load(&self, fault: impl Future<Output = ()>) -> Vec<(String, Instant)> {
        let over = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (psp, over) = (Arc::clone(&self.psp), Arc::clone(&over));
                tokio::spawn(async move {
                    let mut made = Vec::new();
                    while !over.load(Ordering::Relaxed) {
                        made.push((initiate(&psp, &format!("{client}-{}", made.len())).await, Instant::now()));
                    }
                    made
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_secs(1)).await;
        fault.await;
        self.settle("after").await;
        over.store(true, Ordering::Relaxed);
        let made: Vec<_> = join_all(clients).await.into_iter().flat_map(Result::unwrap).collect();
        for (id, _) in &made {
            assert_eq!(self.psp.read(id).await["id"], id.as_str());
        }
        made
    }

    /// A number that this server's database returns.
    async fn number(&self, server: usize, sql: &str) -> i64 {
        let connection = sea_orm::Database::connect(&self.pair.urls(DATABASE)[server]).await.unwrap();
        let row = connection.query_one_raw(Statement::from_string(DbBackend::Postgres, sql)).await.unwrap().unwrap();
        connection.close().await.unwrap();
        row.try_get_by_index(0).unwrap()
    }
}

/// Initiates a payment; repeats the request until it is accepted. Returns its id.
async fn initiate(psp: &Psp, key: &str) -> String {
    let body = psp.initiation("10", Token::Usdc, "base");
    let (made, _) = psp.post_until_accepted("/payments/initiate", &body, key, PATIENCE).await.unwrap();
    made["payment_id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn service_continues_on_the_promoted_standby_and_never_on_an_old_primary() {
    let fixture = Fixture::with_standby().await;
    fixture.settle("before").await;
    let mut promoted = None;
    let fault = async {
        fixture.control(&["kill", "p1"]).await;
        fixture.control(&["promote", "p2"]).await;
        promoted = Some(Instant::now());
    };
    let made = fixture.under_load(fault).await;
    let after = made.iter().filter_map(|(_, at)| at.checked_duration_since(promoted?));
    let outage = after.min().unwrap();
    println!("first answer {outage:?} after the promotion; {} payments acknowledged", made.len());
    // In the short form, other tests use the same processors.
    assert!(outage < Duration::from_secs(short_or_long(10, 3)), "{outage:?}");
    assert_eq!(fixture.number(1, PAYMENTS).await, i64::try_from(made.len()).unwrap() + 2);

    // The old primary returns and takes connections. It has an older timeline, and nothing is written there.
    fixture.control(&["start", "p1"]).await;
    let before = fixture.number(0, PAYMENTS).await;
    fixture.settle("beside-the-old-primary").await;
    assert_eq!(fixture.number(0, PAYMENTS).await, before);
    fixture.served.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_acknowledged_while_the_synchronous_standby_is_away() {
    let fixture = Fixture::with_standby().await;
    fixture.settle("before").await;
    fixture.control(&["stop", "p2"]).await;
    let requests: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let psp = Arc::clone(&fixture.psp);
            tokio::spawn(async move { initiate(&psp, &format!("waiting-{client}")).await })
        })
        .collect();
    // Longer than every time limit of the service for its database.
    tokio::time::sleep(Duration::from_secs(short_or_long(12, 60))).await;
    assert!(requests.iter().all(|request| !request.is_finished()), "{requests:?}");
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'payferry%'";
    let sessions = fixture.number(0, sessions).await;
    assert!(sessions <= CONNECTIONS_MAX, "{sessions}");
    fixture.control(&["start", "p2"]).await;
    fixture.control(&["synced"]).await;
    for made in join_all(requests).await {
        assert_eq!(fixture.psp.read(&made.unwrap()).await["status"], "pending");
    }
    fixture.settle("after").await;
    let payments = fixture.number(0, PAYMENTS).await;
    assert_eq!(payments, i64::try_from(CLIENTS).unwrap() + 2, "each request made one payment");
    fixture.served.stop();
}

/// Kills the primary three times, each time the server that is the primary then.
async fn survives_patroni(urls: fn(&Pair) -> Vec<String>) {
    let fixture = Fixture::on(Pair::of_patroni, urls).await;
    fixture.settle("before").await;
    let fault = async {
        for round in 0..3 {
            fixture.control(&["synced"]).await;
            let (killed, other): (&'static [&'static str], &'static [&'static str]) =
                if fixture.control(&["primary"]).await.trim() == "p1" {
                    (&["kill", "p1"], &["writable", "p2"])
                } else {
                    (&["kill", "p2"], &["writable", "p1"])
                };
            fixture.control(killed).await;
            fixture.control(other).await;
            fixture.settle(&format!("round-{round}")).await;
            fixture.control(if killed[1] == "p1" { &["rejoin", "p1"] } else { &["rejoin", "p2"] }).await;
        }
    };
    let made = fixture.under_load(fault).await;
    fixture.control(&["synced"]).await;
    let primary = usize::from(fixture.control(&["primary"]).await.trim() == "p2");
    assert_eq!(fixture.number(primary, PAYMENTS).await, i64::try_from(made.len()).unwrap() + 5);
    println!("{} payments acknowledged", made.len());
    fixture.served.stop();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long"]
async fn service_follows_the_primary_of_patroni() {
    survives_patroni(|pair| pair.urls(DATABASE)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long"]
async fn service_follows_the_primary_of_patroni_behind_a_proxy() {
    survives_patroni(|pair| vec![pair.proxy_url(DATABASE)]).await;
}
