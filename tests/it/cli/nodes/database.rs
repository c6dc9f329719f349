//! Faults of the database that nodes share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join_all;
use payferry_harness::pair::Pair;

use super::*;

/// The primary dies under load, and the standby is promoted.
#[tokio::test(flavor = "multi_thread")]
async fn failover_of_the_database_moves_no_lease_and_loses_nothing() {
    let pair = Arc::new(tokio::task::spawn_blocking(Pair::with_standby).await.unwrap());
    pair.create_database(DATABASE).await;
    let mut outside = Outside::on(TestDatabase::sqlite(), &[Chain::Base]).await;
    let urls: Vec<toml::Value> = pair.urls(DATABASE).into_iter().map(Into::into).collect();
    outside.folder.settings["database"].as_table_mut().unwrap().insert("urls".to_owned(), urls.into());
    let fixture = Fixture::on(outside).await;
    let mut nodes = fixture.nodes(2).await;
    let operator = fixture.operator(nodes.node(0).operator_url());
    let psp = Arc::new(fixture.psp(&nodes.api_url()).await);
    let ids = both_ready(&operator).await;
    hand_over(&operator, "chain:base", &ids["n2"]).await;
    let before = all_leases(&operator).await;
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (psp, over) = (Arc::clone(&psp), Arc::clone(&over));
            tokio::spawn(async move {
                let mut made = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let payment = initiate(&psp, &format!("{client}-{}", made.len())).await;
                    made.push(payment["payment_id"].as_str().unwrap().to_owned());
                }
                made
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let control = async |arguments: &'static [&'static str]| {
        let pair = Arc::clone(&pair);
        tokio::task::spawn_blocking(move || pair.control(arguments)).await.unwrap()
    };
    control(&["kill", "p1"]).await;
    control(&["promote", "p2"]).await;
    let payment = initiate(&psp, "after").await;
    fixture.pay(&payment).await;
    psp.until_status(payment["payment_id"].as_str().unwrap(), "settled").await;
    over.store(true, Ordering::Relaxed);
    let made: Vec<String> = join_all(clients).await.into_iter().flat_map(Result::unwrap).collect();
    println!("{} payments acknowledged", made.len());
    for id in &made {
        assert_eq!(psp.read(id).await["id"], id.as_str());
    }
    assert_eq!(all_leases(&operator).await, before, "no lease moves");
    nodes.stop();
}
