//! `/healthz` and `/readyz`.

use payferry_devchain::Faults;

use super::reply;
use crate::prelude::*;

#[tokio::test]
async fn readiness_names_every_component() {
    let service = ServiceFixture::start_with_chains().await;
    assert_eq!(reply(service.bare(Method::GET, "/healthz")).await.json, json!({ "status": "ok" }));
    let well = service.get_until("/readyz", |reply| reply.status == 200).await;
    insta::assert_json_snapshot!("ready", well.redacted());
    for chain in well["chains"]["each"].as_array().unwrap() {
        assert!(chain["head_age_ms"].as_i64().unwrap() < 30_000, "{chain}");
    }
    service.app.state.system.database().clone().close().await.unwrap();
    let away = reply(service.bare(Method::GET, "/readyz")).await.ok(503);
    assert_has(&away, json!({ "ready": false, "database/reads": false, "payments/ok": true }));
    // Each chain's state depends on how long the close took, because their watchers cannot write any more either.
    assert_eq!(away["chains"]["each"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn draining_node_is_not_ready() {
    let service = ServiceFixture::start_with_chains().await;
    let well = service.get_until("/readyz", |reply| reply.status == 200).await;
    assert_has(&well["node"], json!({ "ok": true, "draining": false }));
    service.app.state.config.draining.begin();
    let refused = reply(service.bare(Method::GET, "/readyz")).await.ok(503);
    assert_has(&refused, json!({ "ready": false, "node": { "ok": false, "draining": true } }));
    assert_has(&refused, json!({ "database/ok": true, "payments/ok": true, "chains/ok": true }));
    service.get("/ops").await.assert_shows(&["not ready", "The node is draining and stops soon."]);
}

#[tokio::test]
async fn service_without_a_usable_chain_is_not_ready() {
    let service = ServiceFixture::start().await;
    let refused = service.get_until("/readyz", |reply| reply["payments"]["ok"] == true).await.ok(503);
    insta::assert_json_snapshot!("not_ready", refused.redacted());
}

#[tokio::test]
async fn unreadable_chains_prevent_readiness_until_one_is_readable() {
    let service = ServiceFixture::start_with_chains().await;
    let set = |chain: Chain, faults: Faults| service.app.env().chain(chain).devchain().set_faults(faults);
    let when = async |status: u16| service.get_until("/readyz", |reply| reply.status == status).await.json;
    when(200).await;
    for chain in Chain::ALL {
        set(chain, Faults { unavailable_rate: 1.0, ..Faults::default() });
    }
    let refused = when(503).await;
    assert_has(&refused, json!({ "ready": false, "chains/ok": false, "chains/usable": 0 }));
    let each = refused["chains"]["each"].as_array().unwrap();
    assert!(each.len() == 3 && each.iter().all(|chain| chain["state"] != "ok"), "{refused:#}");
    assert_has(&refused, json!({ "database/ok": true, "payments/ok": true }));

    set(Chain::Base, Faults::default());
    let well = when(200).await;
    assert_has(&well["chains"], json!({ "ok": true, "usable": 1 }));
    let ok = well["chains"]["each"].as_array().unwrap().iter().filter(|chain| chain["state"] == "ok");
    assert_eq!(ok.map(|chain| &chain["chain"]).collect::<Vec<_>>(), ["base"], "{well:#}");
}
