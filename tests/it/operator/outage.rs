//! The operator's view during a database outage, when it is needed most.

use crate::prelude::*;

#[tokio::test]
async fn outage_is_listed_and_the_state_in_memory_is_shown() {
    let service = ServiceFixture::start_with_chains().await;
    let id: PaymentId = service.app.add_payment().await.id().parse().unwrap();
    service.quarantine(id).await;
    service.app.state.system.database().clone().close().await.unwrap();
    let overview = service.get("/ops/overview").await.ok(200);
    let notified = &overview.json;
    let in_memory = json!({ "readiness/ready": false, "readiness/database/reads": false, "webhooks": null,
        "quarantined/0/id": id.to_string(), "incidents/0/name": id.to_string(), "tree/root/state": "running" });
    assert_has(notified, in_memory);
    let chains = notified["chains"].as_array().unwrap();
    assert!(chains.len() == 3 && chains.iter().all(|chain| chain["head_number"].is_u64()), "{notified:#}");
    for status in ["queued", "submitted", "mined"] {
        let known = chains.iter().filter(|chain| chain["settler"].as_object().unwrap()[status] != Value::Null);
        assert_eq!(known.count(), 0, "{notified:#}");
    }

    let page = service.get("/ops").await.ok(200);
    page.assert_shows(&[
        "The database does not answer.",
        "id=\"node-root-root\"",
        "id=\"chain-base\"",
        "Backlog unknown",
    ]);
    page.assert_shows(&[&format!("id=\"quarantined-{id}\"")]);
    let chain = service.get("/ops/view/chains/base").await;
    assert!(chain.status == 200 && chain.text().contains("Read up to"), "{}", chain.text());
    // The outage is listed and hides nothing that is in memory.
    let stuck = service.get("/ops/stuck").await.ok(200);
    let kinds = stuck["kinds"].as_array().unwrap();
    assert_eq!(kinds[0]["kind"], "database", "{kinds:#?}");
    let unread = stuck["unread"].as_array().unwrap();
    for kind in ["in_review", "sending_overdue", "operation_overdue", "check_overdue", "webhooks_delayed"] {
        assert!(unread.contains(&json!(kind)), "{kind} in {unread:?}");
        assert!(kinds[0]["items"][0]["reason"].as_str().unwrap().contains(kind), "{kinds:#?}");
        let alone = service.get(&format!("/ops/stuck?kind={kind}")).await;
        assert_eq!(alone.status, 503, "the state is unknown: {}", alone.text());
    }
    assert!(!unread.contains(&json!("quarantined")) && !unread.contains(&json!("chain")), "{unread:?}");
    let quarantined = kinds.iter().find(|kind| kind["kind"] == "quarantined").unwrap();
    assert_eq!(quarantined["items"][0]["id"], id.to_string(), "{kinds:#?}");
    assert_eq!(
        stuck["total"]["counted"],
        kinds.iter().filter_map(|kind| kind["total"]["counted"].as_u64()).sum::<u64>()
    );
    assert_eq!(service.get("/ops/stuck?kind=quarantined").await["kinds"][0]["items"][0]["id"], id.to_string());
    assert_eq!(service.get("/ops/stuck?kind=database").await["kinds"][0]["items"][0]["id"], "database");
    // The pending write only follows from the outage, so it is no entry of its own.
    let hindered = async || {
        let alone = service.get("/ops/stuck?kind=journal_hindered").await;
        (alone["kinds"][0]["items"][0]["id"] == "journal").then_some(())
    };
    until("the journal is hindered", hindered).await;
    let kinds = service.get("/ops/stuck").await["kinds"].clone();
    assert!(!column(&kinds, "kind").contains(&json!("journal_hindered")), "{kinds:#}");

    let page = service.get("/ops/view/stuck").await.ok(200);
    page.assert_shows(&["id=\"database-database\"", &format!("id=\"quarantined-{id}\"")]);
    assert_eq!(service.get("/ops/view/stuck?kind=in_review").await.status, 503);
}
