//! Restarts and upgrades of nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use futures::future::join_all;
use payferry_harness::short_or_long;

use super::*;

/// Restarts each node in turn while clients initiate payments through the balancer without retries.
#[tokio::test(flavor = "multi_thread")]
async fn rolling_restart_fails_no_request() {
    let fixture = Fixture::new().await;
    let mut nodes = fixture.nodes(3).await;
    let psp = Arc::new(fixture.psp(&nodes.api_url()).await);
    initiate(&psp, "first").await;
    let (over, body) = (Arc::new(AtomicBool::new(false)), psp.initiation("10", Token::Usdc, "base"));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (psp, over, body) = (Arc::clone(&psp), Arc::clone(&over), body.clone());
            tokio::spawn(async move {
                let mut times = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let (key, since) = (format!("{client}-{}", times.len()), Instant::now());
                    let (status, answer) =
                        psp.try_call(Method::POST, "/payments/initiate", &body, Some(&key)).await.expect("an answer");
                    assert!(status.is_success(), "{status} {answer}");
                    times.push((since, since.elapsed()));
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                times
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(short_or_long(3, 20))).await;
    let restarted_at = Instant::now();
    for number in 0..3 {
        nodes.restart(number).await;
    }
    over.store(true, Ordering::Relaxed);
    let times: Vec<_> = join_all(clients).await.into_iter().flat_map(|times| times.unwrap()).collect();
    let (before, during): (Vec<_>, Vec<_>) = times.iter().copied().partition(|(since, _)| *since < restarted_at);
    let (before, during) = (p99(before), p99(during));
    // The starts of new processes keep the processors of a small machine busy.
    println!("{} requests, none failed; p99 {before:?} before the restarts and {during:?} meanwhile", times.len());
    assert_eq!(psp.payments().await.len(), times.len() + 1);
    nodes.stop();
}

/// 99th percentile of the durations.
fn p99(times: Vec<(Instant, Duration)>) -> Duration {
    let mut durations: Vec<Duration> = times.into_iter().map(|(_, took)| took).collect();
    durations.sort_unstable();
    durations[(durations.len() * 99).div_ceil(100) - 1]
}
