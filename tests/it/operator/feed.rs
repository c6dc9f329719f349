//! The attention feed: alarms that no label shows, acknowledgements, causes before symptoms, and the number of entries.

use std::collections::BTreeMap;

use payferry_devchain::Dropped;
use payferry_domain::Amount;
use payferry_harness::endpoint::{Fault, What};

use crate::operator::attention::until_stuck;
use crate::prelude::*;

/// Number of entries by kind, from the metric.
async fn exported(service: &ServiceFixture) -> BTreeMap<String, u64> {
    let metrics = service.get("/metrics").await;
    let lines = metrics.text().lines().filter_map(|line| line.strip_prefix("payferry_attention{kind=\""));
    let pair = |line: &str| {
        let (kind, number) = line.split_once("\"} ").unwrap();
        (kind.to_owned(), number.parse().unwrap())
    };
    lines.map(pair).filter(|(_, number)| *number > 0).collect()
}

/// A confirmed payment of 10 USDC on Base whose money the chain has dropped.
async fn orphaned(service: &ServiceFixture) -> Reply {
    let payment = service.app.add_payment().await;
    service.hold("settlement:base").await;
    service.app.pay(&payment, "10").await;
    let confirmed = service.app.payment_when(&payment, "confirmed").await;
    let chain = service.app.env().chain(Chain::Base).devchain();
    let block = confirmed["transfers"][0]["block_number"].as_u64().unwrap();
    chain.reorg_from(block, Dropped::Discard).await.unwrap();
    service.app.payment_when(&payment, "pending").await
}

#[tokio::test]
async fn orphaned_money_is_listed_until_the_payment_is_confirmed_again() {
    let service = ServiceFixture::start_with_chains().await;
    let payment = orphaned(&service).await;
    let item = until_stuck(&service, "received_money_orphaned", true).await;
    assert_has(
        &item,
        json!({ "payment_id": payment.id(), "psp_id": service.app.psp_id.to_string(), "money": "10.00 USDC",
        "chain": "base" }),
    );
    assert!(item["reason"].as_str().unwrap().starts_with("transaction 0x") && item["since"].is_string(), "{item:#}");
    let kind = service.stuck("kind=received_money_orphaned").await;
    let runbook = kind["runbook"].as_str().unwrap();
    assert_eq!(runbook, "/ops/view/runbooks/chains#money-or-settlement-orphaned");
    let (path, heading) = runbook.split_once('#').unwrap();
    service.get(path).await.ok(200).assert_shows(&[&format!("id=\"{heading}\"")]);
    service.get("/ops/view/stuck").await.assert_shows(&["Received money orphaned", "10.00 USDC", runbook]);

    // The payer pays again.
    service.app.pay(&payment, "10").await;
    service.app.payment_when(&payment, "confirmed").await;
    until_stuck(&service, "received_money_orphaned", false).await;
}

#[tokio::test]
async fn orphaned_settlement_and_its_money_are_listed() {
    let service = ServiceFixture::start_with_chains().await;
    let settled = service.app.paid("10", "settled").await;
    service.hold("settlement:base").await;
    let chain = service.app.env().chain(Chain::Base).devchain();
    let paid_in = service.app.get(&settled.path()).await["transfers"][0]["block_number"].as_u64().unwrap();
    chain.reorg_from(paid_in, Dropped::Discard).await.unwrap();
    let item = until_stuck(&service, "settlement_orphaned", true).await;
    assert_has(&item, json!({ "payment_id": settled.id(), "money": "10.00 USDC" }));
    assert!(service.lift("settlement:base").await);
    // The settled payment has lost its money, too.
    let drawn = until_stuck(&service, "received_money_orphaned", true).await;
    assert_eq!(drawn["payment_id"], settled.id());
}

#[tokio::test]
async fn overdrawn_payment_is_listed() {
    let service = ServiceFixture::start_with_chains().await;
    let payment = service.app.paid("4", "mismatched").await;
    let paid_in = service.app.get(&payment.path()).await["transfers"][0]["block_number"].as_u64().unwrap();
    let refunds = format!("{}/refunds", payment.path());
    let asked = json!({ "amount": "4", "address": format!("0x{}", "ad".repeat(20)) });
    assert_eq!(service.app.post(&refunds, &asked).await.status, 202);
    service.app.get_until(&refunds, |reply| reply["refunds"][0]["status"] == "sent").await;
    service.hold("sending:base").await;
    let chain = service.app.env().chain(Chain::Base).devchain();
    chain.reorg_from(paid_in, Dropped::Discard).await.unwrap();
    let item = until_stuck(&service, "overdrawn", true).await;
    assert_has(
        &item,
        json!({ "payment_id": payment.id(), "money": "4.00 USDC", "reason": "refunds exceed the received amount" }),
    );
}

