//! Faults of a node.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use payferry_harness::clock::Clock;
use payferry_harness::initiators::Initiators;
use payferry_harness::kill::kill_log::{HOLD_AFTER, HOLD_UNTIL, STEPS};
use payferry_harness::namespace::Namespace;
use payferry_harness::nodes::First;
use payferry_harness::process::Served;
use payferry_harness::proxy::{Line, Proxy};
use payferry_harness::short_or_long;
use sea_orm::{ConnectionTrait, DatabaseConnection, TransactionTrait};

use super::*;

/// Time without heartbeats after which a node is listed, and the longest time until the feed lists it.
const SILENT_MAX: Duration = Duration::from_secs(3);
const LISTED_WITHIN: Duration = Duration::from_secs(2);
/// Shortest time to live of a payment.
const EXPIRES_IN_MIN_SECS: i64 = 60;

#[tokio::test(flavor = "multi_thread")]
async fn work_of_a_frozen_node_goes_on_and_the_thawed_node_ends() {
    let fixture = Fixture::new().await;
    let mut nodes = fixture.nodes(2).await;
    let urls = [0, 1].map(|number| nodes.node(number).api_url().to_owned());
    let [first, second] = [fixture.psp(&urls[0]).await, fixture.psp(&urls[1]).await];
    // The first node has every lease. It freezes between the transfer and the settlement.
    let payment = initiate(&first, "frozen").await;
    let cancelled = initiate(&first, "cancelled").await;
    nodes.node(0).process.signal("STOP");
    let frozen_at = Instant::now();
    fixture.pay(&payment).await;
    let operator = fixture.operator(nodes.node(1).operator_url());
    let listed = async || operator.ok(Method::GET, "/ops/stuck?kind=node", Value::Null).await["kinds"].clone();
    let is_listed = |kinds: &Value| kinds[0]["items"][0]["reason"] == "it sends no heartbeats";
    eventually("the frozen node is listed", async || expect(listed().await, is_listed)).await;
    let listed_after = frozen_at.elapsed();
    assert!(listed_after < (SILENT_MAX + LISTED_WITHIN).saturating_mul(short_or_long(3, 1)), "{listed_after:?}");
    let page = operator.ok(Method::GET, "/ops/view/stuck", Value::Null).await;
    let page = page.as_str().unwrap();
    for text in ["it sends no heartbeats", "Another node does its work", "process#node-has-no-heartbeats"] {
        assert!(page.contains(text), "{text} in {page}");
    }
    second.until_status(payment["payment_id"].as_str().unwrap(), "settled").await;
    let took = frozen_at.elapsed();
    println!("settled {took:?} after the owner froze");
    assert!(took < TAKEOVER_MAX.saturating_mul(short_or_long(3, 1)), "{took:?}");
    // The thawed node may take a request that has waited, but must not deliver its event: the other node does.
    let id = cancelled["payment_id"].as_str().unwrap();
    let path = format!("/payments/{id}/cancel");
    let waiting = tokio::spawn({
        let path = path.clone();
        async move { drop(first.try_call(Method::POST, &path, &Value::Null, None).await) }
    });
    // The kernel accepts it for the frozen process.
    tokio::time::sleep(Duration::from_millis(100)).await;
    nodes.node(0).process.signal("CONT");
    waiting.await.unwrap();
    ends_as_gone(nodes.node(0));
    let is_lost = |kinds: &Value| kinds[0]["items"][0]["reason"] == "it was declared gone, and has not started again";
    expect(listed().await, is_lost).unwrap();
    nodes.start_again(0).await;
    expect(listed().await, |kinds| *kinds == json!([])).unwrap();
    // Unless the first node has done it.
    second.call(Method::POST, &path, Value::Null).await;
    second.until_status(id, "failed").await;
    let after = initiate(&second, "after").await;
    fixture.pay(&after).await;
    second.until_status(after["payment_id"].as_str().unwrap(), "settled").await;
    let expected = second.feed().await.len();
    fixture.receiver.until(expected).await;
    assert_eq!(fixture.receiver.deliveries().len(), expected, "each event is delivered once");
}

