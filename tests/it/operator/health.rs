//! `/healthz` and `/readyz`.

use payferry_devchain::Faults;
use payferry_domain::Chain;
use reqwest::Method;
use serde_json::json;

use super::{ServiceFixture, reply};

#[tokio::test]
async fn readiness_names_every_component() {
    let service = ServiceFixture::start_with_chains().await;
    assert_eq!(reply(service.bare(Method::GET, "/healthz")).await.json, json!({ "status": "ok" }));
    let ready = |service: &ServiceFixture| reply(service.bare(Method::GET, "/readyz"));
    let well = service
        .until("it is ready", async |service| Some(ready(service).await).filter(|reply| reply.status == 200))
        .await;
    insta::assert_json_snapshot!("ready", well.redacted());
    for chain in well.json["chains"]["each"].as_array().unwrap() {
        assert!(chain["head_age_ms"].as_i64().unwrap() < 30_000, "{chain}");
    }
    service.app.state.system.database().clone().close().await.unwrap();
    let away = ready(&service).await;
    assert_eq!(away.status, 503);
    assert_eq!(away.json["ready"], false);
    assert_eq!(away.json["database"]["reads"], false);
    assert_eq!(away.json["payments"]["ok"], true);
    // Each chain's state depends on how long the close took, because their watchers cannot write any more either.
    assert_eq!(away.json["chains"]["each"].as_array().unwrap().len(), 3);
    service.stop().await;
}

#[tokio::test]
async fn service_without_a_usable_chain_is_not_ready() {
    let service = ServiceFixture::start().await;
    let asked = async |service: &ServiceFixture| Some(reply(service.bare(Method::GET, "/readyz")).await);
    let refused = service.until("payments are loaded", async |service| {
        asked(service).await.filter(|r| r.json["payments"]["ok"] == true)
    });
    let refused = refused.await;
    assert_eq!(refused.status, 503);
    insta::assert_json_snapshot!("not_ready", refused.redacted());
    service.stop().await;
}

#[tokio::test]
async fn unreadable_chains_prevent_readiness_until_one_is_readable() {
    let service = ServiceFixture::start_with_chains().await;
    let set = |chain: Chain, faults: Faults| service.app.env().chain(chain).devchain().set_faults(faults);
    let when = async |service: &ServiceFixture, status: u16| {
        let asked = async |service: &ServiceFixture| {
            Some(reply(service.bare(Method::GET, "/readyz")).await).filter(|r| r.status == status)
        };
        service.until(&format!("it answers {status}"), asked).await.json
    };
    when(&service, 200).await;
    for chain in Chain::ALL {
        set(chain, Faults { unavailable_rate: 1.0, ..Faults::default() });
    }
    let refused = when(&service, 503).await;
    assert_eq!(refused["ready"], false, "{refused:#}");
    assert_eq!((&refused["chains"]["ok"], &refused["chains"]["usable"]), (&json!(false), &json!(0)), "{refused:#}");
    let each = refused["chains"]["each"].as_array().unwrap();
    assert!(each.len() == 3 && each.iter().all(|chain| chain["state"] != "ok"), "{refused:#}");
    assert_eq!((&refused["database"]["ok"], &refused["payments"]["ok"]), (&json!(true), &json!(true)), "{refused:#}");

    set(Chain::Base, Faults::default());
    let well = when(&service, 200).await;
    assert_eq!((&well["chains"]["ok"], &well["chains"]["usable"]), (&json!(true), &json!(1)), "{well:#}");
    let ok = well["chains"]["each"].as_array().unwrap().iter().filter(|chain| chain["state"] == "ok");
    assert_eq!(ok.map(|chain| &chain["chain"]).collect::<Vec<_>>(), ["base"], "{well:#}");
    service.stop().await;
}