#[tokio::test]
async fn named_operator_acknowledges_an_entry_with_a_reason() {
    let _metrics = payferry::telemetry::metrics();
    let service = ServiceFixture::start_with_chains().await;
    let payment = orphaned(&service).await;
    let item = until_stuck(&service, "received_money_orphaned", true).await;
    assert_eq!(exported(&service).await.get("received_money_orphaned"), Some(&1));
    let entry =
        json!({ "kind": "received_money_orphaned", "item": item["item"], "reason": "The PSP delivered nothing." });
    let acknowledged = service.post("/ops/stuck/acknowledge", &entry).await.ok(200);
    assert_has(&acknowledged, json!({ "kind": "received_money_orphaned", "acknowledged": true, "changed": true }));
    assert_eq!(service.stuck("kind=received_money_orphaned").await, Value::Null);
    let stuck = service.get("/ops/stuck").await;
    assert_has(
        &stuck["acknowledged"][0],
        json!({ "kind": "received_money_orphaned", "item": item["item"],
        "operator": "admin", "reason": "The PSP delivered nothing." }),
    );
    let page = service.get("/ops/view/stuck").await;
    page.assert_shows(&["Acknowledged", "The PSP delivered nothing.", payment.id()]);
    let audit = service.get("/ops/audit?action=attention.acknowledged").await;
    assert_eq!(audit["entries"][0]["detail"]["reason"], "The PSP delivered nothing.");

    // The page's form, and the end of the acknowledgement.
    let fields = [("kind", "received_money_orphaned"), ("item", item["item"].as_str().unwrap())];
    let signed = [&fields[..], &super::SIGNED].concat();
    assert_eq!(service.form("/ops/view/stuck/reopen", &signed).await.status, 303);
    assert_eq!(service.stuck("kind=received_money_orphaned").await["total"]["counted"], 1);
    let refused = service.form("/ops/view/stuck/acknowledge", &fields).await;
    assert_eq!(refused.status, 422);
    refused.assert_shows(&["Nothing was changed: ", "reason"]);
    assert_eq!(service.form("/ops/view/stuck/acknowledge", &signed).await.status, 303);
    let reopen = json!({ "kind": "received_money_orphaned", "item": item["item"] });
    assert_eq!(service.post("/ops/stuck/reopen", &reopen).await["changed"], true);
    assert_eq!(service.post("/ops/stuck/reopen", &reopen).await["changed"], false);
}

#[tokio::test]
async fn every_kind_of_entry_can_be_acknowledged_or_says_why_not() {
    let service = ServiceFixture::start_with_chains().await;
    let (overdue, other) = (service.app.add_payment().await, service.app.add_payment().await);
    service.execute(&["UPDATE payments SET expires_at = 1".to_owned()]).await;
    service.hold("chain:base").await;
    for kind in ["overdue", "paused"] {
        let item = until_stuck(&service, kind, true).await;
        let entry = json!({ "kind": kind, "item": item["item"], "reason": "known" });
        service.post("/ops/stuck/acknowledge", &entry).await.ok(200);
    }
    let rest = service.stuck("kind=overdue").await;
    let ids = [overdue.id(), other.id()];
    assert!(rest["total"]["counted"] == 1 && ids.contains(&rest["items"][0]["id"].as_str().unwrap()), "{rest:#}");
    assert_eq!(service.stuck("kind=paused").await, Value::Null);
    // A new pause is another entry.
    assert!(service.lift("chain:base").await);
    service.hold("chain:base").await;
    assert_eq!(service.stuck("kind=paused").await["total"]["counted"], 1);

    let approval = json!({ "kind": "approval_open", "item": "1.apr_1", "reason": "known" });
    let refused = service.post("/ops/stuck/acknowledge", &approval).await;
    assert_eq!(refused.ok(409)["code"], "not_acknowledgeable");
    let bad = service.post("/ops/stuck/acknowledge", &json!({ "kind": "everything", "item": "x" })).await;
    assert_eq!(bad.faults(), "kind: unknown_value, item: invalid_cursor, reason: required");
}