/// Waits until a node ends because other nodes declared it gone.
fn ends_as_gone(node: &mut Served) {
    let status = tokio::task::block_in_place(|| node.process.until_ended(Duration::from_secs(30)));
    assert_eq!(status.code(), Some(1), "{}", node.process.log());
    assert!(node.process.log().contains("this node was declared gone"), "{}", node.process.log());
}

/// Longest time until a node without its database is not ready: the documented 3 s, and the interval between two reads.
const UNREADY_MAX: Duration = Duration::from_secs(4);

/// Connections of the first node, which has every lease, that can fall silent: nothing is forwarded, and none is closed.
struct Lines {
    database: Proxy,
    chain: Proxy,
}

impl Lines {
    async fn of(fixture: &Fixture) -> (Self, Vec<(&'static str, String)>) {
        let (database, chain) = (fixture.outside.database.url(), fixture.outside.chains[0].node.url());
        let lines = Self { database: Proxy::start(database).await, chain: Proxy::start(chain).await };
        let env = vec![
            ("PAYFERRY_DATABASE__URL", lines.database.url(database)),
            ("PAYFERRY_CHAINS__BASE__ENDPOINTS", format!("[{:?}]", lines.chain.url(chain))),
        ];
        (lines, env)
    }
}

/// The first node loses its database, but is still reached by clients.
#[tokio::test(flavor = "multi_thread")]
async fn work_of_a_node_without_a_database_goes_on_and_the_node_ends_when_it_returns() {
    let fixture = Fixture::new().await;
    let (lines, env) = Lines::of(&fixture).await;
    let mut nodes = Nodes::start_with(&fixture.binary, &fixture.outside.folder, 2, env).await;
    let ready = format!("{}/readyz", nodes.node(0).api_url());
    let status = async || reqwest::get(&ready).await.map_or(0, |answer| answer.status().as_u16());
    work_goes_on(&fixture, &mut nodes, status, |_, is_up| {
        lines.database.set(if is_up { Line::Open } else { Line::Silent });
    })
    .await;
    nodes.node(1).process.stop();
}

/// The first node loses all of its network: the database, the chain, its clients, the balancer and the receivers of webhooks.
#[tokio::test(flavor = "multi_thread")]
async fn work_of_a_node_without_a_network_goes_on_and_the_node_ends_when_it_returns() {
    let Some(namespace) = Namespace::create() else {
        assert!(short_or_long(true, false), "network namespaces cannot be made here");
        println!("not run: network namespaces cannot be made here");
        return;
    };
    let fixture = Fixture::new().await;
    let (database, chain) = (fixture.outside.database.url(), fixture.outside.chains[0].node.url());
    let [to_database, to_chain] =
        [Proxy::start_at(namespace.outside, database).await, Proxy::start_at(namespace.outside, chain).await];
    // Another host's certificate would be verified.
    let joined = if database.contains('?') { '&' } else { '?' };
    let env = vec![
        ("PAYFERRY_DATABASE__URL", format!("{}{joined}sslmode=require", to_database.url(database))),
        ("PAYFERRY_CHAINS__BASE__ENDPOINTS", format!("[{:?}]", to_chain.url(chain))),
        ("PAYFERRY_SERVER__LISTEN", format!("{}:0", namespace.inside)),
        ("PAYFERRY_SERVER__OPERATOR_LISTEN", format!("{}:0", namespace.inside)),
    ];
    let first = First { env, namespace: Some(namespace) };
    let mut nodes = Nodes::start_with(&fixture.binary, &fixture.outside.folder, 2, first).await;
    let address = nodes.node(0).api_url().trim_start_matches("http://").replace(':', "/");
    let request = format!(
        "exec 3<> /dev/tcp/{address}; printf 'GET /readyz HTTP/1.0\\r\\n\\r\\n' >&3; read -r _ status _ <&3; echo $status"
    );
    let mut ask = std::process::Command::new("bash");
    ask.args(["-c", &request]);
    let mut ask = tokio::process::Command::from(nodes.first_namespace().enter(&ask));
    let status = async || String::from_utf8(ask.output().await.unwrap().stdout).unwrap().trim().parse().unwrap_or(0);
    let psp = Arc::new(fixture.psp(&nodes.api_url()).await);
    let clients = Initiators::start(std::slice::from_ref(&psp));
    let away = work_goes_on(&fixture, &mut nodes, status, |nodes, is_up| nodes.first_namespace().set_link(is_up)).await;
    let initiated = clients.stop().await;
    let meanwhile =
        initiated.iter().filter(|payment| away.contains(&payment.sent_at) && away.contains(&payment.answered_at));
    let meanwhile = meanwhile.count();
    println!("{meanwhile} of {} payments were initiated while the node was away", initiated.len());
    assert!(meanwhile > 0, "the balancer passes requests to the other node");
    let listed = psp.payments().await;
    let listed: BTreeSet<_> = listed.iter().filter_map(|payment| payment["id"].as_str()).collect();
    assert!(
        initiated.iter().all(|payment| listed.contains(payment.id.as_str())),
        "every acknowledged payment is there"
    );
    nodes.node(1).process.stop();
}

/// Cuts the first node off after a payment that it has accepted is initiated, which the second node must settle, and connects it
/// again. `readiness` returns the status of the first node's `/readyz`. Returns the time in which it was cut off.
async fn work_goes_on(
    fixture: &Fixture,
    nodes: &mut Nodes<'_>,
    mut readiness: impl AsyncFnMut() -> u16,
    set_link: impl Fn(&Nodes<'_>, bool),
) -> Range<Instant> {
    let urls = [0, 1].map(|number| nodes.node(number).api_url().to_owned());
    let [first, second] = [fixture.psp(&urls[0]).await, fixture.psp(&urls[1]).await];
    let payment = initiate(&first, "cut-off").await;
    set_link(nodes, false);
    let since = Instant::now();
    fixture.pay(&payment).await;
    eventually("the node is not ready", async || expect(readiness().await, |status| *status == 503)).await;
    let unready_after = since.elapsed();
    second.until_status(payment["payment_id"].as_str().unwrap(), "settled").await;
    let took = since.elapsed();
    println!("unready {unready_after:?} and settled {took:?} after the node was cut off");
    assert!(unready_after < UNREADY_MAX.saturating_mul(short_or_long(3, 1)), "{unready_after:?}");
    assert!(took < TAKEOVER_MAX.saturating_mul(short_or_long(3, 1)), "{took:?}");
    let away = since..Instant::now();
    set_link(nodes, true);
    ends_as_gone(nodes.node(0));
    let (vault, treasury) = fixture.outside.chains[0].holdings(&fixture.psp_id, Token::Usdc).await;
    assert_eq!(vault + treasury, 10_000_000, "the payment is settled once");
    away
}

/// The owner of the chain loses the chain's only endpoint, which the other node still reaches.
#[tokio::test(flavor = "multi_thread")]
async fn payment_waits_while_the_owner_of_the_chain_has_no_endpoint() {
    let fixture = Fixture::new().await;
    let (lines, env) = Lines::of(&fixture).await;
    let mut nodes = Nodes::start_with(&fixture.binary, &fixture.outside.folder, 2, env).await;
    let operator = fixture.operator(nodes.node(1).operator_url());
    let ids = both_ready(&operator).await;
    let psp = fixture.psp(nodes.node(1).api_url()).await;
    let [waiting, moved] = [initiate(&psp, "waiting").await, initiate(&psp, "moved").await];
    lines.chain.set(Line::Silent);
    fixture.pay(&waiting).await;
    let down = async || {
        let readiness = operator.call(Method::GET, "/readyz", Value::Null).await.1;
        expect(readiness["chains"].clone(), |chains| chains["usable"] == 0)
    };
    eventually("the other node knows it", down).await;
    assert_eq!(psp.read(waiting["payment_id"].as_str().unwrap()).await["status"], "pending");
    // The operator hands the chain over to the node that reaches it.
    hand_over(&operator, "chain:base", &ids["n2"]).await;
    fixture.pay(&moved).await;
    for payment in [&waiting, &moved] {
        psp.until_status(payment["payment_id"].as_str().unwrap(), "settled").await;
    }
    nodes.stop();
}

/// The clock of the first node, which has every lease, is 30 s ahead and later 30 s behind.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_clock_of_a_node_is_named_moves_no_lease_and_expires_nothing() {
    let fixture = Fixture::new().await;
    let clock = Clock::new(fixture.outside.folder.path());
    let mut nodes = Nodes::start_with(&fixture.binary, &fixture.outside.folder, 2, clock.env()).await;
    let urls = [0, 1].map(|number| nodes.node(number).api_url().to_owned());
    let [first, second] = [fixture.psp(&urls[0]).await, fixture.psp(&urls[1]).await];
    let operators = [0, 1].map(|number| fixture.operator(nodes.node(number).operator_url()));
    let operator = &operators[0];
    both_ready(operator).await;
    let claimed_before = claimed(&operators).await;
    for seconds in [30_i64, -30] {
        let mut body = first.initiation("10", Token::Usdc, "base");
        body["expires_in"] = EXPIRES_IN_MIN_SECS.into();
        let deadline = first.ok(Method::POST, "/payments/initiate", body).await;
        let since = Instant::now();
        clock.set(seconds);
        let readiness = async || {
            let (status, answer) = operator.call(Method::GET, "/readyz", Value::Null).await;
            let named = answer["node"]["clock_offset_ms"].as_i64();
            let is_off = |offset_ms: i64| (offset_ms - seconds * 1_000).abs() < 3_000;
            expect(answer, |_| status == 503 && named.is_some_and(is_off))
        };
        eventually(format!("the node names its clock's offset of {seconds} s"), readiness).await;
        // Its chain and its payments are still this node's work.
        let payment = initiate(&second, &seconds.to_string()).await;
        fixture.pay(&payment).await;
        second.until_status(payment["payment_id"].as_str().unwrap(), "settled").await;
        let id = deadline["payment_id"].as_str().unwrap();
        if let Some(rest) = Duration::from_secs(short_or_long(0, 40)).checked_sub(since.elapsed()) {
            tokio::time::sleep(rest).await;
        }
        assert_eq!(second.read(id).await["status"], "pending", "{seconds}");
        clock.set(0);
        let ready =
            async || expect(operator.call(Method::GET, "/readyz", Value::Null).await.0, |status| *status == 200);
        eventually("the node is ready again", ready).await;
        if short_or_long(false, true) {
            second.until_status(id, "failed").await;
        }
    }
    assert!(claimed(&operators).await <= claimed_before, "no node was declared gone");
    nodes.stop();
}

/// Writes of a chain's rows, which a trigger records in the transaction of the write: the node, and the chain's owner and epoch.
struct ChainWrites(DatabaseConnection);

impl ChainWrites {
    /// Records from now on.
    async fn record(database: &TestDatabase) -> Self {
        let connection = database.connect().await;
        let recorded =
            "CREATE TABLE chain_writes (number BIGSERIAL PRIMARY KEY, writer TEXT, owner TEXT, epoch BIGINT);
             CREATE FUNCTION record_chain_write() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               INSERT INTO chain_writes (writer, owner, epoch)
               SELECT split_part(current_setting('application_name'), ' ', 1), nodes.name, leases.epoch
               FROM leases JOIN nodes ON nodes.id = leases.owner WHERE leases.name = 'chain:base';
               RETURN NULL; END $$;
             CREATE TRIGGER recorded AFTER INSERT OR UPDATE ON chain_cursors EXECUTE FUNCTION record_chain_write();
             CREATE TRIGGER recorded AFTER INSERT OR UPDATE ON chain_txs EXECUTE FUNCTION record_chain_write()";
        connection.execute_unprepared(recorded).await.unwrap();
        Self(connection)
    }

