//! Actors that fail.

use payferry_domain::{Chain, PaymentId, Token};
use reqwest::Method;
use serde_json::{Value, json};

use super::story;

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_panics_is_restarted_and_completes() {
    let (app, world) = story().await;
    let id = world.payment("10", Token::Usdc, Chain::Base).await;
    for _ in 0..3 {
        world.ok(Method::POST, &format!("/sandbox/payments/{id}/panic"), Value::Null).await;
    }
    world.pay(&id, json!({})).await;
    world.until_status(&id, "settled").await;
    let view = app.system().observe();
    assert_eq!(view.restarts[&payferry_actors::observe::ActorKind::Payment], 3);
    assert!(view.incidents.iter().any(|incident| incident.name == id && incident.reason.contains("on purpose")));
    assert!(view.quarantined.is_empty());
    app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_keeps_panicking_is_quarantined_and_its_siblings_go_on() {
    let (app, world) = story().await;
    let bad = world.payment("10", Token::Usdc, Chain::Base).await;
    let good = world.payment("10", Token::Usdc, Chain::Base).await;
    for _ in 0..4 {
        world.ok(Method::POST, &format!("/sandbox/payments/{bad}/panic"), Value::Null).await;
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    world.pay(&bad, json!({})).await;
    world.pay(&good, json!({})).await;
    world.until_status(&good, "settled").await;
    let bad_id: PaymentId = bad.parse().unwrap();
    assert!(app.system().observe().quarantined.contains_key(&bad_id), "visible to operators");
    assert_eq!(world.read(&bad).await["status"], "pending");
    let (status, problem) = world.call(Method::POST, &format!("/payments/{bad}/cancel"), Value::Null).await;
    assert_eq!((status.as_u16(), &problem["code"]), (503, &json!("payment_quarantined")));

    // An operator lets it go on: the transfer that came meanwhile was not lost.
    assert!(app.system().release(bad_id));
    world.until_status(&bad, "settled").await;
    app.stop().await;
}
