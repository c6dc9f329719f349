//! The operator's view during a database outage, when it is needed most.

use payferry_domain::PaymentId;
use serde_json::{Value, json};

use super::Desk;

/// Creates a quarantined payment and closes the database.
async fn cut_off() -> (Desk, String) {
    let desk = Desk::start_with_chains().await;
    let merchant = desk.app.add_merchant().await;
    let made = desk.app.add_payment(&merchant).await;
    let id: PaymentId = made.json["payment_id"].as_str().unwrap().parse().unwrap();
    for _ in 0..4 {
        desk.panic(id).await;
    }
    desk.app.state.system.database().clone().close().await.unwrap();
    (desk, id.to_string())
}

#[tokio::test]
async fn overview_during_an_outage_shows_what_is_in_memory() {
    let (desk, id) = cut_off().await;
    let overview = desk.get("/ops/overview").await;
    assert_eq!(overview.status, 200, "{}", overview.text());
    let told = &overview.json;
    assert_eq!((&told["readiness"]["ready"], &told["readiness"]["database"]["reads"]), (&json!(false), &json!(false)));
    assert_eq!((&told["webhooks"], &told["quarantined"][0]["id"]), (&Value::Null, &json!(id)));
    assert_eq!((&told["incidents"][0]["name"], &told["tree"]["root"]["state"]), (&json!(id), &json!("running")));
    let chains = told["chains"].as_array().unwrap();
    assert!(chains.len() == 3 && chains.iter().all(|chain| chain["head_number"].is_u64()), "{told:#}");
    for status in ["queued", "submitted", "mined"] {
        let known = chains.iter().filter(|chain| chain["settler"].as_object().unwrap()[status] != Value::Null);
        assert_eq!(known.count(), 0, "{told:#}");
    }

    let page = desk.get("/ops").await;
    assert_eq!(page.status, 200, "{}", page.text());
    for words in ["The database does not answer.", "id=\"node-root-root\"", "id=\"chain-base\"", "Backlog unknown"] {
        assert!(page.text().contains(words), "{words}: {}", page.text());
    }
    assert!(page.text().contains(&format!("id=\"quarantined-{id}\"")), "{}", page.text());
    let chain = desk.get("/ops/view/chains/base").await;
    assert!(chain.status == 200 && chain.text().contains("Read up to"), "{}", chain.text());
    desk.stop().await;
}

#[tokio::test]
async fn outage_is_listed_and_hides_nothing_that_is_in_memory() {
    let (desk, id) = cut_off().await;
    let stuck = desk.get("/ops/stuck").await;
    assert_eq!(stuck.status, 200, "{}", stuck.text());
    let kinds = stuck.json["kinds"].as_array().unwrap();
    assert_eq!(kinds[0]["kind"], "database", "{kinds:#?}");
    let unread = stuck.json["unread"].as_array().unwrap();
    for kind in ["in_review", "sending_overdue", "operation_overdue", "check_overdue", "webhooks_delayed"] {
        assert!(unread.contains(&json!(kind)), "{kind} in {unread:?}");
        assert!(kinds[0]["items"][0]["reason"].as_str().unwrap().contains(kind), "{kinds:#?}");
        let alone = desk.get(&format!("/ops/stuck?kind={kind}")).await;
        assert_eq!(alone.status, 503, "the state is unknown: {}", alone.text());
    }
    assert!(!unread.contains(&json!("quarantined")) && !unread.contains(&json!("chain")), "{unread:?}");
    let quarantined = kinds.iter().find(|kind| kind["kind"] == "quarantined").unwrap();
    assert_eq!(quarantined["items"][0]["id"], id, "{kinds:#?}");
    assert_eq!(
        stuck.json["total"]["counted"],
        kinds.iter().filter_map(|kind| kind["total"]["counted"].as_u64()).sum::<u64>()
    );
    assert_eq!(desk.get("/ops/stuck?kind=quarantined").await.json["kinds"][0]["items"][0]["id"], id);
    assert_eq!(desk.get("/ops/stuck?kind=database").await.json["kinds"][0]["items"][0]["id"], "database");
    // The pending write is known too: its advice applies to exactly this case.
    let hindered = async |desk: &Desk| {
        let kinds = desk.get("/ops/stuck").await.json["kinds"].clone();
        kinds.as_array().unwrap().iter().any(|kind| kind["kind"] == "journal_hindered").then_some(())
    };
    desk.until("the journal is hindered", hindered).await;

    let page = desk.get("/ops/view/stuck").await;
    assert_eq!(page.status, 200, "{}", page.text());
    for words in ["id=\"database-database\"", &format!("id=\"quarantined-{id}\""), "id=\"journal_hindered-journal\""] {
        assert!(page.text().contains(words), "{words}: {}", page.text());
    }
    assert_eq!(desk.get("/ops/view/stuck?kind=in_review").await.status, 503);
    desk.stop().await;
}
