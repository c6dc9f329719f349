//! Nodes on a real database.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use payferry_domain::Chain;
use payferry_entities::{Database, query_all};
use payferry_harness::database::TestDatabase;
use payferry_harness::{eventually, expect};

use crate::{Job, JoinError, Lease, LeaseHolder, LeaseKind, LeaseName, Node, NodeConfig, NodeState};

/// Records the leases of a node.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<LeaseName>>>);

#[async_trait]
impl LeaseHolder for Recorder {
    async fn gain(&self, leases: Vec<Lease>) -> Vec<LeaseName> {
        self.0.lock().extend(leases.iter().map(Lease::name));
        Vec::new()
    }

    async fn lose(&self, names: Vec<LeaseName>) {
        self.0.lock().retain(|name| !names.contains(name));
    }
}

fn config(name: &str) -> NodeConfig {
    NodeConfig { name: name.to_owned(), is_shared: true, ..NodeConfig::alone([Chain::Base]) }
}

async fn join(database: &TestDatabase, name: &str) -> (Node, Recorder) {
    let database = Database::open_shared(&[database.url()]).await.unwrap();
    let (node, recorder) = (Node::join(database, config(name)).await.unwrap(), Recorder::default());
    node.follow(Arc::new(recorder.clone())).await;
    node.ready();
    (node, recorder)
}

async fn until_held(recorder: &Recorder, count: usize) {
    let held = async || expect(recorder.0.lock().len(), |held| *held == count);
    eventually(format!("the node holds {count} leases"), held).await;
}

async fn until_known(node: &Node, count: usize) {
    let known = async || {
        let ready = node.members().iter().filter(|member| member.state == NodeState::Ready).count();
        expect(ready, |ready| *ready == count)
    };
    eventually(format!("{count} nodes are ready"), known).await;
}

fn total() -> usize {
    LeaseName::all(&[Chain::Base]).len()
}

#[tokio::test]
async fn node_that_runs_alone_holds_every_lease_and_a_later_one_gets_new_epochs() {
    let test_database = TestDatabase::create().await;
    let database = Database::open(test_database.url()).await.unwrap();
    let first = Node::join(database.clone(), NodeConfig::alone([Chain::Base])).await.unwrap();
    assert_eq!(first.leases().all().len(), total());
    assert!(first.leases().does(Job::Ledger) && !first.courier().has_receivers());
    let later = Node::join(database.clone(), NodeConfig::alone([Chain::Base, Chain::Polygon])).await.unwrap();
    let name = LeaseName::Chain(Chain::Base);
    let epoch = |node: &Node| node.leases().get(name).unwrap().epoch();
    assert_eq!((epoch(&first), epoch(&later), later.leases().count(LeaseKind::Chain)), (1, 2, 2));
    let rows = query_all(database.reader(), "SELECT state FROM nodes ORDER BY id", []).await.unwrap();
    let states: Vec<String> = rows.iter().map(|row| row.try_get_by_index(0).unwrap()).collect();
    assert_eq!(states, ["gone", "joining"]);
    for name in LeaseName::all(&Chain::ALL) {
        assert_eq!(name.to_string().parse(), Ok(name));
    }
    for unknown in ["", "shard", "shard:256", "bucket:64", "job:nap", "chain:doge"] {
        assert!(unknown.parse::<LeaseName>().is_err(), "{unknown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_share_hand_over_and_take_over() {
    let database = TestDatabase::postgres().await;
    let (first, of_first) = join(&database, "n1").await;
    assert_eq!(of_first.0.lock().len(), total());
    let (second, of_second) = join(&database, "n2").await;
    assert_eq!(of_second.0.lock().len(), 0, "no lease is free");
    until_known(&first, 2).await;
    until_known(&second, 2).await;
    // A draining node hands everything over.
    first.drain(Duration::from_secs(10)).await;
    until_held(&of_second, total()).await;
    assert_eq!(of_first.0.lock().len(), 0);
    first.leave().await.unwrap();
    drop(first);
    // A node that ends without a word: another one gets its leases after the TTL.
    let (third, of_third) = join(&database, "n3").await;
    until_known(&third, 2).await;
    drop((second, of_second));
    until_held(&of_third, total()).await;
    let lost: Vec<String> = third.lost().await.unwrap().into_iter().map(|node| node.name).collect();
    assert_eq!(lost, ["n2"], "the first node ended by itself");
    // A node that starts again need not wait: it declares the earlier node with its name gone.
    let ended = third.clone();
    let (_again, of_again) = join(&database, "n3").await;
    assert_eq!(of_again.0.lock().len(), total());
    let (back, _) = join(&database, "n2").await;
    assert_eq!(back.lost().await.unwrap().len(), 0, "it has started again");
    assert!(ended.ended().await.contains("another node with its name has started"));
    // Its settings must be those of the others.
    let other = Database::open_shared(&[database.url()]).await.unwrap();
    let differs = NodeConfig { config_digest: "other".to_owned(), ..config("n4") };
    assert!(matches!(Node::join(other, differs).await, Err(JoinError::Differs(name)) if name == "n2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_skips_a_lease_of_a_transaction_in_progress() {
    let database = TestDatabase::postgres().await;
    let alone = Database::open(database.url()).await.unwrap();
    let node = Node::join(alone.clone(), NodeConfig::alone([Chain::Base])).await.unwrap();
    node.leave().await.unwrap();
    let transaction = alone.begin().await.unwrap();
    let fence = "SELECT 1 FROM leases WHERE name = 'chain:base' FOR SHARE";
    query_all(&transaction, fence, []).await.unwrap();
    let (second, of_second) = join(&database, "n2").await;
    assert_eq!(of_second.0.lock().len(), total() - 1);
    assert!(!second.leases().holds(LeaseName::Chain(Chain::Base)));
    transaction.rollback().await.unwrap();
    until_held(&of_second, total()).await;
}
