//! Overload: new payments are refused at once, and the operator sees it.

use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use payferry_harness::database::Lock;

use crate::prelude::*;

/// Longest time until a new payment is refused. A release build needs less than 50 ms.
const REFUSED_WITHIN: Duration = Duration::from_secs(1);
/// Requests at once: more than the limit of a service that was idle before.
const PAYMENTS: usize = 8;

async fn limit(service: &ServiceFixture) -> Value {
    service.get("/ops/overview").await["admission"]["limit_per_second"].clone()
}

#[tokio::test]
async fn overloaded_service_refuses_new_payments_and_answers_repetitions() {
    let service = ServiceFixture::start_with_chains().await;
    if service.app.database.is_postgres() {
        // It ends a statement that waits for a lock, so a lock is an outage there, which is no overload.
        return;
    }
    let merchant_id = service.app.add_merchant().await;
    let body = json!({ "merchant_id": merchant_id, "amount": "10", "currency": "USDC", "chain": "base" });
    let path = "/payments/initiate";
    let first = service.app.post_keyed("accepted", path, &body).await.ok(201);
    assert_eq!(limit(&service).await, Value::Null);

    // A commit takes long, and blocks wait behind it.
    let held = service.app.database.lock(Lock::Writes).await;
    let waiting = service.app.post_keyed("waiting", path, &body);
    let overloaded = async {
        until("new payments are limited", async || limit(&service).await.is_number().then_some(())).await;
        let since = Instant::now();
        let keys: Vec<String> = (0..PAYMENTS).map(|number| format!("new-{number}")).collect();
        let mut posts: FuturesUnordered<_> = keys.iter().map(|key| service.app.post_keyed(key, path, &body)).collect();
        // Those that are admitted wait for the commit.
        let refused = posts.next().await.unwrap();
        assert!(since.elapsed() < REFUSED_WITHIN, "{:?}", since.elapsed());
        refused.assert_problem(503, "overloaded");
        assert!(refused.header("retry-after").is_some_and(|secs| secs.parse::<u64>().unwrap() > 0));
        service.app.post_keyed("accepted", path, &body).await.assert_replays(&first);
        let page = service.get("/ops").await;
        assert!(page.text().contains("refused as overloaded"), "{}", page.text());
        assert!(service.get("/ops/overview").await["admission"]["refused"].as_u64().unwrap() > 0);
        held.release().await;
        posts.collect::<Vec<_>>().await
    };
    let (waiting, admitted) = tokio::join!(waiting, overloaded);
    let made = 2 + admitted.iter().filter(|reply| reply.status == 201).count();
    assert_eq!(waiting.ok(201)["status"], "pending");
    // Nothing was made of a refusal.
    assert_eq!(service.app.get("/payments").await["total"], made);
    until("there is no limit", async || limit(&service).await.is_null().then_some(())).await;
    service.app.add_payment().await;
}
