//! The operator's view during a database outage, when it is needed most.

use payferry_domain::PaymentId;
use serde_json::{Value, json};

use super::ServiceFixture;

/// Creates a quarantined payment and closes the database.
async fn cut_off() -> (ServiceFixture, String) {
    let service = ServiceFixture::start_with_chains().await;
    let merchant = service.app.add_merchant().await;
    let made = service.app.add_payment(&merchant).await;
    let id: PaymentId = made.json["payment_id"].as_str().unwrap().parse().unwrap();
    for _ in 0..4 {
        service.panic(id).await;
    }
    service.app.state.system.database().clone().close().await.unwrap();
    (service, id.to_string())
}

#[tokio::test]
async fn overview_during_an_outage_shows_the_state_in_memory() {
    let (service, id) = cut_off().await;
    let overview = service.get("/ops/overview").await;
    assert_eq!(overview.status, 200, "{}", overview.text());
    let notified = &overview.json;
    assert_eq!(
        (&notified["readiness"]["ready"], &notified["readiness"]["database"]["reads"]),
        (&json!(false), &json!(false))
    );
    assert_eq!((&notified["webhooks"], &notified["quarantined"][0]["id"]), (&Value::Null, &json!(id)));
    assert_eq!(
        (&notified["incidents"][0]["name"], &notified["tree"]["root"]["state"]),
        (&json!(id), &json!("running"))
    );
    let chains = notified["chains"].as_array().unwrap();
    assert!(chains.len() == 3 && chains.iter().all(|chain| chain["head_number"].is_u64()), "{notified:#}");
    for status in ["queued", "submitted", "mined"] {
        let known = chains.iter().filter(|chain| chain["settler"].as_object().unwrap()[status] != Value::Null);
        assert_eq!(known.count(), 0, "{notified:#}");
    }

    let page = service.get("/ops").await;
    assert_eq!(page.status, 200, "{}", page.text());
    for words in ["The database does not answer.", "id=\"node-root-root\"", "id=\"chain-base\"", "Backlog unknown"] {
        assert!(page.text().contains(words), "{words}: {}", page.text());
    }
    assert!(page.text().contains(&format!("id=\"quarantined-{id}\"")), "{}", page.text());
    let chain = service.get("/ops/view/chains/base").await;
    assert!(chain.status == 200 && chain.text().contains("Read up to"), "{}", chain.text());
    service.stop().await;
}

#[tokio::test]
async fn outage_is_listed_and_hides_nothing_that_is_in_memory() {
    let (service, id) = cut_off().await;
    let stuck = service.get("/ops/stuck").await;
    assert_eq!(stuck.status, 200, "{}", stuck.text());
    let kinds = stuck.json["kinds"].as_array().unwrap();
    assert_eq!(kinds[0]["kind"], "database", "{kinds:#?}");
    let unread = stuck.json["unread"].as_array().unwrap();
    for kind in ["in_review", "sending_overdue", "operation_overdue", "check_overdue", "webhooks_delayed"] {
        assert!(unread.contains(&json!(kind)), "{kind} in {unread:?}");
        assert!(kinds[0]["items"][0]["reason"].as_str().unwrap().contains(kind), "{kinds:#?}");
        let alone = service.get(&format!("/ops/stuck?kind={kind}")).await;
        assert_eq!(alone.status, 503, "the state is unknown: {}", alone.text());
    }
    assert!(!unread.contains(&json!("quarantined")) && !unread.contains(&json!("chain")), "{unread:?}");
    let quarantined = kinds.iter().find(|kind| kind["kind"] == "quarantined").unwrap();
    assert_eq!(quarantined["items"][0]["id"], id, "{kinds:#?}");
    assert_eq!(
        stuck.json["total"]["counted"],
        kinds.iter().filter_map(|kind| kind["total"]["counted"].as_u64()).sum::<u64>()
    );
    assert_eq!(service.get("/ops/stuck?kind=quarantined").await.json["kinds"][0]["items"][0]["id"], id);
    assert_eq!(service.get("/ops/stuck?kind=database").await.json["kinds"][0]["items"][0]["id"], "database");
    // The pending write is known too: its advice applies to exactly this case.
    let hindered = async |service: &ServiceFixture| {
        let kinds = service.get("/ops/stuck").await.json["kinds"].clone();
        kinds.as_array().unwrap().iter().any(|kind| kind["kind"] == "journal_hindered").then_some(())
    };
    service.until("the journal is hindered", hindered).await;

    let page = service.get("/ops/view/stuck").await;
    assert_eq!(page.status, 200, "{}", page.text());
    for words in ["id=\"database-database\"", &format!("id=\"quarantined-{id}\""), "id=\"journal_hindered-journal\""] {
        assert!(page.text().contains(words), "{words}: {}", page.text());
    }
    assert_eq!(service.get("/ops/view/stuck?kind=in_review").await.status, 503);
    service.stop().await;
}
