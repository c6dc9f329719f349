//! Nodes at work: any node answers, whichever node does the work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use payferry_harness::short_or_long;
use sea_orm::ConnectionTrait;

use super::*;
use crate::sse::Events;

/// Clients that write at the same time.
const CLIENTS: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn any_node_takes_any_request_whichever_node_does_the_work() {
    let fixture = Fixture::new().await;
    let mut nodes = fixture.nodes(2).await;
    let urls = [0, 1].map(|number| {
        let node = nodes.node(number);
        (node.api_url().to_owned(), node.operator_url().to_owned())
    });
    let [first, second] = [fixture.psp(&urls[0].0).await, fixture.psp(&urls[1].0).await];
    let operator = fixture.operator(&urls[1].1);
    let ids = both_ready(&operator).await;
    // The first node claimed everything. The second one reads the chain and signs on it.
    hand_over(&operator, "chain:base", &ids["n2"]).await;
    // Only the node that works on the chain reports it: alerts about the other one would never end.
    let balance = r#"payferry_settler_gas_balance_gwei{chain="base"}"#;
    let balances = async || join_all([&fixture.operator(&urls[0].1), &operator].map(|node| node.metric(balance))).await;
    let reported = async || {
        expect(format!("{:?}", balances().await), |found| found.starts_with("[NaN, ") && !found.contains(", 0.0"))
    };
    eventually("only the second node reports the gas balance", reported).await;
    for (psp, key) in [(&first, "at-the-owner"), (&second, "at-the-other-node")] {
        let payment = initiate(psp, key).await;
        fixture.pay(&payment).await;
        let id = payment["payment_id"].as_str().unwrap();
        for psp in [&first, &second] {
            psp.until_status(id, "settled").await;
        }
        assert_eq!(first.events(id).await, second.events(id).await);
    }
    // A command on a payment that the other node runs, and a read there.
    let payment = initiate(&first, "cancelled").await;
    let id = payment["payment_id"].as_str().unwrap();
    let cancelled = second.ok(Method::POST, &format!("/payments/{id}/cancel"), Value::Null).await;
    assert_eq!(cancelled["status"], "failed", "{cancelled}");
    assert_eq!(first.read(id).await["status"], "failed");
    // Each event is delivered once, although both nodes publish events.
    let expected = first.feed().await.len();
    fixture.receiver.until(expected).await;
    assert_eq!(fixture.receiver.deliveries().len(), expected);
    // A page of one node asks the other.
    let page = reqwest::Client::new().get(format!("{}/ops/view/nodes", urls[0].1));
    let page = page.bearer_auth(&fixture.outside.folder.operator_token).send().await.unwrap().text().await.unwrap();
    for words in ["n1", "n2", "this node", "Live payments", "to n2"] {
        assert!(page.contains(words), "{words} in {page}");
    }
    assert!(!page.contains("missing:"), "{page}");
    nodes.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn node_with_other_settings_and_service_without_a_name_are_refused() {
    let mut fixture = Fixture::new().await;
    let folder = fixture.outside.folder.path().to_owned();
    let nodes = fixture.nodes(1).await;
    // Another master key.
    let master = folder.join("other.key");
    std::fs::write(&master, "ab".repeat(32)).unwrap();
    let env = [
        ("PAYFERRY_NODE__NAME", "n2"),
        ("PAYFERRY_SERVER__LISTEN", "127.0.0.1:0"),
        ("PAYFERRY_SERVER__OPERATOR_LISTEN", "127.0.0.1:0"),
        ("PAYFERRY_SECRETS__MASTER_KEY_FILE", master.to_str().unwrap()),
    ];
    let refused = fixture.binary.spawn(&fixture.outside.folder, &env).try_ready().unwrap_err();
    assert!(refused.contains("node n1 shares the database and has another configuration"), "{refused}");
    nodes.stop();
    // A node cannot use SQLite.
    let sqlite = format!("sqlite://{}?mode=rwc", folder.join("payferry.db").display());
    fixture.outside.folder.settings["database"]["url"] = sqlite.into();
    fixture.outside.folder.write();
    let refused = fixture.binary.spawn(&fixture.outside.folder, &env[..3]).try_ready().unwrap_err();
    assert!(refused.contains("only PostgreSQL can be shared by several nodes"), "{refused}");
}

/// Readers on every node, each with a cursor of its own, while payments are made on all nodes.
#[tokio::test(flavor = "multi_thread")]
async fn readers_on_every_node_miss_no_event() {
    let fixture = Fixture::new().await;
    let mut nodes = fixture.nodes(2).await;
    let urls = [0, 1].map(|number| nodes.node(number).api_url().to_owned());
    let psps = [Arc::new(fixture.psp(&urls[0]).await), Arc::new(fixture.psp(&urls[1]).await)];
    let over = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = psps
        .iter()
        .map(|psp| {
            let (psp, over) = (Arc::clone(psp), Arc::clone(&over));
            tokio::spawn(async move {
                let (mut seen, mut after) = (Vec::new(), String::new());
                loop {
                    let is_last = over.load(Ordering::Relaxed);
                    let page = psp.ok(Method::GET, &format!("/api/v1/events?limit=100{after}"), Value::Null).await;
                    let events = page["events"].as_array().unwrap();
                    seen.extend(events.iter().map(|event| event["event_id"].as_str().unwrap().to_owned()));
                    if let Some(next) = page["next_after"].as_str() {
                        after = format!("&after={next}");
                    }
                    if is_last && events.is_empty() {
                        return seen;
                    }
                }
            })
        })
        .collect();
    let each = short_or_long(30, 300);
    let writers = (0..CLIENTS).map(|client| {
        let [psp, other] = [0, 1].map(|place| Arc::clone(&psps[(client + place) % 2]));
        async move {
            for number in 0..each {
                let payment = initiate(&psp, &format!("{client}-{number}")).await;
                let id = payment["payment_id"].as_str().unwrap();
                other.ok(Method::POST, &format!("/payments/{id}/cancel"), Value::Null).await;
            }
        }
    });
    join_all(writers).await;
    over.store(true, Ordering::Relaxed);
    let feed: Vec<String> =
        psps[0].feed().await.iter().map(|event| event["event_id"].as_str().unwrap().to_owned()).collect();
    assert!(feed.len() >= CLIENTS * each, "{}", feed.len());
    for seen in join_all(readers).await {
        assert_eq!(seen.unwrap(), feed);
    }
    nodes.stop();
}

/// Opens the stream of a payment.
async fn stream(psp: &Psp, id: &str) -> Events {
    let request = reqwest::Client::new().get(format!("{}/payments/{id}/events", psp.url)).bearer_auth(&psp.api_key);
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    Events::of(status, &headers, response.bytes_stream())
}

/// Longest time until the stream of one node shows a change that another node made.
async fn longest_lag(fixture: &Fixture) -> Duration {
    let mut nodes = fixture.nodes(2).await;
    let urls = [0, 1].map(|number| nodes.node(number).api_url().to_owned());
    let [first, second] = [fixture.psp(&urls[0]).await, fixture.psp(&urls[1]).await];
    both_ready(&fixture.operator(nodes.node(0).operator_url())).await;
    let mut longest = Duration::ZERO;
    for number in 0..short_or_long(5, 50) {
        let payment = initiate(&first, &number.to_string()).await;
        let id = payment["payment_id"].as_str().unwrap();
        let mut stream = stream(&second, id).await;
        stream.until("the state", |event| event.name == "payment").await;
        first.ok(Method::POST, &format!("/payments/{id}/cancel"), Value::Null).await;
        let changed_at = Instant::now();
        stream.until("the end", |event| event.name == "end" && event.data == "failed").await;
        longest = longest.max(changed_at.elapsed());
    }
    nodes.stop();
    longest
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_of_another_node_is_late_by_at_most_a_second() {
    let longest = longest_lag(&Fixture::new().await).await;
    println!("{longest:?}");
    assert!(longest < Duration::from_secs(short_or_long(3, 1)), "{longest:?}");
}

/// Nodes find changes by polling.
#[tokio::test(flavor = "multi_thread")]
async fn stream_of_another_node_is_late_by_at_most_six_seconds_without_nudges() {
    let fixture = Fixture::new().await;
    let connection = fixture.outside.database.connect().await;
    connection.execute_unprepared("ALTER FUNCTION pg_notify(text, text) RENAME TO pg_notify_gone").await.unwrap();
    let longest = longest_lag(&fixture).await;
    println!("{longest:?}");
    assert!(longest > Duration::from_millis(100), "{longest:?}: a nudge was sent");
    assert!(longest < Duration::from_secs(short_or_long(9, 6)), "{longest:?}");
}

/// The effects of a command are carried out by the node that holds the payment, although it was not notified.
#[tokio::test(flavor = "multi_thread")]
async fn refund_requested_at_another_node_is_sent_without_nudges() {
    let fixture = Fixture::new().await;
    let connection = fixture.outside.database.connect().await;
    connection.execute_unprepared("ALTER FUNCTION pg_notify(text, text) RENAME TO pg_notify_gone").await.unwrap();
    let mut nodes = fixture.nodes(2).await;
    let urls = [0, 1].map(|number| nodes.node(number).api_url().to_owned());
    let [first, second] = [fixture.psp(&urls[0]).await, fixture.psp(&urls[1]).await];
    let id = fixture.underpaid(&first, "short").await;
    second.ok(Method::POST, &format!("/payments/{id}/refunds"), json!({ "address": REFUNDED_TO })).await;
    let requested_at = Instant::now();
    until_refunded(&second, &id).await;
    println!("sent {:?} after the request", requested_at.elapsed());
    nodes.stop();
}
