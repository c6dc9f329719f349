//! The lists behind the numbers, the search, and the past of the figures.

use crate::prelude::*;

/// Ids of a list, read in pages of this size.
async fn paged(service: &ServiceFixture, path: &str, list: &str, limit: usize) -> Vec<String> {
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let mark = if path.contains('?') { '&' } else { '?' };
        let page = service.get(&format!("{path}{mark}limit={limit}{cursor}")).await.ok(200);
        ids.extend(column(&page[list], "id").iter().map(|id| id.as_str().unwrap().to_owned()));
        let Some(next) = page["next_cursor"].as_str() else { return ids };
        cursor = format!("&cursor={next}");
    }
}

#[tokio::test]
async fn payments_are_listed_by_each_filter() {
    let service = ServiceFixture::start_with_chains().await;
    let settled = service.app.paid("10", "settled").await;
    let mismatched = service.app.paid("4", "mismatched").await;
    let pending = service.app.add_payment().await;
    let all = [pending.id(), mismatched.id(), settled.id()].map(str::to_owned);
    for limit in [1, 2, 3, 50] {
        assert_eq!(paged(&service, "/ops/payments", "payments", limit).await, all, "newest first, {limit} at a time");
    }
    let psp = service.app.psp_id;
    for (filter, wanted) in [
        ("status=settled".to_owned(), vec![settled.id()]),
        ("label=UNDERPAID".to_owned(), vec![mismatched.id()]),
        ("chain=polygon".to_owned(), vec![]),
        (format!("psp_id={psp}&status=pending"), vec![pending.id()]),
        (format!("psp_id={}", PspId::generate()), vec![]),
        (
            format!("merchant_id={}", pending["merchant_id"].as_str().unwrap()),
            vec![pending.id(), mismatched.id(), settled.id()],
        ),
        ("from=2100-01-01".to_owned(), vec![]),
        ("to=2000-01-01".to_owned(), vec![]),
        ("from=2000-01-01&to=2100-01-01&status=settled".to_owned(), vec![settled.id()]),
    ] {
        assert_eq!(paged(&service, &format!("/ops/payments?{filter}"), "payments", 50).await, wanted, "{filter}");
        let page = service.get(&format!("/ops/view/payments?{filter}")).await.ok(200);
        for id in &all {
            assert_eq!(page.text().contains(&format!("id=\"{id}\"")), wanted.contains(&id.as_str()), "{filter} {id}");
        }
    }
    let line = service.get("/ops/payments?status=mismatched").await["payments"][0].clone();
    assert_has(
        &line,
        json!({ "payment_id": mismatched.id(), "status": "mismatched", "labels": ["UNDERPAID"],
        "amount": "10.00", "amount_received": "4.00", "currency": "USDC", "chain": "base" }),
    );
    assert_eq!(
        service.get("/ops/payments?status=paid&limit=0").await.faults(),
        "status: unknown_value, limit: out_of_range"
    );
    assert_eq!(service.get("/ops/view/payments?status=paid").await.status, 404);
    // The numbers of the overview lead there.
    service.get("/ops").await.assert_shows(&["/ops/view/payments?status=settled&amp;chain=base"]);
}

#[tokio::test]
async fn deliveries_and_operations_are_listed() {
    let service = ServiceFixture::start_with_chains().await;
    let (first, second) = (service.app.paid("10", "settled").await, service.app.paid("10", "settled").await);
    let operations = paged(&service, "/ops/operations", "operations", 1).await;
    assert_eq!(operations.len(), 2);
    assert_eq!(paged(&service, "/ops/operations?chain=base&status=succeeded", "operations", 50).await, operations);
    assert_eq!(paged(&service, "/ops/operations?status=failed", "operations", 50).await, Vec::<String>::new());
    let newest = service.get("/ops/operations?limit=1").await["operations"][0].clone();
    assert_has(
        &newest,
        json!({ "kind": "settle", "payment_id": second.id(), "amount": "10.00", "status": "succeeded" }),
    );
    let page = service.get("/ops/view/operations?status=succeeded").await.ok(200);
    page.assert_shows(&[first.id(), second.id()]);

    let deliveries = paged(&service, "/ops/deliveries", "deliveries", 3).await;
    assert_eq!(deliveries.len(), 8, "two events of each kind for each payment");
    let psp = format!("/ops/deliveries?status=queued&psp_id={}", service.app.psp_id);
    assert_eq!(paged(&service, &psp, "deliveries", 50).await.len(), 8);
    assert_eq!(paged(&service, "/ops/deliveries?status=delivered", "deliveries", 50).await, Vec::<String>::new());
    let newest = service.get("/ops/deliveries?limit=1").await["deliveries"][0].clone();
    assert_has(
        &newest,
        json!({ "event": "payin.settled", "subject": second.id(), "status": "queued", "attempt_count": 0 }),
    );
    service.get("/ops/view/deliveries?status=queued").await.ok(200).assert_shows(&["payin.settled", first.id()]);
}

