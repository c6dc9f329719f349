//! `/ops/actors`, `/ops/overview` and `/ops/shards`.

use payferry_domain::PaymentId;
use payferry_harness::database::Trouble;
use payferry_harness::receiver::Receiver;
use payferry_runtime::observe::ActorKind;
use serde_json::{Value, json};

use super::ServiceFixture;
use super::stuck::hold;
use crate::app::{Reply, TestApp};

fn id_of(payment: &Reply) -> PaymentId {
    payment.json["payment_id"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn payment_is_shown_completely() {
    let service = ServiceFixture::start_with_chains().await;
    let merchant = service.app.add_merchant().await;
    let body = json!({ "merchant_id": merchant, "amount": "10", "currency": "USDC", "chain": "base", "reference": "R-1",
        "metadata": { "buyer": "Jane Roe" } });
    let made = service.app.post("/payments/initiate", &body).await;
    let path = format!("/ops/actors/{}", id_of(&made));
    let shown = service.get(&path).await;
    insta::assert_json_snapshot!("payment_pending", shown.redacted());
    let link = made.json["magic_link"].as_str().unwrap().rsplit('/').next().unwrap();
    assert!(!shown.text().contains(link) && !shown.text().contains("Jane Roe"), "{}", shown.text());

    let receiver = Receiver::start().await;
    let hook = json!({ "webhook_url": receiver.url() });
    let set = service.app.request(reqwest::Method::PATCH, "/api/v1/set_webhook").json(&hook).send().await;
    receiver.verify_with(set.json["signing_secret"].as_str().unwrap());
    service.app.pay(&made, "10").await;
    service.app.payment_when(&made, "settled").await;
    let is_delivered = |reply: &Reply| {
        let deliveries = reply.json["deliveries"].as_array().unwrap();
        deliveries.len() == 4 && deliveries.iter().all(|delivery| delivery["status"] == "delivered")
    };
    let gone = async |service: &ServiceFixture| {
        let reply = service.get(&path).await;
        (reply.json["actor"].is_null() && is_delivered(&reply)).then_some(reply)
    };
    let shown = service.until("the actor has left and all events are delivered", gone).await.json;
    assert_eq!((&shown["status"], &shown["live"]), (&json!("settled"), &json!(false)));
    assert!(shown["owes"].as_array().unwrap().iter().all(|owed| owed["effect"] != "settle"), "{shown:#}");
    let history: Vec<_> = shown["history"].as_array().unwrap().iter().map(|entry| &entry["status"]).collect();
    assert_eq!(history, ["pending", "confirmed", "settled"]);
    let versions: Vec<_> = shown["transitions"].as_array().unwrap().iter().map(|one| &one["version"]).collect();
    assert_eq!(json!(versions), json!((1..=shown["version"].as_u64().unwrap()).collect::<Vec<_>>()));
    let events: Vec<_> =
        shown["transitions"].as_array().unwrap().iter().flat_map(|one| one["events"].as_array().unwrap()).collect();
    for wanted in ["initiated", "transfer_recorded", "transfer_screened", "confirmed", "settled"] {
        assert!(events.iter().any(|event| event["type"] == wanted), "{wanted} in {events:#?}");
    }
    let transfer = &shown["transfers"][0];
    assert_eq!(
        (&transfer["status"], &transfer["counted"], &transfer["amount"]),
        (&json!("final"), &json!(true), &json!("10.00"))
    );
    assert_eq!(transfer["revision"], transfer["row_revision"]);
    let operation = &shown["operations"][0];
    assert_eq!((&operation["status"], &operation["kind"]), (&json!("succeeded"), &json!("settle")));
    assert_eq!(operation["transaction"]["signed"][0]["tx_hash"], shown["settlement"]["tx_hash"]);
    let deliveries = shown["deliveries"].as_array().unwrap();
    let announced: Vec<_> = deliveries.iter().map(|delivery| &delivery["event"]).collect();
    assert_eq!(announced, ["payment.confirmed", "payin.confirmed", "payment.settled", "payin.settled"]);
    for delivery in deliveries {
        let attempts = delivery["attempts"].as_array().unwrap();
        assert_eq!(delivery["attempt_count"], attempts.len(), "{delivery:#}");
        let last = attempts.last().unwrap();
        assert_eq!((&last["response_code"], &last["error"]), (&json!(200), &Value::Null), "{delivery:#}");
        assert_eq!((&last["url"], &last["number"]), (&json!(receiver.url()), &json!(attempts.len())), "{delivery:#}");
    }
    service.stop().await;
}

#[tokio::test]
async fn unknown_and_malformed_ids_are_distinguished() {
    let service = ServiceFixture::start().await;
    service.get("/ops/actors/pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3").await.assert_problem(404, "payment_not_found");
    let malformed = service.get("/ops/actors/pay_1").await;
    malformed.assert_problem(400, "invalid_parameters");
    assert_eq!(malformed.faults(), ["payment_id: invalid_id"]);
    service.get("/ops/shards/99").await.assert_problem(404, "shard_not_found");
    let asked = service.get("/ops/shards/0?limit=0&after=pay_1").await;
    assert_eq!(asked.faults(), ["after: invalid_id", "limit: out_of_range"]);
    service.stop().await;
}

#[tokio::test]
async fn repeatedly_failing_payment_is_quarantined_and_released() {
    let service = ServiceFixture::start_with_chains().await;
    let merchant = service.app.add_merchant().await;
    let made = service.app.add_payment(&merchant).await;
    let (id, path) = (id_of(&made), format!("/ops/actors/{}", id_of(&made)));
    for _ in 0..4 {
        service.panic(id).await;
    }
    let shown = service.get(&path).await.json;
    assert_eq!((&shown["actor"]["state"], &shown["actor"]["restarts"]), (&json!("quarantined"), &json!(3)));
    assert_eq!(shown["incidents"].as_array().unwrap().len(), 4);
    assert_eq!(shown["incidents"][0]["action"], "quarantined");
    let stuck = service.get("/ops/stuck?kind=quarantined").await.json;
    assert_eq!(stuck["kinds"][0]["items"][0]["payment_id"], id.to_string(), "{stuck:#}");

    let tree = service.get("/ops/actors").await.json;
    assert_eq!((&tree["payments_quarantined"], &tree["sendings_quarantined"]), (&json!(1), &json!(0)));
    assert_eq!((&tree["quarantined"][0]["id"], &tree["incidents"][0]["action"]), (&json!(id), &json!("quarantined")));
    let overview = service.get("/ops/overview").await.json;
    assert_eq!((&overview["payments_quarantined"], &overview["quarantined"][0]["id"]), (&json!(1), &json!(id)));
    assert_eq!(overview["incidents_kept"], 4, "{overview:#}");
    let page = async || service.get("/ops").await.text().to_owned();
    let shown = page().await;
    assert!(shown.contains(">1 quarantined<") && shown.contains("1 payment is quarantined"), "{shown}");
    // The payment is live and has no actor, and it counts among all payments.
    assert!(shown.contains("<small>1 quarantined, of 1</small>"), "{shown}");

    let release = format!("{path}/release");
    assert_eq!(service.post(&release, &Value::Null).await.status, 200);
    // The tree shows the current state, not totals since the start.
    let released = page().await;
    assert!(!released.contains(">1 quarantined<"), "{released}");
    service.post(&release, &Value::Null).await.assert_problem(409, "payment_not_quarantined");
    // The page's button also works: each release is recorded, and a late one has no effect.
    let button = format!("/ops/view/payments/{id}/release");
    for _ in 0..4 {
        service.panic(id).await;
    }
    for _ in 0..2 {
        assert_eq!(service.post(&button, &Value::Null).await.status, 303);
    }
    let audit = service.get(&format!("/ops/audit?subject={id}")).await.json;
    let entries = audit["entries"].as_array().unwrap();
    let done: Vec<_> = entries.iter().map(|entry| [&entry["action"], &entry["actor_kind"], &entry["psp_id"]]).collect();
    let psp_id = json!(service.app.psp_id.to_string());
    assert_eq!(done, [[&json!("payment.released"), &json!("operator"), &psp_id]; 2]);
    service.app.pay(&made, "10").await;
    service.app.payment_when(&made, "settled").await;
    service.stop().await;
}

/// Every node of the tree, with all its descendants.
fn nodes(node: &Value) -> Vec<&Value> {
    let children = node["children"].as_array().unwrap();
    std::iter::once(node).chain(children.iter().flat_map(nodes)).collect()
}

#[tokio::test]
async fn every_actor_has_a_page_with_metrics_and_last_failure() {
    let service = ServiceFixture::start_with_chains().await;
    let system = &service.app.state.system;
    system.inject_crash(ActorKind::Watcher);
    system.inject_crash(ActorKind::Auditor);
    let tree = async |service: &ServiceFixture| {
        let tree = service.get("/ops/actors").await.json["tree"]["root"].clone();
        let is_so = |node: &Value| {
            let is_hit = node["kind"] == "watcher" || node["kind"] == "auditor";
            node["state"] == "running" && node["last_failure"].is_null() != is_hit
        };
        nodes(&tree).into_iter().all(is_so).then_some(tree)
    };
    let tree = service.until("they run again", tree).await;
    let overview = service.get("/ops").await.text().to_owned();
    for node in nodes(&tree) {
        let (kind, name) = (node["kind"].as_str().unwrap(), node["name"].as_str().unwrap());
        let page = service.get(&format!("/ops/view/actors/{kind}/{}", name.replace(' ', "_"))).await;
        let text = page.text();
        assert!(page.status == 200 && text.contains("Mailbox") && text.contains("Restarts"), "{kind} {name}: {text}");
        assert_eq!(text.contains("Last failure"), !node["last_failure"].is_null(), "{kind} {name}: {text}");
        assert_eq!(text.contains("killed"), !node["last_failure"].is_null(), "{kind} {name}: {text}");
        // The overview links to that page, or to one with the same information.
        let row = overview.split(&format!("id=\"node-{kind}-{name}\"")).nth(1).unwrap();
        let href = row.split("href=\"").nth(1).unwrap().split('"').next().unwrap();
        let shown = service.get(href).await;
        assert!(shown.status == 200 && shown.text().contains("Mailbox"), "{kind} {name} at {href}: {}", shown.text());
        // The page of a chain shows the failures of both its actors.
        let is_told = node["last_failure"].is_null() || shown.text().contains("Last failure");
        assert!(is_told, "{kind} {name} at {href}: {}", shown.text());
    }
    assert_eq!(service.get("/ops/view/actors/watcher/mars").await.status, 404);
    assert_eq!(service.get("/ops/view/actors/mars/base").await.status, 404);

    hold(&service, "settlement:base").await;
    let chain = service.get("/ops/view/chains/base").await;
    assert!(chain.text().contains("Paused") && chain.text().contains("new settlements"), "{}", chain.text());
    service.stop().await;
}

#[tokio::test]
async fn release_requires_an_audit_entry() {
    let service = ServiceFixture::start_with_chains().await;
    let merchant = service.app.add_merchant().await;
    let id = id_of(&service.app.add_payment(&merchant).await);
    for _ in 0..4 {
        service.panic(id).await;
    }
    let release = format!("/ops/actors/{id}/release");
    let away = Trouble::table_away(service.app.database.url(), "audit_log").await;
    assert!(service.post(&release, &Value::Null).await.status.is_server_error());
    assert!(service.post(&format!("/ops/view/payments/{id}/release"), &Value::Null).await.status.is_server_error());
    assert_eq!(service.get(&format!("/ops/actors/{id}")).await.json["actor"]["state"], "quarantined");
    away.end().await;
    assert_eq!(service.post(&release, &Value::Null).await.status, 200);
    service.stop().await;
}

#[tokio::test]
async fn tree_and_shards_are_shown() {
    let app = TestApp::start_with_chains().await;
    let service = ServiceFixture::over(app).await;
    let merchant = service.app.add_merchant().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(id_of(&service.app.add_payment(&merchant).await).to_string());
    }
    ids.sort();
    let tree = service.get("/ops/actors").await.json;
    let kinds: Vec<_> = tree["tree"]["root"]["children"].as_array().unwrap().iter().map(|node| &node["kind"]).collect();
    for wanted in ["journal", "webhook_sender", "screening", "shard"] {
        assert!(kinds.contains(&&json!(wanted)), "{wanted} in {kinds:?}");
    }
    let payments = tree["kinds"].as_array().unwrap().iter().find(|kind| kind["kind"] == "payment").unwrap();
    assert_eq!(payments["live"], 3, "{payments:#}");
    let first = service.get("/ops/shards/0?limit=2").await.json;
    let rest =
        service.get(&format!("/ops/shards/0?limit=2&after={}", first["next_after"].as_str().unwrap())).await.json;
    let listed = [&first, &rest]
        .into_iter()
        .flat_map(|page| page["payments"].as_array().unwrap().iter().map(|line| &line["id"]));
    assert_eq!(json!(listed.collect::<Vec<_>>()), json!(ids));
    assert!(rest["next_after"].is_null());

    let overview = service.get("/ops/overview").await.json;
    assert_eq!(overview["readiness"]["ready"], true, "{overview:#}");
    assert_eq!(overview["chains"].as_array().unwrap().len(), 3);
    let base = &overview["chains"][0];
    assert_eq!(
        (&base["chain"], &base["state"], &base["settler"]["trouble"]),
        (&json!("base"), &json!("ok"), &Value::Null)
    );
    let pending = overview["payments"].as_array().unwrap();
    let pending = pending.iter().find(|line| line["status"] == "pending" && line["chain"] == "base").unwrap();
    assert_eq!((&pending["count"], &pending["live"]), (&json!(3), &json!(3)));
    assert!(overview["journal"]["groups"].as_u64().unwrap() >= 3);
    service.stop().await;
}