    /// Variable that names a node in the sessions of the database.
    fn named(database: &TestDatabase, name: &str) -> (&'static str, String) {
        let url = database.url();
        let joined = if url.contains('?') { '&' } else { '?' };
        ("PAYFERRY_DATABASE__URL", format!("{url}{joined}application_name={name}"))
    }

    /// Checks that both nodes wrote, each only while it owned the chain, and none with an older epoch after a newer one.
    async fn check(&self) {
        let count = async |sql: &str| number(&self.0, &format!("SELECT count(*) FROM {sql}")).await;
        for owner in ["n1", "n2"] {
            assert!(count(&format!("chain_writes WHERE owner = '{owner}'")).await > 0, "{owner} wrote");
        }
        let foreign = "chain_writes WHERE (writer = 'n1') <> (owner = 'n1')";
        assert_eq!(count(foreign).await, 0, "writes of a node that was not the owner");
        let older =
            "(SELECT epoch, lag(epoch) OVER (ORDER BY number) AS before FROM chain_writes) writes WHERE epoch < before";
        assert_eq!(count(older).await, 0, "an older epoch after a newer one");
    }
}

/// The owner of the chain freezes between two steps of a settlement, and thaws when another node has settled the payment.
#[tokio::test(flavor = "multi_thread")]
async fn settlement_of_a_node_that_freezes_between_two_steps_is_finished_once() {
    let fixture = Fixture::new().await;
    let writes = ChainWrites::record(&fixture.outside.database).await;
    let steps = short_or_long(&["stored"][..], &STEPS[..]);
    for (done, step) in steps.iter().enumerate() {
        let until = fixture.outside.folder.path().join(format!("continue-after-{step}"));
        let env = vec![
            (HOLD_AFTER, (*step).to_owned()),
            (HOLD_UNTIL, until.to_str().unwrap().to_owned()),
            ChainWrites::named(&fixture.outside.database, "n1"),
        ];
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
        // The settlement continues, too.
        std::fs::write(&until, "").unwrap();
        nodes.node(0).process.signal("CONT");
        ends_as_gone(nodes.node(0));
        let events = second.events(id).await;
        let settled = events.iter().filter(|name| *name == "payment.settled").count();
        assert_eq!(settled, 1, "{step}: {events:?}");
        let (vault, treasury) = fixture.outside.chains[0].holdings(&fixture.psp_id, Token::Usdc).await;
        let paid = i64::try_from(done + 1).unwrap() * 10_000_000;
        assert_eq!(vault + treasury, paid, "{step}: a payment is settled once");
        nodes.node(1).process.stop();
    }
    writes.check().await;
}

/// The chain gets another owner while the settler of the first one is between two steps. Then the settler continues.
#[tokio::test(flavor = "multi_thread")]
async fn write_of_an_owner_that_was_replaced_is_refused() {
    let fixture = Fixture::new().await;
    let until = fixture.outside.folder.path().join("continue");
    let env = vec![
        (HOLD_AFTER, "batched".to_owned()),
        (HOLD_UNTIL, until.to_str().unwrap().to_owned()),
        ChainWrites::named(&fixture.outside.database, "n1"),
    ];
    let writes = ChainWrites::record(&fixture.outside.database).await;
    let mut nodes = Nodes::start_with(&fixture.binary, &fixture.outside.folder, 2, env).await;
    let psp = fixture.psp(nodes.node(0).api_url()).await;
    let operator = fixture.operator(nodes.node(0).operator_url());
    let ids = both_ready(&operator).await;
    let payment = initiate(&psp, "replaced").await;
    fixture.pay(&payment).await;
    let process = &nodes.node(0).process;
    let held = async || expect(process.log(), |log| log.contains("held after batched"));
    eventually("the settlement is held", held).await;
    // As the claim of another node, which commits when the owner's next writes wait for it.
    let connection = fixture.outside.database.connect().await;
    let claiming = fixture.outside.database.connect().await.begin().await.unwrap();
    let claim = format!("UPDATE leases SET owner = '{}', epoch = epoch + 1 WHERE name = 'chain:base'", ids["n2"]);
    claiming.execute_unprepared(&claim).await.unwrap();
    std::fs::write(&until, "").unwrap();
    let waiting = async || {
        let sql =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        expect(number(&connection, sql).await, |count| *count > 0)
    };
    eventually("a write of the owner waits", waiting).await;
    claiming.commit().await.unwrap();
    let refused = async || expect(operator.metric("payferry_fence_lost_total").await, |count| *count > 0.0);
    eventually("the write is refused", refused).await;
    psp.until_status(payment["payment_id"].as_str().unwrap(), "settled").await;
    // The first node goes on with its other work.
    let after = initiate(&psp, "after").await;
    fixture.pay(&after).await;
    psp.until_status(after["payment_id"].as_str().unwrap(), "settled").await;
    let (vault, treasury) = fixture.outside.chains[0].holdings(&fixture.psp_id, Token::Usdc).await;
    assert_eq!(vault + treasury, 20_000_000, "each payment is settled once");
    writes.check().await;
    nodes.stop();
}
