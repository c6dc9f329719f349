//! `/healthz` and `/readyz`.

use reqwest::Method;
use serde_json::json;

use super::{Desk, reply};

#[tokio::test]
async fn readiness_names_every_part() {
    let desk = Desk::start_with_chains().await;
    assert_eq!(reply(desk.bare(Method::GET, "/healthz")).await.json, json!({ "status": "ok" }));
    let ready = |desk: &Desk| reply(desk.bare(Method::GET, "/readyz"));
    let well =
        desk.until("it is ready", async |desk| Some(ready(desk).await).filter(|reply| reply.status == 200)).await;
    insta::assert_json_snapshot!("ready", well.redacted());
    for chain in well.json["chains"]["each"].as_array().unwrap() {
        assert!(chain["head_age_ms"].as_i64().unwrap() < 30_000, "{chain}");
    }
    desk.app.state.system.database().clone().close().await.unwrap();
    let away = ready(&desk).await;
    assert_eq!(away.status, 503);
    assert_eq!(away.json["ready"], false);
    assert_eq!(away.json["database"]["reads"], false);
    assert_eq!(away.json["payments"]["ok"], true);
    // How long they pass for usable depends on how long closing took: their watchers cannot write any more either.
    assert_eq!(away.json["chains"]["each"].as_array().unwrap().len(), 3);
    desk.stop().await;
}

#[tokio::test]
async fn a_service_without_a_usable_chain_is_not_ready() {
    let desk = Desk::start().await;
    let asked = async |desk: &Desk| Some(reply(desk.bare(Method::GET, "/readyz")).await);
    let refused = desk
        .until("payments are taken up", async |desk| asked(desk).await.filter(|r| r.json["payments"]["ok"] == true));
    let refused = refused.await;
    assert_eq!(refused.status, 503);
    insta::assert_json_snapshot!("not_ready", refused.redacted());
    desk.stop().await;
}