#[tokio::test]
async fn search_finds_everything_that_has_an_id_a_hash_an_address_or_a_reference() {
    let service = ServiceFixture::start_with_chains().await;
    let payment = service.app.paid("10", "settled").await;
    let read = service.app.get(&payment.path()).await;
    let record = service.get(&format!("/ops/actors/{}", payment.id())).await;
    let hit = async |text: &str| {
        let found = service.get(&format!("/ops/search?q={}", text.replace(' ', "+"))).await.ok(200);
        let hits = found["hits"].as_array().unwrap();
        hits.iter()
            .map(|hit| (hit["kind"].as_str().unwrap().to_owned(), hit["id"].as_str().unwrap().to_owned()))
            .collect::<Vec<_>>()
    };
    let it = vec![("payment".to_owned(), payment.id().to_owned())];
    let (transfer, operation) = (&read["transfers"][0], &record["operations"][0]);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    for wanted in [
        payment.id().to_owned(),
        payment.id()[4..].to_owned(),
        payment.id()[4..].to_lowercase(),
        text(&transfer["tx_hash"]),
        text(&transfer["from"]),
        text(&read["intermediary_wallet"]),
        text(&read["intermediary_wallet"]).to_lowercase(),
        text(&operation["id"]),
        text(&operation["transaction"]["tx_hash"]),
        text(&record["deliveries"][0]["delivery_id"]),
        text(&record["deliveries"][0]["event_id"]),
    ] {
        assert_eq!(hit(&wanted).await, it, "{wanted}");
    }
    // Live, with a reference; and objects of other kinds.
    let merchant = payment["merchant_id"].as_str().unwrap();
    let asked =
        json!({ "merchant_id": merchant, "amount": "10", "currency": "USDC", "chain": "base", "reference": "order 7" });
    let live = service.app.post("/payments/initiate", &asked).await.ok(201);
    let wallet = text(&live["intermediary_wallet"]);
    for wanted in ["order 7", &wallet] {
        assert_eq!(hit(wanted).await, [("payment".to_owned(), live.id().to_owned())], "{wanted}");
    }
    assert_eq!(hit(merchant).await, [("merchant".to_owned(), merchant.to_owned())]);
    let psp = service.app.psp_id.to_string();
    assert_eq!(hit(&psp).await, [("psp".to_owned(), psp.clone())]);
    for nothing in ["", "pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3", "0x00", "order 8", "%", "' OR 1=1"] {
        assert_eq!(hit(nothing).await, [], "{nothing}");
    }
    // A single result is shown at once.
    let found = service.get(&format!("/ops/view/search?q={}", payment.id())).await;
    assert_eq!(
        (found.status.as_u16(), found.header("location")),
        (303, Some(&*format!("/ops/view/payments/{}", payment.id())))
    );
    service.get("/ops/view/search?q=nothing+at+all").await.ok(200).assert_shows(&["Nothing was found."]);
    let earlier = service.get(&format!("/ops/view/payments?id={}", payment.id())).await;
    assert_eq!(earlier.header("location"), Some(&*format!("/ops/view/search?q={}", payment.id())));
}

#[tokio::test]
async fn figures_have_a_past_and_a_plot() {
    let service = ServiceFixture::start_with_chains().await;
    service.app.paid("10", "settled").await;
    for _ in 0..3 {
        service.operator.sample().await;
    }
    let names = service.get("/ops/history").await["figures"].clone();
    for name in [
        "payments/live",
        "mailboxes",
        "journal/writes_per_second",
        "chain/base/lag_blocks",
        "kind/payment/mailbox",
        "actor/watcher/base/messages_per_second",
        "webhooks/waiting",
    ] {
        assert!(names.as_array().unwrap().contains(&json!(name)), "{name} in {names:#}");
    }
    let live = service.get("/ops/history?figure=payments/live").await.ok(200);
    let hour = live["hour"].as_array().unwrap();
    assert!(
        hour.len() >= 3 && hour.iter().all(|point| point["value"].is_number() && point["at"].is_string()),
        "{hour:?}"
    );
    assert_eq!(service.get("/ops/history?figure=unknown").await.ok(404)["code"], "figure_not_found");
    service.get("/ops").await.assert_shows(&["<polyline", "/ops/view/history?figure=mailboxes"]);
    service.get("/ops/view/actors/root/root").await.assert_shows(&["<polyline"]);
    service
        .get("/ops/view/history?figure=chain%2Fbase%2Flag_blocks")
        .await
        .ok(200)
        .assert_shows(&["Last 48 hours", "<polyline"]);
    assert_eq!(service.get("/ops/view/history?figure=unknown").await.status, 404);
}
