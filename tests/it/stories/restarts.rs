//! Failing actors.

use payferry_runtime::observe::ActorKind;

use crate::prelude::*;
use crate::stage::{Client, Stage, Transfer, on_every_stage};

on_every_stage!(panics_thrice_and_completes, quarantined_and_released,);

/// A payment that panics is restarted and completes.
async fn panics_thrice_and_completes<S: Stage>(stage: &S, psp: &Client) {
    let id = psp.payment("10", Token::Usdc, Chain::Base).await;
    for _ in 0..3 {
        stage.panic(&id).await;
    }
    stage.pay(&id, Transfer::exact()).await;
    psp.until_status(&id, "settled").await;
    let view = stage.system().observe();
    assert_eq!((view.restarts[&ActorKind::Payment], view.payments_quarantined), (3, 0));
    let incidents = stage.system().log().latest_of(ActorKind::Payment, &id, 4);
    assert_eq!(incidents.len(), 3);
    assert!(incidents.iter().all(|incident| incident.reason.contains("on purpose")), "{incidents:?}");
}

/// A payment that keeps panicking is quarantined, and other payments continue.
async fn quarantined_and_released<S: Stage>(stage: &S, psp: &Client) {
    let bad = psp.payment("10", Token::Usdc, Chain::Base).await;
    let good = psp.payment("10", Token::Usdc, Chain::Base).await;
    for _ in 0..4 {
        stage.panic(&bad).await;
    }
    stage.pay(&bad, Transfer::exact()).await;
    stage.pay(&good, Transfer::exact()).await;
    psp.until_status(&good, "settled").await;
    let bad_id: PaymentId = bad.parse().unwrap();
    assert!(stage.system().is_quarantined(bad_id), "visible to operators");
    assert_eq!(psp.read(&bad).await["status"], "pending");
    let (status, problem) = psp.call(Method::POST, &format!("/payments/{bad}/cancel"), Value::Null).await;
    assert_eq!((status.as_u16(), &problem["code"]), (503, &json!("payment_quarantined")));

    // After its release the payment applies the transfer that arrived meanwhile.
    assert!(stage.system().release(bad_id, Vec::new()).await.unwrap());
    psp.until_status(&bad, "settled").await;
}
