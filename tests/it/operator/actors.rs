//! `/ops/actors`, `/ops/overview` and `/ops/shards`.

use payferry_entities::{Database, incidents};
use payferry_harness::database::DatabaseFault;
use payferry_harness::receiver::Receiver;
use payferry_runtime::observe::ActorKind;

use crate::prelude::*;
use crate::process::{Home, Running};

fn id_of(payment: &Reply) -> PaymentId {
    payment.id().parse().unwrap()
}

shared!(#[tokio::test] views, service = ServiceFixture::start_with_chains().await, service.app.renew_psp() =>
    tree_and_shards_are_shown, payment_is_shown_completely);

async fn payment_is_shown_completely(service: &ServiceFixture) {
    let made = service.app.initiate(&json!({ "reference": "R-1", "metadata": { "buyer": "Jane Roe" } })).await;
    let path = format!("/ops/actors/{}", id_of(&made));
    let shown = service.get(&path).await;
    insta::assert_json_snapshot!("payment_pending", shown.redacted());
    let link = made["magic_link"].as_str().unwrap().rsplit('/').next().unwrap();
    shown.assert_hides(&[link, "Jane Roe"]);
    for replay in ["/ops/payments", "/ops/view/payments"].map(|pages| format!("{pages}/{}/replay", made.id())) {
        service.get(&replay).await.ok(200).assert_hides(&[link, "Jane Roe"]);
    }

    let receiver = Receiver::start().await;
    let hook = json!({ "webhook_url": receiver.url() });
    let set = service.app.patch("/api/v1/set_webhook", &hook).await;
    receiver.verify_with(set["signing_secret"].as_str().unwrap());
    service.app.pay(&made, "10").await;
    service.app.payment_when(&made, "settled").await;
    let is_delivered = |reply: &Reply| {
        let deliveries = reply["deliveries"].as_array().unwrap();
        deliveries.len() == 4 && deliveries.iter().all(|delivery| delivery["status"] == "delivered")
    };
    let shown = service.get_until(&path, |reply| reply["actor"].is_null() && is_delivered(reply)).await.json;
    assert_has(&shown, json!({ "status": "settled", "live": false }));
    assert!(shown["owes"].as_array().unwrap().iter().all(|owed| owed["effect"] != "settle"), "{shown:#}");
    let history = column(&shown["history"], "status");
    assert_eq!(history, ["pending", "confirmed", "settled"]);
    let versions = column(&shown["transitions"], "version");
    assert_eq!(json!(versions), json!((1..=shown["version"].as_u64().unwrap()).collect::<Vec<_>>()));
    let events: Vec<_> =
        shown["transitions"].as_array().unwrap().iter().flat_map(|one| one["events"].as_array().unwrap()).collect();
    for wanted in ["initiated", "transfer_recorded", "transfer_screened", "confirmed", "settled"] {
        assert!(events.iter().any(|event| event["type"] == wanted), "{wanted} in {events:#?}");
    }
    let transfer = &shown["transfers"][0];
    let expected = json!({ "status": "final", "counted": true, "amount": "10.00",
        "revision": transfer["row_revision"] });
    assert_has(transfer, expected);
    let operation = &shown["operations"][0];
    let expected = json!({ "status": "succeeded", "kind": "settle",
        "transaction/signed/0/tx_hash": shown["settlement"]["tx_hash"] });
    assert_has(operation, expected);
    let deliveries = shown["deliveries"].as_array().unwrap();
    let announced = ["payment.confirmed", "payin.confirmed", "payment.settled", "payin.settled"];
    assert_eq!(column(&shown["deliveries"], "event"), announced);
    for delivery in deliveries {
        let attempts = delivery["attempts"].as_array().unwrap();
        assert_eq!(delivery["attempt_count"], attempts.len(), "{delivery:#}");
        let last = json!({ "response_code": 200, "error": null, "url": receiver.url(), "number": attempts.len() });
        assert_has(attempts.last().unwrap(), last);
    }
}

