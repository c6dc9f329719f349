//! Pages of the dashboard: content, search, filters, pages of lists, and other accounts.

use std::num::NonZeroU32;

use payferry_harness::receiver::Receiver;
use payferry_httpkit::Limits;

use super::{SignedIn, location};
use crate::prelude::*;

/// Ids of the listed payments, in order.
fn listed(page: &Reply) -> Vec<&str> {
    let rows = page.text().split("<tr id=\"").skip(1);
    rows.filter_map(|row| row.split('"').next()).filter(|id| id.starts_with("pay_")).collect()
}

#[tokio::test]
async fn payments_are_searched_filtered_and_paged() {
    let app = TestApp::start_with_chains().await;
    let signed_in = SignedIn::with(&app, &app.key).await;
    let open = async |path: &str| signed_in.open(&format!("/dashboard/payments{path}")).await;
    open("").await.ok(200).assert_shows(&["No payments."]);
    let first = app.initiate(&json!({ "reference": "INV & 1", "metadata": { "note": "<i>" } })).await.ok(201);
    let second = app.initiate(&json!({ "currency": "USDT", "chain": "polygon" })).await.ok(201);
    app.request(Method::POST, &format!("{}/cancel", second.path())).send().await.ok(200);
    app.pay(&first, "10").await;
    let settled = app.payment_when(&first, "settled").await;
    let hash = settled["transfers"][0]["tx_hash"].as_str().unwrap();

    assert_eq!(listed(&open("").await.ok(200)), [second.id(), first.id()], "newest first");
    for (filter, found) in [
        ("status=settled", [first.id()].as_slice()),
        ("status=failed&currency=USDT", &[second.id()]),
        ("chain=base", &[first.id()]),
        ("chain=arbitrum", &[]),
        ("reference=INV+%26+1", &[first.id()]),
        ("created_from=2020-01-01", &[second.id(), first.id()]),
        ("created_to=2020-01-01", &[]),
        ("updated_from=2020-01-01&status=", &[second.id(), first.id()]),
        (&format!("tx_hash={hash}"), &[first.id()]),
        (&format!("wallet={}", second.wallet()), &[second.id()]),
        (&format!("merchant_id={}", settled.string("merchant_id")), &[second.id(), first.id()]),
        ("label=LATE", &[]),
    ] {
        let page = open(&format!("?{filter}")).await.ok(200);
        assert_eq!(listed(&page), found, "{filter}");
    }
    let page = open(&format!("?merchant_id={}", settled.string("merchant_id"))).await;
    page.assert_shows(&["Of the merchant <strong>Shop</strong>"]);
    let refused = open("?status=lost&created_from=soon").await.ok(400);
    refused.assert_shows(&["`status`", "`created_from`", "value=\"soon\""]);

    for (text, target) in [
        (first.id().to_owned(), format!("/dashboard/payments/{}", first.id())),
        ("INV & 1".to_owned(), "/dashboard/payments?reference=INV+%26+1".to_owned()),
        ("shop".to_owned(), format!("/dashboard/payments?merchant_id={}", settled.string("merchant_id"))),
        ("unknown".to_owned(), "/dashboard/payments?reference=unknown".to_owned()),
        (hash.to_owned(), format!("/dashboard/payments?tx_hash={hash}")),
        (second.wallet().to_owned(), format!("/dashboard/payments?wallet={}", second.wallet())),
        ("merch_1".to_owned(), "/dashboard/payments?merchant_id=merch_1".to_owned()),
        ("cr_1".to_owned(), "/dashboard/payments?customer_id=cr_1".to_owned()),
    ] {
        let query = url::form_urlencoded::Serializer::new(String::new()).append_pair("q", &text).finish();
        assert_eq!(location(&open(&format!("?{query}")).await), (303, target.as_str()), "{text}");
    }

    let page = signed_in.open(&format!("/dashboard/payments/{}", first.id())).await.ok(200);
    let shown =
        ["settled", "INV &amp; 1", "&lt;i&gt;", "9.90", "0.10", hash, first.wallet(), "initiated", "payment.settled"];
    page.assert_shows(&shown);
    page.assert_hides(&["<i>"]);
    let overview = signed_in.open("/dashboard").await.ok(200);
    assert_eq!(listed(&overview), [second.id(), first.id()]);
    overview.assert_shows(&["id=\"count-settled\"", "9.90"]);

    // Another account sees nothing of them.
    let stranger = SignedIn::with(&app, &app.stranger().await).await;
    let nothing = stranger.open("/dashboard/payments").await.ok(200);
    assert_eq!(listed(&nothing), [""; 0]);
    stranger.open(&format!("/dashboard/payments/{}", first.id())).await.ok(404).assert_hides(&["INV", first.wallet()]);
    assert_eq!(listed(&stranger.open(&format!("/dashboard/payments?tx_hash={hash}")).await.ok(200)), [""; 0]);
    stranger.open("/dashboard").await.ok(200).assert_hides(&[first.id(), "9.90"]);

    for _ in 0..50 {
        app.add_payment().await;
    }
    let page = open("?currency=USDC").await.ok(200);
    assert_eq!(listed(&page).len(), 50);
    let next =
        page.text().split("rel=\"next\" href=\"").nth(1).unwrap().split('"').next().unwrap().replace("&amp;", "&");
    assert!(next.starts_with("/dashboard/payments?currency=USDC&cursor="), "{next}");
    let last = signed_in.open(&next).await.ok(200);
    assert_eq!(listed(&last), [first.id()]);
    last.assert_shows(&["rel=\"first\" href=\"/dashboard/payments?currency=USDC\""]);
    last.assert_hides(&["rel=\"next\""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_are_shown_and_sent_again() {
    let app = TestApp::start_with_chains().await;
    let signed_in = SignedIn::with(&app, &app.key).await;
    let receiver = Receiver::start().await;
    let set = app.patch("/api/v1/set_webhook", &json!({ "webhook_url": receiver.url() })).await.ok(200);
    receiver.verify_with(set.string("signing_secret"));
    let payment = app.paid("10", "settled").await;
    let log = format!("{}/webhooks", payment.path());
    let is_done = |log: &Reply| {
        let deliveries = log["deliveries"].as_array().unwrap();
        deliveries.len() == 4 && deliveries.iter().all(|one| one["delivery_status"] == "delivered")
    };
    let delivered = app.get_until(&log, is_done).await;
    let delivery = delivered["deliveries"][0]["id"].as_str().unwrap();
    let here = format!("/dashboard/payments/{}", payment.id());
    let page = signed_in.open(&here).await.ok(200);
    page.assert_shows(&["payment.confirmed", "1 attempt", "payin.settled", &format!("id=\"{delivery}\""), "Redeliver"]);
    let redeliver = format!("/dashboard/deliveries/{}/{delivery}/redeliver", payment.id());
    page.assert_shows(&[&format!("action=\"{redeliver}\"")]);

    let sent = signed_in.confirm(&redeliver, &[]).await;
    assert_eq!(location(&sent), (303, format!("{here}?done=redelivered#{delivery}").as_str()));
    signed_in.open(&format!("{here}?done=redelivered")).await.assert_shows(&["The delivery is queued again"]);
    let twice =
        |log: &Reply| log["deliveries"][0]["attempt_count"] == 2 || log["deliveries"][0]["attempts"][1].is_object();
    app.get_until(&log, twice).await;

    // Neither another account nor a key without the scope can send it.
    let stranger = SignedIn::with(&app, &app.stranger().await).await;
    stranger.confirm(&redeliver, &[]).await.ok(404).assert_shows(&["Nothing was changed"]);
    let reader = SignedIn::with(&app, &app.add_key(app.psp_id, &[Scope::Read]).await).await;
    reader.open(&here).await.ok(200).assert_hides(&["Redeliver"]);
    reader.confirm(&redeliver, &[]).await.ok(403).assert_shows(&["lacks the scope `webhooks`"]);
    signed_in.confirm(&redeliver.replace(delivery, "whd_x"), &[]).await.ok(404);

    // Undelivered events are on the overview and with the endpoints.
    app.patch("/api/v1/set_webhook", &json!({ "webhook_url": "http://127.0.0.1:9/gone" })).await.ok(200);
    let other = app.paid("10", "settled").await;
    let waiting =
        |list: &Reply| list["deliveries"].as_array().unwrap().iter().any(|one| one["delivery_status"] == "failed");
    app.get_until("/api/v1/webhook/undelivered", waiting).await;
    for page in ["/dashboard", "/dashboard/webhooks"] {
        signed_in
            .open(page)
            .await
            .ok(200)
            .assert_shows(&["Undelivered webhooks", &format!("/dashboard/payments/{}#whd_", other.id())]);
    }
}

#[tokio::test]
async fn limits_and_outages_are_shown_as_pages() {
    let few = |number| NonZeroU32::new(number).unwrap();
    let limits = Some(Limits { key: Some((few(1), few(3))), ..Limits::sandbox() });
    let app = TestApp::start_with(TestConfig { limits, ..TestConfig::default() }).await;
    let signed_in = SignedIn::with(&app, &app.key).await;
    let refused = signed_in.open("/dashboard/balances").await.ok(429);
    refused.assert_shows(&["Too many requests", "Try again in"]);
    assert!(refused.header("retry-after").is_some());

    let app = TestApp::start().await;
    let signed_in = SignedIn::with(&app, &app.key).await;
    app.state.database().clone().close().await.unwrap();
    let away = signed_in.open("/dashboard/payments").await.ok(503);
    away.assert_shows(&["Not available", "The database does not answer at the moment; try again."]);
    assert_eq!(away.header("retry-after"), Some("2"));
    super::sign_in(&app, &unknown_key(), "").await.ok(503).assert_shows(&["The database does not answer"]);
}