#[tokio::test]
async fn number_of_entries_is_in_the_navigation_the_title_and_the_metric() {
    let _metrics = payferry::telemetry::metrics();
    let service = ServiceFixture::start_with_chains().await;
    let page = service.get("/ops/view/psps").await;
    assert!(page.text().contains("<title>PSPs · Payferry</title>"), "{}", page.text());
    service.quarantine(service.app.add_payment().await.id().parse::<PaymentId>().unwrap()).await;
    service.hold("chain:base").await;
    let page = service.get_until("/ops/view/psps", |page| page.text().contains("<title>(2) PSPs")).await;
    page.assert_shows(&["id=\"attention\">2</span>"]);
    assert_eq!(page.header("x-attention"), Some("2"));
    assert_eq!(exported(&service).await, BTreeMap::from([("paused".to_owned(), 1), ("quarantined".to_owned(), 1)]));
}

#[tokio::test]
async fn endpoint_behind_the_others_is_listed_with_its_lag() {
    let config = TestConfig { chains: true, agree_from: Some(Amount::from_tokens(10)), ..TestConfig::default() };
    let service = ServiceFixture::over(TestApp::start_with(config).await).await;
    let first = &service.app.endpoints[0];
    first.show([Fault::of(What::Closed)]);
    let item = until_stuck(&service, "endpoint", true).await;
    assert_eq!((item["id"].as_str(), item["chain"].as_str()), (Some("base endpoint 0"), Some("base")), "{item:#}");
    first.behave();
    until_stuck(&service, "endpoint", false).await;
}

#[tokio::test]
async fn unavailable_database_is_one_entry() {
    let service = ServiceFixture::start_with_chains().await;
    service.app.state.system.database().clone().close().await.unwrap();
    // The watchers and settlers fail soon, too.
    let is_degraded = |overview: &Reply| {
        let chains = overview["chains"].as_array().unwrap();
        chains.iter().all(|chain| chain["trouble"].is_string())
    };
    service.get_until("/ops/overview", is_degraded).await;
    let stuck = service.get("/ops/stuck").await;
    let kinds: Vec<_> =
        column(&stuck["kinds"], "kind").into_iter().map(|kind| kind.as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["database"], "{:#}", stuck.json);
    service.get("/ops/view/stuck").await.ok(200).assert_shows(&["database-database"]);
}

#[tokio::test]
async fn payment_is_replayed_version_by_version() {
    let service = ServiceFixture::start_with_chains().await;
    let payment = service.app.paid("10", "settled").await;
    let replay = service.get(&format!("/ops/payments/{}/replay", payment.id())).await.ok(200);
    let steps = replay["steps"].as_array().unwrap();
    assert_has(&steps[0], json!({ "version": 1, "command": null, "differs": false, "events/0/type": "initiated" }));
    let commands: Vec<_> = steps[1..].iter().map(|step| step["command"].as_str().unwrap()).collect();
    assert!(
        ["observe_transfer", "finalise_transfers", "complete_settlement"].iter().all(|name| commands.contains(name))
    );
    let last = steps.last().unwrap();
    assert_has(
        last,
        json!({ "state/status": "settled", "announcements": ["payment.settled", "payin.settled"],
        "postings/0/kind": "settled", "differs": false }),
    );
    assert!(last["decided_us"].is_u64() && !replay.text().contains("link_token"), "{last:#}");

    let page = format!("/ops/view/payments/{}/replay", payment.id());
    service.get(&page).await.ok(200).assert_shows(&[
        "settlement completed",
        "Announced",
        "payment.settled",
        "rel=\"prev\"",
    ]);
    let first = service.get(&format!("{page}?version=1")).await.ok(200);
    first.assert_shows(&["request of the PSP", "rel=\"next\"", "await deadline"]);
    assert!(!first.text().contains("link_token"));
    assert_eq!(service.get(&format!("{page}?version=99")).await.status, 404);
    service.get(&format!("/ops/view/payments/{}", payment.id())).await.assert_shows(&["/replay\">Replay<"]);
    let unknown = service.get("/ops/payments/pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3/replay").await;
    assert_eq!(unknown.ok(404)["code"], "payment_not_found");
}