#[tokio::test]
async fn repeatedly_failing_payment_is_quarantined_and_released() {
    let service = ServiceFixture::start_with_chains().await;
    let made = service.app.add_payment().await;
    let (id, path) = (id_of(&made), format!("/ops/actors/{}", id_of(&made)));
    service.quarantine(id).await;
    let shown = service.get(&path).await.json;
    assert_has(&shown["actor"], json!({ "state": "quarantined", "restarts": 3 }));
    assert_eq!(shown["incidents"].as_array().unwrap().len(), 4);
    assert_eq!(shown["incidents"][0]["action"], "quarantined");
    let location = shown["incidents"][0]["location"].as_str().unwrap();
    assert!(location.contains("actors/src/aggregate/actor.rs:"), "{location}");
    let page = service.get(&format!("/ops/view/payments/{id}")).await.ok(200);
    page.assert_shows(&[location, "payferry_actors::aggregate::actor"]);
    let stuck = service.get("/ops/stuck?kind=quarantined").await.json;
    assert_eq!(stuck["kinds"][0]["items"][0]["payment_id"], id.to_string(), "{stuck:#}");

    let tree = service.get("/ops/actors").await.json;
    let expected = json!({ "payments_quarantined": 1, "sendings_quarantined": 0, "quarantined/0/id": id,
        "incidents/0/action": "quarantined" });
    assert_has(&tree, expected);
    let overview = service.get("/ops/overview").await.json;
    assert_has(&overview, json!({ "payments_quarantined": 1, "quarantined/0/id": id, "incidents_kept": 4 }));
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
    service.quarantine(id).await;
    for missing in [&[][..], &super::SIGNED[..1], &super::SIGNED[1..]] {
        service.form(&button, missing).await.ok(422).assert_shows(&["Nothing was changed"]);
    }
    assert_eq!(service.get(&path).await["actor"]["state"], "quarantined");
    let psp_id = service.app.psp_id.to_string();
    for _ in 0..2 {
        assert_eq!(service.form(&button, &super::SIGNED).await.status, 303);
    }
    let audit = service.get(&format!("/ops/audit?subject={id}")).await;
    for entry in audit["entries"].as_array().unwrap() {
        assert_has(entry, json!({ "action": "payment.released", "actor_kind": "operator", "psp_id": psp_id }));
    }
    assert_eq!(audit["entries"].as_array().unwrap().len(), 2);
    assert_eq!(audit["entries"][1]["detail"]["reason"], "ticket 17");
    service.app.pay(&made, "10").await;
    service.app.payment_when(&made, "settled").await;
    // A release requires an audit entry.
    let id = id_of(&service.app.add_payment().await);
    service.quarantine(id).await;
    let release = format!("/ops/actors/{id}/release");
    let away = DatabaseFault::table_away(service.app.database.url(), "audit_log").await;
    assert!(service.post(&release, &Value::Null).await.status.is_server_error());
    assert!(service.form(&format!("/ops/view/payments/{id}/release"), &super::SIGNED).await.status.is_server_error());
    assert_eq!(service.get(&format!("/ops/actors/{id}")).await["actor"]["state"], "quarantined");
    away.end().await;
    assert_eq!(service.post(&release, &Value::Null).await.status, 200);
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
    let tree = async || {
        let tree = service.get("/ops/actors").await["tree"]["root"].clone();
        let is_so = |node: &Value| {
            let is_hit = node["kind"] == "watcher" || node["kind"] == "auditor";
            node["state"] == "running" && node["last_failure"].is_null() != is_hit
        };
        nodes(&tree).into_iter().all(is_so).then_some(tree)
    };
    let tree = until("they run again", tree).await;
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

    service.hold("settlement:base").await;
    service.get("/ops/view/chains/base").await.assert_shows(&["Paused", "new settlements"]);
}

async fn tree_and_shards_are_shown(service: &ServiceFixture) {
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(id_of(&service.app.add_payment().await).to_string());
    }
    ids.sort();
    let tree = service.get("/ops/actors").await.json;
    let kinds = column(&tree["tree"]["root"]["children"], "kind");
    for wanted in ["journal", "webhook_sender", "screening", "shard"] {
        assert!(kinds.contains(&json!(wanted)), "{wanted} in {kinds:?}");
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
    assert_has(base, json!({ "chain": "base", "state": "ok", "settler/trouble": null }));
    let pending = overview["payments"].as_array().unwrap();
    let pending = pending.iter().find(|line| line["status"] == "pending" && line["chain"] == "base").unwrap();
    assert_has(pending, json!({ "count": 3, "live": 3 }));
    assert!(overview["journal"]["groups"].as_u64().unwrap() >= 3);
    // Unknown and malformed ids are distinguished.
    service.get("/ops/actors/pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3").await.assert_problem(404, "payment_not_found");
    let malformed = service.get("/ops/actors/pay_1").await;
    malformed.assert_problem(400, "invalid_parameters");
    assert_eq!(malformed.faults(), "payment_id: invalid_id");
    service.get("/ops/shards/99").await.assert_problem(404, "shard_not_found");
    let asked = service.get("/ops/shards/0?limit=0&after=pay_1").await;
    assert_eq!(asked.faults(), "after: invalid_id, limit: out_of_range");
}

#[tokio::test]
async fn messages_are_counted_by_name_and_by_sender() {
    let service = ServiceFixture::start_with_chains().await;
    service.app.paid("10", "settled").await;
    let graph = service.get("/ops/messages").await.ok(200);
    let count = |from: Option<&str>, to: &str| {
        let edges = graph["edges"].as_array().unwrap();
        let edge = edges.iter().find(|edge| edge["from"].as_str() == from && edge["to"] == to);
        edge.map_or(0, |edge| edge["messages"].as_u64().unwrap())
    };
    assert!(count(Some("watcher"), "payment") >= 1, "the transfer: {:#}", graph.json);
    assert!(count(Some("settler"), "payment") >= 1, "the settlement: {:#}", graph.json);
    assert!(count(Some("payment"), "screening") >= 1, "the screening: {:#}", graph.json);
    assert_eq!(count(Some("screening"), "watcher"), 0);
    service.get("/ops/view/messages").await.assert_shows(&["id=\"watcher-payment\"", "id=\"outside-settler\""]);
    // The settler has handled the settlement of the payment.
    let page = service.get("/ops/view/actors/settler/base").await.ok(200);
    page.assert_shows(&["id=\"messages\"", "id=\"last-messages\"", "id=\"message-flush\""]);
    // The actor of a payment that waits for the rest of its money has handled the transfer.
    let short = service.app.paid("4", "mismatched").await;
    let page = service.get(&format!("/ops/view/payments/{}", short.id())).await.ok(200);
    page.assert_shows(&["id=\"messages\"", "id=\"last-messages\"", "id=\"message-observe_transfer\""]);
}

#[tokio::test]
async fn actors_are_sorted_and_filtered() {
    let service = ServiceFixture::start_with_chains().await;
    let system = &service.app.state.system;
    system.inject_crash(ActorKind::Auditor);
    let rows = async |query: &str| {
        let page = service.get(&format!("/ops/view/actors?{query}")).await.ok(200).text().to_owned();
        let rows = page.split("id=\"actor-").skip(1).map(|row| row.split('"').next().unwrap().to_owned());
        rows.collect::<Vec<_>>()
    };
    until("the auditor was restarted", async || {
        rows("sort=restarts").await.first().is_some_and(|first| first.starts_with("auditor-")).then_some(())
    })
    .await;
    let mut all = rows("").await;
    let mut by_messages = rows("sort=messages").await;
    all.sort();
    by_messages.sort();
    assert_eq!(all, by_messages);
    assert!(all.len() > 10, "{all:?}");
    let watchers = rows("kind=watcher").await;
    assert_eq!(watchers.len(), 3, "{watchers:?}");
    assert!(watchers.iter().all(|row| row.starts_with("watcher-")));
    until("none is down", async || rows("state=down").await.is_empty().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn incidents_survive_a_kill() {
    let home = Home::new().await;
    let running = Running::start(&home);
    let payment = running.payment().await;
    running.ok(Method::POST, &format!("/sandbox/payments/{payment}/panic"), Some(json!({ "times": 1 }))).await;
    let log = async |running: &Running| {
        let (status, tree) = running.operator(Method::GET, "/ops/actors", None).await;
        assert_eq!(status, 200);
        let incidents = tree["incidents"].as_array().unwrap();
        incidents.iter().find(|incident| incident["name"] == payment.as_str()).cloned()
    };
    let before = until("the panic is logged", async || log(&running).await).await;
    let location = before["location"].as_str().unwrap();
    assert!(location.contains(".rs:"), "{before:#}");
    let database = Database::open(&home.database_url()).await.unwrap();
    until("it is stored", async || {
        let rows = incidents::Entity::find().all(database.reader()).await.unwrap();
        rows.iter().any(|row| row.name == payment).then_some(())
    })
    .await;
    drop(database);
    running.kill();
    let running = Running::start(&home);
    let after = log(&running).await.expect("the log begins with the stored incidents");
    for field in ["kind", "name", "cause", "reason", "location", "action", "at"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    running.stop();
}
